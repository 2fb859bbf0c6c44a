/* Sums over observed expressions: likelihoods and marginals.
 *
 * g_j(x) = -sum_f K_jf ln f[x] for window j; sums are plain: their rounding, bounded by `rounding_size`, is far below
 * what moves a region. */
#include "likelihood.h"

/* out[j] = g_j(x), inf outside its domain. */
static void log_likelihoods_at(const observations *seen, const double *x, double *out)
{
    const int64_t n = seen->n;
    zero(seen->windows, out);
    for (int64_t f = 0; f < n; f++) {
        double value = expression_at(seen, f, x), logarithm = value > 0.0 ? log(value) : -INFINITY;
        for (int64_t j = 0; j < seen->windows; j++)
            if (seen->counts[j * n + f] > 0.0)
                out[j] -= seen->counts[j * n + f] * logarithm;
    }
}

void log_likelihoods(const observations *seen, int64_t count, const double *points, double *out)
{
    for (int64_t i = 0; i < count; i++)
        log_likelihoods_at(seen, points + i * seen->r, out + i * seen->windows);
}

double normalise(int64_t windows, double *terms)
{
    double largest = -INFINITY, total = 0.0;
    for (int64_t j = 0; j < windows; j++)
        largest = larger(largest, terms[j]);
    bool finite = fabs(largest) < INFINITY;
    for (int64_t j = 0; j < windows; j++) {
        terms[j] = finite ? exp(terms[j] - largest) : 0.0;
        total += terms[j];
    }
    if (!finite)
        return largest;
    for (int64_t j = 0; j < windows; j++)
        terms[j] /= total;
    return largest + log(total);
}

double rounding_size(const observations *seen, const double *x)
{
    double total = 0.0;
    for (int64_t f = 0; f < seen->n; f++) {
        double value = larger(expression_at(seen, f, x), 1e-300), terms = expression_size(seen, f, x);
        total += seen->counts[f] * (1.0 + fabs(log(value)) + (2.0 + seen->r) * terms / value);
    }
    return total;
}

double exponential_sum(int64_t count, const double *g, double *least)
{
    double total = 0.0;
    *least = INFINITY;
    for (int64_t i = 0; i < count; i++)
        *least = smaller(*least, g[i]);
    for (int64_t i = 0; i < count; i++)
        if (g[i] < INFINITY)
            total += exp(*least - g[i]);
    return total;
}

void dirichlet_log_marginals(int64_t num_rows, const int64_t *row_ptr, const int64_t *transitions, double *out)
{
    const double half = lgamma(0.5);
    for (int64_t r = 0; r < num_rows; r++) {
        int64_t n = 0, k = row_ptr[r + 1] - row_ptr[r];
        for (int64_t t = row_ptr[r]; t < row_ptr[r + 1]; t++)
            n += transitions[t];
        out[r] = 0.0;
        if (n == 0 || k < 2)
            continue;
        out[r] = lgamma(0.5 * k) - lgamma(n + 0.5 * k);
        for (int64_t t = row_ptr[r]; t < row_ptr[r + 1]; t++)
            if (transitions[t] > 0)
                out[r] += lgamma(transitions[t] + 0.5) - half;
    }
}
