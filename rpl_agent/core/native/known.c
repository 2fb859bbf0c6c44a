/* Totals against a known nature, in one call: what the graph decides, then sweeps, one component after the other.
 *
 * A component is swept until its values x hardly change; N is the expected number of steps until the play leaves it. Then
 * x + m N and x - m N satisfy the inequalities of a proof strictly for every m a little larger than what sweeps still
 * change, unless another strategy is almost as good and takes more steps: then a few sweeps with m as extra cost or
 * bonus mend them. Sweeps are rounded to nearest and are not trusted: every bound is verified with directed rounding.
 *
 * Not for it, and left to the caller: models in which the agent can loop for free, rewards that may be collected
 * forever, and plays so long that sweeps take too many. */
#include <string.h>

#include "known.h"

/* Sweeps over the strategies of one full sweep, and the share of its change that they leave. */
#define INNER 24
#define LEFT 0.1
/* How often they may leave more until they are accelerated; the most full sweeps; the most accelerated steps. */
#define PATIENCE 4
#define MOST_FULL_SWEEPS 200
#define MOST_STEPS 300
/* How often the width is adjusted. */
#define ROUNDS 8
/* Parts of at most so many states take no time: their bounds are brought at least this close. */
#define FEW_STATES 100
#define CLOSE 1e-11
/* Margins below this, relative to the values, are not far enough from rounding. */
#define LEAST_MARGIN 2e-14

/* ---------------------------------------------------------------------- sweeps */

/* The value of a row without its own loop, which `leaving` is the rest of; inf if it only loops. */
INLINE double row_mean(const known *k, int64_t s, int64_t row, const double *values, double offset, double *leaving)
{
    double total = k->play->reward[row] + offset;
    *leaving = 0.0;
    for (int64_t t = k->g->row_ptr[row]; t < k->g->row_ptr[row + 1]; t++) {
        int32_t j = k->g->successor[t];
        if (j != s && k->p[t] > 0.0) {
            *leaving += k->p[t];
            total += k->p[t] * values[j];
        }
    }
    return total;
}

/* One sweep over the part, in place; writes the rows that were best. */
static void full_sweep(known *k, double offset)
{
    const int64_t agent = k->play->agent;
    k->change = 0.0;
    for (int64_t i = 0; i < k->n; i++) {
        int64_t at = k->sweeps % 2 ? k->n - 1 - i : i, s = k->order[at], best_row = -1;
        double best = 0.0, mixed = 0.0, mass = 0.0, leaving;
        for (int64_t row = k->g->state_ptr[s]; row < k->g->state_ptr[s + 1]; row++) {
            if (agent == FIXED_AGENT && k->play->weights[row] == 0.0)
                continue;
            double q = row_mean(k, s, row, k->value, offset, &leaving);
            if (agent == FIXED_AGENT) {
                mixed += k->play->weights[row] * q;
                mass += k->play->weights[row] * leaving;
                best_row = row;
            } else if (leaving > 0.0) {
                q /= leaving;
                if (best_row < 0 || (agent == MAX_AGENT ? q > best : q < best)) {
                    best = q;
                    best_row = row;
                }
            }
        }
        if (agent == FIXED_AGENT)
            best = mixed / mass;
        double apart = fabs(best - k->value[s]);
        k->change = apart <= k->change ? k->change : apart; /* NaN stays */
        k->value[s] = best;
        k->chosen[at] = best_row;
    }
    k->sweeps++;
}

/* The chain of the chosen rows, with `offset` per step beside rewards, or with `offset` alone: x = rhs + P x without
 * loops at a state, each row scaled by what leaves its state. */
