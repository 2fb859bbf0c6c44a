/* Values against a known nature by sweeps, rounded to nearest: guesses, not bounds. One full sweep over a part finds
 * strategies, cheaper ones over these strategies alone follow, and where plays are long BiCGSTAB takes over. */
#include <string.h>

#include "known.h"

/* Sweeps over the strategies of one full sweep, and the share of its change that they leave. */
#define INNER 24
#define LEFT 0.1
/* How often they may leave more until they are accelerated, from then on whenever they do; sweeps that count steps
 * before these are; the most full sweeps; the most accelerated steps. */
#define PATIENCE 3
#define COUNTING 48
#define MOST_FULL_SWEEPS 200
#define MOST_STEPS 300
/* In place of a row where the play stops. */
#define NO_ROW -1

/* The value of a row without its own loop, which `leaving` is the rest of; inf if it only loops. */
INLINE double row_mean(const known *k, int64_t s, int64_t row, const double *values, double offset, double *leaving)
{
    const double gamma = k->play->gamma;
    double total = k->play->reward[row] + offset;
    *leaving = 1.0 - gamma;
    for (int64_t t = k->g->row_ptr[row]; t < k->g->row_ptr[row + 1]; t++) {
        int32_t j = k->g->successor[t];
        if (j != s && k->p[t] > 0.0) {
            *leaving += gamma * k->p[t];
            total += gamma * k->p[t] * values[j];
        }
    }
    return total;
}

/* One sweep over the part, in place; writes the rows that were best, and returns whether one is another than before. */
static bool full_sweep(known *k, double offset)
{
    const int64_t agent = k->play->agent;
    bool differs = false;
    k->change = 0.0;
    for (int64_t i = 0; i < k->n; i++) {
        int64_t at = k->sweeps % 2 ? k->n - 1 - i : i, s = k->order[at], best_row = NO_ROW;
        double best = 0.0, mixed = 0.0, mass = 0.0, leaving;
        for (int64_t row = k->g->state_ptr[s]; row < k->g->state_ptr[s + 1]; row++) {
            if (agent == FIXED_AGENT && k->play->weights[row] == 0.0)
                continue;
            double q = row_mean(k, s, row, k->value, offset, &leaving);
            if (agent == FIXED_AGENT) {
                mixed += k->play->weights[row] * q;
                mass += k->play->weights[row] * leaving;
                best_row = row;
            } else if (leaving > 0.0 || (k->stops && q > 0.0)) { /* the latter is paid again and again: inf */
                q /= leaving;
                if (best_row < 0 || (agent == MAX_AGENT ? q > best : q < best)) {
                    best = q;
                    best_row = row;
                }
            }
        }
        if (agent == FIXED_AGENT)
            best = mixed / mass;
        if (k->stops && !(best > 0.0)) {
            best = 0.0;
            best_row = NO_ROW;
        }
        double apart = fabs(best - k->value[s]);
        k->change = apart <= k->change ? k->change : apart; /* NaN stays */
        k->value[s] = best;
        differs |= k->chosen[at] != best_row;
        k->chosen[at] = best_row;
    }
    k->sweeps++;
    return differs;
}

/* The place that a place of the chain always leads to; -1 if there is no such place. */
INLINE int32_t next_of(const known *k, int64_t i)
{
    const int32_t at = k->indptr[i];
    return k->indptr[i + 1] == at + 1 && k->data[at] == 1.0 ? k->indices[at] : -1;
}

/* For every place the first one from there on that may lead to several (`root`), and what is paid on the way (`shift`).
 * Ways that come back to themselves stay as they are. */
static void find_roots(known *k)
{
    enum { UNKNOWN = -1, ON_THE_WAY = -2 };
    for (int64_t i = 0; i < k->n; i++) {
        k->root[i] = next_of(k, i) < 0 ? (int32_t)i : UNKNOWN;
        k->shift[i] = 0.0;
    }
    for (int64_t i = 0; i < k->n; i++) {
        int32_t end = (int32_t)i, next;
        double paid = 0.0;
        for (; k->root[end] == UNKNOWN; end = next_of(k, end)) {
            k->root[end] = ON_THE_WAY;
            paid += k->rhs[end];
        }
        const int32_t root = k->root[end];
        for (int32_t j = (int32_t)i; k->root[j] == ON_THE_WAY; j = next) {
            next = next_of(k, j);
            k->root[j] = root >= 0 ? root : j;
            k->shift[j] = root >= 0 ? paid + k->shift[end] : 0.0;
            paid -= k->rhs[j];
        }
    }
}

