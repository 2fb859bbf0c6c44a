/* Rows: bounds of nature's extremum within intervals and over regions (see rows.h), and the distributions that
 * attain it. */
#include <stdlib.h>
#include <string.h>

#include "rows.h"

/* Rows up to this length are sorted by counting how many come before each: no branch depends on the values. */
#define RANK_LIMIT 8
/* Rows up to this length are sorted by insertion. */
#define INSERTION_LIMIT 48
/* Gradients below this are enlarged, by a power of two. */
#define SMALL 1e-120
#define ENLARGE 0x1p900

/* ---------------------------------------------------------------------- sums without rounding */

void add_exactly(exact_sum *sum, double term)
{
    if (!(term > 0.0))
        return;
    if (term >= 1.0) {
        sum->large = true;
        return;
    }
    int exponent;
    uint64_t mantissa = (uint64_t)(frexp(term, &exponent) * 0x1p53);
    int place = exponent - 53 + 36 * 32, shift = place % 32;
    uint64_t *digit = sum->digit + place / 32;
    uint64_t low = (mantissa & UINT32_MAX) << shift, high = (mantissa >> 32) << shift;
    digit[0] += low & UINT32_MAX;
    digit[1] += (low >> 32) + (high & UINT32_MAX);
    digit[2] += high >> 32;
}

bool reaches_one(exact_sum *sum)
{
    for (int i = 0; i < 36; i++)
        sum->digit[i + 1] += sum->digit[i] >> 32;
    return sum->large || sum->digit[36] || sum->digit[37] || sum->digit[38];
}

bool at_least_one(int64_t n, const double *terms)
{
    exact_sum sum = {{0}, false};
    for (int64_t i = 0; i < n; i++)
        add_exactly(&sum, terms[i]);
    return reaches_one(&sum);
}

/* ---------------------------------------------------------------------- intervals */

static int by_key(const void *first, const void *second)
{
    const entry *a = first, *b = second;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->transition < b->transition ? -1 : 1;
}

/* By how many keys come before each. */
INLINE void sort_by_ranks(const int64_t n, entry *entries)
{
    entry found[RANK_LIMIT];
    int64_t rank[RANK_LIMIT] = {0};
    memcpy(found, entries, n * sizeof *found);
    for (int64_t j = 1; j < n; j++)
        for (int64_t i = 0; i < j; i++) {
            int64_t before = found[j].key < found[i].key;
            rank[i] += before;
            rank[j] += 1 - before;
        }
    for (int64_t i = 0; i < n; i++)
        entries[rank[i]] = found[i];
}

/* By their keys, equal ones as they come. */
static void sort_entries(int64_t n, entry *entries)
{
    if (n == 4) /* unrolled */
        sort_by_ranks(4, entries);
    else if (n <= RANK_LIMIT) {
        sort_by_ranks(n, entries);
    } else if (n <= INSERTION_LIMIT) {
        for (int64_t i = 1; i < n; i++) {
            entry e = entries[i];
            int64_t j = i;
            for (; j > 0 && entries[j - 1].key > e.key; j--)
                entries[j] = entries[j - 1];
            entries[j] = e;
        }
    } else
        qsort(entries, n, sizeof *entries, by_key);
}

int64_t sort_row(int64_t a, int64_t b, const double *values, double cap, double sign, const interval_rows *in,
                 entry *entries)
{
    int64_t n = 0;
    for (int64_t t = a; t < b; t++) {
        int32_t f = in->expression[t];
        double x = values[in->successor[t]];
        entries[n] = (entry){sign * (x > cap ? cap : x), in->lower[f], in->upper[f], t};
        n += in->upper[f] > 0.0;
    }
    sort_entries(n, entries);
    return n;
}

/* Whether x + y + z >= 1, exactly; false in cases too close to call. */
static bool surely_one(double x, double y, double z)
{
    double total = x + y, part = total - x, first = (x - (total - part)) + (y - part);
    double whole = total + z;
    part = whole - total;
    double second = (total - (whole - part)) + (z - part), surplus = (whole - 1.0) + (first + second);
    return surplus > 1e-30 || (surplus >= 0.0 && (first == 0.0 || second == 0.0));
}

