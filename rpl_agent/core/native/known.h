/* A question about a game against a known nature, for decided.c and known.c. */
#ifndef RPL_KNOWN_H
#define RPL_KNOWN_H

#include "sweeps.h"

/* In place of a row where the play stops. */
#define NO_ROW -1
/* The place of states that are not in the part. */
#define OUTSIDE -1
/* In place of the member of an end component behind the last. */
#define NO_STATE -1

/* One problem, with arrays of all states (S) and of the part that is being solved, by its places in `order` (n). */
typedef struct known {
    const game *play;
    const graph *g;
    const scratch *space;
    const bool *target;                 /* (S) */
    bool reach, must_reach;
    bool stops;                         /* the agent may stop a play, for 0 */
    bool only_free;                     /* the graph is searched without rows that pay */
    const double *chances;              /* (F) */
    const int32_t *expression;          /* (T) */
    double *low, *high, *value, *image; /* (S) */
    int64_t *place, *rows;              /* (S), OUTSIDE of the part */
    int64_t n, *order, *chosen;
    double *x, *steps, *rhs, *krylov;
    double *waiting;     /* the steps that the agent's own rows stay in an end component */
    double longest_wait; /* the most of them; 0 without end components */
    double least;        /* the least margin that differs from rounding */
    /* rows first[i]..first[i + 1] of each place: base + offset scale + sum of weight x[target_of] is a row's value, without
     * its own loop, where a step pays `offset` more; the best one is picked */
    int32_t *first, *entry, *target_of, *pick;
    /* Whether there are end components in which the agent can loop for free; then (S) the state that stands for all of one,
     * and the next member, NO_STATE after the last; and (R) the row of the model that a loaded one is. */
    bool loops;
    int32_t *hub, *mate, *row_of;
    double *weight, *base, *scale;
    /* the chain of picked rows: x = rhs + data x[indices] */
    int32_t *indptr, *indices;
    double *data;
    int64_t left; /* places that sweeps look at: see skip_ways */
    int32_t *root, *kept;
    double *shift; /* what is paid on the way from a place to its root */
    double *pace;  /* the factor by which a place moves further than its row says */
    double change; /* the largest of the last full sweep */
    double most;   /* if the agent may stop: a larger total ends the search */
    int64_t sweeps, budget, slow;
} known;

/* Whether the transition t can happen. */
INLINE bool possible(const known *k, int64_t t)
{
    return k->chances[k->expression[t]] > 0.0;
}

/* The probability of the transition t of a row; that of an only one is not rounded. */
INLINE double chance_of(const known *k, int64_t row, int64_t t)
{
    return k->g->row_ptr[row + 1] - k->g->row_ptr[row] == 1 ? 1.0 : k->chances[k->expression[t]];
}

/* start + sum of weights of the entries from..to times x, as two sums: one would wait for each of its terms. */
INLINE double plus_row(double start, const double *weight, const int32_t *places, int32_t from, int32_t to, const double *x)
{
    double other = 0.0;
    for (; from + 1 < to; from += 2) {
        start += weight[from] * x[places[from]];
        other += weight[from + 1] * x[places[from + 1]];
    }
    if (from < to)
        start += weight[from] * x[places[from]];
    return start + other;
}

/* The state that stands for s: its own, or that of its end component. */
INLINE int64_t hub_of(const known *k, int64_t s)
{
    return k->loops ? k->hub[s] : s;
}

/* Gives states the values that the graph decides and marks them in `done` (S), decided states on entry; finds the end
 * components of the rest. False where that is not for sweeps. Scratch: sets (3 S), space (9 S + 2). */
bool decide(known *k, bool *done, bool *sets, int64_t *space);

/* Whether a row is free and stays in the end component of its state s. */
bool holds(const known *k, int64_t s, int64_t row);

/* Finds the end components of the rows that stay in `held` (S) for free; false if that takes too many rounds. Scratch: out
 * (S), space (9 S + 2). */
bool find_end_components(known *k, const bool *held, bool *out, int64_t *space);

/* Chooses rows towards the way out that was chosen for its hub, in all members of each end component, and lists their places
 * in `kept`, those closer to it first, and their turns in `root`; how many, -1 if there is no such row. */
int64_t lead_out(known *k);

/* Gives all members of an end component what its hub has in x (n). */
void level(const known *k, double *x);

/* `components`, with the states of each by their numbers, the largest first: memory is read in that order. */
void find_parts(const graph *g, const bool *done, int64_t *all, int64_t *component, int64_t *space);

/* Orders the component states[0..n] by the number of steps to those ends that are worth something. */
void order_part(known *k, int64_t n, const int64_t *states);

/* Reads the rows of the part, with the values of its exits. */
void load_part(known *k);

/* One sweep over the part, in place; picks the rows that are best if a step pays `offset` more, and writes their chain. */
void full_sweep(known *k, double offset);

/* Writes the chain of the chosen rows that hold in end components, for the `members` places that are listed in `kept` at the
 * turns in `root`, where a step pays 1. */
void write_waiting(known *k, int64_t members);

/* Leaves places that lead to one other place only out of the chain. */
void skip_ways(known *k);

/* Values x (n) of the places that sweeps left out. */
void fill_ways(const known *k, double *x);

/* Sweeps until values change by at most `tolerance`; false if that takes too many. */
bool approach(known *k, double tolerance, double offset);

/* N with N >= 1/2 + P N, about the expected number of steps by the chosen rows, from the last one on; false if that takes
 * too many sweeps. */
bool count_steps(known *k);

/* Leads out of end components and counts `waiting`; false if there is no way, or if it takes too many sweeps. */
bool count_waiting(known *k);

#endif