static void assemble_part(known *k, double offset, bool pays)
{
    const int64_t agent = k->play->agent;
    int32_t used = 0;
    k->indptr[0] = 0;
    for (int64_t i = 0; i < k->n; i++) {
        int64_t s = k->order[i];
        int64_t first = agent == FIXED_AGENT ? k->g->state_ptr[s] : k->chosen[i];
        int64_t last = agent == FIXED_AGENT ? k->g->state_ptr[s + 1] : first + 1;
        double leaving = 0.0, right = offset;
        for (int64_t row = first; row < last; row++) {
            double w = agent == FIXED_AGENT ? k->play->weights[row] : 1.0;
            if (w == 0.0)
                continue;
            right += pays ? w * k->play->reward[row] : 0.0;
            for (int64_t t = k->g->row_ptr[row]; t < k->g->row_ptr[row + 1]; t++) {
                int32_t j = k->g->successor[t];
                double mass = w * k->p[t];
                if (j == s || !(mass > 0.0))
                    continue;
                leaving += mass;
                if (k->place[j] >= 0) {
                    k->indices[used] = (int32_t)k->place[j];
                    k->data[used++] = mass;
                } else if (pays)
                    right += mass * k->value[j];
            }
        }
        k->indptr[i + 1] = used;
        k->rhs[i] = right / leaving;
        for (int32_t e = k->indptr[i]; e < used; e++)
            k->data[e] /= leaving;
    }
}

/* Gauss-Seidel on the chain, both directions in turn, until x changes by at most `tolerance`; sweeps used. */
static int64_t relax(const known *k, const double *right, double *x, int64_t most, double tolerance)
{
    for (int64_t turn = 0; turn < most; turn++) {
        double change = 0.0;
        for (int64_t i = 0; i < k->n; i++) {
            int64_t s = turn % 2 == 0 ? i : k->n - 1 - i;
            double new = right[s];
            for (int32_t e = k->indptr[s]; e < k->indptr[s + 1]; e++)
                new += k->data[e] * x[k->indices[e]];
            change = larger(change, fabs(new - x[s]));
            x[s] = new;
        }
        if (change <= tolerance)
            return turn + 1;
    }
    return most;
}

/* out = right - x + P x. */
static void residual(const known *k, const double *right, const double *x, double *out)
{
    for (int64_t i = 0; i < k->n; i++) {
        double rest = right[i] - x[i];
        for (int32_t e = k->indptr[i]; e < k->indptr[i + 1]; e++)
            rest += k->data[e] * x[k->indices[e]];
        out[i] = rest;
    }
}

static double size_of(int64_t n, const double *x)
{
    double most = 0.0;
    for (int64_t i = 0; i < n; i++)
        most = fabs(x[i]) <= most ? most : fabs(x[i]);
    return most;
}

static double dot(int64_t n, const double *x, const double *y)
{
    double total = 0.0;
    for (int64_t i = 0; i < n; i++)
        total += x[i] * y[i];
    return total;
}

/* near = about (I - P)^-1 right by a sweep in each direction; out = (I - P) near. */
static void apply_near(const known *k, const double *right, double *near, double *out)
{
    memset(near, 0, k->n * sizeof *near);
    relax(k, right, near, 2, 0.0);
    residual(k, right, near, out);
    for (int64_t i = 0; i < k->n; i++)
        out[i] = right[i] - out[i];
}

/* BiCGSTAB from x until nothing more than `tolerance` or a share of what was missing is missing; x changes only if
 * that becomes less. */
static void accelerate(known *k, double *x, double tolerance)
{
    const int64_t n = k->n;
    double *r = k->krylov, *shadow = r + n, *d = shadow + n, *v = d + n, *t = v + n, *y = t + n, *near = y + n;
    double rho = 1.0, alpha = 1.0, omega = 1.0;
    residual(k, k->rhs, x, r);
    const double before = size_of(n, r), goal = larger(tolerance, LEFT * before);
    memcpy(shadow, r, n * sizeof *r);
    memcpy(y, x, n * sizeof *x);
    memset(d, 0, n * sizeof *d);
    memset(v, 0, n * sizeof *v);
    for (int64_t step = 0; step < MOST_STEPS && size_of(n, r) > goal; step++) {
        double next = dot(n, shadow, r), beta = next / rho * (alpha / omega);
        for (int64_t i = 0; i < n; i++)
            d[i] = r[i] + beta * (d[i] - omega * v[i]);
        apply_near(k, d, near, v);
        rho = next;
        alpha = rho / dot(n, shadow, v);
        for (int64_t i = 0; i < n; i++) {
            y[i] += alpha * near[i];
            r[i] -= alpha * v[i];
        }
        apply_near(k, r, near, t);
        omega = dot(n, t, r) / dot(n, t, t);
        for (int64_t i = 0; i < n; i++) {
            y[i] += omega * near[i];
            r[i] -= omega * t[i];
        }
        k->sweeps += 6;
        if (!(fabs(omega) > 0.0) || !(fabs(rho) > 0.0) || !(fabs(alpha) < INFINITY))
            break;
    }
    residual(k, k->rhs, y, r);
    if (size_of(n, r) < before)
        memcpy(x, y, n * sizeof *x);
}

