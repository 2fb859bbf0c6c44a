/* Residuals of affine value functions: by how much a row can violate its Bellman inequality on the unit ball or cube.
 *
 * U(s, y) = u(s) + g(s).y     the affine function; u, g of the state itself, next_u, next_g of its successors
 * p + beta.y                  the probability of a transition, up to an error per expression (coupled/frame.py)
 * gamma                       the discount
 *
 * The residual of a row, written with differences because the probabilities of a row sum to 1 for the true parameters:
 *
 *     (T U - U)(s, y) = reward - (1 - gamma) U(s, y) + gamma sum_i (p_i + beta_i.y) (U(i, y) - U(s, y))
 *                     = a + l.y + y'My,
 *
 *     a = reward - (1 - gamma) u(s) + gamma sum_i p_i D_i,               D_i = u(i) - u(s)
 *     l = -(1 - gamma) g(s) + gamma sum_i (D_i beta_i + p_i G_i),         G_i = g(i) - g(s)
 *     M = gamma (sym sum_i beta_i G_i' + sum_i D_i M_i),
 *
 * where probabilities are quadratic, p_i + beta_i.y + y'M_i y, up to gamma sum_i (y'M_i y) (G_i.y), which is of the third order.
 *
 * On |y| <= 1 it is at most a + |l| + max(lambda, 0), lambda the largest eigenvalue of M (bend.h); on the cube of all
 * |y_j| <= 1 at most a + sum |l_j| + sum max(M_jj, 0) + the sum of the other |M_jk|. A row of two successors, whose
 * probabilities are p + b.y and 1 - p - b.y, has M = gamma sym b d', d = g(1) - g(2), and lambda = gamma (b.d + |b| |d|) / 2. */
#include <stddef.h>

#include "bend.h"
#include "threads.h"

void negative_parts(int64_t count, int64_t n, const double *M, double *factor, double *out)
{
    double size;
    for (int64_t i = 0; i < count; i++)
        out[i] = negative_part(n, M + i * triangle(n), 0.0, &size, factor);
}

/* An upper bound of -y'My on the cube, at least 0, M a lower triangle, rounding included. */
static double largest_on_cube(int64_t r, const double *M)
{
    double total = 0.0;
    for (int64_t j = 0, at = 0; j < r; j++)
        for (int64_t k = 0; k <= j; k++, at++)
            total += k == j ? larger(-M[at], 0.0) : 2.0 * fabs(M[at]);
    return total * (1.0 + 4.0 * r * r * UNIT_ROUNDOFF);
}

/* u + g.y (S; S, r) of the states themselves and of their successors. */
typedef struct {
    double *u;
    const double *g, *next_u, *next_g;
} affine_functions;

/* Rows that are played together, by their weights (NULL: by 1). */
typedef struct {
    int64_t first, last;
    const double *weights;
} group;

/* M (lower triangle) = scale (sym sum_i beta_i G_i' + sum_i D_i M_i). */
INLINE void curvature_of(const int64_t r, group played, const row_chances *chances, double scale, double u,
                         const double *g, const affine_functions *functions, double *M)
{
    for (int64_t j = 0; j < triangle(r); j++)
        M[j] = 0.0;
    for (int64_t row = played.first; row < played.last; row++) {
        double weight = (played.weights ? played.weights[row] : 1.0) * scale;
        if (weight == 0.0)
            continue;
        for (int64_t t = chances->row_ptr[row]; t < chances->row_ptr[row + 1]; t++) {
            const int64_t f = chances->expression[t], i = chances->successor[t];
            const double *slope = chances->slope + f * r, *after = functions->next_g + i * r;
            for (int64_t j = 0, at = 0; j < r; j++) {
                double b = 0.5 * weight * slope[j], G = 0.5 * weight * (after[j] - g[j]);
                for (int64_t n = 0; n <= j; n++, at++)
                    M[at] += b * (after[n] - g[n]) + G * slope[n];
            }
            double D = weight * (functions->next_u[i] - u);
            for (int64_t at = 0; chances->curvature && at < triangle(r); at++)
                M[at] += D * chances->curvature[f * triangle(r) + at];
        }
    }
}

/* Whether a transition of the row has a probability that is not affine. */
INLINE bool bent_in(const row_chances *chances, int64_t row)
{
    bool bent = false;
    for (int64_t t = chances->row_ptr[row]; chances->bend && t < chances->row_ptr[row + 1]; t++)
        bent |= chances->bend[chances->expression[t]] != 0.0;
    return bent;
}

