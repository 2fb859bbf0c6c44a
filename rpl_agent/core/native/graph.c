/* Graph analysis: the sets in which a player can hold the play, leave for sure, or keep totals finite;
 * the cheapest way out.
 *
 * A *local model* has states 0..count-1 with rows and exits count..size-1 without. Graph questions see nature
 * through bounds per transition, lo and hi (T): it *can stay* in a set X at a row if lo is 0 outside X and the sum of
 * hi inside X is at least 1; both are decided exactly, which is right for intervals. For regions the bounds are the
 * hull, which may allow what no point of the region does; so if it lets nature stay the region is queried too:
 * nature cannot stay if the least mass outside X is proved to be positive. A nature that does not want to stay is
 * given by lo = NULL: it stays only where hi leaves it no way out. */
#include <string.h>

#include "rows.h"

/* ---------------------------------------------------------------------- what nature can do in a row */

/* Whether the bounds of a row's other transitions sum to at least 1. */
static bool others_reach_one(int64_t t, int64_t a, int64_t b, const double *bound, const int32_t *expression)
{
    exact_sum sum = {{0}, false};
    for (int64_t j = a; j < b; j++)
        if (j != t)
            add_exactly(&sum, bound[expression[j]]);
    return reaches_one(&sum);
}

void attainable(const row_arrays *model, const double *lower, const double *upper, double *lo, double *hi)
{
    const int32_t *expression = model->expression;
    for (int64_t row = 0; row < model->count; row++) {
        int64_t a = model->row_ptr[row], b = model->row_ptr[row + 1];
        double least = 0.0, most = 0.0, margin = 4.0 * (b - a) * UNIT_ROUNDOFF;
        for (int64_t t = a; t < b; t++) {
            lo[t] = lower[expression[t]];
            hi[t] = upper[expression[t]];
            least += lo[t];
            most += hi[t];
        }
        for (int64_t t = a; t < b; t++) {
            if (lower[expression[t]] > 0.0 || upper[expression[t]] == 0.0)
                continue;
            if (least < 1.0 - margin && most - hi[t] > 1.0 + margin)
                continue;
            if (others_reach_one(t, a, b, lower, expression))
                hi[t] = 0.0;
            else if (!others_reach_one(t, a, b, upper, expression))
                lo[t] = smaller(larger(1.0 - (most - hi[t]), 1e-300), hi[t]);
        }
    }
}

/* Whether every distribution of the transitions a..b stays inside the set. */
static bool only(int64_t a, int64_t b, const bool *inside, const int32_t *successor, const double *hi)
{
    for (int64_t t = a; t < b; t++)
        if (hi[t] > 0.0 && !inside[successor[t]])
            return false;
    return true;
}

/* Whether some distribution of the transitions a..b puts mass on the set. */
static bool touches(int64_t a, int64_t b, const bool *inside, const int32_t *successor, const double *hi)
{
    for (int64_t t = a; t < b; t++)
        if (hi[t] > 0.0 && inside[successor[t]])
            return true;
    return false;
}

/* Whether bounds let nature keep all mass of the transitions a..b inside the set; `successor` NULL: of transitions. */
static bool hull_stays(int64_t a, int64_t b, const bool *inside, const int32_t *successor, const double *lo,
                       const double *hi, bool *leaves)
{
    double mass = 0.0;
    int64_t count = 0;
    *leaves = false;
    for (int64_t t = a; t < b; t++) {
        if (inside[successor ? successor[t] : t]) {
            mass += hi[t];
            count++;
        } else if (lo[t] > 0.0)
            return false;
        else if (hi[t] > 0.0)
            *leaves = true;
    }
    if (!*leaves) /* all of the row's mass, whatever rounding made of its bounds */
        return mass >= 1.0 - FEASIBILITY_TOLERANCE;
    if (fabs(mass - 1.0) > 4.0 * count * UNIT_ROUNDOFF)
        return mass > 1.0;
    exact_sum sum = {{0}, false};
    for (int64_t t = a; t < b; t++)
        if (inside[successor ? successor[t] : t])
            add_exactly(&sum, hi[t]);
    return reaches_one(&sum);
}

