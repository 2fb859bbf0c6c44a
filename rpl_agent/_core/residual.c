/* Residuals of affine value functions: by how much a row can miss its Bellman inequality on the unit ball or cube.
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
 * |y_j| <= 1 at most a + sum |l_j| + sum max(M_jj, 0) + the sum of the other |M_jk|. */
#include <stddef.h>

#include "bend.h"

/* An upper bound of max(0, largest eigenvalue) of M (r, r), symmetric. Scratch: 2 triangles. */
static double positive_part(int64_t r, const double *M, double *scratch)
{
    double size;
    for (int64_t j = 0, at = 0; j < r; j++)
        for (int64_t k = 0; k <= j; k++, at++)
            scratch[at] = -M[j * r + k];
    return negative_part(r, scratch, 0.0, RESIDUAL_HALVINGS, &size, scratch + triangle(r));
}

/* An upper bound of y'My on the cube, at least 0, M (r, r) symmetric, rounding included. */
static double largest_on_cube(int64_t r, const double *M)
{
    double total = 0.0;
    for (int64_t j = 0; j < r; j++) {
        total += larger(M[j * r + j], 0.0);
        for (int64_t k = 0; k < r; k++)
            total += k == j ? 0.0 : fabs(M[j * r + k]);
    }
    return total * (1.0 + 4.0 * r * r * UNIT_ROUNDOFF);
}

/* M = scale (sym sum_i beta_i G_i' + sum_i D_i M_i) of group k. */
static void curvature_of(int64_t k, const row_groups *groups, const row_chances *chances, double scale, double u,
                         const double *g, const double *next_u, const double *next_g, double *M)
{
    const int64_t r = chances->r;
    for (int64_t j = 0; j < r * r; j++)
        M[j] = 0.0;
    for (int64_t row = groups->ptr[k]; row < groups->ptr[k + 1]; row++) {
        double weight = groups->weights[row] * scale;
        if (weight == 0.0)
            continue;
        for (int64_t t = chances->row_ptr[row]; t < chances->row_ptr[row + 1]; t++) {
            const double *slope = chances->slope + chances->expression[t] * r;
            const double *after = next_g + chances->successor[t] * r;
            double D = 0.5 * weight * (next_u[chances->successor[t]] - u);
            const double *bent = chances->curvature ? chances->curvature + chances->expression[t] * triangle(r) : NULL;
            for (int64_t j = 0; j < r; j++) {
                double b = 0.5 * weight * slope[j];
                for (int64_t n = 0; n < r; n++)
                    M[j * r + n] += b * (after[n] - g[n]);
                for (int64_t n = 0; bent && n <= j; n++) { /* both halves are added up below */
                    M[j * r + n] += D * bent[triangle(j) + n];
                    M[n * r + j] += n < j ? D * bent[triangle(j) + n] : 0.0;
                }
            }
        }
    }
    for (int64_t j = 0; j < r; j++) {
        M[j * r + j] *= 2.0;
        for (int64_t n = 0; n < j; n++)
            M[j * r + n] = M[n * r + j] = M[j * r + n] + M[n * r + j];
    }
}

/* A number >= sign (T U - U) of group k for all y, with U(s, y) = u + g.y; inf where numbers overflow.
 * Scratch: l (r), M (r, r), 2 triangles. */
