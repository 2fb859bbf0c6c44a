/* What nature may do in a row: `row_bound` is the only code that knows its set, and part of every sweep.
 *
 * It bounds the extremum over nature's set of sum_i p_i v_i from the side that is asked for: `upward` false gives a
 * number <= the exact extremum, true a number >= it, rounding included. Everything is computed as min v + sum_i p_i
 * (v_i - min v): terms of one sign, exact when all values agree, and the result is clipped to [min v, max v], which
 * is a true bound because rows are distributions. Maximisation is minimisation of -v.
 *
 * Values may be +inf. Nature minimising: inf if the hull forces mass there, else the minimum over distributions that
 * avoid it (bounded with the inf replaced by the largest finite value: exact for intervals, a lower bound for
 * regions). Nature maximising: inf if mass may go there.
 *
 * Rounding, with u = 2^-53. A sum of n terms of one sign has a relative error of at most (n + 3) u; the last
 * addition adds u |result|. Products may underflow: u FAINT covers that wherever mass lies above the smallest value,
 * so that no bound from above is 0 where the mean is not. Filling up intervals computes the remaining mass with an
 * absolute error of at most n u (none where the subtractions are exact), which lands on the successor where the mass
 * ran out. So rows that put all their mass on equal values are exact: end components and sinks keep their values to
 * the last bit. A row whose bounds miss a distribution by rounding leaves a little mass undecided: it goes to the
 * side that is being bounded. */
#ifndef RPL_ROWS_H
#define RPL_ROWS_H

#include <stddef.h>

#include "bend.h"

/* A possible transition of a row: sign * value of its successor, its bounds. */
typedef struct entry {
    double key, lower, upper;
    int64_t transition;
} entry;

/* The memory of one thread, a part of a `scratch`. */
typedef struct work {
    entry *entries; /* (longest row) */
    double *direction, *other, *third; /* (n); of a CURVED set the first two have n (n + 1) / 2 more */
} work;

INLINE work work_of(const scratch *all, int64_t thread)
{
    double *memory = all->memory + thread * (4 * all->longest + 3 * all->n), *more = memory + 4 * all->longest;
    return (work){(entry *)memory, more, more + all->n, more + 2 * all->n};
}

/* Bounds per expression, and what leads where. */
typedef struct interval_rows {
    const int32_t *successor, *expression;
    const double *lower, *upper;
} interval_rows;

INLINE interval_rows intervals_of(const row_arrays *model, const row_set *set)
{
    return (interval_rows){model->successor, model->expression, set->lower, set->upper};
}

/* Whether some of the bounds of a row sum to at least 1, exactly: which plays never end must not hang on rounding.
 * Digits of 32 bits, of which digit 36 counts ones; non-negative numbers are added without rounding. */
typedef struct exact_sum {
    uint64_t digit[40];
    bool large;
} exact_sum;

void add_exactly(exact_sum *sum, double term);
bool reaches_one(exact_sum *sum);

/* The possible transitions of a..b (upper bound above 0) into entries, by sign * min(value, cap); how many. */
int64_t sort_row(int64_t a, int64_t b, const double *values, double cap, double sign, const interval_rows *in,
                 entry *entries);

/* Whether the extremum of a row with infinite successors is inf: nature minimising if mass must go there, maximising
 * if it can. *cap: the largest finite value, by which others may be replaced where the extremum is finite; -inf:
 * none. */
bool largest_finite(int64_t a, int64_t b, const double *values, bool maximise, const interval_rows *in, double *cap);

/* Bound of the extremum of sum p_i min(values, cap) over intervals, for a row of three or more; inf as in
 * `largest_finite`, unless values above `cap` have been dealt with. */
double hull_bound(int64_t a, int64_t b, const double *values, double cap, bool maximise, bool upward,
                  const interval_rows *in, entry *entries);

/* The bound of a row with two successors of finite values x and y and bounds f, g, in closed form. The share of the
 * larger value carries a relative error only, so a share of 0 gives an exact result. */