void staying_rows(int64_t count, const int64_t *row_ptr, const bool *inside, const double *lo, const double *hi,
                  bool *out)
{
    bool leaves;
    for (int64_t row = 0; row < count; row++)
        out[row] = hull_stays(row_ptr[row], row_ptr[row + 1], inside, NULL, lo, hi, &leaves);
}

/* Whether nature can keep all mass of the transitions a..b inside the set. */
static bool stays(int64_t a, int64_t b, const bool *inside, const int32_t *successor, const moves *of)
{
    bool leaves;
    if (!of->lo)
        return only(a, b, inside, successor, of->hi);
    if (!hull_stays(a, b, inside, successor, of->lo, of->hi, &leaves))
        return false;
    if (!of->set || !leaves || b - a <= 2) /* for two, f and 1 - f, the hull is exact */
        return true;
    const interval_rows in = {successor, of->expression, of->set->lower, of->set->upper};
    const work memory = work_of(of->space, 0);
    for (int64_t t = a; t < b; t++)
        of->outside[successor[t]] = inside[successor[t]] ? 0.0 : 1.0;
    int64_t vertex = 0;
    double width;
    return !(row_bound((int)of->set->kind, a, b, of->outside, false, false, &in, of->set, &memory, &vertex, &width)
             > 0.0);
}

/* ---------------------------------------------------------------------- a queue of states to look at (again) */

void predecessors(const graph *g, int64_t *first, int32_t *sources)
{
    const int64_t *row_ptr = g->row_ptr, *state_ptr = g->state_ptr, transitions = row_ptr[state_ptr[g->count]];
    memset(first, 0, (g->size + 1) * sizeof *first);
    for (int64_t t = 0; t < transitions; t++)
        first[g->successor[t] + 1]++;
    for (int64_t j = 0; j < g->size; j++)
        first[j + 1] += first[j];
    for (int64_t s = 0; s < g->count; s++)
        for (int64_t t = row_ptr[state_ptr[s]]; t < row_ptr[state_ptr[s + 1]]; t++)
            sources[first[g->successor[t]]++] = (int32_t)s;
    memmove(first + 1, first, g->size * sizeof *first); /* each has moved on to where the next begins */
    first[0] = 0;
}

/* All members among the states; a ring of `count` places. */
static void enqueue_all(const graph *g, const bool *members, queue *q)
{
    q->head = q->length = 0;
    for (int64_t s = g->count - 1; s >= 0; s--) { /* models are mostly numbered along the play: start at its end */
        q->waiting[s] = members[s];
        if (members[s])
            q->states[q->length++] = s;
    }
}

static int64_t pop(const graph *g, queue *q)
{
    int64_t s = q->states[q->head];
    q->waiting[s] = false;
    q->head = q->head + 1 == g->count ? 0 : q->head + 1;
    q->length--;
    return s;
}

/* The members that lead to s must be checked again. */
static void enqueue_sources(const graph *g, int64_t s, const bool *members, queue *q)
{
    for (int64_t e = g->first[s]; e < g->first[s + 1]; e++) {
        int32_t u = g->sources[e];
        if (!members[u] || q->waiting[u])
            continue;
        int64_t place = q->head + q->length++;
        q->states[place < g->count ? place : place - g->count] = u;
        q->waiting[u] = true;
    }
}

/* ---------------------------------------------------------------------- where a play can be held */

void hold_set(const graph *g, const moves *of, const int8_t *usable, int64_t quantifier, bool *inside, queue *q)
{
    enqueue_all(g, inside, q);
    while (q->length > 0) {
        int64_t s = pop(g, q);
        bool good = quantifier == ALL_ROWS;
        for (int64_t row = g->state_ptr[s]; row < g->state_ptr[s + 1]; row++) {
            if (usable[row] == 0)
                continue;
            bool held = usable[row] == 2 && stays(g->row_ptr[row], g->row_ptr[row + 1], inside, g->successor, of);
            if (held != good) { /* one row that stays suffices, or one that does not */
                good = held;
                break;
            }
        }
        if (!good) {
            inside[s] = false;
            enqueue_sources(g, s, inside, q);
        }
    }
}