/* Lets the rows of roots lead to roots, and lists these in `kept`: sweeps leave out the places in between. */
static void skip_ways(known *k)
{
    find_roots(k);
    k->left = 0;
    for (int64_t i = 0; i < k->n; i++) {
        double leaving = 1.0;
        if (k->root[i] != i)
            continue;
        k->kept[k->left++] = (int32_t)i;
        for (int32_t e = k->indptr[i]; e < k->indptr[i + 1]; e++) {
            const int32_t j = k->indices[e];
            if (k->root[j] == j)
                continue;
            k->rhs[i] += k->data[e] * k->shift[j];
            k->indices[e] = k->root[j];
            if (k->root[j] == i && k->data[e] < leaving) { /* a way back, tried again until it is left */
                leaving -= k->data[e];
                k->data[e] = 0.0;
            }
        }
        if (leaving == 1.0)
            continue;
        k->rhs[i] /= leaving;
        for (int32_t e = k->indptr[i]; e < k->indptr[i + 1]; e++)
            k->data[e] /= leaving;
    }
}

/* Values of the places that sweeps left out. */
static void fill_ways(const known *k, double *x)
{
    for (int64_t i = 0; i < k->n; i++)
        if (k->root[i] != i)
            x[i] = k->shift[i] + x[k->root[i]];
}

/* The chain of the chosen rows, with `offset` per step beside rewards, or with `offset` alone: x = rhs + P x without
 * loops at a state, each row scaled by what leaves its state. */