INLINE double pair_bound(double x, double y, int32_t f, int32_t g, const double *lower, const double *upper,
                         bool maximise, bool upward)
{
    if (maximise) {
        x = -x;
        y = -y;
    }
    /* which one is larger is not foreseeable: numbers are selected, not branches */
    int32_t first = -(int32_t)(x < y), below = g ^ ((f ^ g) & first), above = f ^ ((f ^ g) & first);
    double low = x < y ? x : y, high = x >= y ? x : y, span = fabs(x - y);
    double lower_low = lower[below], upper_low = upper[below], lower_high = lower[above], upper_high = upper[above];
    /* the larger value gets as little as its own lower bound and the other's upper bound allow */
    double share = larger(lower_high, 1.0 - upper_low), most = smaller(upper_high, 1.0 - lower_low);
    double total = share * span, result = low + total, error = 0.0;
    if ((share > 0.0) & (span > 0.0)) {
        error = UNIT_ROUNDOFF * (8.0 * total + 2.0 * fabs(result) + FAINT);
        if (share > most) /* bounds that miss a distribution by rounding */
            error += (share - most) * span;
    }
    if (!(upper_low > 0.0) || (lower_high >= 1.0 && !(lower_low > 0.0))) { /* beside 1e-20, 1 is 1 - 1e-20, rounded */
        result = high;
        error = 0.0;
    }
    result = upward == maximise ? result - error : result + error;
    result = result > high ? high : result;
    result = result < low ? low : result;
    return maximise ? -result : result;
}

/* `row_bound` of an interval model. */
INLINE double interval_bound(int64_t a, int64_t b, const double *values, bool maximise, bool upward,
                             const interval_rows *in, entry *entries)
{
    double x = values[in->successor[a]];
    if (b - a == 1)
        return x;
    double y = values[in->successor[a + 1]];
    if (b - a == 2 && x < INFINITY && y < INFINITY)
        return pair_bound(x, y, in->expression[a], in->expression[a + 1], in->lower, in->upper, maximise, upward);
    return hull_bound(a, b, values, INFINITY, maximise, upward, in, entries);
}

/* low + total, the mean of n values from low to high, bounded from a side. */
INLINE double point_mean(int64_t n, double low, double high, double total, bool maximise, bool upward)
{
    double result = low + total;
    double error = UNIT_ROUNDOFF * ((2.0 * n + 12.0) * total + 2.0 * fabs(result) + FAINT);
    /* bounding max v from above is bounding min -v from below */
    return upward != maximise ? smaller(result + error, high) : smaller(larger(result - error, low), high);
}

/* `row_bound` of a known MDP: inf where an infinite value has probability. */
INLINE double point_bound(int64_t a, int64_t b, const double *values, bool maximise, bool upward,
                          const interval_rows *in)
{
    const double *p = in->lower, sign = maximise ? -1.0 : 1.0;
    double low = INFINITY, high = -INFINITY;
    bool infinite = false;
    if (b - a == 1)
        return values[in->successor[a]];
    if (b - a == 2) {
        int32_t f = in->expression[a], g = in->expression[a + 1];
        double x = values[in->successor[a]], y = values[in->successor[a + 1]];
        if (p[f] > 0.0 && p[g] > 0.0 && x != y && fabs(x) < INFINITY && fabs(y) < INFINITY)
            return pair_bound(x, y, f, g, p, p, maximise, upward);
    }
    for (int64_t t = a; t < b; t++)
        if (p[in->expression[t]] > 0.0) {
            double x = sign * values[in->successor[t]];
            infinite = infinite || fabs(x) == INFINITY;
            low = x < low ? x : low;
            high = x > high ? x : high;
        }
    if (infinite)
        return INFINITY;
    if (!(low < high))
        return sign * low;
    double total = 0.0;
    for (int64_t t = a; t < b; t++)
        if (p[in->expression[t]] > 0.0)
            total += p[in->expression[t]] * (sign * values[in->successor[t]] - low);
    return sign * point_mean(b - a, low, high, total, maximise, upward);
}

/* What a query over a region is made of: the smallest and the largest value low, high = low + span of successors that
 * can have probability, and sums over d_i = v_i - low: of constants (less errors), sizes and roundings. */
typedef struct row_sums {
    double low, high, span, offset, size, rest;
} row_sums;

/* The sums of the transitions a..b, of which sign * min(values, cap) counts; direction (n) = sum_i d_i weights_i, and
 * behind it, of a CURVED set, M = sum_i d_i M_i and the corners. */
