/* Support queries min c.x over a region: certified lower bounds, rounding subtracted.
 *
 * n        dimension of the polytope's coordinates
 * B        (n, n) rows of the constraints that are tight at a vertex ("basis"), B x = b there
 * G        (n, n) transposed inverse of B, as stored (only approximately an inverse)
 * y        (n) multipliers -G c of those rows; p = max(y, 0) and q = max(-y, 0) are their parts
 * X        (n) the reach max(|lo|, |hi|) of the outer box
 * u        2^-53, the unit roundoff
 *
 * For every x with A x <= b and lo <= x <= hi, and every p >= 0 (Neumaier and Shcherbina):
 *
 *     c.x = (c + A'p).x - p.(A x) >= -p.b - |c + A'p|.X
 *
 * At a vertex of the table c + B'p = (I - B'G) c + B'(rounding of y) + B'q, so with the numbers
 *
 *     e_i = sum_j X_j (|I - B'G|_ji + (2n + 8) u (1 + |B|'|G|)_ji),   mass_k = |b_k| + |B_k|.X
 *
 * computed once per vertex, min c.x >= -p.b - |c|.e - q.mass, less the rounding of this sum itself. That costs one
 * product with G per query. Hence neither the inverse of a basis nor the table need be accurate: they decide how
 * tight an answer is, never whether it is a bound. */
#include <stdlib.h>
#include <string.h>

#include "support.h"

/* The smallest rate of change along an edge that the ratio test divides by. */
#define PIVOT_TOLERANCE 1e-11
/* Up to this many are sorted by insertion. */
#define SHORT 16

static int compare(const void *first, const void *second)
{
    const ranked *a = first, *b = second;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

void sort_ranked(int64_t count, ranked *items)
{
    if (count > SHORT) {
        qsort(items, (size_t)count, sizeof *items, compare);
        return;
    }
    for (int64_t i = 1; i < count; i++) {
        ranked moved = items[i];
        int64_t j = i;
        for (; j > 0 && items[j - 1].key > moved.key; j--)
            items[j] = items[j - 1];
        items[j] = moved;
    }
}

/* ---------------------------------------------------------------------- boxes and ellipsoids */

void support_box_many(int64_t count, int64_t n, const double *lower, const double *upper, const double *directions,
                      double *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = support_box(n, lower, upper, directions + i * n);
}

double small_norm(int64_t n, const double *factor, const double *direction, double sizes)
{
    double squares = 0.0;
    for (int64_t j = 0; j < n; j++) {
        double entry = 0.0;
        for (int64_t k = 0; k < n; k++)
            entry += factor[k * n + j] * direction[k];
        entry /= sizes;
        squares += entry * entry;
    }
    return sizes * sqrt(squares);
}

void support_ellipsoid_many(int64_t count, int64_t n, const double *center, const double *factor, double radius,
                            const double *directions, double *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = support_ellipsoid(n, center, factor, radius, directions + i * n);
}

/* ---------------------------------------------------------------------- polytopes: bases */

double safe_bound(int64_t n, const double *rows, const double *rhs, const double *lower, const double *upper,
                  const int32_t *basis, const double *direction, const double *y)
{
    double residual[MAX_DIMENSION], total = 0.0, size = 0.0;
    for (int64_t j = 0; j < n; j++) {
        residual[j] = direction[j];
        size += fabs(direction[j]) * larger(fabs(lower[j]), fabs(upper[j]));
    }
    for (int64_t k = 0; k < n; k++) {
        if (!(y[k] > 0.0))
            continue;
        const double *row = rows + basis[k] * n;
        total -= y[k] * rhs[basis[k]];
        size += y[k] * fabs(rhs[basis[k]]);
        for (int64_t j = 0; j < n; j++) {
            residual[j] += y[k] * row[j];
            size += y[k] * fabs(row[j]) * larger(fabs(lower[j]), fabs(upper[j]));
        }
    }
    for (int64_t j = 0; j < n; j++)
        total += residual[j] >= 0.0 ? residual[j] * lower[j] : residual[j] * upper[j];
    return total - (4.0 * n + 16.0) * UNIT_ROUNDOFF * size - 1e-300;
}

static void swap(double *a, double *b)
{
    double kept = *a;
    *a = *b;
    *b = kept;
}

/* By elimination with row pivoting: rows of `matrix | identity` are eliminated, the identity side stored transposed. */
bool invert(int64_t n, double *matrix, double *inverse)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            inverse[i * n + j] = i == j ? 1.0 : 0.0;
    for (int64_t k = 0; k < n; k++) {
        int64_t p = k;
        for (int64_t i = k + 1; i < n; i++)
            if (fabs(matrix[i * n + k]) > fabs(matrix[p * n + k]))
                p = i;
        if (fabs(matrix[p * n + k]) < 1e-14)
            return false;
        if (p != k)
            for (int64_t j = 0; j < n; j++) {
                swap(&matrix[k * n + j], &matrix[p * n + j]);
                swap(&inverse[j * n + k], &inverse[j * n + p]);
            }
        double scale = 1.0 / matrix[k * n + k];
        for (int64_t j = 0; j < n; j++) {
            matrix[k * n + j] *= scale;
            inverse[j * n + k] *= scale;
        }
        for (int64_t i = 0; i < n; i++) {
            double factor = matrix[i * n + k];
            if (i == k || factor == 0.0)
                continue;
            for (int64_t j = 0; j < n; j++) {
                matrix[i * n + j] -= factor * matrix[k * n + j];
                inverse[j * n + i] -= factor * inverse[j * n + k];
            }
        }
    }
    return true;
}

