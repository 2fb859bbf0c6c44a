/* In which order states are solved: successors first; components and layers where plays can come back. */
#include "core.h"

/* After so many states an order returns to those behind it that have become ready. */
#define PART 4096
/* The mark of a state that is not to be put in order (again). Others count the transitions into them. */
#define NO_WAIT -1

/* How many transitions of undecided states lead to smaller numbers: none in models built step by step; -1 if a state loops
 * and may also leave. */
static int64_t count_back(const graph *g, const bool *decided)
{
    int64_t back = 0;
    for (int64_t s = 0; s < g->count; s++) {
        int64_t loops = 0, first = g->row_ptr[g->state_ptr[s]], last = g->row_ptr[g->state_ptr[s + 1]];
        for (int64_t e = first; e < last && !decided[s]; e++) {
            loops += g->successor[e] == s;
            back += g->successor[e] < s;
        }
        if (loops > 0 && loops < last - first)
            return -1;
    }
    return back;
}

/* Writes `waits` (count), the transitions into states that are to be put in order if they are to be counted, else 0; how
 * many such states there are. A state with a loop has no other transition. */
static int64_t count_waits(const graph *g, const bool *decided, bool counted, int32_t *waits)
{
    int64_t open = 0;
    for (int64_t s = 0; s < g->count; s++) {
        const int64_t first = g->row_ptr[g->state_ptr[s]], last = g->row_ptr[g->state_ptr[s + 1]];
        waits[s] = decided[s] || (first < last && g->successor[first] == s) ? NO_WAIT : 0;
        open += waits[s] == 0;
    }
    for (int64_t s = 0; counted && s < g->count; s++)
        for (int64_t e = g->row_ptr[g->state_ptr[s]]; waits[s] != NO_WAIT && e < g->row_ptr[g->state_ptr[s + 1]]; e++)
            waits[g->successor[e]] += waits[g->successor[e]] != NO_WAIT;
    return open;
}

/* Puts state i in its place; states that become ready by that and have numbers below `passed` are added to `next`. */
static void put_in_order(const graph *g, int64_t i, int64_t passed, int32_t *waits, int64_t *next, int64_t *tail)
{
    waits[i] = NO_WAIT;
    for (int64_t e = g->row_ptr[g->state_ptr[i]]; e < g->row_ptr[g->state_ptr[i + 1]]; e++) {
        int32_t t = g->successor[e];
        if (waits[t] != NO_WAIT && --waits[t] == 0 && t < passed)
            next[(*tail)++] = t;
    }
}

/* In place of the number of transitions of a state that a walk has followed. */
enum { NOT_YET = -1, LEFT_BEHIND = -2 };

/* Whether a walk in depth comes upon a state of its own path. Most graphs with cycles show one within a few steps, where
 * an order finds out at its end. */
static bool comes_back(const graph *g, const bool *decided, int64_t *path, int32_t *followed)
{
    for (int64_t s = 0; s < g->count; s++)
        followed[s] = decided[s] ? LEFT_BEHIND : NOT_YET;
    for (int64_t root = 0; root < g->count; root++) {
        int64_t depth = 0;
        if (followed[root] != NOT_YET)
            continue;
        path[0] = root;
        followed[root] = 0;
        while (depth >= 0) {
            const int64_t s = path[depth], edge = g->row_ptr[g->state_ptr[s]] + followed[s];
            if (edge == g->row_ptr[g->state_ptr[s + 1]]) {
                followed[s] = LEFT_BEHIND;
                depth--;
                continue;
            }
            followed[s]++;
            const int32_t t = g->successor[edge];
            if (followed[t] >= 0 && t != s)
                return true;
            if (followed[t] == NOT_YET) {
                path[++depth] = t;
                followed[t] = 0;
            }
        }
    }
    return false;
}

int64_t forward_order(const graph *g, const bool *decided, int64_t *order, int64_t *next, int32_t *waits)
{
    const int64_t back = count_back(g, decided);
    if (back < 0 || (back > 0 && comes_back(g, decided, next, waits)))
        return -1;
    const int64_t open = count_waits(g, decided, back > 0, waits);
    int64_t left = open;
    for (int64_t s = 0; back == 0 && s < g->count; s++)
        if (waits[s] == 0)
            order[--left] = s;
    for (int64_t begin = 0; back > 0 && begin < g->count; begin += PART) {
        int64_t end = begin + PART < g->count ? begin + PART : g->count, tail = 0;
        for (int64_t s = begin; s < end; s++)
            if (waits[s] == 0) {
                put_in_order(g, s, s, waits, next, &tail);
                order[--left] = s;
            }
        for (int64_t head = 0; head < tail; head++) {
            put_in_order(g, next[head], end, waits, next, &tail);
            order[--left] = next[head];
        }
    }
    return open;
}

