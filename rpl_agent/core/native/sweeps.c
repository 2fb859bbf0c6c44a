/* Bellman sweeps in three levels: states (the agent), rows (rewards), and nature's choices in a row (`row_bound`).
 *
 * The backward pass over acyclic parts finds both bounds at once. Lower and upper values differ by rounding only.
 * Intervals: nature's distribution is found once per row, for the side on which it must be optimal (the outward
 * one), and used for both: on the other side any distribution of the set gives a bound. Regions: the query is made
 * once, on the outward side; on the other one its tightness is added, twice because a check may end at another
 * vertex, and the largest distance between a successor's two values. Where that does not apply, each side is bounded
 * for itself. */
#include "sweeps.h"
#include "threads.h"

/* Rows up to this length share one distribution in the backward pass. */
#define SHARED_LIMIT 48
/* Rows up to this length are sorted without branches. */
#define RANK_LIMIT 8

/* ---------------------------------------------------------------------- rows alone */

INLINE void bounds_of_kind(int kind, int64_t first, int64_t last, const double *values, bool maximise, bool upward,
                           const row_arrays *model, const row_set *set, const work *memory, const int64_t *chosen,
                           double *out)
{
    const interval_rows in = intervals_of(model, set);
    const int64_t *row_ptr = model->row_ptr;
    int64_t vertex = 0;
    double width;
    for (int64_t i = first; i < last; i++) {
        int64_t row = chosen ? chosen[i] : i;
        int32_t *start = kind > INTERVAL ? memory_of(set, row) : NULL;
        if (start && *start >= 0)
            vertex = *start;
        out[i] = row_bound(kind, row_ptr[row], row_ptr[row + 1], values, maximise, upward, &in, set, memory, &vertex,
                           &width);
        if (start)
            *start = (int32_t)vertex;
    }
}

/* What the threads of a pass over rows share. */
typedef struct row_pass {
    const double *values;
    bool maximise, upward;
    const row_arrays *model;
    const row_set *set;
    const scratch *space;
    const int64_t *chosen;
    double *out;
    int64_t grain;
} row_pass;

static void bounds_part(void *context, int64_t begin, int64_t end)
{
    const row_pass *p = context;
    const work memory = work_of(p->space, begin / p->grain);
#define BODY(kind, max, up) bounds_of_kind(kind, begin, end, p->values, max, up, p->model, p->set, &memory, p->chosen, p->out)
    FOR_SET(p->set, p->maximise, p->upward, BODY);
#undef BODY
}

void row_bounds(int64_t count, const double *values, bool maximise, bool upward, const row_arrays *model,
                const row_set *set, const scratch *space, const int64_t *chosen, double *out)
{
    row_pass pass = {values, maximise, upward, model, set, space, chosen, out, share_of(count, space->threads)};
    parallel_for(count, pass.grain, space->threads, bounds_part, &pass);
}

/* ---------------------------------------------------------------------- one side */