/* A minimiser that keeps its total finite: see `finite_set`. */
typedef struct growth {
    const moves *nature, *leaving; /* the second does not want to stay */
    const bool *played, *pays;
    int64_t quantifier;
    bool nature_helps, must_reach;
} growth;

/* Whether a state stays in X and gets closer to Y or, with `may_loop`, loops unpaid in Z (which contains Y). */
static bool keeps_finite(const graph *g, int64_t s, const growth *of, const bool *X, const bool *Y, const bool *Z,
                         const bool *elsewhere, bool may_loop)
{
    bool good = of->quantifier != ANY_ROW, progress = false, quiet = true;
    for (int64_t row = g->state_ptr[s]; row < g->state_ptr[s + 1]; row++) {
        if (!of->played[row])
            continue;
        int64_t a = g->row_ptr[row], b = g->row_ptr[row + 1];
        bool safe, hits, loops = false;
        if (of->nature_helps) {
            safe = stays(a, b, X, g->successor, of->nature);
            hits = safe && touches(a, b, Y, g->successor, of->nature->hi);
        } else {
            safe = only(a, b, X, g->successor, of->nature->hi);
            hits = !stays(a, b, elsewhere, g->successor, of->nature);
        }
        if (may_loop && !of->pays[row])
            loops = stays(a, b, Z, g->successor, of->nature_helps ? of->nature : of->leaving);
        if (of->quantifier == DRAWN_ROW) { /* a policy that draws rows: all safe; one hits, or all are quiet */
            good = good && safe;
            progress = progress || hits;
            quiet = quiet && loops;
            continue;
        }
        bool fine = safe && (hits || loops);
        if (of->quantifier == ANY_ROW && fine)
            return true;
        if (of->quantifier == ALL_ROWS && !fine)
            return false;
    }
    return of->quantifier == DRAWN_ROW ? good && (progress || quiet) : good;
}

/* open: the states of X that are not in Y yet. */
static void not_yet(const graph *g, const bool *X, const bool *Y, bool *open)
{
    for (int64_t s = 0; s < g->size; s++)
        open[s] = X[s] && !Y[s];
}

/* Y grown by all states that get closer to it, step by step, while they stay in X. */
static void grow_closer(const graph *g, const growth *of, const bool *X, bool *Y, bool *open, bool *elsewhere, queue *q)
{
    not_yet(g, X, Y, open);
    enqueue_all(g, open, q);
    while (q->length > 0) {
        int64_t s = pop(g, q);
        if (!keeps_finite(g, s, of, X, Y, Y, elsewhere, false))
            continue;
        Y[s] = true;
        elsewhere[s] = open[s] = false;
        enqueue_sources(g, s, open, q);
    }
}

/* Y grown by the states that may also loop unpaid among each other; whether there are any. */
static bool grow_looping(const graph *g, const growth *of, const bool *X, bool *Y, bool *Z, bool *open, bool *elsewhere,
                         queue *q)
{
    not_yet(g, X, Y, open);
    for (int64_t s = 0; s < g->size; s++)
        Z[s] = X[s] || Y[s];
    enqueue_all(g, open, q);
    while (q->length > 0) {
        int64_t s = pop(g, q);
        if (keeps_finite(g, s, of, X, Y, Z, elsewhere, true))
            continue;
        Z[s] = open[s] = false;
        enqueue_sources(g, s, open, q);
    }
    bool grown = false;
    for (int64_t s = 0; s < g->count; s++)
        if (open[s]) {
            Y[s] = grown = true;
            elsewhere[s] = false;
        }
    return grown;
}

/* Y = all states that keep the total finite while they stay in X. Who gets closer is found first: a search for loops
 * alone would find one layer of them at a time. */
