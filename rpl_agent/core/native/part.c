/* A part of a game against a known nature, as sweeps read it: its rows by places, and the chain of chosen ones. */
#include <string.h>

#include "known.h"

/* ---------------------------------------------------------------------- rows */

void find_parts(const graph *g, const bool *done, int64_t *all, int64_t *component, int64_t *space)
{
    const int64_t count = components(g, done, all, component, space);
    memset(space, 0, (count + 1) * sizeof *space);
    for (int64_t s = 0; s < g->count; s++)
        space[component[s] + 1]++;
    for (int64_t c = 0; c < count; c++)
        space[c + 1] += space[c];
    for (int64_t s = g->count - 1; s >= 0; s--) /* plays mostly lead to larger numbers: they come first, as components do */
        all[space[component[s]]++] = s;
}

/* In place of the place of a state that is still to get one. */
#define WAITS -2

/* Gives a state that waits the next place. */
INLINE void put(known *k, int64_t s, int64_t *found)
{
    if (k->place[s] == WAITS) {
        k->place[s] = *found;
        k->order[(*found)++] = s;
    }
}

/* Whether a state leads to an end, or to one that is worth something. */
static bool ends(const known *k, int64_t s, bool worth)
{
    for (int64_t t = k->g->row_ptr[k->g->state_ptr[s]]; t < k->g->row_ptr[k->g->state_ptr[s + 1]]; t++) {
        const int32_t j = k->g->successor[t];
        if (k->place[j] == OUTSIDE && possible(k, t) && (!worth || k->low[j] != 0.0))
            return true;
    }
    return false;
}

void order_part(known *k, int64_t n, const int64_t *states)
{
    const graph *g = k->g;
    int64_t found = 0;
    k->n = n;
    for (int64_t i = 0; i < n; i++)
        k->place[states[i]] = WAITS;
    for (int turn = 0; turn < 2 && found < n; turn++) { /* where no end is worth anything, by all of them */
        for (int64_t i = 0; i < n; i++)
            if (ends(k, states[i], turn == 0 && k->reach))
                put(k, states[i], &found);
        for (int64_t head = 0; head < found; head++)
            for (int64_t e = g->first[k->order[head]]; e < g->first[k->order[head] + 1]; e++)
                put(k, g->sources[e], &found);
    }
    for (int64_t i = 0; i < n; i++)
        put(k, states[i], &found);
}

/* Adds a row, played with a weight, to the entries from *used on, to what leaves its hub and to what it pays. */
INLINE void add_row(known *k, int64_t hub, int64_t row, double w, int32_t *used, double *leaving, double *total)
{
    *total += w * k->play->reward[row];
    for (int64_t t = k->g->row_ptr[row]; t < k->g->row_ptr[row + 1]; t++) {
        const int64_t j = hub_of(k, k->g->successor[t]);
        const double mass = k->play->gamma * w * chance_of(k, row, t);
        if (j == hub || !(mass > 0.0))
            continue;
        *leaving += mass;
        if (k->place[j] >= 0) {
            k->target_of[*used] = (int32_t)k->place[j];
            k->weight[(*used)++] = mass;
        } else
            *total += mass * k->value[j];
    }
}

/* Scales a row whose entries end at `used` by what leaves its state. */
INLINE void scale_row(known *k, int32_t row, int32_t used, double leaving, double total)
{
    k->entry[row + 1] = used;
    if (!(leaving > 0.0)) { /* it only loops: paid again and again, or never of use */
        k->scale[row] = 0.0;
        k->base[row] = k->play->agent == MIN_AGENT || (k->stops && total > 0.0) ? INFINITY : -INFINITY;
        return;
    }
    k->scale[row] = 1.0 / leaving;
    k->base[row] = total / leaving;
    for (int32_t e = k->entry[row]; e < used; e++)
        k->weight[e] /= leaving;
}

/* Loads the rows of a state as one, mixed by the agent's weights. */
static void load_mixed(known *k, int64_t s, int32_t *rows, int32_t *used)
{
    double leaving = 1.0 - k->play->gamma, total = 0.0;
    for (int64_t row = k->g->state_ptr[s]; row < k->g->state_ptr[s + 1]; row++)
        if (k->play->weights[row] != 0.0)
            add_row(k, s, row, k->play->weights[row], used, &leaving, &total);
    scale_row(k, (*rows)++, *used, leaving, total);
}