/* |x| from the sum of its squares and that of its sizes, up to (r + 4) units: below, squares underflow. */
INLINE double length(double square, double sizes) { return square >= SAFE_SQUARES ? sqrt(square) : sizes; }

/* An upper bound of y'My, at least 0, of the two transitions from t on, up to (2 r + 10) units of |b| |d|: the caller's
 * rounding covers those, because |d| <= the turns of both transitions, so |b| |d| <= its `size` and rest * turn. */
INLINE double pair_curve(const int64_t r, int64_t t, const row_chances *chances, double scale, const double *g,
                         const double *next_g)
{
    const double *b = chances->slope + chances->expression[t] * r, *c = chances->slope + chances->expression[t + 1] * r;
    const double *one = next_g + chances->successor[t] * r, *other = next_g + chances->successor[t + 1] * r;
    double dot = 0.0, bb = 0.0, dd = 0.0, b_sizes = 0.0, d_sizes = 0.0, rest = 0.0, turn = 0.0;
    for (int64_t j = 0; j < r; j++) {
        double d = one[j] - other[j];
        dot += b[j] * d;
        bb += b[j] * b[j];
        dd += d * d;
        b_sizes += fabs(b[j]);
        d_sizes += fabs(d);
        rest += fabs(b[j] + c[j]); /* practically 0: probabilities sum to 1 */
        turn += fabs(other[j] - g[j]);
    }
    double lengths = length(bb, b_sizes) * length(dd, d_sizes);
    double twice = scale * dot + fabs(scale) * lengths;
    double curve = !(twice <= 0.0) ? 0.5 * twice : 0.0;
    return curve + fabs(scale) * rest * turn * (1.0 + 1e-9);
}

/* Whether a product is not 0, of a group all of whose products are rounded to 0. */
CALLED bool is_faint(int64_t r, group played, const row_chances *chances, const double *reward, double left, double u,
                     const double *g, const affine_functions *functions)
{
    bool turns = u != 0.0, faint = false;
    for (int64_t j = 0; j < r; j++)
        turns |= g[j] != 0.0;
    faint = left != 0.0 && turns;
    for (int64_t row = played.first; row < played.last; row++) {
        if (played.weights && played.weights[row] == 0.0)
            continue;
        faint |= reward[row] != 0.0;
        for (int64_t t = chances->row_ptr[row]; t < chances->row_ptr[row + 1]; t++) {
            const int64_t f = chances->expression[t], i = chances->successor[t];
            bool likely = chances->p[f] != 0.0 || (chances->bend && chances->bend[f] != 0.0);
            bool differs = functions->next_u[i] != u;
            for (int64_t j = 0; j < r; j++) {
                likely |= chances->slope[f * r + j] != 0.0;
                differs |= functions->next_g[i * r + j] != g[j];
            }
            faint |= likely && differs;
        }
    }
    return faint;
}

/* A number >= sign (T U - U) of a group for all y, with U(s, y) = u + g.y, or `least`, where that is enough; inf where
 * numbers overflow. `checked`: only its sign is asked for. Scratch: l (r), 2 triangles. */
