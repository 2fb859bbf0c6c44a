/* What the C files share of support queries; rows of a sweep are made of them, so the short ones are inline. */
#ifndef RPL_SUPPORT_H
#define RPL_SUPPORT_H

#include <assert.h>
#include <math.h>

#include "core.h"

/* Pivots of one query before it settles for the bound of the vertex it has reached (which is still a bound). */
#define MAX_PIVOTS 5000
/* A multiplier above -DUAL_TOLERANCE * max |y| counts as nonnegative; it is clipped, so this costs no soundness. */
#define DUAL_TOLERANCE 1e-12

#define INLINE static inline __attribute__((always_inline, unused))
/* What is worth a call: inlined into every loop over rows, it would make the compiler work for minutes. */
#define CALLED static __attribute__((noinline, unused))

/* The first where they are equal or one is not a number, as Python's. */
INLINE double larger(double a, double b) { return b > a ? b : a; }
INLINE double smaller(double a, double b) { return b < a ? b : a; }

/* start + a.b (n), in this order. */
INLINE double plus_dot(double start, int64_t n, const double *a, const double *b)
{
    for (int64_t j = 0; j < n; j++)
        start += a[j] * b[j];
    return start;
}

/* start - a.b (n), in this order. */
INLINE double less_dot(double start, int64_t n, const double *a, const double *b)
{
    return -plus_dot(-start, n, a, b);
}

INLINE void zero(int64_t count, double *array)
{
    for (int64_t i = 0; i < count; i++)
        array[i] = 0.0;
}

/* A number, and whose it is. */
typedef struct ranked {
    double key, place;
} ranked;

/* By key, then by place, in which they are on entry. */
void sort_ranked(int64_t count, ranked *items);

/* States between the stages of `fetch_ahead`. */
#define AHEAD 8

/* Asks for the memory that a loop over the states of `order` (count) will need after state i: of the farthest where their
 * rows begin, of nearer ones rewards and transitions, of the nearest both values (width and 1 each) of successors. A
 * processor foresees that where arrays are read as they lie, not in an order of their own. */
INLINE void fetch_ahead(int64_t i, int64_t count, const int64_t *order, const int64_t *first_row, int64_t rows,
                        const int64_t *row_ptr, const int32_t *successor, const int32_t *expression,
                        const double *reward, const double *values, int64_t width, const double *others)
{
    if (i + 4 * AHEAD >= count)
        return;
    __builtin_prefetch(first_row + order[i + 4 * AHEAD]);
    __builtin_prefetch(row_ptr + first_row[order[i + 3 * AHEAD]]);
    int64_t row = first_row[order[i + 2 * AHEAD]], t = row_ptr[row];
    __builtin_prefetch(reward + row);
    __builtin_prefetch(successor + t);
    __builtin_prefetch(expression + t);
    row = first_row[order[i + AHEAD]];
    rows = rows ? rows : first_row[order[i + AHEAD] + 1] - row;
    for (t = row_ptr[row]; t < row_ptr[row + rows] && t < row_ptr[row] + AHEAD; t++) {
        __builtin_prefetch(values + successor[t] * width);
        __builtin_prefetch(others + successor[t]);
    }
}

/* A lower bound of min c.x over the box [lower, upper]. */
INLINE double support_box(int64_t n, const double *lower, const double *upper, const double *direction)
{
    double total = 0.0, size = 0.0;
    for (int64_t j = 0; j < n; j++) {
        double c = direction[j];
        total += c >= 0.0 ? c * lower[j] : c * upper[j];
        size += fabs(c) * larger(fabs(lower[j]), fabs(upper[j]));
    }
    return total - (2.0 * n + 8.0) * UNIT_ROUNDOFF * size - 1e-300 * (size > 0.0);
}

/* |factor' direction| where squares underflow; `sizes` is at least as large. */
double small_norm(int64_t n, const double *factor, const double *direction, double sizes);

