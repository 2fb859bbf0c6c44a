/* Values against a known nature, rounded to nearest: guesses, not bounds. */
#include "support.h"

/* The gradient (d) of row r, from values v and gradients g of its successors. */
static void row_gradient(const point_model *m, int64_t r, const double *v, const double *g, double *out)
{
    const int64_t d = m->d;
    zero(d, out);
    for (int64_t t = m->rows->row_ptr[r]; t < m->rows->row_ptr[r + 1]; t++) {
        const int64_t f = m->rows->expression[t], i = m->rows->successor[t];
        for (int64_t k = 0; k < d; k++)
            out[k] += m->slope[f * d + k] * v[i] + m->p[f] * g[i * d + k];
    }
    for (int64_t k = 0; k < d; k++)
        out[k] *= m->gamma;
}

/* The larger of two changes, and what is not a number. */
INLINE double change_of(double most, double before, double after)
{
    double change = before == after ? 0.0 : fabs(after - before);
    return change <= most ? most : change;
}

void value_sweep(const point_model *m, const double *v, const double *g, double *v_out, double *g_out, double *sum,
                 int64_t *rows, double *change)
{
    const int64_t *row_ptr = m->rows->row_ptr, d = m->d;
    const int32_t *successor = m->rows->successor, *expression = m->rows->expression;
    change[0] = change[1] = 0.0;
    for (int64_t i = 0; i < m->count; i++) {
        int64_t s = m->order[i], chosen = -1;
        double best = 0.0, mixed = 0.0;
        fetch_ahead(i, m->count, m->order, m->state_ptr, 0, row_ptr, successor, expression, m->reward, v, 1, v);
        for (int64_t r = m->state_ptr[s]; r < m->state_ptr[s + 1]; r++) {
            double q = 0.0;
            if (m->weights && m->weights[r] == 0.0)
                continue;
            for (int64_t t = row_ptr[r]; t < row_ptr[r + 1]; t++)
                if (m->p[expression[t]] != 0.0) /* else the value may be infinite */
                    q += m->p[expression[t]] * v[successor[t]];
            q = m->reward[r] + m->gamma * q;
            double gain = m->sign * (q - best);
            if (m->weights)
                mixed += m->weights[r] * q;
            else if (chosen < 0 || (gain > 0.0 && !(gain <= m->tie * fabs(best)))) { /* 0 inf is no number */
                best = q;
                chosen = r;
            }
        }
        best = m->weights ? mixed : best;
        change[0] = change_of(change[0], v[s], best);
        v_out[s] = best;
        if (rows)
            rows[s] = chosen;
        if (d > 0)
            row_gradient(m, chosen, v, g, sum);
        for (int64_t k = 0; k < d; k++) {
            change[1] = change_of(change[1], g[s * d + k], sum[k]);
            g_out[s * d + k] = sum[k];
        }
    }
}

static double largest(const double *x, int64_t n)
{
    double found = 0.0;
    for (int64_t k = 0; k < n; k++)
        found = larger(found, fabs(x[k]));
    return found;
}

int64_t value_sweeps(const point_model *m, int64_t most, double share, double *v, double *g, double *sum, int64_t *rows)
{
    double change[2];
    for (int64_t k = 0; k < most; k++) {
        value_sweep(m, v, g, v, g, sum, rows, change);
        if (change[0] <= share * largest(v, m->states) && change[1] <= share * largest(g, m->states * m->d))
            return k + 1;
    }
    return most;
}