static void assemble_part(known *k, double offset, bool pays)
{
    const int64_t agent = k->play->agent;
    const double gamma = k->play->gamma;
    int32_t used = 0;
    k->indptr[0] = 0;
    for (int64_t i = 0; i < k->n; i++) {
        int64_t s = k->order[i];
        int64_t first = agent == FIXED_AGENT ? k->g->state_ptr[s] : k->chosen[i];
        int64_t last = agent == FIXED_AGENT ? k->g->state_ptr[s + 1] : first + 1;
        double leaving = 1.0 - gamma, right = offset;
        if (first == NO_ROW) { /* the play stops */
            first = last;
            leaving = 1.0;
            right = 0.0;
        }
        for (int64_t row = first; row < last; row++) {
            double w = agent == FIXED_AGENT ? k->play->weights[row] : 1.0;
            if (w == 0.0)
                continue;
            right += pays ? w * k->play->reward[row] : 0.0;
            for (int64_t t = k->g->row_ptr[row]; t < k->g->row_ptr[row + 1]; t++) {
                int32_t j = k->g->successor[t];
                double mass = gamma * w * k->p[t];
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
    skip_ways(k);
}

/* start + P_s x, as two sums: one would wait for each of its terms. */
INLINE double plus_row(const known *k, int64_t s, double start, const double *x)
{
    const int32_t last = k->indptr[s + 1];
    int32_t e = k->indptr[s];
    double other = 0.0;
    for (; e + 1 < last; e += 2) {
        start += k->data[e] * x[k->indices[e]];
        other += k->data[e + 1] * x[k->indices[e + 1]];
    }
    if (e < last)
        start += k->data[e] * x[k->indices[e]];
    return start + other;
}

/* The places of the chain in turn, or only those listed in `kept`; returns the largest change of x. */
INLINE double relax_once(const known *k, const int32_t *kept, bool back, const double *right, double *x)
{
    double change = 0.0;
    for (int64_t i = 0; i < k->left; i++) {
        int64_t at = back ? k->left - 1 - i : i, s = kept ? kept[at] : at;
        double new = plus_row(k, s, right[s], x);
        change = larger(change, fabs(new - x[s]));
        x[s] = new;
    }
    return change;
}

/* Gauss-Seidel on the chain, both directions in turn, until x changes by at most `tolerance`; sweeps used. */
static int64_t relax(const known *k, const double *right, double *x, int64_t most, double tolerance)
{
    for (int64_t turn = 0; turn < most; turn++) {
        double change = k->left == k->n ? relax_once(k, NULL, turn % 2, right, x)
                                        : relax_once(k, k->kept, turn % 2, right, x);
        if (change <= tolerance)
            return turn + 1;
    }
    return most;
}

/* out = right - x + P x, 0 at places that are left out. */
static void residual(const known *k, const double *right, const double *x, double *out)
{
    memset(out, 0, k->n * sizeof *out);
    for (int64_t i = 0; i < k->left; i++) {
        const int64_t s = k->kept[i];
        out[s] = plus_row(k, s, right[s] - x[s], x);
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

bool approach(known *k, double tolerance, double offset)
{
    for (int64_t round = 0; round < MOST_FULL_SWEEPS; round++) {
        const bool differs = full_sweep(k, offset);
        if (k->change <= tolerance)
            return true;
        if (k->sweeps > k->budget || !(k->change < INFINITY))
            return false;
        if (differs || round == 0) /* else the chain is there */
            assemble_part(k, offset, true);
        for (int64_t i = 0; i < k->n; i++)
            k->x[i] = k->value[k->order[i]];
        double enough = larger(LEFT * k->change, 0.5 * tolerance);
        int64_t used = relax(k, k->rhs, k->x, INNER, enough);
        k->sweeps += used;
        if (k->slow < PATIENCE)
            k->slow = used == INNER ? k->slow + 1 : 0;
        if (k->slow >= PATIENCE && used == INNER)
            accelerate(k, k->x, 0.1 * tolerance);
        fill_ways(k, k->x);
        if (k->stops && size_of(k->n, k->x) > k->most)
            return false;
        for (int64_t i = 0; i < k->n; i++)
            k->value[k->order[i]] = k->x[i];
    }
    return false;
}

static bool settle_steps(known *k, int64_t most)
{
    assemble_part(k, 1.0, false);
    int64_t used = relax(k, k->rhs, k->steps, most < COUNTING ? most : COUNTING, 0.45);
    k->sweeps += used;
    if (used < COUNTING)
        return used < most;
    for (int tries = 0; tries < 4; tries++) {
        accelerate(k, k->steps, 0.1);
        used = relax(k, k->rhs, k->steps, INNER, 0.45);
        k->sweeps += used;
        if (used < INNER)
            return true;
    }
    return false;
}

bool count_steps(known *k, int64_t most)
{
    const bool settled = settle_steps(k, most);
    fill_ways(k, k->steps);
    return settled;
}

void order_part(known *k, int64_t n, const int64_t *states, const int64_t *component)
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

int64_t worst_totals(const graph *g, double gamma, const double *p, const double *reward, double tolerance,
                     int64_t budget, double most, int64_t capacity, bool *done, double *values, double *numbers,
                     int32_t *indices, int64_t *integers)
{
    const int64_t states = g->count;
    const game play = {.agent = MAX_AGENT, .gamma = gamma, .state_ptr = g->state_ptr, .reward = reward};
    int64_t *all = integers + 3 * states, *component = all + states, *space = component + states;
    known k = {
        .play = &play,
        .g = g,
        .stops = true,
        .p = p,
        .value = values,
        .x = numbers,
        .rhs = numbers + states,
        .krylov = numbers + 2 * states,
        .shift = numbers + 9 * states,
        .data = numbers + 10 * states,
        .indptr = indices,
        .indices = indices + 3 * states + 1,
        .root = indices + states + 1,
        .kept = indices + 2 * states + 1,
        .place = integers,
        .order = integers + states,
        .chosen = integers + 2 * states,
        .budget = budget,
        .most = most,
    };
    components(g, done, all, component, space);
    for (int64_t s = 0; s < states; s++) {
        k.place[s] = -1;
        values[s] = 0.0;
    }
    for (int64_t i = 0, j; i < states; i = j) {
        for (j = i; j < states && component[all[j]] == component[all[i]]; j++)
            ;
        if (done[all[i]])
            continue;
        order_part(&k, j - i, all + i, component);
        k.slow = 0;
        if (!approach(&k, tolerance, 0.0))
            return -1;
        for (int64_t e = i; e < j; e++)
            k.place[all[e]] = -1;
    }
    return k.sweeps;
}
