/* Totals against a known nature, in one call: what the graph decides, then sweeps, one component after the other.
 *
 * A component is swept until its values x hardly change; N is the expected number of steps until the play leaves it. Then
 * x + m N and x - m N satisfy the inequalities of a proof strictly for every m a little larger than what sweeps still
 * change, unless another strategy is almost as good and takes more steps: then a few sweeps with m as extra cost or
 * bonus mend them. Sweeps are rounded to nearest and are not trusted: every bound is verified with directed rounding.
 *
 * Not for it, and left to the caller: rewards that may be collected forever, and plays so long that sweeps take too many. */
#include <stdlib.h>
#include <string.h>

#include "known.h"

/* Where plays may wait for a way out of an end component, values are brought so close at first: who waits gains by wider
 * margins. */
#define WAITED 1e-12
/* All steps of such a wait together count as this share of one: values are the same there, so that bounds need to differ by
 * no more than rounding. */
#define WAITING 0.125
/* There mending may take this share of the sweeps so far: it takes few, or very many. */
#define MENDING 10
/* Parts of at most so many states take no time: their bounds are brought at least this close. */
#define FEW_STATES 100
#define CLOSE 1e-11
/* Steps that differ in cost by at most this factor are counted by it. */
#define ABOUT 4.0

/* ---------------------------------------------------------------------- bounds of a part */

/* Whether a side is the agent's own: then its bounds are those of the rows it chose. */
static bool is_own(const known *k, bool upward)
{
    return k->play->agent == (upward ? MIN_AGENT : MAX_AGENT);
}

/* Whether values satisfy the inequality of their side at the places from..to. */
static bool verified_places(known *k, bool upward, int64_t from, int64_t to)
{
    const game *play = k->play;
    const double *values = upward ? k->high : k->low;
    const bool own = is_own(k, upward), strict = upward == k->must_reach;
    if (own)
        row_bounds(to - from, values, play->maximise, upward, play->rows, play->set, k->space, k->chosen + from, k->x + from);
    else
        bellman(play, to - from, k->order + from, values, k->image, NULL, upward, 0.0, k->space);
    for (int64_t i = from; i < to; i++) {
        double inner = values[k->order[i]], image = k->image[k->order[i]];
        if (own)
            image = paid(k->x[i], play->reward[k->chosen[i]], play->gamma, upward ? 1.0 : -1.0);
        bool good = upward ? image <= inner : image >= inner;
        if (strict)
            good = upward ? image < inner : image > inner || inner <= 0.0;
        if (!good || !(inner < INFINITY))
            return false;
    }
    return true;
}

/* Whether the values of the part, within the trivial range, satisfy the inequality of their side with directed rounding:
 * for the chosen rows if they are the agent's own side, strictly where a proof needs that the play ends. Most bounds that
 * fail do so at one of the first places. */
static bool verified(known *k, bool upward)
{
    double *values = upward ? k->high : k->low;
    for (int64_t i = 0; i < k->n; i++) {
        double *at = values + k->order[i];
        *at = larger(*at, 0.0);
        if (k->reach)
            *at = smaller(*at, 1.0);
    }
    for (int64_t from = 0, to = AT_FIRST; from < k->n; from = to, to *= 2)
        if (!verified_places(k, upward, from, to < k->n ? to : k->n))
            return false;
    return true;
}

/* One bound at a margin from the values. `apart`: how far the exits may be from those they were found for. */
static bool bound(known *k, bool upward, double margin, double apart)
{
    const double sign = upward ? 1.0 : -1.0;
    const bool waits = k->longest_wait > 0.0 && is_own(k, upward);
    double *values = upward ? k->high : k->low;
    if (waits)
        margin = larger(margin, k->least * k->longest_wait / WAITING);
    for (int64_t i = 0; i < k->n; i++) {
        int64_t s = k->order[i];
        values[s] = k->value[s] + sign * (margin * k->steps[i] + (upward ? apart : 0.0));
        if (waits)
            values[s] += sign * margin * (WAITING / k->longest_wait) * k->waiting[i];
    }
    return verified(k, upward);
}

/* The same bound, mended by sweeps with the margin as an extra cost or bonus: another strategy was almost as good and
 * takes more steps. The agent's own side has no other. Scratch: rows (n). */