/* A value and its bounds. */
typedef struct triple {
    double value, lower, upper;
} triple;

static void order(triple *first, triple *second)
{
    if (second->value < first->value) {
        triple kept = *first;
        *first = *second;
        *second = kept;
    }
}

/* The bound of a row with three possible successors of finite values, in closed form; NaN where it does not apply: a
 * value is infinite, a successor impossible, or the lower bounds leave nothing over. Sorted by value, the largest
 * gets the least it can, then the middle one. The two subtractions are exact or carry an absolute error of a few u,
 * which is charged to the span over which that mass may move. */
static double triple_bound(triple x, triple y, triple z, bool maximise, bool upward)
{
    if (!(x.upper > 0.0 && y.upper > 0.0 && z.upper > 0.0 && x.lower + y.lower + z.lower < 1.0 && x.value < INFINITY
          && y.value < INFINITY && z.value < INFINITY))
        return NAN;
    if (maximise) {
        x.value = -x.value;
        y.value = -y.value;
        z.value = -z.value;
    }
    order(&x, &y);
    order(&y, &z);
    order(&x, &y);
    double left = 1.0 - x.upper, top = larger(z.lower, left - y.upper), middle = larger(y.lower, left - top);
    double to_middle = y.value - x.value, to_top = z.value - x.value;
    double total = middle * to_middle + top * to_top, error = 12.0 * UNIT_ROUNDOFF * total;
    if (top > z.upper) /* upper bounds that miss a distribution by rounding */
        error += (top - z.upper) * to_top;
    if (!(1.0 - left == x.upper && (top == z.lower || left - top == y.upper)
          && (middle == y.lower || left - middle == top))) {
        error += 8.0 * UNIT_ROUNDOFF * to_middle;
        if (!surely_one(x.upper, y.upper, z.lower)) /* else the largest gets its lower bound */
            error += 8.0 * UNIT_ROUNDOFF * to_top;
    }
    double result = x.value;
    if (error > 0.0 || (middle > 0.0 && y.value > x.value) || (top > 0.0 && z.value > x.value)) {
        result = x.value + total;
        error += UNIT_ROUNDOFF * (2.0 * fabs(result) + FAINT);
        result = upward == maximise ? result - error : result + error;
        result = result > z.value ? z.value : result;
        result = result < x.value ? x.value : result;
    }
    return maximise ? -result : result;
}

/* Where the mass of a sorted row runs out, exactly, if not before position i. */
static int64_t last_filled(int64_t i, int64_t n, const entry *entries)
{
    for (; i + 1 < n; i++) {
        exact_sum sum = {{0}, false};
        for (int64_t j = 0; j < n; j++)
            add_exactly(&sum, j <= i ? entries[j].upper : entries[j].lower);
        if (reaches_one(&sum))
            break;
    }
    return i;
}

/* Bound of min sum p_i keys_i over the intervals of a sorted row, from below or (upward) from above. `exact` follows
 * whether every subtraction from the remaining mass was exact; if not, the mass is off by at most n u, which moves
 * between the successors up to the one where it runs out, exactly. */