bool invert_basis(int64_t n, const double *rows, const int32_t *basis, double *inverse)
{
    double matrix[MAX_DIMENSION * MAX_DIMENSION];
    for (int64_t k = 0; k < n; k++)
        memcpy(matrix + k * n, rows + basis[k] * n, (size_t)n * sizeof *matrix);
    return invert(n, matrix, inverse);
}

void write_record(const polytope *data, int64_t vertex, const int32_t *basis, const double *inverse,
                  const double *point)
{
    const int64_t n = data->n, square = n * n;
    const double unit = (2.0 * n + 8.0) * UNIT_ROUNDOFF;
    double *record = data->table + vertex * (square + 4 * n);
    for (int64_t i = 0; i < n; i++) {
        double total = 0.0;
        for (int64_t j = 0; j < n; j++) {
            double defect = i == j ? 1.0 : 0.0, size = 1.0;
            for (int64_t k = 0; k < n; k++) {
                double term = data->rows[basis[k] * n + j] * inverse[k * n + i];
                defect -= term;
                size += fabs(term);
            }
            total += data->reach[j] * (fabs(defect) + 2.0 * unit * size);
        }
        record[square + 2 * n + i] = total;
    }
    for (int64_t k = 0; k < n; k++) {
        data->basis[vertex * n + k] = basis[k];
        data->point[vertex * n + k] = point[k];
        for (int64_t j = 0; j < n; j++)
            record[k * n + j] = inverse[k * n + j];
        record[square + k] = data->rhs[basis[k]];
        record[square + n + k] = data->mass[basis[k]];
        record[square + 3 * n + k] = -1.0;
    }
}

int64_t multipliers(int64_t n, const double *inverse, const double *direction, double *y)
{
    int64_t worst = -1;
    double largest = 0.0;
    for (int64_t k = 0; k < n; k++) {
        y[k] = less_dot(0.0, n, inverse + k * n, direction);
        largest = larger(largest, fabs(y[k]));
    }
    double threshold = -DUAL_TOLERANCE * largest;
    for (int64_t k = 0; k < n; k++)
        if (y[k] < threshold) {
            threshold = y[k];
            worst = k;
        }
    return worst;
}

/* A vertex on its way along an edge: basis, transposed inverse, point. */
typedef struct corner {
    int32_t basis[MAX_DIMENSION];
    double inverse[MAX_DIMENSION * MAX_DIMENSION], point[MAX_DIMENSION];
} corner;

static void corner_of(const polytope *data, int64_t vertex, corner *at)
{
    const int64_t n = data->n;
    memcpy(at->basis, data->basis + vertex * n, n * sizeof *at->basis);
    memcpy(at->point, data->point + vertex * n, n * sizeof *at->point);
    memcpy(at->inverse, data->table + vertex * (n * n + 4 * n), n * n * sizeof *at->inverse);
}

