/* What the C files of the likelihood share. */
#ifndef RPL_LIKELIHOOD_H
#define RPL_LIKELIHOOD_H

#include "support.h"

/* f[x] = constant_f + weights_f.x. */
INLINE double expression_at(const observations *seen, int64_t f, const double *x)
{
    return plus_dot(seen->constant[f], seen->r, seen->weights + f * seen->r, x);
}

/* |constant_f| + |weights_f|.|x|: what the rounding of f[x] is a multiple of. */
INLINE double expression_size(const observations *seen, int64_t f, const double *x)
{
    double size = fabs(seen->constant[f]);
    for (int64_t c = 0; c < seen->r; c++)
        size += fabs(seen->weights[f * seen->r + c] * x[c]);
    return size;
}

/* Terms (windows) become their shares of sum_j e^terms_j, whose logarithm is returned; where it is infinite, 0. */
double normalise(int64_t windows, double *terms);

/* Adds x(z) to out (r). */
INLINE void add_coordinates(const parameter_chart *chart, const double *z, double *out)
{
    const int64_t k = chart->k, r = chart->r, monomials = chart->monomials;
    for (int64_t c = 0; monomials == 0 && c < r; c++)
        out[c] += z[c];
    for (int64_t m = 0; m < monomials; m++) {
        double monomial = 1.0;
        for (int64_t j = 0; j < k; j++)
            for (int64_t e = chart->exponents[m * k + j]; e > 0; e--)
                monomial *= z[j];
        for (int64_t c = 0; c < r; c++)
            out[c] += chart->matrix[c * monomials + m] * monomial;
    }
}

#endif