/* Loads the rows of a state, those of a hub's members but those that hold. */
INLINE void load_rows(known *k, int64_t s, int64_t hub, bool alone, int32_t *rows, int32_t *used)
{
    for (int64_t row = k->g->state_ptr[s]; row < k->g->state_ptr[s + 1]; row++) {
        double leaving = 1.0 - k->play->gamma, total = 0.0;
        if (!alone && holds(k, s, row))
            continue;
        add_row(k, hub, row, 1.0, used, &leaving, &total);
        if (k->loops)
            k->row_of[*rows] = (int32_t)row;
        scale_row(k, (*rows)++, *used, leaving, total);
    }
}

/* Loads the row by which a member leads to its hub, in no time. */
static void load_way(known *k, int64_t hub, int32_t *rows, int32_t *used)
{
    k->target_of[*used] = (int32_t)k->place[hub];
    k->weight[(*used)++] = 1.0;
    k->base[*rows] = k->scale[*rows] = 0.0;
    k->row_of[*rows] = NO_ROW;
    k->entry[++*rows] = *used;
}

void load_part(known *k)
{
    int32_t rows = 0, used = 0;
    k->entry[0] = 0;
    for (int64_t i = 0; i < k->n; i++) {
        const int64_t hub = k->order[i];
        k->first[i] = rows;
        if (k->play->agent == FIXED_AGENT)
            load_mixed(k, hub, &rows, &used);
        else if (hub_of(k, hub) != hub)
            load_way(k, k->hub[hub], &rows, &used);
        else if (!k->loops || k->mate[hub] == NO_STATE)
            load_rows(k, hub, hub, true, &rows, &used);
        else
            for (int64_t s = hub; s != NO_STATE; s = k->mate[s])
                load_rows(k, s, hub, false, &rows, &used);
    }
    k->first[k->n] = rows;
}

/* ---------------------------------------------------------------------- the chain of picked rows */

INLINE double row_value(const known *k, int32_t row, double offset)
{
    const double start = k->base[row] + offset * k->scale[row];
    return plus_row(start, k->weight, k->target_of, k->entry[row], k->entry[row + 1], k->x);
}

/* Writes the row picked at place i to the chain, whose entries end at `used`; where they end then. */
INLINE int32_t write_picked(known *k, int64_t i, double offset, int32_t used)
{
    const int32_t row = k->pick[i];
    k->rhs[i] = row == NO_ROW ? 0.0 : k->base[row] + offset * k->scale[row];
    for (int32_t e = row == NO_ROW ? 0 : k->entry[row]; row != NO_ROW && e < k->entry[row + 1]; e++) {
        k->indices[used] = k->target_of[e];
        k->data[used++] = k->weight[e];
    }
    k->indptr[i + 1] = used;
    return used;
}

void full_sweep(known *k, double offset)
{
    const bool least = k->play->agent == MIN_AGENT;
    int32_t used = 0;
    k->change = 0.0;
    k->indptr[0] = 0;
    for (int64_t at = 0; at < k->n; at++) {
        int32_t best_row = k->first[at];
        double best = row_value(k, best_row, offset);
        for (int32_t row = best_row + 1; row < k->first[at + 1]; row++) {
            const double q = row_value(k, row, offset);
            if (least ? q < best : q > best) {
                best = q;
                best_row = row;
            }
        }
        if (k->stops && !(best > 0.0)) {
            best = 0.0;
            best_row = NO_ROW;
        }
        const double apart = fabs(best - k->x[at]);
        k->change = apart <= k->change ? k->change : apart; /* NaN stays */
        k->x[at] = best;
        k->pick[at] = best_row;
        used = write_picked(k, at, offset, used); /* now, while the row is in the cache */
    }
    k->sweeps++;
}

