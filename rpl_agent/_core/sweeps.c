/* Bellman sweeps in three levels: states (the agent), rows (rewards), and nature's choices in a row (`row_bound`).
 *
 * The backward pass over acyclic parts finds both bounds at once. Lower and upper values differ by rounding only.
 * Intervals: nature's distribution is found once per row, for the side on which it must be optimal (the outward
 * one), and used for both: on the other side any distribution of the set gives a bound. Regions: the query is made
 * once, on the outward side; on the other one its tightness is added, twice because a check may end at another
 * vertex, and the largest distance between a successor's two values. Where that does not apply, each side is bounded
 * for itself. */
#include <float.h>

#include "rows.h"
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

/* ---------------------------------------------------------------------- what a row pays, what a policy draws */

/* reward + gamma q, rounded to a side (1.0: up, -1.0: down). */
INLINE double paid(double q, double reward, double gamma, double side)
{
    if (q < INFINITY && (reward != 0.0 || (gamma != 1.0 && q != 0.0))) {
        q = reward + gamma * q;
        q += side * 3.0 * UNIT_ROUNDOFF * (fabs(q) + 2.0 * fabs(reward) + FAINT);
    }
    return q;
}

/* The mean of the rows that a fixed policy draws: base + total, of values between least and most. */
typedef struct mixture {
    double base, total, least, most;
    int64_t drawn;
} mixture;

#define NO_MIXTURE {0.0, 0.0, INFINITY, -INFINITY, 0}
/* How often the rounding of a mean is added to it: a check with another order of sums must confirm a sweep. */
#define SWEPT 3.0
#define LOOKED_AT 1.0

INLINE void mix_in(mixture *mix, double q, double weight)
{
    if (mix->drawn == 0)
        mix->base = q;
    else
        mix->total += weight * (q - mix->base);
    mix->least = smaller(mix->least, q);
    mix->most = larger(mix->most, q);
    mix->drawn++;
}