static void grow_finite(const graph *g, const growth *of, const bool *goal, const bool *X, bool *Y, bool *Z, bool *open,
                        bool *elsewhere, queue *q)
{
    for (int64_t s = 0; s < g->size; s++) {
        Y[s] = goal[s];
        elsewhere[s] = !goal[s];
    }
    do
        grow_closer(g, of, X, Y, open, elsewhere, q);
    while (!of->must_reach && grow_looping(g, of, X, Y, Z, open, elsewhere, q));
}

void finite_set(const graph *g, const moves *nature, const bool *played, const bool *pays, int64_t quantifier,
                bool nature_helps, bool must_reach, const bool *goal, bool *X, int8_t *usable,
                bool *sets, queue *q)
{
    moves leaving = *nature;
    leaving.lo = NULL;
    const growth of = {nature, &leaving, played, pays, quantifier, nature_helps, must_reach};
    const int64_t size = g->size;
    bool *Y = sets, *Z = sets + size, *open = sets + 2 * size, *elsewhere = sets + 3 * size;
    for (int64_t row = 0; row < g->state_ptr[g->count]; row++)
        usable[row] = played[row] ? 2 : 0;
    for (;;) {
        grow_finite(g, &of, goal, X, Y, Z, open, elsewhere, q);
        bool same = true;
        for (int64_t s = 0; s < g->count; s++)
            if (X[s] && !Y[s])
                X[s] = same = false;
        if (same)
            return;
        /* states that cannot stay in X go at once, not layer by layer */
        hold_set(g, nature_helps ? nature : &leaving, usable, quantifier == ANY_ROW ? ANY_ROW : ALL_ROWS, X, q);
    }
}

int64_t progress_rows(const graph *g, const moves *nature, const bool *preferred, const bool *allowed,
                      const bool *pays, bool adversary, int64_t *rows, bool *sets, queue *q)
{
    bool *inside = sets, *outside = sets + g->size;
    int64_t left = g->count;
    for (int64_t s = 0; s < g->size; s++) {
        inside[s] = s >= g->count;
        outside[s] = !inside[s];
    }
    for (int stage = 0; stage < 2; stage++) {
        enqueue_all(g, outside, q);
        while (q->length > 0) {
            int64_t s = pop(g, q);
            for (int64_t row = g->state_ptr[s]; row < g->state_ptr[s + 1]; row++) {
                if (!allowed[row] || (stage == 0 && !preferred[row]))
                    continue;
                int64_t a = g->row_ptr[row], b = g->row_ptr[row + 1];
                bool leaves = adversary ? !stays(a, b, outside, g->successor, nature)
                                        : touches(a, b, inside, g->successor, nature->hi);
                if (!pays[row] && !leaves)
                    continue;
                rows[s] = row;
                inside[s] = true;
                outside[s] = false;
                left--;
                enqueue_sources(g, s, outside, q);
                break;
            }
        }
    }
    return left;
}

bool runs_forward(const graph *g, const bool *members, const int8_t *usable, const int32_t *rank)
{
    for (int64_t s = 0; s < g->count; s++) {
        if (!members[s])
            continue;
        bool played = false;
        for (int64_t row = g->state_ptr[s]; row < g->state_ptr[s + 1]; row++) {
            played = played || !usable || usable[row] > 0;
            if (usable && usable[row] != 2)
                continue;
            for (int64_t t = g->row_ptr[row]; t < g->row_ptr[row + 1]; t++) {
                int32_t i = g->successor[t];
                if ((rank ? rank[i] <= rank[s] : i <= s) && members[i])
                    return false;
            }
        }
        if (!played)
            return false;
    }
    return true;
}

/* ---------------------------------------------------------------------- the cheapest path to an exit */

/* Whether node a comes before node b. */
static bool cheaper(const double *cost, int64_t a, int64_t b)
{
    return cost[a] < cost[b] || (cost[a] == cost[b] && a < b);
}