INLINE double bellman_of_kind(int kind, bool maximise, bool upward, const game *play, int64_t count,
                              const int64_t *order, const double *values, double *out, int64_t *chosen, double offset,
                              const work *memory)
{
    const row_set *set = play->set;
    const interval_rows in = intervals_of(play->rows, set);
    const int64_t *state_ptr = play->state_ptr, *row_ptr = play->rows->row_ptr, agent = play->agent;
    const double *reward = play->reward, *weights = play->weights, gamma = play->gamma, side = upward ? 1.0 : -1.0;
    double largest = 0.0, width;
    int64_t vertex = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t s = order[i], best_row = state_ptr[s];
        double best = agent == MIN_AGENT ? INFINITY : -INFINITY;
        mixture mix = NO_MIXTURE;
        for (int64_t row = state_ptr[s]; row < state_ptr[s + 1]; row++) {
            if (agent == FIXED_AGENT && weights[row] == 0.0)
                continue;
            int32_t *start = kind > INTERVAL ? memory_of(set, row) : NULL;
            if (start && *start >= 0)
                vertex = *start;
            double q = row_bound(kind, row_ptr[row], row_ptr[row + 1], values, maximise, upward, &in, set, memory,
                                 &vertex, &width);
            if (start)
                *start = (int32_t)vertex;
            q = paid(q, reward[row], gamma, side);
            if (agent == FIXED_AGENT)
                mix_in(&mix, q, weights[row]);
            else if (agent == MAX_AGENT ? q > best : q < best) {
                best = q;
                best_row = row;
            }
        }
        if (agent == FIXED_AGENT)
            best = mean_of(&mix, side, SWEPT);
        else if (chosen)
            chosen[s] = best_row;
        best += offset;
        if (offset != 0.0 && best < INFINITY)
            best += side * UNIT_ROUNDOFF * fabs(best);
        if (best != values[s]) {
            double change = fabs(best - values[s]);
            largest = change <= largest ? largest : change;
        }
        out[s] = best;
    }
    return largest;
}

double bellman(const game *play, int64_t count, const int64_t *order, const double *values, double *out,
               int64_t *chosen, bool upward, double offset, const scratch *space)
{
    const work memory = work_of(space, 0);
    double largest;
#define BODY(kind, max, up)                                                                                          \
    largest = bellman_of_kind(kind, max, up, play, count, order, values, out, chosen, offset, &memory)
    FOR_SET(play->set, play->maximise, upward, BODY);
#undef BODY
    return largest;
}

/* ---------------------------------------------------------------------- both sides */

/* Both bounds of a row. */
typedef struct bracket {
    double low, high;
} bracket;

/* A transition of an interval row: both values of its successor, and the bounds of its probability. */
typedef struct target {
    double low, high, lower, upper;
} target;

/* By the side on which nature's distribution must be optimal, equal values as they come: short rows by counting how
 * many come before each, so that no branch depends on the values. */
INLINE void sort_targets(const int64_t n, bool maximise, const target *found, target *sorted)
{
    if (n > RANK_LIMIT) {
        for (int64_t i = 0, j; i < n; i++) {
            for (j = i; j > 0 && (maximise ? sorted[j - 1].high < found[i].high : sorted[j - 1].low > found[i].low); j--)
                sorted[j] = sorted[j - 1];
            sorted[j] = found[i];
        }
        return;
    }
    int64_t rank[RANK_LIMIT] = {0};
    for (int64_t j = 1; j < n; j++)
        for (int64_t i = 0; i < j; i++) {
            int64_t before = maximise ? found[j].high > found[i].high : found[j].low < found[i].low;
            rank[i] += before;
            rank[j] += 1 - before;
        }
    for (int64_t i = 0; i < n; i++)
        sorted[rank[i]] = found[i];
}

/* Bounds of an interval row by one distribution for both sides; false where that does not apply. */
INLINE bool shared_bounds(const int64_t n, int64_t a, const double *low, const double *high, bool maximise,
                          const interval_rows *in, bracket *q)
{
    target found[SHARED_LIMIT], sorted[SHARED_LIMIT];
    bool usual = true;
    double rest = 1.0;
    for (int64_t i = 0; i < n; i++) {
        int32_t j = in->successor[a + i], f = in->expression[a + i];
        found[i] = (target){low[j], high[j], in->lower[f], in->upper[f]};
        usual &= (found[i].high < INFINITY) & (found[i].upper > 0.0);
        rest -= found[i].lower;
    }
    if (!(usual && rest > 1e-9))
        return false;
    sort_targets(n, maximise, found, sorted);
    double bottom_low = sorted[0].low, bottom_high = sorted[0].high, gain_low = 0.0, gain_high = 0.0, span = 0.0;
    bool equal = true;
    for (int64_t k = 0; k < n; k++) {
        const target *e = sorted + k;
        double share = smaller(e->upper - e->lower, rest), x = e->low - bottom_low, y = e->high - bottom_high;
        rest -= share;
        share += e->lower;
        span = larger(larger(span, fabs(x)), fabs(y)); /* of both sides: one may be flat */
        gain_low += share * x;
        gain_high += share * y;
        equal &= (x == 0.0) & (y == 0.0);
    }
    if (!(rest < 1e-12))
        return false;
    q->low = bottom_low;
    q->high = bottom_high;
    if (equal) /* whatever the distribution, the value is exact */
        return true;
    /* three times the margin of `fill_row`, whose sums are formed in another order */
    double margin = 3.0 * UNIT_ROUNDOFF * ((6.0 * n + 12.0) * span + FAINT) + 3.0 * rest * span;
    q->low = bottom_low + gain_low;
    q->high = bottom_high + gain_high;
    q->low -= margin + 6.0 * UNIT_ROUNDOFF * fabs(q->low);
    q->high += margin + 6.0 * UNIT_ROUNDOFF * fabs(q->high);
    return true;
}