/* Ratio test: the row that stops the walk along the edge that leaves basis[leaving]; -1 if none does. The inverse is
 * transposed, so its row `leaving` is the column of B^-1 along which that constraint changes. */
static int64_t entering_row(const polytope *data, const corner *at, int64_t leaving)
{
    const int64_t n = data->n;
    double best = INFINITY, best_rate = 0.0;
    int64_t entering = -1;
    for (int64_t i = 0; i < data->m; i++) {
        const double *row = data->rows + i * n;
        double rate = less_dot(0.0, n, row, at->inverse + leaving * n);
        if (rate <= PIVOT_TOLERANCE)
            continue;
        bool in_basis = false;
        for (int64_t k = 0; k < n; k++)
            in_basis = in_basis || at->basis[k] == i;
        if (in_basis)
            continue;
        double step = larger(less_dot(data->loose[i], n, row, at->point), 0.0) / rate;
        if (step < best || (step == best && rate > best_rate)) {
            best = step;
            best_rate = rate;
            entering = i;
        }
    }
    return entering;
}

/* Exchanges a row of the basis, keeps it sorted, refreshes inverse and point; false if the new basis is singular. */
static bool pivot(const polytope *data, corner *at, int64_t leaving, int64_t entering)
{
    const int64_t n = data->n;
    at->basis[leaving] = (int32_t)entering;
    for (int64_t k = 1; k < n; k++) {
        int32_t value = at->basis[k];
        int64_t i = k - 1;
        for (; i >= 0 && at->basis[i] > value; i--)
            at->basis[i + 1] = at->basis[i];
        at->basis[i + 1] = value;
    }
    if (!invert_basis(n, data->rows, at->basis, at->inverse))
        return false;
    for (int64_t j = 0; j < n; j++) {
        at->point[j] = 0.0;
        for (int64_t k = 0; k < n; k++)
            at->point[j] += at->inverse[k * n + j] * data->loose[at->basis[k]];
    }
    return true;
}

/* ---------------------------------------------------------------------- polytopes: queries */

double plain_simplex(const polytope *data, const double *direction, int64_t vertex)
{
    const int64_t n = data->n;
    corner at;
    double y[MAX_DIMENSION], best = support_box(n, data->lower, data->upper, direction);
    corner_of(data, vertex, &at);
    for (int pivots = 0; pivots < MAX_PIVOTS; pivots++) {
        int64_t leaving = multipliers(n, at.inverse, direction, y);
        best = larger(best, safe_bound(n, data->rows, data->rhs, data->lower, data->upper, at.basis, direction, y));
        if (leaving < 0)
            break;
        int64_t entering = entering_row(data, &at, leaving);
        if (entering < 0 || !pivot(data, &at, leaving, entering))
            break;
    }
    return best;
}

void support_polytope_many(const polytope *data, int64_t count, const double *directions, int64_t length,
                           int32_t *memory, double *out)
{
    const int64_t n = data->n;
    for (int64_t i = 0; i < count; i++) {
        const double *direction = directions + i * n;
        out[i] = support_box(n, data->lower, data->upper, direction);
        if (data->counts[0] == 0)
            continue;
        int64_t slot = i % length, vertex = memory[slot];
        double slack, bound = walk_table(n, data->table, direction, &vertex, &slack);
        memory[slot] = (int32_t)vertex;
        out[i] = larger(out[i], bound == -INFINITY ? plain_simplex(data, direction, vertex) : bound);
    }
}

/* ---------------------------------------------------------------------- polytopes: a table that grows */

/* The number of the vertex with this basis, added if new; -1 if the table is full. */
static int64_t insert_vertex(const polytope *data, const corner *at)
{
    const int64_t n = data->n, mask = data->slot_count - 1;
    int64_t slot = (int64_t)(subset_key(n, at->basis, -1) & (uint64_t)mask);
    for (; data->slots[slot] >= 0; slot = (slot + 1) & mask)
        if (memcmp(data->basis + data->slots[slot] * n, at->basis, n * sizeof *at->basis) == 0)
            return data->slots[slot];
    int64_t vertex = data->counts[0];
    if (vertex >= data->capacity)
        return -1;
    data->slots[slot] = (int32_t)vertex;
    data->counts[0] = vertex + 1;
    write_record(data, vertex, at->basis, at->inverse, at->point);
    return vertex;
}