static double fill_row(int64_t n, bool upward, const entry *entries)
{
    double low = entries[0].key, high = entries[n - 1].key, rest = 1.0, total = 0.0;
    double forced = low; /* the largest value that must get mass */
    bool exact = true;
    for (int64_t i = 0; i < n; i++) {
        double lo = entries[i].lower;
        if (lo > 0.0) {
            forced = entries[i].key;
            exact = exact && rest - (rest - lo) == lo;
            rest -= lo;
            total += lo * (entries[i].key - low);
        }
    }
    if (rest == 0.0 && exact) { /* nothing to distribute: successors with lower bound 0 get nothing */
        high = -INFINITY;
        for (int64_t i = 0; i < n; i++)
            if (entries[i].lower > 0.0) {
                if (high == -INFINITY) {
                    low = entries[i].key;
                    total = 0.0;
                }
                high = entries[i].key;
                total += entries[i].lower * (high - low);
            }
    }
    double moved = high, undecided = larger(-rest, 0.0); /* by lower bounds; further down, by upper bounds */
    for (int64_t i = 0; i < n; i++) {
        const entry *e = entries + i;
        double room = e->upper - e->lower, share = smaller(room, larger(rest, 0.0));
        total += share * (e->key - low);
        exact = exact && (e->lower == 0.0 || room + e->lower == e->upper);
        if (share >= rest) {
            rest = 0.0;
            moved = e->key;
            if (room - share <= 8.0 * n * UNIT_ROUNDOFF && !exact)
                moved = entries[last_filled(i, n, entries)].key;
            break;
        }
        exact = exact && rest - (rest - share) == share;
        rest -= share;
    }
    undecided = larger(undecided, rest);
    double error = UNIT_ROUNDOFF * (2.0 * n + 12.0) * total;
    if (!exact)
        error += UNIT_ROUNDOFF * 4.0 * n * (moved - low);
    error += undecided * (high - low);
    if (!(low < high && (forced > low || moved > low || undecided > 0.0)))
        return low;
    double result = low + total;
    error += UNIT_ROUNDOFF * (2.0 * fabs(result) + FAINT);
    return upward ? smaller(result + error, high) : smaller(larger(result - error, low), high);
}

bool largest_finite(int64_t a, int64_t b, const double *values, bool maximise, const interval_rows *in, double *cap)
{
    exact_sum sum = {{0}, false}; /* bounds of successors of finite value: can the mass go there alone? */
    bool forced = false, possible = false, some = false;
    *cap = -INFINITY;
    for (int64_t t = a; t < b; t++) {
        int32_t f = in->expression[t];
        double v = values[in->successor[t]];
        if (v == INFINITY) {
            forced = forced || in->lower[f] > 0.0;
            possible = possible || in->upper[f] > 0.0;
        } else {
            add_exactly(&sum, maximise ? in->lower[f] : in->upper[f]);
            *cap = larger(*cap, v);
            some = true;
        }
    }
    if (!some)
        return true;
    if (forced || !possible)
        return forced;
    return !reaches_one(&sum);
}

double hull_bound(int64_t a, int64_t b, const double *values, double cap, bool maximise, bool upward,
                  const interval_rows *in, entry *entries)
{
    const double sign = maximise ? -1.0 : 1.0;
    double bound = NAN;
    if (b - a == 3) {
        triple x[3];
        for (int k = 0; k < 3; k++) {
            int32_t f = in->expression[a + k];
            double v = values[in->successor[a + k]];
            x[k] = (triple){v > cap ? cap : v, in->lower[f], in->upper[f]};
        }
        bound = triple_bound(x[0], x[1], x[2], maximise, upward);
    }
    for (int turn = 0; turn < 2 && bound != bound; turn++) { /* the second time without infinities */
        int64_t n = sort_row(a, b, values, cap, sign, in, entries);
        if (entries[n - 1].key < INFINITY && entries[0].key > -INFINITY)
            bound = sign * fill_row(n, upward != maximise, entries);
        else if (largest_finite(a, b, values, maximise, in, &cap))
            bound = INFINITY;
    }
    return bound;
}

/* ---------------------------------------------------------------------- distributions that attain the extremum */

