/* Where to bet: the value of the best policy at one parameter, with its gradient. */
#include <math.h>

#include "core.h"

void value_sweep(const point_model *m, const double *v, const double *g, double *v_out, double *g_out, double *sum,
                 int64_t *rows, double *change)
{
    const int64_t *row_ptr = m->rows->row_ptr, d = m->d;
    const int32_t *successor = m->rows->successor, *expression = m->rows->expression;
    change[0] = change[1] = 0.0;
    for (int64_t s = m->num_states - 1; s >= 0; s--) {
        if (m->decided[s])
            continue;
        double best = 0.0;
        int64_t chosen = -1;
        for (int64_t r = m->state_ptr[s]; r < m->state_ptr[s + 1]; r++) {
            double q = 0.0;
            for (int64_t t = row_ptr[r]; t < row_ptr[r + 1]; t++)
                q += m->p[expression[t]] * v[successor[t]];
            q = m->reward[r] + m->gamma * q;
            if (chosen < 0 || m->sign * (q - best) > m->tie * fabs(best)) {
                best = q;
                chosen = r;
            }
        }
        double moved = fabs(best - v[s]);
        change[0] = moved > change[0] ? moved : change[0];
        v_out[s] = best;
        rows[s] = chosen;
        for (int64_t k = 0; k < d; k++)
            sum[k] = 0.0;
        for (int64_t t = row_ptr[chosen]; t < row_ptr[chosen + 1]; t++) {
            const double *own = m->slope + expression[t] * d, *next = g + successor[t] * d;
            double chance = m->p[expression[t]], value = v[successor[t]];
            for (int64_t k = 0; k < d; k++)
                sum[k] += own[k] * value + chance * next[k];
        }
        for (int64_t k = 0; k < d; k++) {
            moved = fabs(m->gamma * sum[k] - g[s * d + k]);
            change[1] = moved > change[1] ? moved : change[1];
            g_out[s * d + k] = m->gamma * sum[k];
        }
    }
}

static double largest(const double *x, int64_t n)
{
    double found = 0.0;
    for (int64_t k = 0; k < n; k++)
        found = fabs(x[k]) > found ? fabs(x[k]) : found;
    return found;
}

void value_sweeps(const point_model *m, int64_t most, double share, double *v, double *g, double *sum, int64_t *rows,
                  double *change)
{
    for (int64_t k = 0; k < most; k++) {
        value_sweep(m, v, g, v, g, sum, rows, change);
        if (change[0] <= share * largest(v, m->num_states) && change[1] <= share * largest(g, m->num_states * m->d))
            return;
    }
}