/* Moves a node up to its place in a heap, whose places are kept in `place`. */
static void sift_up(int64_t node, const double *cost, int64_t *heap, int64_t *place)
{
    int64_t at = place[node];
    for (; at > 0 && cheaper(cost, node, heap[(at - 1) / 2]); at = (at - 1) / 2) {
        heap[at] = heap[(at - 1) / 2];
        place[heap[at]] = at;
    }
    heap[at] = node;
    place[node] = at;
}

/* Takes the cheapest node out of a heap of `length`. */
static int64_t take_first(int64_t length, const double *cost, int64_t *heap, int64_t *place)
{
    int64_t first = heap[0], node = heap[length - 1], at = 0;
    for (int64_t child = 1; child < length - 1; child = 2 * at + 1) {
        if (child + 1 < length - 1 && cheaper(cost, heap[child + 1], heap[child]))
            child++;
        if (!cheaper(cost, heap[child], node))
            break;
        heap[at] = heap[child];
        place[heap[at]] = at;
        at = child;
    }
    heap[at] = node;
    place[node] = at;
    return first;
}

void retry_costs(const graph *g, const double *p, const double *reward, const double *exit_values, int64_t *order,
                 double *cost, double *weight, int64_t *space)
{
    const int64_t n = g->count, size = g->size, *first = g->first;
    int64_t *place = space, *heap = space + size, length = 0, count = 0;
    double least = 1e-9;
    for (int64_t row = 0; row < g->state_ptr[n]; row++)
        least = larger(least, 1e-3 * reward[row]); /* free rows still take their time */
    memcpy(place, first, size * sizeof *place);
    for (int64_t s = 0; s < n; s++)
        for (int64_t row = g->state_ptr[s]; row < g->state_ptr[s + 1]; row++)
            for (int64_t t = g->row_ptr[row]; t < g->row_ptr[row + 1]; t++)
                weight[place[g->successor[t]]++] = p[t] > 1e-9 ? larger(reward[row], least) / p[t] : INFINITY;
    for (int64_t j = 0; j < size; j++) {
        cost[j] = j < n ? INFINITY : exit_values[j - n];
        place[j] = -1; /* not in the heap */
        if (cost[j] < INFINITY) {
            place[j] = length++;
            sift_up(j, cost, heap, place);
        }
    }
    while (length > 0) {
        int64_t node = take_first(length--, cost, heap, place);
        if (node < n)
            order[count++] = node;
        for (int64_t e = first[node]; e < first[node + 1]; e++) {
            int32_t s = g->sources[e];
            double through = cost[node] + weight[e];
            if (!(through < cost[s]))
                continue;
            if (cost[s] == INFINITY)
                place[s] = length++;
            cost[s] = through;
            sift_up(s, cost, heap, place);
        }
    }
    for (int64_t s = 0; s < n; s++)
        if (cost[s] == INFINITY) {
            order[count++] = s;
            cost[s] = 0.0;
        }
}

/* ---------------------------------------------------------------------- parts of a model */

int64_t extract(const graph *g, int64_t count, const int64_t *states, int64_t *position, int64_t *state_ptr,
                int64_t *row_ptr, int32_t *successor, int64_t *row_of, const int32_t *labels, int32_t *label, int64_t *exits)
{
    int64_t m = 0, r = 0, t = 0;
    for (int64_t i = 0; i < count; i++)
        position[states[i]] = i;
    state_ptr[0] = row_ptr[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t row = g->state_ptr[states[i]]; row < g->state_ptr[states[i] + 1]; row++) {
            row_of[r++] = row;
            for (int64_t e = g->row_ptr[row]; e < g->row_ptr[row + 1]; e++, t++) {
                int32_t j = g->successor[e];
                if (position[j] < 0) {
                    position[j] = count + m;
                    exits[m++] = j;
                }
                successor[t] = (int32_t)position[j];
                label[t] = labels[e];
            }
            row_ptr[r] = t;
        }
        state_ptr[i + 1] = r;
    }
    for (int64_t i = 0; i < count; i++)
        position[states[i]] = -1;
    for (int64_t i = 0; i < m; i++)
        position[exits[i]] = -1;
    return m;
}