INLINE row_sums sums_of_row(int kind, int64_t a, int64_t b, const double *values, double cap, double sign,
                            const interval_rows *in, const row_set *set, double *direction)
{
    const int64_t n = set->n;
    const int64_t bends = kind == CURVED ? triangle(n) : 0, corners = kind == CURVED ? set->bend->corners : 0;
    double low = INFINITY, *M = direction + n, *sums = M + bends;
    for (int64_t t = a; t < b; t++) {
        double x = values[in->successor[t]];
        x = sign * (x > cap ? cap : x);
        if (x < low && in->upper[in->expression[t]] > 0.0)
            low = x;
    }
    for (int64_t j = 0; j < n + bends + corners; j++)
        direction[j] = 0.0;
    row_sums found = {low, low, 0.0, 0.0, 0.0, 0.0};
    for (int64_t t = a; t < b; t++) {
        int64_t f = in->expression[t];
        double x = values[in->successor[t]];
        x = sign * (x > cap ? cap : x);
        double d = x - low;
        if (!(d > 0.0 && in->upper[f] > 0.0))
            continue;
        found.offset += set->constant[f] * d;
        found.size += set->mass[f] * d;
        if (x > found.high) {
            found.high = x;
            found.span = d;
        }
        for (int64_t j = 0; j < n; j++)
            direction[j] += set->weights[f * n + j] * d;
        for (int64_t j = 0; j < bends; j++)
            M[j] += set->bend->M[f * bends + j] * d;
        for (int64_t j = 0; j < corners; j++)
            sums[j] += set->bend->B[f * corners + j] * d;
        if (kind == CURVED) {
            found.offset -= set->bend->error[f] * d;
            found.rest += corners > 0 ? set->bend->rest[f] * d : 0.0;
        }
    }
    return found;
}

/* A lower bound of direction.x over the region; *gap: how far above the minimum it may lie. */
INLINE double support_of_row(int kind, const row_set *set, const double *direction, int64_t *vertex, double *gap)
{
    double support = -INFINITY;
    if (kind != ELLIPSOID && (kind != CURVED || set->polytope)) {
        const polytope *data = set->polytope;
        if (data->capacity == 0)
            support = support_box(set->n, data->lower, data->upper, direction);
        else {
            support = walk_table(set->n, data->table, direction, vertex, gap);
            if (support == -INFINITY)
                support = plain_simplex(data, direction, *vertex);
        }
    }
    if (kind == ELLIPSOID || (kind != POLYTOPE && set->center))
        support = larger(support, support_ellipsoid(set->n, set->center, set->factor, set->radius, direction));
    return support;
}

/* Bound of the extremum of sum_i p_i min(v_i, cap) over a region, for the three or more transitions a..b.
 *
 * Computed as low + min over x of sum_i f_i(x) (v_i - low) over the successors that can have probability: terms of one
 * sign, exact when all values agree. Rounding adds at most (4 n + 16) u (sum_i mass_i (v_i - low) + span)
 * + 2 u (|low| + |result|). Unless the region is a polytope alone, the interval hull may tell more and is asked too. */
CALLED double query(int kind, int64_t a, int64_t b, const double *values, double cap, bool maximise, bool upward,
                    const interval_rows *in, const row_set *set, const work *memory, int64_t *vertex, double *width)
{
    const double sign = maximise ? -1.0 : 1.0;
    double *direction = memory->direction, *M = direction + set->n, gap = 0.0;
    row_sums of = sums_of_row(kind, a, b, values, cap, sign, in, set, direction);
    *width = 0.0;
    if (of.span == 0.0)
        return sign * of.low;
    if (kind == CURVED)
        of.offset += turned(set->n, set->bend, M, direction, memory->other, memory->third);
    double mean = of.offset + support_of_row(kind, set, direction, vertex, &gap);
    if (kind == CURVED && set->bend->corners > 0) {
        const double *sums = M + triangle(set->n);
        double least = sums[0];
        for (int64_t j = 1; j < set->bend->corners; j++)
            least = smaller(least, sums[j]);
        mean = larger(mean, least - of.rest);
    }
    double result = of.low + mean;
    *width = INFINITY;
    if (!(fabs(result) < INFINITY)) /* overflow on the way: what is left is that a mean lies between its terms */
        return sign * (upward == maximise ? of.low : of.high);
    double error = (4.0 * (b - a) + 16.0) * UNIT_ROUNDOFF * (of.size + of.span)
                   + 2.0 * UNIT_ROUNDOFF * (fabs(of.low) + fabs(result));
    error += 2e-300; /* underflow, here and in the support */
    gap += set->tightness * of.span;
    /* bounding max v from above is bounding min -v from below */
    result = upward != maximise ? result + gap + error : result - error;
    double bound = sign * smaller(larger(result, of.low), of.high);
    *width = gap + 2.0 * error;
    if (kind != POLYTOPE) {
        double hull = hull_bound(a, b, values, cap, maximise, upward, in, memory->entries);
        if ((hull < bound) == maximise && hull != bound) {
            bound = hull;
            *width = INFINITY;
        }
    }
    return bound;
}

