/* Finite horizons, step by step from the end, from one side.
 *
 * A step is small and there are many, so what stays the same is worked out once: of a row with one or two successors, the
 * share of the one that nature avoids, whichever that will be (`pair_share`). Such rows are bounded in blocks, by vector
 * instructions. All others go through `row_bound`, as does every row where values are extreme or a policy is given. */
#include "sweeps.h"
#include "threads.h"

/* Rows that are bounded side by side. */
#define BLOCK 8
/* Below this size of values and rewards, sums of a few do not overflow. */
#define MODERATE 1e300
/* States that are totalled before their rows are chosen. */
#define AT_ONCE 2048
/* From this many steps on it pays to prepare rows. */
#define MANY_STEPS 2

/* Short rows by number, `count` of them: successors x and y, the share of x where nature avoids it, and of y, what is
 * missing, the sizes that `paid` rounds by. A share below 0 marks a row that is not short, whose total is in `others`, and
 * `mixed` (S) open states that have one. */
typedef struct short_rows {
    int64_t count;
    int32_t *x, *y;
    double *x_share, *y_share, *x_missing, *y_missing, *unit, *size, *others, *mixed;
} short_rows;

/* One side of a horizon. */
typedef struct steps_of {
    const game *play;
    int64_t states;
    bool upward;
    const bool *decided;
    const int64_t *given; /* what is played with this many steps to go; NULL: the game's agent decides */
    int64_t stride;
    double *totals, *safe;      /* (R), (S): values without -inf */
    const short_rows *prepared; /* NULL: none */
} steps_of;

/* Step k: out (S) = bounds of T values; `rules` (S), if any: the best rows, the first among equals. `before`: the values of
 * step k - 1, NULL: none. */
typedef struct one_step {
    const steps_of *all;
    int64_t k, grain;
    const double *values, *before;
    double *out;
    int64_t *rules;
    const scratch *space;
    bool nothing, moderate; /* whether some value is -inf, and none is extreme */
} one_step;

/* ---------------------------------------------------------------------- short rows */

/* `pair_bound` once more, bit for bit (a test compares them), in pieces that do not depend on values and one without branches.
 * Where each row is looked at once, its branches are a fifth faster. */

/* Nature's value from low to high (maximise: from high to low) moved by a share of the way, rounded to a side, without
 * branches: shares carry a relative error only, so that one of 0 gives an exact result. `undecided`: what mass that nobody
 * decides may change. */
INLINE double share_bound(double low, double high, double share, double undecided, bool maximise, bool upward)
{
    const double total = share * (high - low), sum = maximise ? high - total : low + total;
    double error = UNIT_ROUNDOFF * (8.0 * total + 2.0 * fabs(sum) + FAINT) + undecided;
    error = share > 0.0 ? error : 0.0;
    double result = upward ? sum + error : sum - error;
    result = result > high ? high : result;
    return result < low ? low : result;
}

/* The share of the successor that nature avoids in a row with two, `far`: as little as its own lower bound and the other's
 * upper bound allow. *most: as much as the others allow, less by rounding where bounds miss a distribution. */
INLINE double pair_share(double lower_near, double upper_near, double lower_far, double upper_far, double *most)
{
    *most = smaller(upper_far, 1.0 - lower_near);
    return larger(lower_far, 1.0 - upper_near);
}

/* Whether such a row leads there only. Beside 1e-20, 1 is 1 - 1e-20, rounded. */
INLINE bool is_certain(double lower_near, double upper_near, double lower_far)
{
    return !(upper_near > 0.0) || (lower_far >= 1.0 && !(lower_near > 0.0));
}

