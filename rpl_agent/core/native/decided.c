/* What the graph decides of a game against a known nature: where a target is reached never or for sure, where a cost is
 * infinite, and where the agent can loop for free in the rest. */
#include <string.h>

#include "known.h"

/* Whether all of a row's mass goes to marked states. */
static bool stays_in(const known *k, int64_t row, const bool *marked)
{
    for (int64_t t = k->g->row_ptr[row]; t < k->g->row_ptr[row + 1]; t++)
        if (!marked[k->g->successor[t]] && possible(k, t))
            return false;
    return true;
}

/* Whether some of it does. */
static bool leads_to(const known *k, int64_t row, const bool *marked)
{
    for (int64_t t = k->g->row_ptr[row]; t < k->g->row_ptr[row + 1]; t++)
        if (marked[k->g->successor[t]] && possible(k, t))
            return true;
    return false;
}

/* The first row of s that stays in a marked set; the first of all if there is none. */
static int64_t staying_row(const known *k, int64_t s, const bool *marked)
{
    for (int64_t row = k->g->state_ptr[s]; row < k->g->state_ptr[s + 1]; row++)
        if (stays_in(k, row, marked))
            return row;
    return k->g->state_ptr[s];
}

static bool is_played(const known *k, int64_t row)
{
    if (k->only_free)
        return !(k->play->reward[row] > 0.0);
    return k->play->agent != FIXED_AGENT || k->play->weights[row] > 0.0;
}

/* Whether `every` row of s that is played, or one of them, leads to marked states, and stays in `inside` unless that is
 * NULL; *row: the last that was looked at. */
static bool joins(const known *k, int64_t s, bool every, const bool *marked, const bool *inside, int64_t *row)
{
    for (*row = k->g->state_ptr[s]; *row < k->g->state_ptr[s + 1]; ++*row)
        if (is_played(k, *row) && (leads_to(k, *row, marked) && (!inside || stays_in(k, *row, inside))) != every)
            return !every;
    return every;
}

/* Grows `marked` (S) by states of `within` (S) for which `every` row, or one that stays in `inside`, leads there; the
 * latter writes the rows. Scratch: place. */
static void grow(known *k, bool every, bool *marked, const bool *within, const bool *inside)
{
    const graph *g = k->g;
    int64_t tail = 0, row;
    for (int64_t s = 0; s < g->count; s++)
        if (marked[s])
            k->place[tail++] = s;
    for (int64_t head = 0; head < tail; head++)
        for (int64_t e = g->first[k->place[head]]; e < g->first[k->place[head] + 1]; e++) {
            int32_t s = g->sources[e];
            if (!within[s] || marked[s] || !joins(k, s, every, marked, inside, &row))
                continue;
            if (inside)
                k->rows[s] = row;
            marked[s] = true;
            k->place[tail++] = s;
        }
}

/* sure (S) = where the agent can reach a target with probability 1, by the rows that are written. Scratch: reached,
 * out (S). */
static void surely_reached(known *k, const bool *done, bool *sure, bool *reached, bool *out)
{
    const bool *target = k->target;
    const int64_t states = k->g->count;
    for (int64_t s = 0; s < states; s++)
        sure[s] = !done[s] || target[s];
    for (;;) {
        memcpy(reached, target, states);
        grow(k, false, reached, sure, sure);
        if (memcmp(sure, reached, states) == 0)
            return;
        for (int64_t s = 0; s < states; s++)
            out[s] = !reached[s];
        for (int64_t s = 0; s < states; s++)
            reached[s] = reached[s] && !target[s];
        grow(k, true, out, reached, NULL); /* all that are forced to leave, not one layer a round */
        for (int64_t s = 0; s < states; s++)
            sure[s] = !out[s];
    }
}

/* Gives the states that are marked, or not, a value of which the graph is sure. */
static void set_values(known *k, bool *done, const bool *marked, bool wanted, double value)
{
    for (int64_t s = 0; s < k->g->count; s++)
        if (!done[s] && marked[s] == wanted) {
            k->low[s] = k->high[s] = value;
            done[s] = true;
        }
}

/* held (S) = where nothing is decided and the agent can loop for free; whether there is such a state. Scratch: leaves, open
 * (S). */
static bool loops_for_free(known *k, const bool *done, bool *held, bool *leaves, bool *open)
{
    const graph *g = k->g;
    bool any = false;
    for (int64_t s = 0; s < g->count; s++) {
        open[s] = !done[s];
        leaves[s] = true;
        for (int64_t row = g->state_ptr[s]; open[s] && row < g->state_ptr[s + 1]; row++)
            leaves[s] &= k->play->reward[row] > 0.0;
    }
    k->only_free = true;
    grow(k, true, leaves, open, NULL);
    k->only_free = false;
    for (int64_t s = 0; s < g->count; s++) {
        held[s] = !leaves[s];
        any |= held[s];
    }
    return any;
}

bool decide(known *k, bool *done, bool *sets, int64_t *space)
{
    const bool *target = k->target;
    const graph *g = k->g;
    const int64_t agent = k->play->agent, states = g->count;
    bool *reached = sets, *open = sets + states, *sure = open + states;
    const bool ends = k->reach || k->must_reach, chooses = agent == (k->must_reach ? MIN_AGENT : MAX_AGENT);
    for (int64_t s = 0; s < states; s++)
        open[s] = !done[s];
    memcpy(reached, ends ? target : done, states);
    if (!(k->must_reach && chooses)) { /* where the end is never reached, whoever chooses */
        grow(k, agent == MIN_AGENT || (agent == MAX_AGENT && !k->reach), reached, open, NULL);
        if (!ends)
            for (int64_t s = 0; s < states; s++)
                if (!reached[s])
                    return false; /* rewards may be collected forever */
    }
    if (k->reach && memchr(reached, false, states)) {
        for (int64_t s = 0; s < states; s++)
            sure[s] = !reached[s];
        for (int64_t s = 0; s < states && agent != FIXED_AGENT; s++)
            if (sure[s] && open[s])
                k->rows[s] = staying_row(k, s, sure);
        set_values(k, done, sure, true, 0.0);
        if (memchr(done, false, states) == NULL)
            return true;
    }
    if (ends && chooses) {
        surely_reached(k, done, sure, reached, open);
        set_values(k, done, sure, k->reach, k->reach ? 1.0 : INFINITY);
    } else if (ends) { /* sure: the states from which no play gets to where the end is never reached */
        for (int64_t s = 0; s < states; s++)
            sure[s] = !reached[s] && !target[s];
        grow(k, false, sure, open, NULL);
        for (int64_t s = 0; s < states && k->must_reach && agent == MAX_AGENT; s++)
            if (sure[s] && open[s])
                return false; /* it must be shown how to miss the target */
        set_values(k, done, sure, k->must_reach, k->reach ? 1.0 : INFINITY);
    }
    if (!chooses || memchr(done, false, states) == NULL)
        return true;
    return !loops_for_free(k, done, reached, sure, open) || find_end_components(k, reached, open, space);
}
