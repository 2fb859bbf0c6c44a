/* Support queries min c.x over a region: certified lower bounds, rounding subtracted. */
#include <math.h>

#include "core.h"

/* |factor' direction| where squares underflow; `sizes` is at least as large. */
static double small_norm(int64_t n, const double *factor, const double *direction, double sizes)
{
    double squares = 0.0;
    for (int64_t j = 0; j < n; j++) {
        double entry = 0.0;
        for (int64_t k = 0; k < n; k++)
            entry += factor[k * n + j] * direction[k];
        entry /= sizes;
        squares += entry * entry;
    }
    return sizes * sqrt(squares);
}

/* A certified lower bound of min c.x over {center + radius * factor z : |z| <= 1}: c.center - radius |factor' c|. */
static double support_ellipsoid(int64_t n, const double *center, const double *factor, double radius,
                                const double *direction)
{
    double total = 0.0, size = 0.0, squares = 0.0, sizes = 0.0;
    for (int64_t j = 0; j < n; j++) {
        double term = direction[j] * center[j];
        total += term;
        size += fabs(term);
        double entry = 0.0;
        for (int64_t k = 0; k < n; k++) {
            term = factor[k * n + j] * direction[k];
            entry += term;
            sizes += fabs(term);
        }
        squares += entry * entry;
    }
    double norm = sqrt(squares);
    if (squares < SAFE_SQUARES && sizes > 0.0)
        norm = small_norm(n, factor, direction, sizes);
    total -= radius * norm;
    return total - (4.0 * n + 16.0) * UNIT_ROUNDOFF * (size + radius * sizes) - 1e-300;
}

void support_ellipsoid_many(int64_t count, int64_t n, const double *center, const double *factor, double radius,
                            const double *directions, double *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = support_ellipsoid(n, center, factor, radius, directions + i * n);
}
