/* Values against a known nature by sweeps, rounded to nearest: guesses, not bounds. One full sweep over a part finds
 * strategies, cheaper ones over these strategies alone follow, and where plays are long BiCGSTAB takes over.
 *
 * Sweeps begin where plays end, so that one of them carries values all the way back. Where a row also leads ahead, to a
 * place that has its new value only after it, the old one lags behind by about as much as the row's own value: every
 * other sweep adds that (`pace`), or as many sweeps would be needed as plays slip back. */
#include <stdlib.h>
#include <string.h>

#include "known.h"

/* Sweeps that count steps before BiCGSTAB takes over; fewer where they follow the way out. */
#define COUNTING 48
#define COUNTING_WAITS 16
/* Steps of BiCGSTAB; fewer where factors are cheap. */
#define MOST_STEPS 300
#define NARROW_STEPS 60

/* The places of the chain in turn, or only those listed in `kept`, at their pace or not; the largest change of x. */
INLINE double relax_once(const known *k, const int32_t *kept, const double *pace, const double *right, double *x)
{
    double change = 0.0;
    for (int64_t i = 0; i < k->left; i++) {
        const int64_t s = kept ? kept[i] : i;
        double step = plus_row(right[s], k->data, k->indices, k->indptr[i], k->indptr[i + 1], x) - x[s];
        if (pace)
            step *= pace[s];
        change = larger(change, fabs(step));
        x[s] += step;
    }
    return change;
}