INLINE double residual_in(const int64_t r, group played, const row_chances *chances, const double *reward,
                          double gamma, double sign, bool checked, double least, double u, const double *g,
                          const affine_functions *functions, double *l, double *M)
{
    const double left = 1.0 - gamma;
    double a = -left * u, size = left * fabs(u), unknown = 0.0, curve = 0.0, third = 0.0, single = 0.0;
    int64_t terms = 0, last = -1;
    for (int64_t j = 0; j < r; j++) {
        l[j] = -left * g[j];
        size += fabs(l[j]);
    }
    for (int64_t row = played.first; row < played.last; row++) {
        double weight = played.weights ? played.weights[row] : 1.0;
        if (weight == 0.0)
            continue;
        single = last < 0 ? weight : 0.0;
        last = row;
        a += weight * reward[row];
        size += fabs(weight * reward[row]);
        for (int64_t t = chances->row_ptr[row]; t < chances->row_ptr[row + 1]; t++) {
            int64_t f = chances->expression[t], i = chances->successor[t];
            double p = gamma * weight * chances->p[f], D = functions->next_u[i] - u, slope = 0.0, turn = 0.0;
            terms++;
            a += p * D;
            for (int64_t j = 0; j < r; j++) {
                double b = gamma * weight * chances->slope[f * r + j], G = functions->next_g[i * r + j] - g[j];
                l[j] += D * b + p * G;
                slope += fabs(b);
                turn += fabs(G);
            }
            double bent = chances->bend ? gamma * weight * chances->bend[f] : 0.0;
            unknown += (fabs(D) + turn) * chances->error[f] * weight;
            third += bent * turn;
            size += (fabs(D) + turn) * (fabs(p) + slope + bent);
            curve += slope * turn + fabs(D) * bent;
        }
    }
    double square = 0.0, norm = 0.0;
    for (int64_t j = 0; j < r; j++) {
        square += l[j] * l[j];
        norm += fabs(l[j]);
    }
    if (!chances->is_box)
        norm = length(square, norm);
    norm *= 1.0 + (r + 4.0) * UNIT_ROUNDOFF;
    double rounding = (2.0 * terms + 6.0 * r + 24.0) * UNIT_ROUNDOFF * size;
    rounding += chances->bend ? (unknown + third) * (1.0 + 1e-9) : 2.0 * unknown;
    if (size > 0.0 || is_faint(r, played, chances, reward, left, u, g, functions)) /* products may underflow */
        rounding += UNIT_ROUNDOFF * FAINT;
    rounding += 4.0 * UNIT_ROUNDOFF * (fabs(a) + norm + curve);
    /* `curve` bounds the quadratic term well enough for actions that are far from the best. */
    if (sign * a + norm + curve + rounding <= least)
        return least;
    if (curve != 0.0 && sign * a + norm + rounding + curve > 0.0) {
        if (single != 0.0 && terms == 2 && !chances->is_box && !bent_in(chances, last)) {
            curve = pair_curve(r, chances->row_ptr[last], chances, gamma * sign * single, g, functions->next_g);
        } else {
            const double room = -(sign * a + norm + rounding);
            curvature_of(r, played, chances, -gamma * sign, u, g, functions, M);
            if (chances->is_box)
                curve = largest_on_cube(r, M);
            else if (checked && r > 2 && room > 0.0 && is_semidefinite(r, M, room, M + triangle(r)))
                return 0.0;
            else
                curve = negative_part(r, M, 0.0, &size, M + triangle(r));
        }
    }
    double missed = sign * a + norm + curve + rounding;
    return isnan(missed) ? INFINITY : missed;
}

/* The same, with loops over few parameters unrolled. Inlined: to pass its arguments would take as long as its work. */
INLINE double residual(group played, const row_chances *chances, const double *reward, double gamma, double sign,
                       bool checked, double least, double u, const double *g, const affine_functions *functions,
                       double *l, double *M)
{
    double near[4 + 4 * 5]; /* memory of its own, which no store to elsewhere can change */
#define FOR_R(r, l, M) residual_in(r, played, chances, reward, gamma, sign, checked, least, u, g, functions, l, M)
    switch (chances->r) {
    case 1: return FOR_R(1, near, near + 1);
    case 2: return FOR_R(2, near, near + 2);
    case 3: return FOR_R(3, near, near + 3);
    case 4: return FOR_R(4, near, near + 4);
    default: return FOR_R(chances->r, l, M);
    }
#undef FOR_R
}

/* The rows that are played in state s, where the agent is not free. */
INLINE group played_in(const choice *agent, int64_t s)
{
    if (agent->rows)
        return (group){agent->rows[s], agent->rows[s] + 1, NULL};
    return (group){agent->state_ptr[s], agent->state_ptr[s + 1], agent->weights};
}

INLINE void fetch_states(int64_t at, int64_t count, const int64_t *order, const choice *agent,
                         const row_chances *chances, const double *reward, const double *g, const double *u)
{
    fetch_ahead(at, count, order, agent->rows ? agent->rows : agent->state_ptr, agent->rows ? 1 : 0, chances->row_ptr,
                chances->successor, chances->expression, reward, g, chances->r, u);
}

/* The worst residual of what may be played in state s, or `least`, where that is more. */
static double state_residual(int64_t s, const choice *agent, const row_chances *chances, const double *reward,
                             double gamma, double sign, bool checked, double least, const affine_functions *functions,
                             double *scratch)
{
    const int64_t r = chances->r;
    const double u = functions->u[s], *g = functions->g + s * r;
    group played = played_in(agent, s);
    if (agent->rows || agent->weights)
        return residual(played, chances, reward, gamma, sign, checked, least, u, g, functions, scratch, scratch + r);
    double worst = least;
    for (int64_t row = played.first; row < played.last; row++)
        if (!agent->dropped || !agent->dropped[row])
            worst = larger(worst, residual((group){row, row + 1, NULL}, chances, reward, gamma, sign, checked, worst,
                                           u, g, functions, scratch, scratch + r));
    return worst;
}