/* Appends the states that lead to i and have not been seen; how many are in order. */
static int64_t put_sources(const graph *g, int64_t i, int64_t found, int64_t *order, bool *seen)
{
    for (int64_t e = g->first[i]; e < g->first[i + 1]; e++) {
        int32_t s = g->sources[e];
        if (!seen[s]) {
            seen[s] = true;
            order[found++] = s;
        }
    }
    return found;
}

int64_t backward_order(const graph *g, const bool *ends, int64_t *order, bool *seen)
{
    int64_t found = 0, next = 0;
    for (int64_t s = 0; s < g->count; s++)
        seen[s] = false;
    for (int64_t i = g->count; i < g->size; i++)
        if (ends[i - g->count])
            found = put_sources(g, i, found, order, seen);
    for (; next < found; next++)
        found = put_sources(g, order[next], found, order, seen);
    for (int64_t s = 0, last = found; s < g->count; s++)
        if (!seen[s])
            order[last++] = s;
    return found;
}

double front_of(const graph *g, const int64_t *order, int64_t *place)
{
    double total = 0.0;
    for (int64_t i = 0; i < g->count; i++)
        place[order[i]] = i;
    for (int64_t s = 0; s < g->count; s++) {
        int64_t most = 0;
        for (int64_t e = g->row_ptr[g->state_ptr[s]]; e < g->row_ptr[g->state_ptr[s + 1]]; e++) {
            int64_t t = g->successor[e], apart = t < g->count ? place[t] - place[s] : 0;
            apart = apart < 0 ? -apart : apart;
            most = apart > most ? apart : most;
        }
        total += (double)most;
    }
    return g->count ? total / (double)g->count : 0.0;
}

/* A state on the path of the search for components, and what it needs to go on. */
typedef struct step {
    int64_t state, edge, end; /* the transition to follow next, and the one after the last */
    int32_t index, low;       /* when it was seen, and the first one seen that it leads back to */
} step;
/* In place of the time at which a state was seen: before, and once its component is known. */
#define NOT_SEEN -1
#define IN_ORDER INT32_MAX

int64_t components(const graph *g, const bool *decided, int64_t *order, int64_t *component, int64_t *space)
{
    const int64_t S = g->count;
    step *path = (step *)space;
    int32_t *seen = (int32_t *)(space + 4 * S), *stack = seen + S; /* `seen` is all that is read out of order: it is small */
    int64_t emitted = 0, count = 0, top = 0;
    int32_t clock = 0;
    for (int64_t s = 0; s < S; s++)
        seen[s] = NOT_SEEN;
    for (int64_t root = 0; root < S; root++) {
        if (seen[root] != NOT_SEEN)
            continue;
        int64_t depth = -1, entered = root;
        for (;;) {
            if (entered >= 0) { /* a state that is seen for the first time */
                const int64_t edge = g->row_ptr[g->state_ptr[entered]], end = g->row_ptr[g->state_ptr[entered + 1]];
                path[++depth] = (step){entered, edge, decided[entered] ? edge : end, clock, clock};
                stack[top++] = (int32_t)entered;
                seen[entered] = clock++;
                entered = -1;
            }
            step *here = path + depth;
            while (here->edge < here->end && entered < 0) {
                const int32_t t = g->successor[here->edge++];
                if (seen[t] == NOT_SEEN)
                    entered = t;
                else if (seen[t] < here->low)
                    here->low = seen[t];
            }
            if (entered >= 0)
                continue;
            if (here->low == here->index) {
                int64_t t;
                do {
                    t = stack[--top];
                    component[t] = count;
                    order[emitted++] = t;
                    seen[t] = IN_ORDER;
                } while (t != here->state);
                count++;
            }
            if (depth-- == 0)
                break;
            if (here->low < path[depth].low)
                path[depth].low = here->low;
        }
    }
    return count;
}

void layers(const graph *g, const bool *decided, const int64_t *order, const int64_t *component, bool sinks, bool every,
            int8_t *kind, int64_t *depth)
{
    for (int64_t i = 0, j; i < g->count; i = j) {
        int64_t c = component[order[i]], below = 0;
        for (j = i; j < g->count && component[order[j]] == c; j++)
            ;
        bool loops = j - i > 1, sink = j - i == 1;
        for (int64_t k = i; k < j; k++) {
            int64_t s = order[k];
            if (decided[s]) {
                sink = false;
                continue;
            }
            for (int64_t e = g->row_ptr[g->state_ptr[s]]; e < g->row_ptr[g->state_ptr[s + 1]]; e++) {
                int32_t t = g->successor[e];
                if (component[t] == c) {
                    loops = true;
                    continue;
                }
                sink = false;
                int64_t d = depth[t] + (every || kind[t] == CYCLIC);
                below = d > below ? d : below;
            }
        }
        for (int64_t k = i; k < j; k++) {
            int64_t s = order[k];
            depth[s] = below;
            kind[s] = sink && loops && sinks ? SINK : loops && !decided[s] ? CYCLIC : TRIVIAL;
        }
    }
}