/* Whether the bound of a row is inf; if not, *cap is the value by which infinite ones may be replaced. */
INLINE bool limit_of_row(int64_t a, int64_t b, const double *values, bool maximise, bool upward,
                         const interval_rows *in, double *cap)
{
    double most = -INFINITY;
    for (int64_t t = a; t < b; t++) {
        double x = values[in->successor[t]];
        if (x > most && in->upper[in->expression[t]] > 0.0)
            most = x;
    }
    *cap = INFINITY;
    if (most < INFINITY)
        return false;
    bool infinite = largest_finite(a, b, values, maximise, in, cap);
    if (maximise) /* from below, a possibility of the hull proves nothing: the region may not have it */
        return infinite && (upward || *cap == -INFINITY);
    return infinite || upward; /* from above, a way around that the hull shows proves nothing */
}

/* The bound for the transitions a..b of a row. Of a region: *vertex is where the walk starts and then where it
 * ended, *width how far the bounds from the two sides are apart (inf where the query does not say). `kind` is that
 * of the set; where it is a constant, the loop around has the code of that kind only. */
INLINE double row_bound(int kind, int64_t a, int64_t b, const double *values, bool maximise, bool upward,
                        const interval_rows *in, const row_set *set, const work *memory, int64_t *vertex,
                        double *width)
{
    *width = 0.0;
    if (kind == POINT)
        return point_bound(a, b, values, maximise, upward, in);
    if (kind == INTERVAL || b - a <= 2) /* of two, f and 1 - f, the interval hull tells all */
        return interval_bound(a, b, values, maximise, upward, in, memory->entries);
    double cap;
    if (limit_of_row(a, b, values, maximise, upward, in, &cap))
        return INFINITY;
    return query(kind, a, b, values, cap, maximise, upward, in, set, memory, vertex, width);
}

/* Of a region: where the walk of a row starts, at the end of its last one; if there was none, of the row before it. */
INLINE int32_t *memory_of(const row_set *set, int64_t row)
{
    return set->memory + (row < set->length ? row : row % set->length);
}

/* A loop over rows with the code of its kind of set only, BODY(kind, maximise, upward); of rows without queries also of
 * their direction and side, because a branch more costs as much as their arithmetic. */
#define FOR_SIDE(kind, maximise, upward, BODY)                                                                       \
    do {                                                                                                             \
        if (maximise) {                                                                                              \
            if (upward)                                                                                              \
                BODY(kind, true, true);                                                                              \
            else                                                                                                     \
                BODY(kind, true, false);                                                                             \
        } else if (upward)                                                                                           \
            BODY(kind, false, true);                                                                                 \
        else                                                                                                         \
            BODY(kind, false, false);                                                                                \
    } while (0)

#define FOR_SET(set, maximise, upward, BODY)                                                                         \
    do {                                                                                                             \
        if ((set)->kind == POINT)                                                                                    \
            FOR_SIDE(POINT, maximise, upward, BODY);                                                                 \
        else if ((set)->kind == INTERVAL)                                                                            \
            FOR_SIDE(INTERVAL, maximise, upward, BODY);                                                              \
        else if ((set)->kind == POLYTOPE)                                                                            \
            BODY(POLYTOPE, maximise, upward);                                                                        \
        else if ((set)->kind == ELLIPSOID)                                                                           \
            BODY(ELLIPSOID, maximise, upward);                                                                       \
        else if ((set)->kind == CURVED)                                                                              \
            BODY(CURVED, maximise, upward);                                                                          \
        else                                                                                                         \
            BODY(BEST, maximise, upward);                                                                            \
    } while (0)

#endif