bool first_vertex(const polytope *data, const int32_t *basis)
{
    corner at;
    assert(data->n <= MAX_DIMENSION);
    memcpy(at.basis, basis, data->n * sizeof *basis);
    return pivot(data, &at, 0, basis[0]) && insert_vertex(data, &at) == 0;
}

void grow_table(const polytope *data, int64_t count, const double *directions)
{
    const int64_t n = data->n, width = n * n + 4 * n, edges = n * n + 3 * n;
    double y[MAX_DIMENSION];
    corner at;
    int64_t vertex = 0;
    assert(n <= MAX_DIMENSION);
    for (int64_t i = 0; i < count; i++)
        for (int pivots = 0; pivots < MAX_PIVOTS; pivots++) {
            int64_t leaving = multipliers(n, data->table + vertex * width, directions + i * n, y);
            if (leaving < 0)
                break;
            int64_t following = (int64_t)data->table[vertex * width + edges + leaving];
            if (following < 0) {
                corner_of(data, vertex, &at);
                int64_t entering = entering_row(data, &at, leaving);
                if (entering < 0 || !pivot(data, &at, leaving, entering))
                    break;
                following = insert_vertex(data, &at);
                if (following < 0)
                    return;
                data->table[vertex * width + edges + leaving] = (double)following;
                for (int64_t k = 0; k < n; k++) /* the same edge walked back leaves the row that has just entered */
                    if (data->basis[following * n + k] == entering)
                        data->table[following * width + edges + k] = (double)vertex;
            }
            vertex = following;
        }
}

/* ---------------------------------------------------------------------- products z_k = z_i z_j of a lifting */

/* sign * z_k <= sign * (a z_j + b z_i - a b), where z_i touches a and z_j touches b. */
static void inequality(const int64_t *product, double a, double b, double sign, const double *lower,
                       const double *upper, double *row, double *rhs)
{
    const int64_t k = product[0], i = product[1], j = product[2];
    row[k] += sign;
    row[j] -= sign * a;
    row[i] -= sign * b;
    double reach = larger(larger(fabs(lower[i]), fabs(upper[i])), larger(fabs(lower[j]), fabs(upper[j])));
    *rhs = -sign * a * b + 4.0 * UNIT_ROUNDOFF * (fabs(a * b) + (fabs(a) + fabs(b)) * reach);
}

void mccormick(int64_t count, int64_t n, const int64_t *products, const double *lower, const double *upper,
               double *rows, double *rhs)
{
    for (int64_t m = 0; m < count; m++) {
        const int64_t *product = products + 3 * m, i = product[1], j = product[2];
        const double touching[4][3] = {{lower[i], lower[j], -1.0},
                                       {upper[i], upper[j], -1.0},
                                       {upper[i], lower[j], 1.0},
                                       {lower[i], upper[j], 1.0}};
        for (int c = 0; c < 4; c++, rows += n, rhs++)
            inequality(product, touching[c][0], touching[c][1], touching[c][2], lower, upper, rows, rhs);
        if (i == j) {
            double middle = 0.5 * (lower[i] + upper[i]);
            inequality(product, middle, middle, -1.0, lower, upper, rows, rhs);
            rows += n;
            rhs++;
        }
    }
}

void propagate_products(int64_t count, const int64_t *products, const int64_t *order, double *lower, double *upper)
{
    for (int64_t m = 0; m < count; m++) {
        const int64_t *product = products + 3 * order[m], k = product[0], i = product[1], j = product[2];
        double a = lower[i] * lower[j], b = lower[i] * upper[j], c = upper[i] * lower[j], d = upper[i] * upper[j];
        double low = smaller(smaller(smaller(a, b), c), d), high = larger(larger(larger(a, b), c), d);
        if (i == j)
            low = lower[i] <= 0.0 && 0.0 <= upper[i] ? 0.0 : smaller(a, d);
        lower[k] = larger(lower[k], nextafter(low, -INFINITY));
        upper[k] = smaller(upper[k], nextafter(high, INFINITY));
    }
}