void write_waiting(known *k, int64_t members)
{
    const int32_t *turn_of = k->root;
    int32_t used = 0;
    k->left = 0;
    k->indptr[0] = 0;
    for (int64_t turn = 0; turn < members; turn++) {
        const int32_t i = k->kept[turn], begin = used;
        const int64_t s = k->order[i], row = k->chosen[i];
        double leaving = 0.0, ahead = 0.0;
        if (!holds(k, s, row)) { /* the way out */
            k->waiting[i] = 0.0;
            continue;
        }
        for (int64_t t = k->g->row_ptr[row]; t < k->g->row_ptr[row + 1]; t++) {
            const int32_t j = k->g->successor[t];
            const double mass = chance_of(k, row, t);
            if (j == s || !(mass > 0.0))
                continue;
            leaving += mass;
            ahead += turn_of[k->place[j]] > turn ? mass : 0.0;
            k->indices[used] = (int32_t)k->place[j];
            k->data[used++] = mass;
        }
        for (int32_t e = begin; e < used; e++)
            k->data[e] /= leaving;
        k->rhs[i] = 1.0 / leaving;
        k->pace[i] = pace_of(ahead / leaving);
        k->kept[k->left++] = i;
        k->indptr[k->left] = used;
    }
}

/* In place of the root of a place that always leads to one other. */
enum { UNKNOWN = -1, ON_THE_WAY = -2 };

/* For every place the first one from there on that may lead to several (`root`), and what is paid on the way (`shift`).
 * Ways that come back to themselves stay as they are. */
static void find_roots(known *k)
{
    for (int64_t i = 0; i < k->n; i++) {
        if (k->root[i] != UNKNOWN)
            continue;
        int32_t end = (int32_t)i, next;
        double paid = 0.0;
        for (; k->root[end] == UNKNOWN; end = k->indices[k->indptr[end]]) {
            k->root[end] = ON_THE_WAY;
            paid += k->rhs[end];
        }
        const int32_t root = k->root[end];
        for (int32_t j = (int32_t)i; k->root[j] == ON_THE_WAY; j = next) {
            next = k->indices[k->indptr[j]];
            k->root[j] = root >= 0 ? root : j;
            k->shift[j] = root >= 0 ? paid + k->shift[end] : 0.0;
            paid -= k->rhs[j];
        }
    }
}

/* Moves the row of place i, whose entries are from..to, to `used`, and with `ways` lets it lead to roots; where it ends. */
INLINE int32_t lead_to_roots(known *k, int64_t i, bool ways, int32_t from, int32_t to, int32_t used)
{
    const int32_t begin = used;
    double ahead = 0.0, leaving = 1.0;
    for (int32_t e = from; e < to; e++) {
        const int32_t j = k->indices[e], root = ways ? k->root[j] : j;
        const double mass = k->data[e];
        if (root != j)
            k->rhs[i] += mass * k->shift[j];
        if (root == i && mass < leaving) { /* a way back, tried again until it is left */
            leaving -= mass;
            continue;
        }
        ahead += root > i ? mass : 0.0;
        k->indices[used] = root;
        k->data[used++] = mass;
    }
    if (leaving != 1.0) {
        k->rhs[i] /= leaving;
        ahead /= leaving;
        for (int32_t e = begin; e < used; e++)
            k->data[e] /= leaving;
    }
    k->pace[i] = pace_of(ahead);
    return used;
}

void skip_ways(known *k)
{
    bool ways = false;
    for (int64_t i = 0; i < k->n; i++) {
        const bool is_way = k->indptr[i + 1] == k->indptr[i] + 1 && k->data[k->indptr[i]] == 1.0;
        k->root[i] = is_way ? UNKNOWN : (int32_t)i;
        k->shift[i] = 0.0;
        ways |= is_way;
    }
    if (ways)
        find_roots(k);
    int32_t from = 0, used = 0;
    k->left = 0;
    for (int64_t i = 0; i < k->n; i++) {
        const int32_t to = k->indptr[i + 1];
        if (k->root[i] == i) {
            used = ways ? lead_to_roots(k, i, true, from, to, used) : lead_to_roots(k, i, false, from, to, used);
            k->kept[k->left++] = (int32_t)i;
            k->indptr[k->left] = used;
        }
        from = to;
    }
}

void fill_ways(const known *k, double *x)
{
    for (int64_t i = 0; k->left < k->n && i < k->n; i++)
        if (k->root[i] != i)
            x[i] = k->shift[i] + x[k->root[i]];
}