/* Sweeps until values change by at most `tolerance`; false if that takes too many. */
static bool approach(known *k, double tolerance, double offset)
{
    for (int64_t round = 0; round < MOST_FULL_SWEEPS; round++) {
        full_sweep(k, offset);
        if (k->change <= tolerance)
            return true;
        if (k->sweeps > k->budget || !(k->change < INFINITY))
            return false;
        assemble_part(k, offset, true);
        for (int64_t i = 0; i < k->n; i++)
            k->x[i] = k->value[k->order[i]];
        double enough = larger(LEFT * k->change, 0.5 * tolerance);
        int64_t used = relax(k, k->rhs, k->x, INNER, enough);
        k->sweeps += used;
        k->slow = used == INNER ? k->slow + 1 : 0;
        if (k->slow >= PATIENCE)
            accelerate(k, k->x, 0.1 * tolerance);
        for (int64_t i = 0; i < k->n; i++)
            k->value[k->order[i]] = k->x[i];
    }
    return false;
}

/* N with N >= 1/2 + P N, about the expected number of steps by the chosen rows; false if that takes too many sweeps. */
static bool count_steps(known *k)
{
    assemble_part(k, 1.0, false);
    int64_t used = relax(k, k->rhs, k->steps, PATIENCE * INNER, 0.25);
    k->sweeps += used;
    if (used < PATIENCE * INNER)
        return true;
    for (int tries = 0; tries < 4; tries++) {
        accelerate(k, k->steps, 0.1);
        used = relax(k, k->rhs, k->steps, INNER, 0.25);
        k->sweeps += used;
        if (used < INNER)
            return true;
    }
    return false;
}

/* ---------------------------------------------------------------------- bounds of a part */

/* Whether the values of the part, within the trivial range, satisfy the inequality of their side with directed rounding:
 * for the chosen rows if they are the agent's own side, strictly where a proof needs that the play ends. */