/* Writes a row; false where it is not short. */
static bool prepare_row(const game *play, int64_t row, const short_rows *out)
{
    const interval_rows in = intervals_of(play->rows, play->set);
    const int64_t a = play->rows->row_ptr[row], b = play->rows->row_ptr[row + 1] - 1;
    const int32_t f = in.expression[a], g = in.expression[b];
    const double reward = play->reward[row];
    bool is_short = b - a < 2 && fabs(reward) < MODERATE && (reward != 0.0 || play->gamma == 1.0);
    out->x[row] = in.successor[a];
    out->y[row] = in.successor[b];
    out->x_share[row] = out->y_share[row] = out->x_missing[row] = out->y_missing[row] = 0.0;
    if (b - a == 1) {
        double x_most, y_most;
        out->x_share[row] = pair_share(in.lower[g], in.upper[g], in.lower[f], in.upper[f], &x_most);
        out->y_share[row] = pair_share(in.lower[f], in.upper[f], in.lower[g], in.upper[g], &y_most);
        out->x_missing[row] = larger(out->x_share[row] - x_most, 0.0);
        out->y_missing[row] = larger(out->y_share[row] - y_most, 0.0);
        is_short = is_short && !is_certain(in.lower[g], in.upper[g], in.lower[f])
                   && !is_certain(in.lower[f], in.upper[f], in.lower[g]);
    }
    out->unit[row] = reward != 0.0 ? PAID_UNIT : 0.0;
    out->size[row] = 2.0 * fabs(reward);
    if (!is_short)
        out->x_share[row] = -1.0;
    return is_short;
}

/* Short rows in memory (8 R + S). */
static short_rows prepare(const game *play, int64_t states, const bool *decided, double *memory)
{
    const int64_t rows = play->rows->count;
    int32_t *to = (int32_t *)(memory + 7 * rows + states);
    short_rows out = {0, to, to + rows, memory, memory + rows, memory + 2 * rows, memory + 3 * rows,
                      memory + 4 * rows, memory + 5 * rows, memory + 6 * rows, memory + 7 * rows};
    for (int64_t s = 0; s < states; s++) {
        out.mixed[s] = 0.0;
        for (int64_t row = play->state_ptr[s]; row < play->state_ptr[s + 1]; row++)
            if (prepare_row(play, row, &out))
                out.count++;
            else if (!decided[s])
                out.mixed[s] = 1.0;
    }
    return out;
}

/* What a short row pays in all, its successors being worth x and y: `paid` of `share_bound`. */
INLINE double short_total(int64_t row, double x, double y, const short_rows *rows, const double *reward, double gamma,
                          bool maximise, bool upward)
{
    const double x_share = rows->x_share[row], y_share = rows->y_share[row];
    const double x_missing = rows->x_missing[row], y_missing = rows->y_missing[row];
    const bool avoids_y = maximise ? x > y : x < y;
    const double share = avoids_y ? y_share : x_share, missing = avoids_y ? y_missing : x_missing;
    const double low = x < y ? x : y, high = x < y ? y : x;
    const double q = share_bound(low, high, share, missing * (high - low), maximise, upward);
    const double sum = reward[row] + gamma * q, error = rows->unit[row] * (fabs(sum) + rows->size[row] + FAINT);
    return upward ? sum + error : sum - error;
}

/* totals of the rows from `begin` to `end`, as if all were short. */
INLINE void short_totals(bool maximise, bool upward, int64_t begin, int64_t end, const short_rows *prepared,
                         const double *values, const double *reward, double gamma, double *restrict totals)
{
    const short_rows rows = *prepared;
    int64_t row = begin;
    for (; row + BLOCK <= end; row += BLOCK) {
        double x[BLOCK], y[BLOCK];
        for (int i = 0; i < BLOCK; i++) {
            x[i] = values[rows.x[row + i]];
            y[i] = values[rows.y[row + i]];
        }
        for (int i = 0; i < BLOCK; i++)
            totals[row + i] = short_total(row + i, x[i], y[i], &rows, reward, gamma, maximise, upward);
    }
    for (; row < end; row++)
        totals[row] = short_total(row, values[rows.x[row]], values[rows.y[row]], &rows, reward, gamma, maximise, upward);
}