void hull_strategies(const double *values, bool maximise, const row_arrays *model, const double *played,
                     const row_set *set, const scratch *space, double *totals, double *p)
{
    const interval_rows in = intervals_of(model, set);
    const int32_t *expression = in.expression;
    const double *lower = in.lower, *upper = in.upper, sign = maximise ? -1.0 : 1.0;
    entry *entries = work_of(space, 0).entries;
    for (int64_t row = 0; row < model->count; row++) {
        int64_t a = model->row_ptr[row], b = model->row_ptr[row + 1];
        totals[row] = INFINITY;
        if (b - a == 1) {
            p[a] = 1.0;
            continue;
        }
        double rest = 1.0;
        for (int64_t t = a; t < b; t++) {
            p[t] = lower[expression[t]];
            rest -= p[t];
        }
        if (played[row] == 0.0) { /* any distribution will do */
            for (int64_t t = a; t < b; t++) {
                double share = larger(smaller(upper[expression[t]] - p[t], rest), 0.0);
                p[t] += share;
                rest -= share;
            }
            continue;
        }
        int64_t n = sort_row(a, b, values, INFINITY, sign, &in, entries);
        double total = 0.0;
        for (int64_t i = 0; i < n; i++) {
            int64_t t = entries[i].transition;
            double share = larger(smaller(entries[i].upper - p[t], rest), 0.0);
            p[t] += share;
            rest -= share;
            total += p[t] * (entries[i].key - entries[0].key);
        }
        double span = entries[n - 1].key - entries[0].key;
        if (0.0 < span && span < INFINITY)
            totals[row] = total;
    }
}

/* c into direction, and the offset, such that a row's mean of sign * values is low + offset + c.x at x; of a CURVED set,
 * + c.y + y'My, M behind c. */
static double direction_of(int64_t a, int64_t b, const double *values, double sign, const interval_rows *in,
                           const row_set *set, double *direction)
{
    const int64_t n = set->n;
    double low = INFINITY, offset = 0.0;
    for (int64_t t = a; t < b; t++) {
        double x = sign * values[in->successor[t]];
        if (x < low && in->upper[in->expression[t]] > 0.0)
            low = x;
    }
    const int64_t bends = set->kind == CURVED ? triangle(n) : 0;
    for (int64_t j = 0; j < n + bends; j++)
        direction[j] = 0.0;
    for (int64_t t = a; t < b; t++) {
        int64_t f = in->expression[t];
        double d = sign * values[in->successor[t]] - low;
        if (!(d > 0.0 && in->upper[f] > 0.0))
            continue;
        offset += set->constant[f] * d;
        for (int64_t j = 0; j < n; j++)
            direction[j] += set->weights[f * n + j] * d;
        for (int64_t j = 0; j < bends; j++)
            direction[n + j] += set->bend->M[f * bends + j] * d;
        if (bends > 0)
            offset -= set->bend->error[f] * d;
    }
    return offset;
}

/* Scales up a small gradient, so that squares do not underflow; the extremum stays. Returns the factor. */
static double enlarged(int64_t n, double *direction)
{
    double largest = 0.0;
    for (int64_t j = 0; j < n; j++)
        largest = larger(largest, fabs(direction[j]));
    double scale = largest < SMALL ? ENLARGE : 1.0;
    for (int64_t j = 0; j < n; j++)
        direction[j] *= scale;
    return scale;
}

/* The point of the ellipsoid where c.x is least, into direction (c on entry) if offset + c.x there is above total. */
static bool ellipsoid_point(const row_set *set, double offset, double total, double *direction, double *scaled)
{
    const int64_t n = set->n;
    double norm = 0.0, middle = 0.0;
    for (int64_t k = 0; k < n; k++) {
        double entry = 0.0;
        for (int64_t j = 0; j < n; j++)
            entry += set->factor[j * n + k] * direction[j];
        scaled[k] = entry;
        norm += entry * entry;
        middle += set->center[k] * direction[k];
    }
    norm = sqrt(norm);
    if (!(offset + middle - set->radius * norm > total))
        return false;
    double step = norm > 0.0 ? set->radius / norm : 0.0;
    for (int64_t j = 0; j < n; j++) {
        double moved = 0.0;
        for (int64_t k = 0; k < n; k++)
            moved += set->factor[j * n + k] * scaled[k];
        direction[j] = set->center[j] - step * moved;
    }
    return true;
}