void row_residuals(int64_t rows, const int32_t *of_row, const row_chances *chances, const double *reward, double gamma,
                   double sign, const double *u, const double *g, double *scratch, double *out)
{
    const int64_t r = chances->r;
    const affine_functions functions = {NULL, g, u, g};
    for (int64_t row = 0; row < rows; row++)
        out[row] = residual((group){row, row + 1, NULL}, chances, reward, gamma, sign, false, -INFINITY,
                            u[of_row[row]], g + of_row[row] * r, &functions, scratch, scratch + r);
}

int64_t wrong_sign(int64_t count, const bool *held, int64_t r, double sign, const double *u, const double *g)
{
    for (int64_t s = 0; s < count; s++) {
        double size = 0.0;
        for (int64_t j = 0; j < r && held[s]; j++)
            size += fabs(g[s * r + j]);
        if (held[s] && sign * u[s] - size * (1.0 + (r + 4.0) * UNIT_ROUNDOFF) < 0.0)
            return s;
    }
    return -1;
}

/* A pass over states; each part of it has scratch of its own. */
typedef struct {
    const int64_t *order;
    const choice *agent;
    const row_chances *chances;
    const double *reward;
    double gamma, sign, margin;
    const affine_functions *functions;
    int64_t grain;
    double *scratch, *out;
} residual_pass;

static void residual_part(void *context, int64_t begin, int64_t end)
{
    const residual_pass *p = context;
    const int64_t r = p->chances->r;
    double *scratch = p->scratch + begin / p->grain * (2 * r + 2 * r * r);
    for (int64_t at = begin; at < end; at++) {
        int64_t s = p->order[at];
        fetch_states(at, end, p->order, p->agent, p->chances, p->reward, p->functions->next_g, p->functions->next_u);
        double worst = state_residual(s, p->agent, p->chances, p->reward, p->gamma, p->sign, false,
                                      -INFINITY, p->functions, scratch);
        p->out[s] = worst;
        if (p->margin >= 0.0) {
            /* Raising u(s) lowers the residuals of s by as much, up to rounding, which the margin covers. */
            p->out[s] = worst > 0.0 ? worst * (1.0 + 1e-12) + p->margin : 0.0;
            p->functions->u[s] += p->sign * p->out[s];
        }
    }
}

void residuals(int64_t count, const int64_t *order, const choice *agent, const row_chances *chances,
               const double *reward, double gamma, double sign, double margin, double *u, const double *g,
               int64_t threads, double *scratch, double *out)
{
    const affine_functions functions = {u, g, u, g};
    if (margin >= 0.0 || count < threads)
        threads = 1;
    residual_pass pass = {order, agent, chances, reward, gamma, sign, margin, &functions, share_of(count, threads),
                          scratch, out};
    parallel_for(count, pass.grain, threads, residual_part, &pass);
}

/* reward + gamma sum p v of a row at the centre. */
static double central_value(int64_t row, const row_chances *chances, const double *reward, double gamma,
                            const double *v)
{
    double mean = 0.0;
    for (int64_t t = chances->row_ptr[row]; t < chances->row_ptr[row + 1]; t++)
        mean += chances->p[chances->expression[t]] * v[chances->successor[t]];
    return reward[row] + gamma * mean;
}

/* The best of the rows from `row` on at the centre, and its value. */
static int64_t best_row(int64_t row, int64_t last, const row_chances *chances, const double *reward, double gamma,
                        double sense, const double *v, double *value)
{
    int64_t best = row;
    double most = -INFINITY;
    for (; row < last; row++) {
        double q = sense * central_value(row, chances, reward, gamma, v);
        if (q > most) {
            most = q;
            best = row;
        }
    }
    *value = sense * most;
    return best;
}

/* Value and gradient (r) of what is played, from v and g of the successors. */
static void expand_state(group played, const row_chances *chances, const double *reward, double gamma, const double *v,
                         const double *g, double *value, double *gradient)
{
    const int64_t r = chances->r;
    double total = 0.0;
    for (int64_t j = 0; j < r; j++)
        gradient[j] = 0.0;
    for (int64_t row = played.first; row < played.last; row++) {
        double weight = played.weights ? played.weights[row] : 1.0;
        if (weight == 0.0)
            continue;
        total += weight * central_value(row, chances, reward, gamma, v);
        for (int64_t t = chances->row_ptr[row]; t < chances->row_ptr[row + 1]; t++) {
            const double *slope = chances->slope + chances->expression[t] * r;
            double p = chances->p[chances->expression[t]], after = v[chances->successor[t]];
            for (int64_t j = 0; j < r; j++)
                gradient[j] += gamma * weight * (after * slope[j] + p * g[chances->successor[t] * r + j]);
        }
    }
    *value = total;
}