static bool mended_bound(known *k, bool upward, double margin, double apart, int64_t *rows)
{
    const double change = k->change;
    const int64_t budget = k->budget, enough = k->sweeps + k->sweeps / MENDING;
    double *values = k->value;
    if (is_own(k, upward))
        return false;
    if (k->loops && enough < budget)
        k->budget = enough;
    memcpy(rows, k->chosen, k->n * sizeof *rows);
    k->value = upward ? k->high : k->low;
    const bool good = approach(k, 0.25 * margin, upward ? margin : -margin);
    for (int64_t i = 0; i < k->n && upward; i++)
        k->value[k->order[i]] += apart;
    k->budget = budget;
    k->value = values;
    memcpy(k->chosen, rows, k->n * sizeof *rows);
    k->change = change;
    return good && verified(k, upward);
}

/* Both bounds at a margin, mended if needed and if `mend`; first that on which other rows may do better: it fails more. */
static bool both_bounds(known *k, double margin, double apart, bool mend, int64_t *rows)
{
    const bool first = k->play->agent == MAX_AGENT;
    for (int turn = 0; turn < 2; turn++) {
        const bool upward = turn == 0 ? first : !first;
        if (!bound(k, upward, margin, apart) && !(mend && mended_bound(k, upward, margin, apart, rows)))
            return false;
    }
    return true;
}

/* A start for costs, which from 0 would rise by one step per sweep: the cheapest row that leads to an earlier state,
 * where a play that goes elsewhere is assumed to return at the cost of that row. */
static void start_costs(known *k, const double *guess)
{
    for (int64_t i = 0; i < k->n; i++) {
        int64_t s = k->order[i];
        double best = INFINITY;
        for (int64_t row = k->g->state_ptr[s]; row < k->g->state_ptr[s + 1]; row++) {
            double mass = 0.0, total = k->play->reward[row];
            for (int64_t t = k->g->row_ptr[row]; t < k->g->row_ptr[row + 1]; t++) {
                int32_t j = k->g->successor[t];
                const double p = chance_of(k, row, t);
                if (k->place[j] < i) {
                    mass += p;
                    total += p * k->value[j];
                } else if (j != s)
                    total += p * k->play->reward[row];
            }
            if (mass > 1e-9)
                best = smaller(best, total / mass);
        }
        k->value[s] = guess ? guess[s] : best < INFINITY ? best : 0.0;
    }
}

/* The largest distance between the bounds of the part's exits; inf if one is infinite. */
static double exits_apart(const known *k)
{
    double apart = 0.0;
    for (int64_t i = 0; i < k->n; i++) {
        int64_t s = k->order[i];
        for (int64_t t = k->g->row_ptr[k->g->state_ptr[s]]; t < k->g->row_ptr[k->g->state_ptr[s + 1]]; t++) {
            int32_t j = k->g->successor[t];
            if (k->place[j] >= 0 || !possible(k, t) || k->low[j] == k->high[j])
                continue;
            apart = larger(apart, k->high[j] - k->low[j]);
        }
    }
    return apart;
}

/* Steps where all cost about the same: what is paid until the play leaves, over the cheapest step, is at least their number
 * and hardly more. False where steps have to be counted. */
static bool steps_by_costs(known *k)
{
    const game *play = k->play;
    double cheapest = INFINITY, dearest = 0.0, end = INFINITY;
    if (k->reach || k->loops || play->agent == FIXED_AGENT || play->gamma != 1.0)
        return false;
    for (int64_t i = 0; i < k->n; i++) {
        const int64_t row = k->chosen[i];
        cheapest = smaller(cheapest, play->reward[row]);
        dearest = larger(dearest, play->reward[row]);
        for (int64_t t = k->g->row_ptr[row]; t < k->g->row_ptr[row + 1]; t++)
            if (k->place[k->g->successor[t]] < 0 && possible(k, t))
                end = smaller(end, k->value[k->g->successor[t]]);
    }
    if (!(cheapest > 0.0 && dearest <= ABOUT * cheapest && end < INFINITY))
        return false;
    for (int64_t i = 0; i < k->n; i++)
        k->steps[i] = larger((k->value[k->order[i]] - end) / cheapest, 1.0);
    return true;
}

/* The largest margin whose bracket is as narrow as asked. */
static double widest(const known *k, double width)
{
    double least = INFINITY;
    for (int64_t i = 0; i < k->n; i++)
        least = smaller(least, larger(1.0, fabs(k->value[k->order[i]])) / larger(k->steps[i], 1.0));
    return 0.45 * width * least;
}

/* How many times as wide as asked the bracket is. */
static double excess_of(const known *k, double width, double apart)
{
    double most = 0.0;
    for (int64_t i = 0; i < k->n; i++) {
        int64_t s = k->order[i];
        most = larger(most, (k->high[s] - k->low[s] - apart) / larger(1.0, fabs(k->low[s])));
    }
    return most / width;
}