static bool verified(known *k, bool upward)
{
    const game *play = k->play;
    double *values = upward ? k->high : k->low;
    const bool own = play->agent == (upward ? MIN_AGENT : MAX_AGENT), strict = upward == k->must_reach;
    for (int64_t i = 0; i < k->n; i++) {
        double *at = values + k->order[i];
        *at = larger(*at, 0.0);
        if (k->reach)
            *at = smaller(*at, 1.0);
    }
    if (own)
        row_bounds(k->n, values, play->maximise, upward, play->rows, play->set, k->space, k->chosen, k->x);
    else
        bellman(play, k->n, k->order, values, k->image, NULL, upward, 0.0, k->space);
    for (int64_t i = 0; i < k->n; i++) {
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

/* One bound at a margin from the values. `apart`: how far the exits may be from those they were found for. */
static bool bound(known *k, bool upward, double margin, double apart)
{
    const double sign = upward ? 1.0 : -1.0;
    double *values = upward ? k->high : k->low;
    for (int64_t i = 0; i < k->n; i++) {
        int64_t s = k->order[i];
        values[s] = k->value[s] + sign * (margin * k->steps[i] + (upward ? apart : 0.0));
    }
    return verified(k, upward);
}

/* The same bound, mended by sweeps with the margin as an extra cost or bonus: another strategy was almost as good and
 * takes more steps. The agent's own side has no other. Scratch: rows (n). */
static bool mended_bound(known *k, bool upward, double margin, int64_t *rows)
{
    const double change = k->change;
    double *values = k->value;
    if (k->play->agent == (upward ? MIN_AGENT : MAX_AGENT))
        return false;
    memcpy(rows, k->chosen, k->n * sizeof *rows);
    k->value = upward ? k->high : k->low;
    bool good = approach(k, 0.25 * margin, upward ? margin : -margin);
    k->value = values;
    memcpy(k->chosen, rows, k->n * sizeof *rows);
    k->change = change;
    return good && verified(k, upward);
}

/* A start for costs, which from 0 would rise by one step per sweep: the cheapest row that leads to states before it, as
 * if it were tried again until it does. */
static void start_costs(known *k, const double *guess)
{
    for (int64_t i = 0; i < k->n; i++) {
        int64_t s = k->order[i];
        double best = INFINITY;
        for (int64_t row = k->g->state_ptr[s]; row < k->g->state_ptr[s + 1]; row++) {
            double mass = 0.0, total = k->play->reward[row];
            for (int64_t t = k->g->row_ptr[row]; t < k->g->row_ptr[row + 1]; t++) {
                int32_t j = k->g->successor[t];
                if (k->place[j] < i) {
                    mass += k->p[t];
                    total += k->p[t] * k->value[j];
                }
            }
            if (mass > 1e-9)
                best = smaller(best, total / mass);
        }
        k->value[s] = guess ? guess[s] : best < INFINITY ? best : 0.0;
    }
}

/* Orders the component states[0..n] by the number of steps to those ends that are worth something. */
static void order_part(known *k, int64_t n, const int64_t *states, const int64_t *component)
{
    const graph *g = k->g;
    int64_t found = 0;
    k->n = n;
    for (int turn = 0; turn < 2; turn++) { /* where no end is worth anything, by all of them */
        for (int64_t i = 0; i < n && found == 0; i++)
            k->place[states[i]] = -1;
        for (int64_t i = 0; i < n && (turn == 0 || found < n); i++) {
            int64_t s = states[i];
            for (int64_t t = g->row_ptr[g->state_ptr[s]]; t < g->row_ptr[g->state_ptr[s + 1]] && k->place[s] < 0; t++) {
                int32_t j = g->successor[t];
                if (component[j] != component[s] && k->p[t] > 0.0 && (turn || !k->reach || k->low[j] != 0.0)) {
                    k->place[s] = found;
                    k->order[found++] = s;
                }
            }
        }
        for (int64_t head = 0; head < found; head++)
            for (int64_t e = g->first[k->order[head]]; e < g->first[k->order[head] + 1]; e++) {
                int32_t s = g->sources[e];
                if (component[s] == component[states[0]] && k->place[s] < 0) {
                    k->place[s] = found;
                    k->order[found++] = s;
                }
            }
    }
    for (int64_t i = 0; i < n; i++)
        if (k->place[states[i]] < 0) {
            k->place[states[i]] = found;
            k->order[found++] = states[i];
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
            if (k->place[j] >= 0 || !(k->p[t] > 0.0) || k->low[j] == k->high[j])
                continue;
            apart = larger(apart, k->high[j] - k->low[j]);
        }
    }
    return apart;
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

/* Bounds of a part whose exits have bounds; false if sweeps do not find them. */
static bool solve_part(known *k, double width, const double *guess, int64_t *kept)
{
    const double apart = exits_apart(k);
    double tolerance = 0.02 * width;
    if (!(apart < INFINITY))
        return false;
    for (int64_t i = 0; i < k->n; i++) {
        k->value[k->order[i]] = guess ? guess[k->order[i]] : 0.0;
        k->steps[i] = 0.0;
    }
    if (!k->reach)
        start_costs(k, guess);
    k->slow = 0;
    for (int round = 0; round < ROUNDS; round++) {
        if (!approach(k, tolerance, 0.0) || !count_steps(k))
            return false;
        double margin = widest(k, width), size = 0.0;
        for (int64_t i = 0; i < k->n; i++)
            size = larger(size, fabs(k->value[k->order[i]]));
        if (!(margin > LEAST_MARGIN * size))
            return false;
        if (margin >= 4.0 * k->change) {
            for (int upward = 0; upward < 2; upward++)
                if (!bound(k, upward, margin, apart) && !mended_bound(k, upward, margin, kept))
                    return false;
            double excess = excess_of(k, width, apart);
            if (excess <= 1.0) {
                for (int64_t i = 0; i < k->n && k->play->agent != FIXED_AGENT; i++)
                    k->rows[k->order[i]] = k->chosen[i];
                return true;
            }
            width /= excess;
        }
        tolerance = smaller(0.125 * margin, 0.25 * tolerance);
    }
    return false;
}

/* ---------------------------------------------------------------------- all parts */

/* Whether the component states[0..n] is cyclic; *depth: how many cyclic ones lie on the longest path from here on. */
static bool is_cyclic(const known *k, int64_t n, const int64_t *states, const int64_t *component, int64_t *depth)
{
    const graph *g = k->g;
    bool loops = n > 1;
    int64_t below = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t t = g->row_ptr[g->state_ptr[states[i]]]; t < g->row_ptr[g->state_ptr[states[i] + 1]]; t++) {
            int64_t j = component[g->successor[t]];
            loops |= g->successor[t] == states[i];
            if (j != component[states[0]] && depth[j] > below)
                below = depth[j];
        }
    depth[component[states[0]]] = below + loops;
    return loops;
}

/* Solves the components of the states that are not done, in order; false where sweeps do not find one. */
static bool solve_parts(known *k, const bool *done, double precision, const double *guess, int64_t *space)
{
    const graph *g = k->g;
    const int64_t states = g->count;
    int64_t *all = space, *component = space + states, *depth = component + states, *kept = depth + states;
    int64_t deepest = 0;
    components(g, done, all, component, depth);
    memset(depth, 0, states * sizeof *depth);
    for (int64_t i = 0, j; i < states; i = j) {
        for (j = i; j < states && component[all[j]] == component[all[i]]; j++)
            ;
        if (!done[all[i]] && is_cyclic(k, j - i, all + i, component, depth) && depth[component[all[i]]] > deepest)
            deepest = depth[component[all[i]]];
    }
    for (int64_t s = 0; s < states; s++)
        k->place[s] = -1;
    for (int64_t i = 0, j; i < states; i = j) {
        for (j = i; j < states && component[all[j]] == component[all[i]]; j++)
            ;
        if (done[all[i]])
            continue;
        if (!is_cyclic(k, j - i, all + i, component, depth)) {
            while (j < states && !done[all[j]] && (j + 1 == states || component[all[j]] != component[all[j + 1]])
                   && !is_cyclic(k, 1, all + j, component, depth))
                j++;
            backward(k->play, j - i, all + i, k->low, k->high, k->rows, k->space);
            for (int64_t e = i; e < j; e++)
                k->value[all[e]] = k->low[all[e]];
            continue;
        }
        const double width = precision / (double)deepest;
        order_part(k, j - i, all + i, component);
        if (!(j - i <= FEW_STATES && solve_part(k, smaller(width, CLOSE), guess, kept)) && !solve_part(k, width, guess, kept))
            return false;
        for (int64_t e = i; e < j; e++) {
            k->value[all[e]] = k->low[all[e]]; /* what later parts are solved for */
            k->place[all[e]] = -1;
        }
    }
    return true;
}

int64_t solve_known(const game *play, const graph *g, const question *asked, bool *done, double *low, double *high,
                    int64_t *rows, const scratch *space, double *numbers, int32_t *indices, int64_t *integers,
                    bool *sets, int8_t *usable)
{
    const int64_t states = g->count, transitions = g->row_ptr[g->state_ptr[states]];
    double *p = numbers + 12 * states;
    queue q = {0, 0, integers, sets + 3 * states};
    known k = {
        .play = play,
        .g = g,
        .space = space,
        .target = asked->target,
        .reach = asked->reach,
        .must_reach = asked->must_reach,
        .p = p,
        .low = low,
        .high = high,
        .rows = rows,
        .value = numbers,
        .image = numbers + states,
        .x = numbers + 2 * states,
        .steps = numbers + 3 * states,
        .rhs = numbers + 4 * states,
        .krylov = numbers + 5 * states,
        .data = p + transitions,
        .indptr = indices,
        .indices = indices + states + 1,
        .place = integers + states,
        .order = integers + 2 * states,
        .chosen = integers + 3 * states,
        .budget = asked->budget,
    };
    for (int64_t row = 0; row < g->state_ptr[states]; row++)
        for (int64_t t = g->row_ptr[row]; t < g->row_ptr[row + 1]; t++)
            p[t] = g->row_ptr[row + 1] - g->row_ptr[row] == 1 ? 1.0 : play->set->lower[play->rows->expression[t]];
    if (!decide(&k, done, sets, usable, &q))
        return -1;
    if (memchr(done, false, states) == NULL)
        return 1;
    memcpy(k.value, low, states * sizeof *low);
    return solve_parts(&k, done, asked->precision, asked->guess, integers + 4 * states) ? k.sweeps + 1 : -1;
}