void expand_backward(int64_t count, const int64_t *order, const choice *agent, const row_chances *chances,
                     const double *reward, double sense, double *v, double *g, int64_t *best)
{
    for (int64_t at = 0; at < count; at++) {
        int64_t s = order[at];
        group played = played_in(agent, s);
        fetch_states(at, count, order, agent, chances, reward, g, v);
        if (sense != 0.0) {
            best[s] = best_row(played.first, played.last, chances, reward, 1.0, sense, v, &v[s]);
            played = (group){best[s], best[s] + 1, NULL};
        }
        expand_state(played, chances, reward, 1.0, v, g, &v[s], g + s * chances->r);
    }
}

/* Marks the successors of what may be played in state s. */
static void mark_successors(const choice *agent, int64_t s, const row_chances *chances, bool *reached)
{
    const group played = played_in(agent, s);
    for (int64_t row = played.first; row < played.last; row++) {
        if ((played.weights && played.weights[row] == 0.0) || (agent->dropped && agent->dropped[row]))
            continue;
        for (int64_t t = chances->row_ptr[row]; t < chances->row_ptr[row + 1]; t++)
            reached[chances->successor[t]] = true;
    }
}

void reach_forward(int64_t count, const int64_t *order, const choice *agent, const row_chances *chances,
                   bool *reached)
{
    for (int64_t at = count - 1; at >= 0; at--)
        if (reached[order[at]])
            mark_successors(agent, order[at], chances, reached);
}

/* ---------------------------------------------------------------------- finite horizons */

/* How often a function is raised until it satisfies its inequality, where probabilities are hardly known. */
#define RAISES 8

void greedy_steps(int64_t states, int64_t steps, const int64_t *state_ptr, const bool *decided,
                  const row_chances *chances, const double *reward, double gamma, double sense, double *v,
                  int64_t *rows)
{
    for (int64_t k = 0; k < steps; k++, v += states, rows += states)
        for (int64_t s = 0; s < states; s++) {
            rows[s] = best_row(state_ptr[s], state_ptr[s + 1], chances, reward, gamma, sense, v, &v[states + s]);
            if (decided[s])
                v[states + s] = v[s];
        }
}

/* m more visits of a row, which leads on. */
static void visit(int64_t row, double m, const row_chances *chances, double *mass, double *visits)
{
    visits[row] += m;
    for (int64_t t = chances->row_ptr[row]; t < chances->row_ptr[row + 1]; t++)
        mass[chances->successor[t]] += m * chances->p[chances->expression[t]];
}

void visit_forward(int64_t count, const int64_t *order, const bool *stopped, const row_chances *chances,
                   const int64_t *rows, double *mass, double *visits)
{
    for (int64_t at = count - 1; at >= 0; at--)
        if (mass[order[at]] > 0.0 && !stopped[order[at]])
            visit(rows[order[at]], mass[order[at]], chances, mass, visits);
}

void visit_steps(int64_t states, int64_t steps, const bool *stopped, const row_chances *chances, const int64_t *rows,
                 double *mass, double *visits)
{
    for (int64_t k = steps - 1; k >= 0; k--) {
        double *here = mass + (steps - 1 - k) % 2 * states, *after = mass + (steps - k) % 2 * states;
        for (int64_t s = 0; s < states; s++) {
            const double m = here[s];
            here[s] = 0.0;
            if (m > 0.0 && !stopped[s])
                visit(rows[k * states + s], m, chances, after, visits);
        }
    }
}

/* What is played with k + 1 steps to go. */
static choice at_step(const step_rules *rules, int64_t k)
{
    choice agent = *rules->agent;
    if (agent.rows)
        agent.rows += k * rules->stride;
    return agent;
}

void reach_steps(const step_rules *rules, const bool *decided, const row_chances *chances, bool *reached)
{
    const int64_t states = rules->states;
    for (int64_t k = rules->steps - 1; k >= 0; k--) {
        const choice agent = at_step(rules, k);
        bool *after = reached + k * states;
        for (int64_t s = 0; s < states; s++)
            if (after[states + s] && !decided[s])
                mark_successors(&agent, s, chances, after);
        for (int64_t s = 0; s < states; s++)
            after[s] = after[s] && !decided[s];
    }
}

