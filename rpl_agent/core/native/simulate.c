/* Simulation: episodes under a memoryless policy, the lanes of a vector environment, Q-learning.
 * Every stream of random numbers is xoshiro256++ with its state in an array of the caller, so a run resumes bit for bit. */
#include <math.h>

#include "core.h"
#include "threads.h"

/* Lanes that one thread takes at a time: fewer would cost less than to start it. */
#define LANES_PER_PART 4096

static uint64_t rotate(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

double next_double(uint64_t *state)
{
    uint64_t result = rotate(state[0] + state[3], 23) + state[0], t = state[1] << 17;
    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= t;
    state[3] = rotate(state[3], 45);
    return (double)(result >> 11) * 0x1p-53;
}

void seed_state(uint64_t seed, uint64_t *state)
{
    for (int i = 0; i < 4; i++) {
        uint64_t z = seed += 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        state[i] = z ^ (z >> 31);
    }
}

void cumulate(int64_t count, const int64_t *pointer, const double *weights, double *out)
{
    for (int64_t i = 0; i < count; i++) {
        double total = 0.0;
        int64_t last = pointer[i];
        for (int64_t k = pointer[i]; k < pointer[i + 1]; k++) {
            total += weights[k];
            out[k] = total;
            if (weights[k] > 0.0)
                last = k;
        }
        for (int64_t k = last; k < pointer[i + 1]; k++)
            out[k] = 1.0;
    }
}

/* The first index in [low, high) whose running sum exceeds u. */
static int64_t draw(const double *cumulative, int64_t low, int64_t high, double u)
{
    while (low < high - 1 && cumulative[low] <= u)
        low++;
    return low;
}

/* A transition of row r. */
static int64_t draw_transition(const world *w, int64_t r, double u)
{
    return draw(w->cumulative, w->row_ptr[r], w->row_ptr[r + 1], u);
}

int64_t run_episodes(const world *w, const double *policy, int64_t max_steps, int64_t episodes, uint64_t *rng,
                     int64_t *counts, const limits *until, const worth *asked, double *returns, double *values,
                     int64_t *lengths, int64_t *last, bool *stopped)
{
    int64_t done = 0;
    *stopped = false;
    for (; done < episodes && !*stopped; done++) {
        int64_t s = w->initial, steps = 0;
        double total = 0.0, value = 0.0, weight = 1.0, next_weight = 1.0;
        while ((steps < max_steps || w->silent[s]) && !w->stop[s]) {
            int64_t r = draw(policy, w->state_ptr[s], w->state_ptr[s + 1], next_double(rng));
            int64_t t = draw_transition(w, r, next_double(rng));
            counts[t]++;
            total += w->reward[r];
            if (until->row_limit && ++until->row_count[r] >= until->row_limit[r])
                *stopped = true;
            if (until->expression_limit) {
                int64_t f = until->expression[t];
                if (++until->expression_count[f] >= until->expression_limit[f])
                    *stopped = true;
            }
            bool between = w->silent[s] && steps > 0; /* a silent state belongs to the step before it */
            if (!w->silent[s]) {
                weight = next_weight;
                next_weight *= asked->discount;
            }
            if (steps - between < asked->horizon)
                value += weight * (!asked->gain ? w->reward[r] : between ? 0.0 : asked->gain[t]);
            steps += !w->silent[s];
            s = w->successor[t];
        }
        if (w->stop[s]) {
            total += w->arrival[s];
            if (!asked->gain && steps <= asked->horizon)
                value += weight * w->arrival[s];
        }
        returns[done] = total;
        values[done] = value;
        lengths[done] = steps;
        last[done] = s;
    }
    return done;
}

/* The state after the silent ones that begin at s; what they pay is added to *paid. */
static int64_t pass_silent(const world *w, int64_t s, uint64_t *rng, double *paid)
{
    while (w->silent[s]) {
        int64_t r = w->state_ptr[s];
        *paid += w->reward[r];
        double u = w->row_ptr[r + 1] - w->row_ptr[r] > 1 ? next_double(rng) : 0.0;
        s = w->successor[draw_transition(w, r, u)];
    }
    return s;
}

/* The first state of an episode. */
static int64_t start(const world *w, uint64_t *rng)
{
    double paid = 0.0;
    return pass_silent(w, w->initial, rng, &paid);
}

void reset_lanes(const world *w, const lanes *l, const bool *which)
{
    for (int64_t i = 0; i < l->count; i++)
        if (which[i]) {
            l->state[i] = start(w, l->rng + 4 * i);
            l->steps[i] = 0;
            l->over[i] = false;
        }
}

int64_t find_rows(const world *w, const int32_t *row_action, const lanes *l, const int64_t *actions, const bool *skip)
{
    int64_t bad = -1;
    for (int64_t i = 0; i < l->count; i++) {
        l->row[i] = -1;
        if (skip[i])
            continue;
        for (int64_t r = w->state_ptr[l->state[i]]; r < w->state_ptr[l->state[i] + 1]; r++)
            if (row_action[r] == actions[i])
                l->row[i] = r;
        if (l->row[i] < 0 && bad < 0)
            bad = i;
    }
    return bad;
}

typedef struct {
    const world *w;
    const lanes *l;
    bool same_step;
    int64_t *final;
    double *rewards;
    bool *terminations, *truncations;
} lane_step;

static void step_part(void *context, int64_t begin, int64_t end)
{
    const lane_step *step = context;
    const world *w = step->w;
    const lanes *l = step->l;
    for (int64_t i = begin; i < end; i++) {
        uint64_t *rng = l->rng + 4 * i;
        int64_t r = l->row[i];
        if (r < 0) {
            l->state[i] = step->final[i] = start(w, rng);
            l->steps[i] = 0;
            step->rewards[i] = 0.0;
            step->terminations[i] = step->truncations[i] = l->over[i] = false;
            continue;
        }
        double paid = 0.0;
        int64_t s = l->state[i];
        if (!w->stop[s]) { /* else the start is an end: the first step stays there */
            s = pass_silent(w, w->successor[draw_transition(w, r, next_double(rng))], rng, &paid);
            paid += w->reward[r];
        }
        l->steps[i]++;
        step->rewards[i] = paid + w->arrival[s];
        step->terminations[i] = w->stop[s];
        step->truncations[i] = l->max_steps > 0 && l->steps[i] >= l->max_steps;
        l->over[i] = step->terminations[i] || step->truncations[i];
        step->final[i] = s;
        if (l->over[i] && step->same_step) {
            s = start(w, rng);
            l->steps[i] = 0;
        }
        l->state[i] = s;
    }
}

void step_lanes(const world *w, const lanes *l, bool same_step, int64_t threads, int64_t *final, double *rewards,
                bool *terminations, bool *truncations)
{
    lane_step step = {w, l, same_step, final, rewards, terminations, truncations};
    parallel_for(l->count, LANES_PER_PART, threads, step_part, &step);
}

void action_masks(int64_t count, int64_t actions, const int64_t *state_ptr, const int32_t *row_action,
                  const int64_t *states, int8_t *out)
{
    for (int64_t k = 0; k < count * actions; k++)
        out[k] = 0;
    for (int64_t i = 0; i < count; i++)
        for (int64_t r = state_ptr[states[i]]; r < state_ptr[states[i] + 1]; r++)
            out[i * actions + row_action[r]] = 1;
}

/* The first row of the largest q in [low, high). */
static int64_t greedy(const double *q, int64_t low, int64_t high)
{
    int64_t best = low;
    for (int64_t r = low + 1; r < high; r++)
        if (q[r] > q[best])
            best = r;
    return best;
}

int64_t q_episodes(const world *w, const learning *how, const bool *terminal, int64_t max_steps, int64_t first,
                   int64_t episodes, uint64_t *rng, double *q, int64_t *visits)
{
    int64_t total = 0;
    for (int64_t k = first; k < first + episodes; k++) {
        double epsilon = fmax(how->epsilon_min, 1.0 - (double)k / how->decay);
        int64_t s = w->initial, steps = 0;
        while ((steps < max_steps || w->silent[s]) && !w->stop[s]) {
            int64_t low = w->state_ptr[s], high = w->state_ptr[s + 1], r;
            if (next_double(rng) < epsilon)
                r = low + (int64_t)(next_double(rng) * (double)(high - low));
            else
                r = greedy(q, low, high);
            int64_t following = w->successor[draw_transition(w, r, next_double(rng))];
            double goal = w->reward[r] + w->arrival[following];
            if (!terminal[following])
                goal += how->discount * q[greedy(q, w->state_ptr[following], w->state_ptr[following + 1])];
            visits[r]++;
            q[r] += pow((double)visits[r], -how->omega) * (goal - q[r]);
            steps += !w->silent[s];
            s = following;
        }
        total += steps;
    }
    return total;
}
