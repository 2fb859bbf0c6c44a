/* Finite horizons, step by step from the end, from one side. A row whose successors kept their values keeps its total. */
#include "sweeps.h"
#include "threads.h"

/* States that are totalled before their rows are chosen. */
#define AT_ONCE 2048
/* One side of a horizon. */
typedef struct steps_of {
    const game *play;
    int64_t states;
    bool upward;
    const bool *decided;
    const int64_t *given; /* what is played with this many steps to go; NULL: the game's agent decides */
    int64_t stride;
    double *totals, *safe; /* (R), (S): values without -inf */
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
    bool nothing; /* whether some value is -inf */
} one_step;

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

/* Totals of the rows of the states from `begin` to `end`. They stay where the values of their successors are those of the
 * step before. */
INLINE void step_totals(int kind, bool maximise, bool upward, const one_step *now, int64_t begin, int64_t end,
                        const work *memory)
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
        if (all->decided[s])
            continue;
        const int64_t first = given ? given[s] : state_ptr[s], last = given ? first + 1 : state_ptr[s + 1];
        const bool known = now->before && (!given || given[s] == given[s - all->stride]);
        for (int64_t row = first; row < last; row++) {
            int64_t a = row_ptr[row], b = row_ptr[row + 1];
            if ((weights && !(weights[row] > 0.0)) || (known && !moved(&in, a, b, values, now->before)))
                continue;
            int32_t *start = kind > INTERVAL ? memory_of(set, row) : NULL;
            if (start && *start >= 0)
                vertex = *start;
            double q = row_bound(kind, a, b, safe, maximise, upward, &in, set, memory, &vertex, &width);
            if (start)
                *start = (int32_t)vertex;
            if (now->nothing && meets_nothing(&in, a, b, values))
                q = -INFINITY;
            totals[row] = row_total(q, play->reward[row], play->gamma, upward);
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
    for (int64_t from = begin, to; from < end; from = to) { /* totals are in the cache when rows are chosen by them */
        to = from + AT_ONCE < end ? from + AT_ONCE : end;
#define BODY(kind, max, up) step_totals(kind, max, up, now, from, to, &memory)
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
    one_step now = {all, k, share_of(states, threads), values, k > 0 ? values - states : NULL, out, rules, space, false};
    for (int64_t s = 0; s < states; s++)
        now.nothing |= values[s] == -INFINITY;
    for (int64_t s = 0; s < states && now.nothing; s++)
        all->safe[s] = values[s] == -INFINITY ? 0.0 : values[s];
    parallel_for(states, now.grain, threads, step_part, &now);
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
            if (fabs(image[s]) < SMALLEST && image[s] != 0.0 && !decided[s] && (image[s] > 0.0 || upward))
                image[s] = upward ? SMALLEST : 0.0;
            if (limit)
                image[s] = upward ? larger(image[s], limit[s]) : smaller(image[s], limit[s]);
        }
    }
}