/* The same with code for the lengths of most rows. */
static bool shared_of_length(int64_t a, int64_t b, const double *low, const double *high, bool maximise,
                             const interval_rows *in, bracket *q)
{
    switch (b - a) {
    case 3:
        return shared_bounds(3, a, low, high, maximise, in, q);
    case 4:
        return shared_bounds(4, a, low, high, maximise, in, q);
    case 6:
        return shared_bounds(6, a, low, high, maximise, in, q);
    default:
        return shared_bounds(b - a, a, low, high, maximise, in, q);
    }
}

/* The other side of a region's row, from the outward bound q that a query found up to `width`; inf: unknown. */
static double far_side(int64_t a, int64_t b, const double *low, const double *high, double q, double width,
                       bool maximise, const interval_rows *in)
{
    const double sign = maximise ? -1.0 : 1.0;
    double apart = 0.0, bottom = INFINITY, top = -INFINITY;
    for (int64_t t = a; t < b; t++)
        if (in->upper[in->expression[t]] > 0.0) {
            int32_t j = in->successor[t];
            apart = larger(apart, high[j] - low[j]);
            bottom = smaller(bottom, low[j]);
            top = larger(top, high[j]);
        }
    double far = q + sign * (2.0 * width + apart);
    far += sign * 4.0 * UNIT_ROUNDOFF * fabs(far);
    far = maximise ? larger(far, bottom) : smaller(far, top);
    return top < INFINITY ? far : INFINITY;
}

/* Both bounds of a row that needs a query for each side, the outward one first. */
INLINE bracket in_turn(int kind, int64_t a, int64_t b, const double *low, const double *high, bool maximise,
                       const interval_rows *in, const row_set *set, const work *memory, int64_t *vertex)
{
    bracket both = {0.0, 0.0};
    for (int turn = 0; turn < 2; turn++) {
        bool upward = turn == 0 ? maximise : !maximise;
        double width, far = INFINITY;
        double q = row_bound(kind, a, b, upward ? high : low, maximise, upward, in, set, memory, vertex, &width);
        if (kind > INTERVAL && b - a > 2 && q < INFINITY && width < INFINITY) {
            if (turn == 0)
                far = far_side(a, b, low, high, q, width, maximise, in);
            else /* a check may end at another vertex */
                q += upward ? width : -width;
        }
        if (upward)
            both.high = q;
        else
            both.low = q;
        if (far < INFINITY) {
            if (upward)
                both.low = far;
            else
                both.high = far;
            break;
        }
    }
    return both;
}