/* A certified lower bound of min c.x over {center + radius * factor z : |z| <= 1}: c.center - radius |factor' c|. */
INLINE double support_ellipsoid(int64_t n, const double *center, const double *factor, double radius,
                                const double *direction)
{
    double total = 0.0, size = 0.0, squares = 0.0, sizes = 0.0;
    for (int64_t j = 0; j < n; j++) {
        double term = direction[j] * center[j];
        total += term;
        size += fabs(term);
        double entry = 0.0;
        for (int64_t k = 0; k < n; k++) {
            term = factor[k * n + j] * direction[k];
            entry += term;
            sizes += fabs(term);
        }
        squares += entry * entry;
    }
    double norm = sqrt(squares);
    if (squares < SAFE_SQUARES && sizes > 0.0)
        norm = small_norm(n, factor, direction, sizes);
    total -= radius * norm;
    return total - (4.0 * n + 16.0) * UNIT_ROUNDOFF * (size + radius * sizes) - 1e-300;
}

/* A certified lower bound of min c.x over the polytope of a non-empty table, by walking its vertices from *vertex,
 * where the walk ends; -inf where it leaves the table. *slack: a bound on how far c.x at that vertex is above the
 * bound. There c.x = -y.b up to |c|.e, so it is the rounding and, once more, what the clipped multipliers and the
 * inverse's error took away. The hot spot of value iteration: one array, no calls. */
INLINE double walk_table(int64_t n, const double *table, const double *direction, int64_t *vertex, double *slack)
{
    const int64_t square = n * n, width = square + 4 * n;
    double bound = 0.0, size = 0.0, lost = 0.0;
    for (int pivots = 0; pivots < MAX_PIVOTS; pivots++) {
        const double *record = table + *vertex * width, *at = record + square;
        double lowest = 0.0, largest = 0.0;
        int64_t leaving = -1;
        bound = size = lost = 0.0;
        for (int64_t k = 0; k < n; k++) {
            double y = 0.0;
            for (int64_t j = 0; j < n; j++)
                y -= record[k * n + j] * direction[j];
            if (y >= 0.0) {
                double term = y * at[k];
                bound -= term;
                size += fabs(term);
                if (y > largest)
                    largest = y;
            } else {
                lost -= y * at[n + k];
                if (y < lowest) {
                    lowest = y;
                    leaving = k;
                }
            }
            lost += fabs(direction[k]) * at[2 * n + k];
        }
        if (lowest >= -DUAL_TOLERANCE * largest)
            break;
        int64_t following = (int64_t)at[3 * n + leaving];
        if (following < 0) {
            *slack = 0.0;
            return -INFINITY;
        }
        *vertex = following;
    }
    lost = (3.0 * n + 8.0) * UNIT_ROUNDOFF * size + (1.0 + 1e-9) * lost + 1e-300;
    *slack = 2.0 * lost;
    return bound - lost;
}

/* Continues a walk from a table vertex without the table (read-only): the bound where it ends. */
double plain_simplex(const polytope *data, const double *direction, int64_t vertex);

/* The Neumaier-Shcherbina bound of min c.x for multipliers y (n) of the rows in basis, those above 0. */
double safe_bound(int64_t n, const double *rows, const double *rhs, const double *lower, const double *upper,
                  const int32_t *basis, const double *direction, const double *y);

/* Inverts matrix (n, n), which is overwritten, into inverse *transposed*; false where it is singular. */
bool invert(int64_t n, double *matrix, double *inverse);

/* The same for the rows of a basis (n), as a matrix. */
bool invert_basis(int64_t n, const double *rows, const int32_t *basis, double *inverse);

/* y = -B^-T c; the index of the most negative one beyond tolerance, or -1 at an optimal vertex. */
int64_t multipliers(int64_t n, const double *inverse, const double *direction, double *y);

/* Stores a vertex: its basis, its point and the numbers that queries read; neighbours unknown. */
void write_record(const polytope *data, int64_t vertex, const int32_t *basis, const double *inverse,
                  const double *point);

/* A hash of the basis (n) with one slot left out (-1: none). */
INLINE uint64_t subset_key(int64_t n, const int32_t *basis, int64_t without)
{
    uint64_t key = UINT64_C(1469598103934665603);
    for (int64_t k = 0; k < n; k++)
        if (k != without) {
            key ^= (uint64_t)(int64_t)(basis[k] + 1);
            key *= UINT64_C(1099511628211);
            key ^= key >> 29;
        }
    return key;
}

#endif