/* The mean, rounded to a side. It lies between the least and the largest of its terms, whatever rounding says. */
INLINE double mean_of(const mixture *mix, double side, double times)
{
    if (!(mix->most > mix->least) || mix->least == -INFINITY)
        return mix->drawn ? mix->least : 0.0;
    if (mix->most == INFINITY)
        return INFINITY;
    double mean = mix->base + mix->total;
    mean += side * times * UNIT_ROUNDOFF
            * ((2.0 * mix->drawn + 8.0) * (mix->most - mix->least) + 2.0 * fabs(mean) + FAINT);
    if (side > 0.0) /* NaN is no bound */
        return mean < mix->most ? mean : mix->most;
    return mean > mix->least ? mean : mix->least;
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

/* value moved by error to the side asked for. Beyond the largest float a bound from above is inf, one from below the
 * largest float. */
static double rounded(double value, double error, bool upward)
{
    if (value == INFINITY && !upward)
        value = DBL_MAX;
    if (value == -INFINITY && upward)
        value = -DBL_MAX;
    return upward ? value + error : value - error;
}

/* reward + gamma q, bounded from a side. What is not a number (a sum that overflowed) says nothing: a bound that the
 * agent's choice cannot pass over. */
INLINE double row_total(double q, double reward, double gamma, bool upward)
{
    if (q != q)
        return upward ? INFINITY : -INFINITY;
    if (!(fabs(q) < INFINITY))
        return q;
    double total = paid(q, reward, gamma, upward ? 1.0 : -1.0); /* bit for bit the result of a sweep */
    return fabs(total) < INFINITY ? total : rounded(reward + gamma * q, 9.0 * UNIT_ROUNDOFF * DBL_MAX, upward);
}

void row_totals(int64_t count, const double *q, const double *reward, double gamma, bool upward, double *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = row_total(q[i], reward[i], gamma, upward);
}

/* The agent's value from the totals a..b of its rows. */
INLINE double state_image(int64_t a, int64_t b, const double *totals, int64_t agent, const double *weights, bool upward)
{
    double best = totals[a];
    mixture mix = NO_MIXTURE;
    for (int64_t row = a; row < b; row++) {
        if (agent == FIXED_AGENT && weights[row] > 0.0)
            mix_in(&mix, totals[row], weights[row]);
        else if (agent != FIXED_AGENT && (totals[row] > best) == (agent == MAX_AGENT))
            best = totals[row];
    }
    return agent == FIXED_AGENT ? mean_of(&mix, upward ? 1.0 : -1.0, LOOKED_AT) : best;
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

/* ---------------------------------------------------------------------- finite horizons */

/* Whether a row may lead to a value of -inf, a trivial bound: then its own is trivial. */
static bool meets_nothing(const interval_rows *in, int64_t a, int64_t b, const double *values)
{
    for (int64_t t = a; t < b; t++)
        if (values[in->successor[t]] == -INFINITY && in->upper[in->expression[t]] > 0.0)
            return true;
    return false;
}

/* One side of a horizon, step by step. Rows whose successors have kept their values since the step before keep their
 * totals. */
typedef struct steps_of {
    const game *play;
    int64_t states;
    bool upward;
    const bool *decided;
    const int64_t *given; /* what is played with this many steps to go; NULL: the game's agent decides */
    int64_t stride;
    double *totals, *safe; /* (R), (S): values without -inf */
} steps_of;

INLINE bool moved(const interval_rows *in, int64_t a, int64_t b, const double *values, const double *before)
{
    for (int64_t t = a; t < b; t++)
        if (values[in->successor[t]] != before[in->successor[t]])
            return true;
    return false;
}

/* Step k: out (S) = bounds of T values; `rules` (S), if any: the best rows, the first among equals. `before`: the values of
 * step k - 1, NULL: none. */
typedef struct one_step {
    const steps_of *all;
    int64_t k, grain;
    const double *values, *before;
    double *out;
    int64_t *rules;
    const scratch *space;
    bool nothing, kept; /* whether some value is -inf, and whether some are as before */
} one_step;

/* The states from `begin` to `end`. */
INLINE void step_of_kind(int kind, bool maximise, bool upward, const one_step *now, int64_t begin, int64_t end,
                         const work *memory)
{
    const steps_of *all = now->all;
    const game *play = all->play;
    const row_set *set = play->set;
    const int64_t k = now->k;
    const double *values = now->values, *before = now->before;
    double *out = now->out;
    int64_t *rules = now->rules;
    const interval_rows in = intervals_of(play->rows, set);
    const int64_t *state_ptr = play->state_ptr, *row_ptr = play->rows->row_ptr;
    const int64_t *given = all->given ? all->given + k * all->stride : NULL;
    const double *weights = play->agent == FIXED_AGENT && !given ? play->weights : NULL;
    const double *reward = play->reward, gamma = play->gamma, sign = play->agent == MAX_AGENT ? 1.0 : -1.0;
    double *totals = all->totals, *safe = all->safe, width;
    int64_t vertex = 0;
    for (int64_t s = begin; s < end; s++) {
        int64_t first = given ? given[s] : state_ptr[s], last = given ? first + 1 : state_ptr[s + 1], best = first;
        const bool known = now->kept && (!given || given[s] == given[s - all->stride]);
        if (rules)
            rules[s] = first;
        if (all->decided[s]) {
            out[s] = values[s];
            continue;
        }
        for (int64_t row = first; row < last; row++) {
            int64_t a = row_ptr[row], b = row_ptr[row + 1];
            if ((weights && !(weights[row] > 0.0)) || (known && !moved(&in, a, b, values, before)))
                continue;
            int32_t *start = kind > INTERVAL ? memory_of(set, row) : NULL;
            if (start && *start >= 0)
                vertex = *start;
            double q = row_bound(kind, a, b, safe, maximise, upward, &in, set, memory, &vertex, &width);
            if (start)
                *start = (int32_t)vertex;
            if (now->nothing && meets_nothing(&in, a, b, values))
                q = -INFINITY;
            totals[row] = row_total(q, reward[row], gamma, upward);
        }
        out[s] = given ? totals[first] : state_image(first, last, totals, play->agent, play->weights, upward);
        for (int64_t row = first + 1; rules && row < last; row++)
            best = sign * totals[row] > sign * totals[best] ? row : best;
        if (rules)
            rules[s] = best;
    }
}

static void step_part(void *context, int64_t begin, int64_t end)
{
    const one_step *now = context;
    const work memory = work_of(now->space, begin / now->grain);
#define BODY(kind, max, up) step_of_kind(kind, max, up, now, begin, end, &memory)
    FOR_SET(now->all->play->set, now->all->play->maximise, now->all->upward, BODY);
#undef BODY
}

static void step(const steps_of *all, int64_t k, const double *values, double *out, int64_t *rules, const scratch *space)
{
    const int64_t threads = space->threads;
    one_step now = {all, k, share_of(all->states, threads), values, k > 0 ? values - all->states : NULL, out, rules, space,
                    false, false};
    for (int64_t s = 0; s < all->states; s++) {
        now.nothing = now.nothing || values[s] == -INFINITY;
        now.kept = now.kept || (now.before && values[s] == now.before[s]);
        all->safe[s] = values[s] == -INFINITY ? 0.0 : values[s];
    }
    parallel_for(all->states, now.grain, threads, step_part, &now);
}

void horizon_images(const game *play, int64_t states, int64_t steps, bool upward, const bool *decided,
                    const int64_t *given, int64_t stride, const double *values, double *out, double *numbers,
                    const scratch *space)
{
    const steps_of all = {play, states, upward, decided, given, stride, numbers, numbers + play->rows->count};
    for (int64_t k = 0; k < steps; k++)
        step(&all, k, values + k * states, out + k * states, NULL, space);
}

void horizon_backward(const game *play, int64_t states, int64_t steps, bool upward, const bool *decided,
                      const int64_t *given, int64_t stride, double *values, const double *other, int64_t *rules,
                      double *numbers, const scratch *space)
{
    const steps_of all = {play, states, upward, decided, given, stride, numbers, numbers + play->rows->count};
    for (int64_t k = 0; k < steps; k++, values += states) {
        double *image = values + states;
        const double *limit = other ? other + (k + 1) * states : NULL;
        step(&all, k, values, image, rules ? rules + k * states : NULL, space);
        for (int64_t s = 0; s < states; s++) {
            if (image[s] != image[s]) /* differences beyond the largest float: a trivial bound */
                image[s] = upward ? INFINITY : -INFINITY;
            if (!decided[s] && image[s] != 0.0 && fabs(image[s]) < SMALLEST && (image[s] > 0.0 || upward))
                image[s] = upward ? SMALLEST : 0.0;
            if (limit)
                image[s] = upward ? larger(image[s], limit[s]) : smaller(image[s], limit[s]);
        }
    }
}