/* Looks for bounds as narrow as `asked`, at margins from the widest of use to the narrowest that the values admit. Else
 * `width` becomes that of the bounds to look for next, 0 if there are none, and `mend` whether these may be mended. Where
 * plays may wait, that is tried at the narrowest margin only, each time anew. */
static bool search_bounds(known *k, double asked, double least, double apart, double *width, bool *mend, int64_t *kept)
{
    bool failed = false;
    *mend &= !k->loops;
    for (double margin = widest(k, *width); margin >= least; margin = widest(k, *width)) {
        if (both_bounds(k, margin, apart, *mend, kept)) {
            const double excess = excess_of(k, asked, apart);
            if (excess <= 1.0)
                return true;
            *width /= smaller(excess, MOST_EXCESS);
            continue;
        }
        if (*mend) {
            *width *= k->loops ? NARROWER : 0.0;
            return false;
        }
        failed = true;
        *mend = k->loops ? NARROWER * margin < least : *width <= FINE;
        if (!(k->loops && *mend))
            *width *= NARROWER;
    }
    if (failed)
        *width = smaller(*width, FINE);
    return false;
}

/* Bounds of a part whose exits have bounds; false if sweeps do not find them. */
static bool solve_part(known *k, double width, const double *guess, int64_t *kept)
{
    const double apart = exits_apart(k);
    double tolerance = k->reach ? smaller(0.02 * width, COUNTED) : 0.1 * width; /* four times that is `widest` at most */
    const double asked = width;
    bool mend = false;
    if (k->loops)
        tolerance = smaller(tolerance, WAITED);
    if (!(apart < INFINITY))
        return false;
    for (int64_t i = 0; i < k->n; i++) {
        k->value[k->order[i]] = guess ? guess[k->order[i]] : 0.0;
        k->steps[i] = k->waiting[i] = 0.0;
    }
    if (!k->reach)
        start_costs(k, guess);
    load_part(k);
    k->slow = 0;
    for (int round = 0; round < ROUNDS; round++) {
        double size = 0.0;
        if (!approach(k, tolerance, 0.0))
            return false;
        if (!steps_by_costs(k)) {
            if (tolerance > COUNTED) {
                tolerance = COUNTED;
                continue;
            }
            if (!count_steps(k) || (k->loops && !count_waiting(k)))
                return false;
        }
        for (int64_t i = 0; i < k->n; i++)
            size = larger(size, fabs(k->value[k->order[i]]));
        k->least = LEAST_MARGIN * size;
        if (search_bounds(k, asked, larger(4.0 * k->change, k->least), apart, &width, &mend, kept)) {
            for (int64_t i = 0; i < k->n && k->play->agent != FIXED_AGENT; i++)
                k->rows[k->order[i]] = k->chosen[i];
            return true;
        }
        const double margin = widest(k, width);
        if (!(margin > k->least))
            return false;
        tolerance = smaller(0.125 * margin, 0.25 * tolerance);
    }
    return false;
}

/* ---------------------------------------------------------------------- all parts */

/* depth of the component states[0..n]: how many cyclic ones lie on the longest path from here on, negative if it is not
 * cyclic itself. Returns that number. */
static int64_t find_depth(const known *k, int64_t n, const int64_t *states, const int64_t *component, int64_t *depth)
{
    const graph *g = k->g;
    bool loops = n > 1;
    int64_t below = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t t = g->row_ptr[g->state_ptr[states[i]]]; t < g->row_ptr[g->state_ptr[states[i] + 1]]; t++) {
            int64_t j = component[g->successor[t]];
            loops |= g->successor[t] == states[i];
            if (j != component[states[0]] && llabs(depth[j]) > below)
                below = llabs(depth[j]);
        }
    depth[component[states[0]]] = loops ? below + 1 : -below;
    return below + loops;
}