/* Gauss-Seidel on the chain until x changes by at most `tolerance`; sweeps used. */
static int64_t relax(const known *k, const double *right, double *x, int64_t most, double tolerance)
{
    const int32_t *kept = k->left == k->n ? NULL : k->kept;
    for (int64_t turn = 0; turn < most; turn++) {
        double change = turn % 2 ? relax_once(k, kept, NULL, right, x) : relax_once(k, kept, k->pace, right, x);
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
        out[s] = plus_row(right[s] - x[s], k->data, k->indices, k->indptr[i], k->indptr[i + 1], x);
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

/* near = about (I - P)^-1 right by two sweeps; out = (I - P) near. */
static void apply_near(const known *k, const double *right, double *near, double *out)
{
    memset(near, 0, k->n * sizeof *near);
    relax(k, right, near, 2, 0.0);
    residual(k, right, near, out);
    for (int64_t i = 0; i < k->n; i++)
        out[i] = right[i] - out[i];
}

/* Whether places lead to near ones only, such as those of a queue: factors of their chain are small. */
static bool is_narrow(const known *k)
{
    double total = 0.0;
    for (int64_t i = 0; i < k->n; i++) {
        int64_t most = 0;
        for (int32_t e = k->entry[k->first[i]]; e < k->entry[k->first[i + 1]]; e++) {
            const int64_t apart = llabs(k->target_of[e] - i);
            most = apart > most ? apart : most;
        }
        total += (double)most;
    }
    return total <= NARROW * (double)k->n;
}

/* BiCGSTAB from x until nothing more than `tolerance` or a share of what was missing is missing; x changes only if
 * that becomes less. Returns whether it got there. */
static bool accelerate(known *k, double *x, double tolerance)
{
    const int64_t n = k->n, most = is_narrow(k) ? NARROW_STEPS : MOST_STEPS;
    double *r = k->krylov, *shadow = r + n, *d = shadow + n, *v = d + n, *t = v + n, *y = t + n, *near = y + n;
    double rho = 1.0, alpha = 1.0, omega = 1.0;
    residual(k, k->rhs, x, r);
    const double before = size_of(n, r), goal = larger(tolerance, LEFT * before);
    memcpy(shadow, r, n * sizeof *r);
    memcpy(y, x, n * sizeof *x);
    memset(d, 0, n * sizeof *d);
    memset(v, 0, n * sizeof *v);
    for (int64_t step = 0; step < most && size_of(n, r) > goal; step++) {
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
    const double after = size_of(n, r);
    if (after < before)
        memcpy(x, y, n * sizeof *x);
    return after <= goal;
}

static bool sweep_values(known *k, double tolerance, double offset)
{
    for (int64_t round = 0; round < MOST_FULL_SWEEPS; round++) {
        full_sweep(k, offset);
        if (k->change <= tolerance)
            return true;
        if (k->sweeps > k->budget || !(k->change < INFINITY))
            return false;
        skip_ways(k);
        double enough = larger(LEFT * k->change, 0.5 * tolerance);
        int64_t used = relax(k, k->rhs, k->x, INNER, enough);
        k->sweeps += used;
        if (k->slow < PATIENCE)
            k->slow = used == INNER ? k->slow + 1 : 0;
        if (k->slow >= PATIENCE && used == INNER && !accelerate(k, k->x, 0.1 * tolerance) && is_narrow(k))
            return false; /* the caller factorises it in less time */
        fill_ways(k, k->x);
        if (k->stops && size_of(k->n, k->x) > k->most)
            return false;
    }
    return false;
}

/* The row of the model that was picked at place i. */
static int64_t picked_row(const known *k, int64_t i)
{
    if (k->pick[i] == NO_ROW)
        return NO_ROW;
    return k->loops ? k->row_of[k->pick[i]] : k->g->state_ptr[k->order[i]] + k->pick[i] - k->first[i];
}

bool approach(known *k, double tolerance, double offset)
{
    for (int64_t i = 0; i < k->n; i++)
        k->x[i] = k->value[k->order[i]];
    const bool good = sweep_values(k, tolerance, offset);
    level(k, k->x);
    for (int64_t i = 0; i < k->n; i++) {
        k->value[k->order[i]] = k->x[i];
        k->chosen[i] = picked_row(k, i);
    }
    return good;
}

/* Counts the steps of the chain, which pays what `rhs` says for each, at first by `most` sweeps. */
static bool settle_steps(known *k, double *steps, int64_t most)
{
    int64_t used = relax(k, k->rhs, steps, most, 0.45);
    k->sweeps += used;
    if (used < most)
        return true;
    for (int tries = 0; tries < 4; tries++) {
        if (!accelerate(k, steps, 0.1) && is_narrow(k))
            return false;
        used = relax(k, k->rhs, steps, INNER, 0.45);
        k->sweeps += used;
        if (used < INNER)
            return true;
    }
    return false;
}

bool count_steps(known *k)
{
    for (int64_t i = 0; i < k->n; i++)
        k->rhs[i] = k->scale[k->pick[i]];
    skip_ways(k);
    const bool settled = settle_steps(k, k->steps, COUNTING);
    fill_ways(k, k->steps);
    level(k, k->steps);
    return settled;
}

bool count_waiting(known *k)
{
    const int64_t members = lead_out(k);
    if (members < 0)
        return false;
    write_waiting(k, members);
    const bool settled = settle_steps(k, k->waiting, COUNTING_WAITS);
    k->longest_wait = size_of(k->n, k->waiting);
    return settled;
}

int64_t worst_totals(const graph *g, double gamma, const double *chances, const int32_t *expression,
                     const double *reward, const effort *allowed, const bool *done, double *values, double *numbers,
                     int32_t *indices, int64_t *integers)
{
    const int64_t states = g->count, rows = g->state_ptr[states], transitions = g->row_ptr[rows];
    const int64_t capacity = allowed->capacity;
    const game play = {.agent = MAX_AGENT, .gamma = gamma, .state_ptr = g->state_ptr, .reward = reward};
    int64_t *all = integers + 3 * states, *component = all + states, *space = component + states;
    known k = {
        .play = &play,
        .g = g,
        .stops = true,
        .chances = chances,
        .expression = expression,
        .value = values,
        .x = numbers,
        .rhs = numbers + states,
        .krylov = numbers + 2 * states,
        .shift = numbers + 9 * states,
        .pace = numbers + 10 * states,
        .data = numbers + 11 * states,
        .weight = numbers + 11 * states + capacity,
        .base = numbers + 11 * states + capacity + transitions,
        .scale = numbers + 11 * states + capacity + transitions + rows,
        .indptr = indices,
        .root = indices + states + 1,
        .kept = indices + 2 * states + 1,
        .pick = indices + 3 * states + 1,
        .first = indices + 4 * states + 1,
        .entry = indices + 5 * states + 2,
        .target_of = indices + 5 * states + 3 + rows,
        .indices = indices + 5 * states + 3 + rows + transitions,
        .place = integers,
        .order = integers + states,
        .chosen = integers + 2 * states,
        .budget = allowed->budget,
        .most = allowed->most,
    };
    find_parts(g, done, all, component, space);
    for (int64_t s = 0; s < states; s++) {
        k.place[s] = OUTSIDE;
        values[s] = 0.0;
    }
    for (int64_t i = 0, j; i < states; i = j) {
        for (j = i; j < states && component[all[j]] == component[all[i]]; j++)
            ;
        if (done[all[i]])
            continue;
        order_part(&k, j - i, all + i);
        load_part(&k);
        k.slow = 0;
        if (!approach(&k, allowed->tolerance, 0.0))
            return -1;
        for (int64_t e = i; e < j; e++)
            k.place[all[e]] = OUTSIDE;
    }
    return k.sweeps;
}