/* ---------------------------------------------------------------------- steps */

/* Whether a row may lead to a value of -inf, a trivial bound: then its own is trivial. */
static bool meets_nothing(const interval_rows *in, int64_t a, int64_t b, const double *values)
{
    for (int64_t t = a; t < b; t++)
        if (values[in->successor[t]] == -INFINITY && in->upper[in->expression[t]] > 0.0)
            return true;
    return false;
}

INLINE bool moved(const interval_rows *in, int64_t a, int64_t b, const double *values, const double *before)
{
    for (int64_t t = a; t < b; t++)
        if (values[in->successor[t]] != before[in->successor[t]])
            return true;
    return false;
}

/* What is played with k + 1 steps to go, NULL: the agent's choice. */
INLINE const int64_t *given_rows(const one_step *now)
{
    return now->all->given ? now->all->given + now->k * now->all->stride : NULL;
}

/* Totals of rows that are not short in the states from `begin` to `end`. They stay where the values of their successors are
 * those of the step before. */
INLINE void long_totals(int kind, bool maximise, bool upward, const one_step *now, int64_t begin, int64_t end,
                        const short_rows *done, const work *memory)
{
    const steps_of *all = now->all;
    const game *play = all->play;
    const row_set *set = play->set;
    const interval_rows in = intervals_of(play->rows, set);
    const int64_t *state_ptr = play->state_ptr, *row_ptr = play->rows->row_ptr, *given = given_rows(now);
    const double *weights = play->agent == FIXED_AGENT && !given ? play->weights : NULL;
    const double *values = now->values, *safe = now->nothing ? all->safe : values;
    double width, *totals = all->totals;
    int64_t vertex = 0;
    for (int64_t s = begin; s < end; s++) {
        if (done ? done->mixed[s] == 0.0 : all->decided[s])
            continue;
        const int64_t first = given ? given[s] : state_ptr[s], last = given ? first + 1 : state_ptr[s + 1];
        const bool known = now->before && (!given || given[s] == given[s - all->stride]);
        for (int64_t row = first; row < last; row++) {
            int64_t a = row_ptr[row], b = row_ptr[row + 1];
            if ((done && done->x_share[row] >= 0.0) || (weights && !(weights[row] > 0.0)))
                continue;
            if (known && !moved(&in, a, b, values, now->before)) {
                totals[row] = done ? done->others[row] : totals[row];
                continue;
            }
            int32_t *start = kind > INTERVAL ? memory_of(set, row) : NULL;
            if (start && *start >= 0)
                vertex = *start;
            double q = row_bound(kind, a, b, safe, maximise, upward, &in, set, memory, &vertex, &width);
            if (start)
                *start = (int32_t)vertex;
            if (now->nothing && meets_nothing(&in, a, b, values))
                q = -INFINITY;
            totals[row] = row_total(q, play->reward[row], play->gamma, upward);
            if (all->prepared)
                all->prepared->others[row] = totals[row];
        }
    }
}

/* From totals to values. */
INLINE void choose(const one_step *now, bool upward, bool max_agent, int64_t begin, int64_t end)
{
    const steps_of *all = now->all;
    const game *play = all->play;
    const int64_t *state_ptr = play->state_ptr, *given = given_rows(now);
    const double *totals = all->totals;
    const bool draws = play->agent == FIXED_AGENT && !given;
    for (int64_t s = begin; s < end; s++) {
        const int64_t first = given ? given[s] : state_ptr[s], last = given ? first + 1 : state_ptr[s + 1];
        int64_t best = first;
        double value = totals[first];
        for (int64_t row = first + 1; row < last && !draws; row++)
            if (max_agent ? totals[row] > value : totals[row] < value) {
                value = totals[row];
                best = row;
            }
        if (draws)
            value = state_image(first, last, totals, FIXED_AGENT, play->weights, upward);
        now->out[s] = all->decided[s] ? now->values[s] : value;
        if (now->rules)
            now->rules[s] = all->decided[s] ? first : best;
    }
}