/* The same of the polytope: a vertex; *total becomes what it gives. */
static bool polytope_point(const row_set *set, int32_t *start, int64_t *last, double offset, double *total,
                           const double *direction, double *point)
{
    const polytope *data = set->polytope;
    const int64_t n = set->n;
    int64_t vertex = 0;
    double bound, slack;
    if (data->capacity == 0)
        bound = support_box(n, data->lower, data->upper, direction);
    else {
        vertex = *start >= 0 ? *start : *last;
        bound = walk_table(n, data->table, direction, &vertex, &slack);
        *start = (int32_t)vertex;
        *last = vertex;
    }
    if (!(offset + bound > *total))
        return false;
    *total = offset + bound;
    for (int64_t j = 0; j < n; j++)
        point[j] = data->capacity > 0 ? data->point[vertex * n + j]
                   : direction[j] >= 0.0 ? data->lower[j]
                                         : data->upper[j];
    return true;
}

/* A matrix Y (triangle, off the diagonal twice) with <M, Y> about -k, of trace 1: that of the bound by trace and norm, drawn
 * towards I / n by as much as k is less. */
static void eigenvalue_gradient(int64_t n, const double *M, double k, double *Y)
{
    double trace = 0.0, square = 0.0;
    for (int64_t j = 0, at = 0; j < n; j++)
        for (int64_t i = 0; i <= j; i++, at++) {
            square += (i < j ? 2.0 : 1.0) * M[at] * M[at];
            trace += i == j ? M[at] : 0.0;
        }
    double mean = trace / n, spread = larger(square / n - mean * mean, 0.0);
    double turn = spread > 0.0 ? (k + mean) / (n * spread) : 0.0; /* <M, M - mean I> = n spread */
    for (int64_t j = 0, at = 0; j < n; j++)
        for (int64_t i = 0; i <= j; i++, at++)
            Y[at] = i == j ? 1.0 / n - turn * (M[at] - mean) : -2.0 * turn * M[at];
}

/* p (a..b) = the derivative by its values of the bound of a CURVED row that `turned` gives, z fixed: where the support is
 * attained at `point`, which becomes y. M and the direction lie behind each other, z in memory->other. */
static void curved_distribution(int64_t a, int64_t b, int64_t lowest, const interval_rows *in, const row_set *set,
                                const double *M, const double *z, double *point, double *Y, double *p)
{
    const int64_t n = set->n, bends = triangle(n);
    const bend *bent = set->bend;
    double size, far = 1.0, y[MAX_BENT];
    const double k = negative_part(n, M, 0.0, &size, Y);
    for (int64_t j = 0; j < n; j++) {
        y[j] = 0.0;
        for (int64_t i = 0; i < n; i++)
            y[j] += bent->inverse[j * n + i] * (point[i] - bent->center[i]);
        far += z[j] * z[j] - 2.0 * z[j] * y[j];
    }
    eigenvalue_gradient(n, M, k, Y);
    far = k > 0.0 ? far : 0.0;
    double rest = 1.0;
    for (int64_t t = a; t < b; t++) {
        int64_t f = in->expression[t];
        const double *own = bent->M + f * bends;
        double mass = set->constant[f] - bent->error[f];
        for (int64_t j = 0, at = 0; j < n; j++) {
            mass += set->weights[f * n + j] * y[j];
            for (int64_t k = 0; k <= j; k++, at++) {
                double both = k == j ? 2.0 * y[j] * z[j] - z[j] * z[j]
                                     : 2.0 * (y[j] * z[k] + y[k] * z[j] - z[j] * z[k]);
                mass += own[at] * (both + far * Y[at]);
            }
        }
        p[t] = mass > TRACE ? mass : 0.0;
        rest -= p[t];
    }
    if (rest > 0.0)
        p[lowest] += rest;
    for (int64_t t = a; rest < 0.0 && t < b; t++)
        p[t] /= 1.0 - rest;
}