/* A row's bounds from below under `low` and from above under `high`. */
INLINE bracket both_bounds(int kind, int64_t a, int64_t b, const double *low, const double *high, bool maximise,
                           const interval_rows *in, const row_set *set, const work *memory, int64_t *vertex)
{
    int32_t j = in->successor[a];
    if (b - a == 1)
        return (bracket){low[j], high[j]};
    if (b - a == 2) {
        int32_t k = in->successor[a + 1], f = in->expression[a], g = in->expression[a + 1];
        if (high[j] < INFINITY && high[k] < INFINITY)
            return (bracket){pair_bound(low[j], low[k], f, g, in->lower, in->upper, maximise, false),
                             pair_bound(high[j], high[k], f, g, in->lower, in->upper, maximise, true)};
    } else if (kind == INTERVAL && b - a <= SHARED_LIMIT) {
        bracket q;
        if (shared_of_length(a, b, low, high, maximise, in, &q))
            return q;
    }
    return in_turn(kind, a, b, low, high, maximise, in, set, memory, vertex);
}

INLINE void backward_of_kind(int kind, bool maximise, const game *play, int64_t count, const int64_t *order,
                             double *low, double *high, int64_t *rows, const work *memory)
{
    const row_set *set = play->set;
    const interval_rows in = intervals_of(play->rows, set);
    const int64_t *state_ptr = play->state_ptr, *row_ptr = play->rows->row_ptr, agent = play->agent;
    const double *reward = play->reward, *weights = play->weights, gamma = play->gamma;
    int64_t vertex = 0; /* a row is asked once: its walk starts where that of the row before it ended */
    for (int64_t i = 0; i < count; i++) {
        fetch_ahead(i, count, order, state_ptr, 0, row_ptr, in.successor, in.expression, reward, low, 1, high);
        int64_t s = order[i];
        double worst = agent == MIN_AGENT ? INFINITY : -INFINITY;
        bracket best = {worst, worst};
        mixture mix_low = NO_MIXTURE, mix_high = NO_MIXTURE;
        for (int64_t row = state_ptr[s]; row < state_ptr[s + 1]; row++) {
            if (agent == FIXED_AGENT && weights[row] == 0.0)
                continue;
            int64_t a = row_ptr[row], b = row_ptr[row + 1];
            bracket q = both_bounds(kind, a, b, low, high, maximise, &in, set, memory, &vertex);
            q.low = paid(q.low, reward[row], gamma, -1.0);
            q.high = paid(q.high, reward[row], gamma, 1.0);
            if (agent == FIXED_AGENT) {
                mix_in(&mix_low, q.low, weights[row]);
                mix_in(&mix_high, q.high, weights[row]);
                continue;
            }
            if (agent == MAX_AGENT ? q.low > best.low : q.high < best.high)
                rows[s] = row;
            best.low = agent == MAX_AGENT ? larger(best.low, q.low) : smaller(best.low, q.low);
            best.high = agent == MAX_AGENT ? larger(best.high, q.high) : smaller(best.high, q.high);
        }
        low[s] = agent == FIXED_AGENT ? mean_of(&mix_low, -1.0, SWEPT) : best.low;
        high[s] = agent == FIXED_AGENT ? mean_of(&mix_high, 1.0, SWEPT) : best.high;
    }
}

void backward(const game *play, int64_t count, const int64_t *order, double *low, double *high, int64_t *rows,
              const scratch *space)
{
    const work memory = work_of(space, 0);
#define BODY(kind, max, up) backward_of_kind(kind, max, play, count, order, low, high, rows, &memory)
    FOR_SET(play->set, play->maximise, true, BODY); /* the side has no meaning here */
#undef BODY
}

/* ---------------------------------------------------------------------- rows to states, where rows are bounded
 * apart */

void row_totals(int64_t count, const double *q, const double *reward, double gamma, bool upward, double *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = row_total(q[i], reward[i], gamma, upward);
}

void state_images(int64_t count, const double *totals, const int64_t *state_ptr, int64_t agent, const double *weights,
                  bool upward, double *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = state_image(state_ptr[i], state_ptr[i + 1], totals, agent, weights, upward);
}

bool any_faint(int64_t count, const double *values)
{
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++)
        found += (fabs(values[i]) < SMALLEST) & (values[i] != 0.0);
    return found > 0;
}