static void step_part(void *context, int64_t begin, int64_t end)
{
    const one_step *now = context;
    const steps_of *all = now->all;
    const game *play = all->play;
    const work memory = work_of(now->space, begin / now->grain);
    const short_rows *done = now->moderate ? all->prepared : NULL;
    for (int64_t from = begin, to; from < end; from = to) { /* totals are in the cache when rows are chosen by them */
        to = from + AT_ONCE < end ? from + AT_ONCE : end;
        const int64_t first = play->state_ptr[from], last = play->state_ptr[to];
#define BODY(kind, max, up) short_totals(max, up, first, last, done, now->values, play->reward, play->gamma, all->totals)
        if (done)
            FOR_SIDE(ANY, play->maximise, all->upward, BODY);
#undef BODY
#define BODY(kind, max, up) long_totals(kind, max, up, now, from, to, done, &memory)
        FOR_SET(play->set, play->maximise, all->upward, BODY);
#undef BODY
        if (play->agent == MAX_AGENT)
            choose(now, all->upward, true, from, to);
        else
            choose(now, all->upward, false, from, to);
    }
}

static void step(const steps_of *all, int64_t k, const double *values, double *out, int64_t *rules, const scratch *space)
{
    const int64_t states = all->states, threads = space->threads;
    one_step now = {all, k, share_of(states, threads), values, k > 0 ? values - states : NULL, out, rules, space,
                    false, true};
    for (int64_t s = 0; s < states; s++)
        now.moderate &= fabs(values[s]) < MODERATE;
    for (int64_t s = 0; s < states && !now.moderate; s++) {
        now.nothing |= values[s] == -INFINITY;
        all->safe[s] = values[s] == -INFINITY ? 0.0 : values[s];
    }
    parallel_for(states, now.grain, threads, step_part, &now);
}

void horizon_images(const game *play, int64_t states, int64_t steps, bool upward, const bool *decided,
                    const int64_t *given, int64_t stride, const double *values, double *out, double *numbers,
                    const scratch *space)
{
    /* nothing is prepared: checks are made of this, and must not repeat an error of a solve */
    const steps_of all = {play, states, upward, decided, given, stride, numbers, numbers + play->rows->count, NULL};
    for (int64_t k = 0; k < steps; k++)
        step(&all, k, values + k * states, out + k * states, NULL, space);
}

void horizon_backward(const game *play, int64_t states, int64_t steps, bool upward, const bool *decided,
                      const int64_t *given, int64_t stride, double *values, const double *other, int64_t *rules,
                      double *numbers, const scratch *space)
{
    const int64_t rows = play->rows->count;
    short_rows prepared = {0};
    if (!given && steps >= MANY_STEPS)
        prepared = prepare(play, states, decided, numbers + rows + states);
    const steps_of all = {play, states, upward, decided, given, stride, numbers, numbers + rows,
                          2 * prepared.count > rows ? &prepared : NULL}; /* few short rows are not worth a pass */
    for (int64_t k = 0; k < steps; k++, values += states) {
        double *image = values + states;
        const double *limit = other ? other + (k + 1) * states : NULL;
        step(&all, k, values, image, rules ? rules + k * states : NULL, space);
        for (int64_t s = 0; s < states; s++) {
            if (image[s] != image[s]) /* differences beyond the largest float: a trivial bound */
                image[s] = upward ? INFINITY : -INFINITY;
            if (fabs(image[s]) < SMALLEST && image[s] != 0.0 && !decided[s] && (image[s] > 0.0 || upward))
                image[s] = upward ? SMALLEST : 0.0;
            if (limit)
                image[s] = upward ? larger(image[s], limit[s]) : smaller(image[s], limit[s]);
        }
    }
}