void expand_steps(const step_rules *rules, const bool *decided, const row_chances *chances, const double *reward,
                  double gamma, double *v, double *g)
{
    const int64_t states = rules->states, r = chances->r;
    for (int64_t k = 0; k < rules->steps; k++, v += states, g += states * r) {
        const choice agent = at_step(rules, k);
        for (int64_t s = 0; s < states; s++) {
            group played = played_in(&agent, s);
            if (decided[s])
                played.last = played.first;
            expand_state(played, chances, reward, gamma, v, g, &v[states + s], g + (states + s) * r);
            if (decided[s])
                v[states + s] = v[s];
        }
    }
}

/* Whether all that is played leads to states that are decided or in the scope. */
static bool stays_inside(group played, const row_chances *chances, const bool *decided, const bool *scope)
{
    for (int64_t row = played.first; row < played.last; row++)
        for (int64_t t = chances->row_ptr[row]; t < chances->row_ptr[row + 1]; t++)
            if ((!played.weights || played.weights[row] != 0.0) && !decided[chances->successor[t]]
                && !scope[chances->successor[t]])
                return false;
    return true;
}

void step_residuals(const step_rules *rules, const bool *decided, const bool *scope, const row_chances *chances,
                    const double *reward, double gamma, double sign, double *u, const double *g, double *scratch,
                    double *out)
{
    const int64_t states = rules->states, size = states * chances->r;
    for (int64_t k = 0; k < rules->steps; k++, scope += states, out += states) {
        const affine_functions functions = {u + (k + 1) * states, g + (k + 1) * size, u + k * states, g + k * size};
        const choice agent = at_step(rules, k);
        for (int64_t s = 0; s < states; s++) {
            out[s] = 0.0;
            if (decided[s] || !scope[states + s])
                continue;
            out[s] = stays_inside(played_in(&agent, s), chances, decided, scope)
                         ? state_residual(s, &agent, chances, reward, gamma, sign, true, 0.0, &functions, scratch)
                         : INFINITY;
        }
    }
}

/* The largest sum of errors of a row: u(s) + e lowers the residuals of s by at least e (1 - share), up to rounding. */
static double error_share(int64_t rows, const row_chances *chances)
{
    double share = 0.0;
    for (int64_t row = 0; row < rows; row++) {
        double sum = 0.0;
        for (int64_t t = chances->row_ptr[row]; t < chances->row_ptr[row + 1]; t++)
            sum += chances->error[chances->expression[t]];
        share = larger(share, sum);
    }
    return chances->bend ? share : 0.0;
}

void raise_steps(const step_rules *rules, const bool *scope, const row_chances *chances, const double *reward,
                 double gamma, double sign, double rounding, const double *v, const double *g, double *slack, double *u,
                 double *scratch)
{
    const int64_t states = rules->states, size = states * chances->r;
    const double share = 2.0 * error_share(rules->agent->state_ptr[states], chances);
    const double more = share < 0.5 ? 1.0 / (1.0 - share) : 2.0;
    for (int64_t s = 0; s < states; s++) {
        slack[s] = 0.0;
        u[s] = v[s];
    }
    for (int64_t k = 0; k < rules->steps; k++) {
        const double *value = v + (k + 1) * states;
        const affine_functions functions = {u + (k + 1) * states, g + (k + 1) * size, u + k * states, g + k * size};
        const choice agent = at_step(rules, k);
        double most = 0.0;
        for (int64_t s = 0; s < states; s++)
            most = larger(most, fabs(value[s]));
        for (int64_t s = 0; s < states; s++) {
            double missed, *paid = slack + (k + 1) * states + s;
            *paid = 0.0;
            functions.u[s] = value[s];
            /* raising u(s) lowers the residuals of s by as much, up to a share and to rounding, which the margin covers;
             * where the share is large it is raised again */
            for (int round = 0; round < (share < 0.5 ? 1 : RAISES) && scope[(k + 1) * states + s]; round++) {
                missed = state_residual(s, &agent, chances, reward, gamma, sign, false, 0.0, &functions, scratch);
                if (!(missed > 0.0))
                    break;
                *paid += more * missed * (1.0 + 1e-12) + rounding * most;
                functions.u[s] = value[s] + sign * *paid;
            }
        }
    }
}
