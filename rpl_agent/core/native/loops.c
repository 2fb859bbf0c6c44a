/* Where the agent can loop for free: end components. Values are not unique there, but all members of one are worth the same:
 * the best way out. So sweeps look at one place for all of them, the hub, whose rows are all ways out; other members lead
 * there. This serves only to find bounds: they are verified for the rows of the model like any others. */
#include <string.h>

#include "known.h"

/* A set of states may fall apart into end components one state a round. It takes this many rounds, or more until they have
 * looked at MOST_LOOKS rows: the caller, who tries next, needs as many rounds, each of which takes longer. */
#define MOST_ROUNDS 24
#define MOST_LOOKS 20000000
/* In place of the hub of a state that cannot be held. */
#define NOT_HELD -1

bool holds(const known *k, int64_t s, int64_t row)
{
    if (k->play->reward[row] > 0.0)
        return false;
    for (int64_t t = k->g->row_ptr[row]; t < k->g->row_ptr[row + 1]; t++)
        if (k->hub[k->g->successor[t]] != k->hub[s] && possible(k, t))
            return false;
    return true;
}

/* ---------------------------------------------------------------------- finding them */

/* Writes the transitions of the rows that stay in their end component, so far as it is known, as a graph with one row for
 * each state, `first` and `successor`; states without such a row become `out`. Whether there are any of these. */
static bool staying_graph(const known *k, bool *out, int64_t *first, int32_t *successor)
{
    const graph *g = k->g;
    int64_t used = 0;
    bool dropped = false;
    for (int64_t s = 0; s < g->count; s++) {
        bool held = false;
        first[s] = used;
        for (int64_t row = g->state_ptr[s]; !out[s] && row < g->state_ptr[s + 1]; row++) {
            if (!holds(k, s, row))
                continue;
            held = true;
            for (int64_t t = g->row_ptr[row]; t < g->row_ptr[row + 1]; t++)
                if (possible(k, t))
                    successor[used++] = g->successor[t];
        }
        dropped |= !held && !out[s];
        out[s] = !held;
    }
    first[g->count] = used;
    return dropped;
}

/* Makes the first member of each component its hub, and links the others behind it. Scratch: last (S). */
static void link_members(known *k, const bool *out, const int64_t *component, int64_t *last)
{
    const int64_t states = k->g->count;
    for (int64_t s = 0; s < states; s++)
        last[s] = NO_STATE;
    for (int64_t s = 0; s < states; s++) {
        const int64_t before = out[s] ? NO_STATE : last[component[s]];
        k->hub[s] = (int32_t)(before == NO_STATE ? s : k->hub[before]);
        k->mate[s] = NO_STATE;
        if (before != NO_STATE)
            k->mate[before] = (int32_t)s;
        if (!out[s])
            last[component[s]] = s;
    }
}

bool find_end_components(known *k, const bool *held, bool *out, int64_t *space)
{
    const int64_t states = k->g->count;
    int64_t *order = space, *component = order + states, *search = component + states;
    int64_t *one_each = search + 5 * states, *first = one_each + states + 1, parts = 1;
    for (int64_t s = 0; s < states; s++) {
        out[s] = !held[s];
        k->hub[s] = held[s] ? 0 : NOT_HELD;
        one_each[s] = s;
    }
    one_each[states] = states;
    const graph staying = {states, states, one_each, first, k->target_of, NULL, NULL};
    for (int64_t round = 0; round < MOST_ROUNDS || round * k->g->state_ptr[states] < MOST_LOOKS; round++) {
        const bool dropped = staying_graph(k, out, first, k->target_of);
        int64_t found = components(&staying, out, order, component, search);
        for (int64_t s = 0; s < states; s++) {
            found -= out[s]; /* each is a component of its own */
            k->hub[s] = out[s] ? NOT_HELD : (int32_t)component[s];
        }
        if (found == parts && !dropped) {
            link_members(k, out, component, search);
            return k->loops = true;
        }
        parts = found;
    }
    return false;
}

/* ---------------------------------------------------------------------- ways out */

/* Whether a row that holds may lead from the member s to `to`. */
static bool may_lead(const known *k, int64_t s, int64_t to)
{
    const graph *g = k->g;
    for (int64_t row = g->state_ptr[s]; row < g->state_ptr[s + 1]; row++)
        for (int64_t t = g->row_ptr[row]; t < g->row_ptr[row + 1]; t++)
            if (g->successor[t] == to && possible(k, t) && holds(k, s, row))
                return true;
    return false;
}

/* The row of the member s that holds and most probably leads to members listed before `turn`. */
static int64_t closer_row(const known *k, int64_t s, int64_t turn, const int32_t *turn_of)
{
    const graph *g = k->g;
    int64_t best_row = NO_ROW;
    double best = 0.0;
    for (int64_t row = g->state_ptr[s]; row < g->state_ptr[s + 1]; row++) {
        double closer = 0.0;
        if (!holds(k, s, row))
            continue;
        for (int64_t t = g->row_ptr[row]; t < g->row_ptr[row + 1]; t++)
            if (possible(k, t) && turn_of[k->place[g->successor[t]]] < turn)
                closer += chance_of(k, row, t);
        if (closer > best) {
            best = closer;
            best_row = row;
        }
    }
    return best_row;
}

/* In place of the turn of a member that is not listed yet. */
#define LATER INT32_MAX

/* The same for one end component, backwards from the member whose row was chosen, listed from `begin` on: where the list
 * ends then, -1 if it lacks a member. Scratch: root. */
static int64_t lead_members_out(known *k, int64_t hub, int64_t begin)
{
    const graph *g = k->g;
    const int64_t out = k->chosen[k->place[hub]];
    int32_t *turn_of = k->root;
    int64_t found = begin, left = 0;
    for (int64_t s = hub; s != NO_STATE; s = k->mate[s]) {
        const bool leaves = g->state_ptr[s] <= out && out < g->state_ptr[s + 1];
        k->chosen[k->place[s]] = out;
        turn_of[k->place[s]] = leaves ? (int32_t)found : LATER;
        if (leaves)
            k->kept[found++] = (int32_t)k->place[s];
        left++;
    }
    for (int64_t head = begin; head < found; head++) {
        const int64_t to = k->order[k->kept[head]];
        for (int64_t e = g->first[to]; e < g->first[to + 1]; e++) {
            const int32_t s = g->sources[e];
            if (k->hub[s] != hub || turn_of[k->place[s]] != LATER || !may_lead(k, s, to))
                continue;
            turn_of[k->place[s]] = (int32_t)found;
            k->kept[found++] = (int32_t)k->place[s];
        }
    }
    for (int64_t turn = begin + 1; turn < found; turn++)
        k->chosen[k->kept[turn]] = closer_row(k, k->order[k->kept[turn]], turn, turn_of);
    return found == begin + left ? found : -1;
}

int64_t lead_out(known *k)
{
    int64_t found = 0;
    for (int64_t i = 0; i < k->n && found >= 0; i++) {
        const int64_t s = k->order[i];
        if (k->hub[s] == s && k->mate[s] != NO_STATE)
            found = lead_members_out(k, s, found);
    }
    return found;
}

void level(const known *k, double *x)
{
    for (int64_t i = 0; k->loops && i < k->n; i++)
        x[i] = x[k->place[k->hub[k->order[i]]]];
}