static double residual(int64_t k, const row_groups *groups, const row_chances *chances, const double *reward,
                       double gamma, double sign, double u, const double *g, const affine_functions *functions,
                       double *l, double *M)
{
    const int64_t r = chances->r;
    const double left = 1.0 - gamma;
    double a = -left * u, size = left * fabs(u), unknown = 0.0, curve = 0.0, third = 0.0;
    int64_t terms = 0;
    for (int64_t j = 0; j < r; j++) {
        l[j] = -left * g[j];
        size += fabs(l[j]);
    }
    for (int64_t row = groups->ptr[k]; row < groups->ptr[k + 1]; row++) {
        double weight = groups->weights[row];
        if (weight == 0.0)
            continue;
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
    if (!chances->is_box && square >= SAFE_SQUARES) /* below, squares underflow: the sum of all sizes is a bound */
        norm = sqrt(square);
    norm *= 1.0 + (r + 4.0) * UNIT_ROUNDOFF;
    double rounding = (2.0 * terms + 6.0 * r + 24.0) * UNIT_ROUNDOFF * size;
    rounding += chances->bend ? (unknown + third) * (1.0 + 1e-9) : 2.0 * unknown;
    if (size > 0.0) /* products may underflow */
        rounding += UNIT_ROUNDOFF * FAINT;
    rounding += 4.0 * UNIT_ROUNDOFF * (fabs(a) + norm + curve);
    /* `curve` bounds the quadratic term well enough for actions that are far from the best. */
    if (sign * a + norm + rounding + curve > 0.0) {
        curvature_of(k, groups, chances, gamma * sign, u, g, functions->next_u, functions->next_g, M);
        curve = chances->is_box ? largest_on_cube(r, M) : positive_part(r, M, M + r * r);
    }
    double missed = sign * a + norm + curve + rounding;
    return isnan(missed) ? INFINITY : missed;
}

void row_residuals(int64_t rows, const int32_t *of_row, const row_groups *groups, const row_chances *chances,
                   const double *reward, double gamma, double sign, const affine_functions *functions, double *scratch,
                   double *out)
{
    const int64_t r = chances->r;
    for (int64_t k = 0; k < rows; k++)
        out[k] = residual(k, groups, chances, reward, gamma, sign, functions->u[of_row[k]],
                          functions->g + of_row[k] * r, functions, scratch, scratch + r);
}

void residuals(int64_t count, const int64_t *order, const int64_t *first, const row_groups *groups,
               const row_chances *chances, const double *reward, double gamma, double sign, double margin,
               const affine_functions *functions, double *scratch, double *out)
{
    const int64_t r = chances->r;
    for (int64_t at = 0; at < count; at++) {
        int64_t s = order[at];
        double worst = -INFINITY;
        for (int64_t k = first[s]; k < first[s + 1]; k++)
            worst = larger(worst, residual(k, groups, chances, reward, gamma, sign, functions->u[s],
                                     functions->g + s * r, functions, scratch, scratch + r));
        out[s] = worst;
        if (margin >= 0.0) {
            /* Raising u(s) lowers the residuals of s by as much, up to rounding, which the margin covers. */
            out[s] = worst > 0.0 ? worst * (1.0 + 1e-12) + margin : 0.0;
            functions->u[s] += sign * out[s];
        }
    }
}

void expand_backward(int64_t count, const int64_t *order, const int64_t *state_ptr, const row_groups *groups,
                     const row_chances *chances, const double *reward, double sense, double *v, double *g,
                     int64_t *rows)
{
    const int64_t r = chances->r;
    for (int64_t at = 0; at < count; at++) {
        int64_t s = order[at];
        double best = -INFINITY;
        for (int64_t row = state_ptr[s]; row < state_ptr[s + 1]; row++) {
            double weight = sense != 0.0 ? 1.0 : groups->weights[row], q = reward[row];
            if (weight == 0.0)
                continue;
            for (int64_t t = chances->row_ptr[row]; t < chances->row_ptr[row + 1]; t++)
                q += chances->p[chances->expression[t]] * v[chances->successor[t]];
            if (sense == 0.0) {
                v[s] += weight * q;
            } else if (sense * q > best) {
                best = sense * q;
                rows[s] = row;
                v[s] = q;
            }
        }
        for (int64_t row = state_ptr[s]; row < state_ptr[s + 1]; row++) {
            double weight = sense == 0.0 ? groups->weights[row] : row == rows[s] ? 1.0 : 0.0;
            if (weight == 0.0)
                continue;
            for (int64_t t = chances->row_ptr[row]; t < chances->row_ptr[row + 1]; t++) {
                int64_t f = chances->expression[t], i = chances->successor[t];
                for (int64_t j = 0; j < r; j++)
                    g[s * r + j] += weight * (chances->slope[f * r + j] * v[i] + chances->p[f] * g[i * r + j]);
            }
        }
    }
}

/* ---------------------------------------------------------------------- finite horizons */

/* How often a function is raised until it satisfies its inequality, where probabilities are not affine. */
#define RAISES 8

/* The row that is played in state s with k + 1 steps to go, -1 where rows are drawn by weights. */
static int64_t played_row(const step_rules *rules, int64_t k, int64_t s)
{
    return rules->given ? rules->given[k * rules->stride + s] : -1;
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

void greedy_steps(int64_t states, int64_t steps, const int64_t *state_ptr, const bool *decided,
                  const row_chances *chances, const double *reward, double gamma, double sense, double *v,
                  int64_t *rows)
{
    for (int64_t k = 0; k < steps; k++, v += states, rows += states)
        for (int64_t s = 0; s < states; s++) {
            double best = -INFINITY;
            rows[s] = state_ptr[s];
            for (int64_t row = state_ptr[s]; row < state_ptr[s + 1]; row++) {
                double q = sense * central_value(row, chances, reward, gamma, v);
                if (q > best) {
                    best = q;
                    rows[s] = row;
                }
            }
            v[states + s] = decided[s] ? v[s] : sense * best;
        }
}

void visit_steps(int64_t states, int64_t steps, int64_t initial, const bool *stopped, const row_chances *chances,
                 const int64_t *rows, int64_t stride, double *mass, double *visits)
{
    double *here = mass, *after = mass + states;
    for (int64_t s = 0; s < 2 * states; s++)
        mass[s] = 0.0;
    here[initial] = 1.0;
    bool alive = true;
    for (int64_t k = steps - 1; k >= 0 && alive; k--) {
        alive = false;
        for (int64_t s = 0; s < states; s++) {
            const double m = here[s];
            here[s] = 0.0;
            if (m == 0.0 || stopped[s])
                continue;
            const int64_t row = rows[k * stride + s];
            visits[row] += m;
            alive = true;
            for (int64_t t = chances->row_ptr[row]; t < chances->row_ptr[row + 1]; t++)
                after[chances->successor[t]] += m * chances->p[chances->expression[t]];
        }
        double *swap = here;
        here = after;
        after = swap;
    }
}

void expand_steps(const step_rules *rules, const int64_t *state_ptr, const bool *decided, const row_chances *chances,
                  const double *reward, double gamma, double *v, double *g)
{
    const int64_t states = rules->states, r = chances->r;
    for (int64_t k = 0; k < rules->steps; k++, v += states, g += states * r)
        for (int64_t s = 0; s < states; s++) {
            double *value = v + states + s, *gradient = g + (states + s) * r;
            int64_t given = played_row(rules, k, s);
            int64_t first = given < 0 ? state_ptr[s] : given, last = given < 0 ? state_ptr[s + 1] : given + 1;
            *value = decided[s] ? v[s] : 0.0;
            for (int64_t j = 0; j < r; j++)
                gradient[j] = 0.0;
            for (int64_t row = first; row < last && !decided[s]; row++) {
                double weight = given < 0 ? rules->groups->weights[row] : 1.0;
                if (weight == 0.0)
                    continue;
                *value += weight * central_value(row, chances, reward, gamma, v);
                for (int64_t t = chances->row_ptr[row]; t < chances->row_ptr[row + 1]; t++) {
                    const double *slope = chances->slope + chances->expression[t] * r;
                    double p = chances->p[chances->expression[t]], after = v[chances->successor[t]];
                    for (int64_t j = 0; j < r; j++)
                        gradient[j] += gamma * weight * (after * slope[j] + p * g[chances->successor[t] * r + j]);
                }
            }
        }
}

/* The worst residual of state s with k + 1 steps to go: of all its groups, or of the row that is played. */
static double step_residual(const step_rules *rules, int64_t k, int64_t s, const row_chances *chances,
                            const double *reward, double gamma, double sign, const affine_functions *functions,
                            double *scratch)
{
    const int64_t r = chances->r, given = played_row(rules, k, s);
    int64_t first = given < 0 ? rules->first[s] : given, last = given < 0 ? rules->first[s + 1] : given + 1;
    double worst = -INFINITY;
    for (int64_t n = first; n < last; n++)
        worst = larger(worst, residual(n, rules->groups, chances, reward, gamma, sign, functions->u[s],
                                       functions->g + s * r, functions, scratch, scratch + r));
    return worst;
}

void step_residuals(const step_rules *rules, const row_chances *chances, const double *reward, double gamma,
                    double sign, double *u, const double *g, double *scratch, double *out)
{
    const int64_t states = rules->states, size = states * chances->r;
    for (int64_t k = 0; k < rules->steps; k++) {
        const affine_functions functions = {u + (k + 1) * states, g + (k + 1) * size, u + k * states, g + k * size};
        for (int64_t s = 0; s < states; s++)
            out[k * states + s] = step_residual(rules, k, s, chances, reward, gamma, sign, &functions, scratch);
    }
}

void raise_steps(const step_rules *rules, const bool *decided, const row_chances *chances, const double *reward,
                 double gamma, double sign, double rounding, const double *v, const double *g, double *slack, double *u,
                 double *scratch)
{
    const int64_t states = rules->states, size = states * chances->r;
    for (int64_t s = 0; s < states; s++) {
        slack[s] = 0.0;
        u[s] = v[s];
    }
    for (int64_t k = 0; k < rules->steps; k++) {
        const double *value = v + (k + 1) * states;
        const affine_functions functions = {u + (k + 1) * states, g + (k + 1) * size, u + k * states, g + k * size};
        double most = 0.0;
        for (int64_t s = 0; s < states; s++)
            most = larger(most, fabs(value[s]));
        for (int64_t s = 0; s < states; s++) {
            double missed, *paid = slack + (k + 1) * states + s;
            *paid = 0.0;
            functions.u[s] = value[s];
            /* raising u(s) lowers the residuals of s by as much, up to rounding, which the margin covers; where
             * probabilities are not affine, also up to a share of their errors: then it is raised again */
            for (int round = 0; round < (chances->bend ? RAISES : 1) && !decided[s]; round++) {
                missed = step_residual(rules, k, s, chances, reward, gamma, sign, &functions, scratch);
                if (!(missed > 0.0))
                    break;
                *paid += missed * (1.0 + 1e-12) + rounding * most;
                functions.u[s] = value[s] + sign * *paid;
            }
        }
    }
}