/* Solves the components of the states that are not done, in order; false where sweeps do not find one. */
static bool solve_parts(known *k, const bool *done, double precision, const double *guess, int64_t *space)
{
    const graph *g = k->g;
    const int64_t states = g->count;
    int64_t *all = space, *component = space + states, *depth = component + states, *kept = depth + states;
    int64_t deepest = 0;
    find_parts(g, done, all, component, depth);
    memset(depth, 0, states * sizeof *depth);
    for (int64_t i = 0, j; i < states; i = j) {
        for (j = i; j < states && component[all[j]] == component[all[i]]; j++)
            ;
        const int64_t found = done[all[i]] ? 0 : find_depth(k, j - i, all + i, component, depth);
        deepest = found > deepest ? found : deepest;
    }
    for (int64_t s = 0; s < states; s++)
        k->place[s] = OUTSIDE;
    for (int64_t i = 0, j; i < states; i = j) {
        for (j = i; j < states && component[all[j]] == component[all[i]]; j++)
            ;
        if (done[all[i]])
            continue;
        if (depth[component[all[i]]] <= 0) {
            while (j < states && !done[all[j]] && depth[component[all[j]]] <= 0)
                j++;
            backward(k->play, j - i, all + i, k->low, k->high, k->rows, k->space);
            for (int64_t e = i; e < j; e++)
                k->value[all[e]] = k->low[all[e]];
            continue;
        }
        const double width = precision / (double)deepest;
        order_part(k, j - i, all + i);
        if (!(j - i <= FEW_STATES && solve_part(k, smaller(width, CLOSE), guess, kept)) && !solve_part(k, width, guess, kept))
            return false;
        for (int64_t e = i; e < j; e++) {
            k->value[all[e]] = k->low[all[e]]; /* what later parts are solved for */
            k->place[all[e]] = OUTSIDE;
        }
    }
    return true;
}

/* Trivial bounds where nothing is decided. */
static void claim_nothing(known *k, const bool *done)
{
    for (int64_t s = 0; s < k->g->count; s++)
        if (!done[s]) {
            k->low[s] = 0.0;
            k->high[s] = k->reach ? 1.0 : INFINITY;
        }
}

/* Hands out the next `count` things of a size, at a multiple of eight bytes. */
static void *take(char **memory, int64_t count, size_t size)
{
    char *taken = *memory;
    *memory += (count * size + 7) / 8 * 8;
    return taken;
}

int64_t solve_known(const game *play, const graph *g, const question *asked, const bool *target, const bool *decided,
                    const double *guess, double *low, double *high, int64_t *rows, double *memory)
{
    const int64_t states = g->count, all = g->state_ptr[states], transitions = g->row_ptr[all];
    char *left = (char *)memory;
#define NUMBERS(count) take(&left, count, sizeof(double))
#define PLACES(count) take(&left, count, sizeof(int32_t))
#define STATES(count) take(&left, count, sizeof(int64_t))
#define MARKS(count) take(&left, count, 1)
    const scratch space = {asked->threads, asked->longest, 0, NUMBERS(4 * asked->threads * asked->longest)};
    known k = {
        .play = play,
        .g = g,
        .space = &space,
        .target = target,
        .reach = asked->reach,
        .must_reach = asked->must_reach,
        .chances = play->set->lower,
        .expression = play->rows->expression,
        .low = low,
        .high = high,
        .rows = rows,
        .value = NUMBERS(states),
        .image = NUMBERS(states),
        .x = NUMBERS(states),
        .steps = NUMBERS(states),
        .waiting = NUMBERS(states),
        .rhs = NUMBERS(states),
        .krylov = NUMBERS(7 * states),
        .shift = NUMBERS(states),
        .pace = NUMBERS(states),
        .weight = NUMBERS(transitions),
        .base = NUMBERS(all),
        .scale = NUMBERS(all),
        .data = NUMBERS(asked->capacity),
        .place = STATES(states),
        .order = STATES(states),
        .chosen = STATES(states),
        .indptr = PLACES(states + 1),
        .root = PLACES(states),
        .kept = PLACES(states),
        .pick = PLACES(states),
        .first = PLACES(states + 1),
        .entry = PLACES(all + 1),
        .target_of = PLACES(transitions),
        .indices = PLACES(asked->capacity),
        .hub = PLACES(states),
        .mate = PLACES(states),
        .row_of = PLACES(all),
        .budget = asked->budget,
    };
    int64_t *more = STATES(9 * states + 2);
    bool *done = MARKS(states), *sets = MARKS(3 * states);
    for (int64_t s = 0; s < states; s++) {
        low[s] = high[s] = asked->reach && target[s] ? 1.0 : 0.0;
        rows[s] = g->state_ptr[s];
    }
    memcpy(done, decided, states);
    if (!decide(&k, done, sets, more))
        return -1;
    if (memchr(done, false, states) == NULL)
        return 1;
    if (asked->start >= 0 && done[asked->start]) {
        claim_nothing(&k, done);
        return 1;
    }
    memcpy(k.value, low, states * sizeof *low);
    return solve_parts(&k, done, asked->precision, guess, more) ? k.sweeps + 1 : -1;
}