/* The column of B with the least sum over a row, if that exceeds *total, which it replaces; otherwise -1. */
static int64_t best_corner(int64_t a, int64_t b, const double *values, double sign, double low, const interval_rows *in,
                           const bend *bent, double *total)
{
    int64_t best = -1;
    double least = INFINITY;
    for (int64_t k = 0; k < bent->corners; k++) {
        double sum = 0.0;
        for (int64_t t = a; t < b; t++)
            if (in->upper[in->expression[t]] > 0.0)
                sum += bent->B[in->expression[t] * bent->corners + k] * (sign * values[in->successor[t]] - low);
        if (sum < least) {
            least = sum;
            best = k;
        }
    }
    if (best < 0 || !(least > *total))
        return -1;
    *total = least;
    return best;
}

/* A row of `region_strategies` for a CURVED set; the direction and M are in memory. */
static void curved_strategy(int64_t row, int64_t a, int64_t b, const double *values, double sign,
                            const interval_rows *in, const row_set *set, const work *memory, int64_t *last,
                            double total, double offset, double *p)
{
    const int64_t n = set->n, corners = set->bend->corners;
    double *direction = memory->direction, *z = memory->other, *point = memory->other + n;
    int64_t lowest = a;
    for (int64_t t = a; t < b; t++)
        if (in->upper[in->expression[t]] > 0.0
            && (!(in->upper[in->expression[lowest]] > 0.0)
                || sign * values[in->successor[t]] < sign * values[in->successor[lowest]]))
            lowest = t;
    int64_t corner = best_corner(a, b, values, sign, sign * values[in->successor[lowest]], in, set->bend, &total);
    offset += turned(n, set->bend, direction + n, direction, z, memory->third);
    bool found = set->polytope && polytope_point(set, memory_of(set, row), last, offset, &total, direction, point);
    if (set->center && ellipsoid_point(set, offset, total, direction, memory->third)) {
        found = true;
        point = direction;
    }
    if (found)
        curved_distribution(a, b, lowest, in, set, direction + n, z, point, memory->third, p);
    for (int64_t t = a; !found && corner >= 0 && t < b; t++)
        p[t] = larger(set->bend->B[in->expression[t] * corners + corner], 0.0);
}

void region_strategies(const double *values, bool maximise, const row_arrays *model, const double *played,
                       const row_set *set, const scratch *space, const double *totals, double *p)
{
    const interval_rows in = intervals_of(model, set);
    const work memory = work_of(space, 0);
    const int64_t n = set->n;
    const double sign = maximise ? -1.0 : 1.0;
    int64_t last = 0;
    for (int64_t row = 0; row < model->count; row++) {
        int64_t a = model->row_ptr[row], b = model->row_ptr[row + 1];
        if (b - a < 3 || played[row] == 0.0 || !(totals[row] < INFINITY)) /* for two, f and 1 - f, the hull is exact */
            continue;
        double *direction = memory.direction, *point = memory.other;
        double offset = direction_of(a, b, values, sign, &in, set, direction);
        if (set->kind == CURVED) {
            curved_strategy(row, a, b, values, sign, &in, set, &memory, &last, totals[row], offset, p);
            continue;
        }
        double scale = enlarged(n, direction), total = scale * totals[row];
        offset = scale * offset;
        bool found = set->kind != ELLIPSOID
                     && polytope_point(set, memory_of(set, row), &last, offset, &total, direction, point);
        if (set->center && ellipsoid_point(set, offset, total, direction, memory.third))
            found = true, point = direction;
        if (!found)
            continue;
        double whole = 0.0;
        for (int64_t t = a; t < b; t++) {
            int64_t f = in.expression[t];
            double mass = set->constant[f];
            for (int64_t j = 0; j < n; j++)
                mass += set->weights[f * n + j] * point[j];
            p[t] = mass > TRACE ? mass : 0.0; /* cleaned of rounding */
            whole += p[t];
        }
        for (int64_t t = a; t < b; t++)
            p[t] /= whole;
    }
}
