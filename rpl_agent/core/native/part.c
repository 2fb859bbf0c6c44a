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

/* Adds a row, played with a weight, to the entries from *used on, to what leaves its state and to what it pays. */
static void add_row(known *k, int64_t s, int64_t row, double w, int32_t *used, double *leaving, double *total)
{
    *total += w * k->play->reward[row];
    for (int64_t t = k->g->row_ptr[row]; t < k->g->row_ptr[row + 1]; t++) {
        const int32_t j = k->g->successor[t];
        const double mass = k->play->gamma * w * chance_of(k, row, t);
        if (j == s || !(mass > 0.0))
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
static void scale_row(known *k, int32_t row, int32_t used, double leaving, double total)
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

void load_part(known *k)
{
    const bool mixes = k->play->agent == FIXED_AGENT;
    int32_t rows = 0, used = 0;
    k->entry[0] = 0;
    for (int64_t i = 0; i < k->n; i++) {
        const int64_t s = k->order[i], last = k->g->state_ptr[s + 1];
        double leaving = 1.0 - k->play->gamma, total = 0.0;
        k->first[i] = rows;
        for (int64_t row = k->g->state_ptr[s]; row < last; row++) {
            if (!mixes || k->play->weights[row] != 0.0)
                add_row(k, s, row, mixes ? k->play->weights[row] : 1.0, &used, &leaving, &total);
            if (mixes && row + 1 < last)
                continue;
            scale_row(k, rows++, used, leaving, total);
            leaving = 1.0 - k->play->gamma;
            total = 0.0;
        }
    }
    k->first[k->n] = rows;
}

/* ---------------------------------------------------------------------- the chain of picked rows */

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

/* The share of a place's row that leads ahead. */
static double ahead_of(const known *k, int64_t i)
{
    double ahead = 0.0;
    for (int32_t e = k->indptr[i]; e < k->indptr[i + 1]; e++)
        ahead += k->indices[e] > i ? k->data[e] : 0.0;
    return ahead;
}

/* Lets the row of root i lead to roots. */
static void lead_to_roots(known *k, int64_t i)
{
    double leaving = 1.0;
    bool differs = false;
    for (int32_t e = k->indptr[i]; e < k->indptr[i + 1]; e++) {
        const int32_t j = k->indices[e];
        if (k->root[j] == j)
            continue;
        differs = true;
        k->rhs[i] += k->data[e] * k->shift[j];
        k->indices[e] = k->root[j];
        if (k->root[j] == i && k->data[e] < leaving) { /* a way back, tried again until it is left */
            leaving -= k->data[e];
            k->data[e] = 0.0;
        }
    }
    if (leaving != 1.0) {
        k->rhs[i] /= leaving;
        for (int32_t e = k->indptr[i]; e < k->indptr[i + 1]; e++)
            k->data[e] /= leaving;
    }
    if (differs)
        k->pace[i] = pace_of(ahead_of(k, i));
}

/* Lets roots lead to roots alone, and lists them in `kept`: sweeps leave out the places in between. */
static void skip_ways(known *k)
{
    find_roots(k);
    k->left = 0;
    for (int64_t i = 0; i < k->n; i++)
        if (k->root[i] == i) {
            k->kept[k->left++] = (int32_t)i;
            lead_to_roots(k, i);
        }
}

void fill_ways(const known *k, double *x)
{
    for (int64_t i = 0; i < k->n; i++)
        if (k->root[i] != i)
            x[i] = k->shift[i] + x[k->root[i]];
}

void assemble_part(known *k, double offset, bool pays)
{
    int32_t used = 0;
    bool any_way = false;
    k->indptr[0] = 0;
    for (int64_t i = 0; i < k->n; i++) {
        const int32_t row = k->pick[i], begin = used;
        double ahead = 0.0;
        k->rhs[i] = row == NO_ROW ? 0.0 : offset * k->scale[row] + (pays ? k->base[row] : 0.0);
        for (int32_t e = row == NO_ROW ? 0 : k->entry[row]; row != NO_ROW && e < k->entry[row + 1]; e++) {
            ahead += k->target_of[e] > i ? k->weight[e] : 0.0;
            k->indices[used] = k->target_of[e];
            k->data[used++] = k->weight[e];
        }
        const bool is_way = used == begin + 1 && k->data[begin] == 1.0;
        k->indptr[i + 1] = used;
        k->root[i] = is_way ? UNKNOWN : (int32_t)i;
        k->kept[i] = (int32_t)i;
        k->shift[i] = 0.0;
        k->pace[i] = pace_of(ahead);
        any_way |= is_way;
    }
    k->left = k->n;
    if (any_way)
        skip_ways(k);
}
