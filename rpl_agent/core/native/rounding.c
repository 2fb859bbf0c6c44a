/* What the compiler must not do: fuse or reorder operations, or multiply by a reciprocal. A test compares with rationals. */
#include "core.h"

void rounded_once(int64_t count, const double *a, const double *b, const double *c, double *fused, double *quotient,
                  double *reordered)
{
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        fused[i] = a[i] * b[i] - c[i];
        quotient[i] = a[i] / c[0];
        sum += b[i];
    }
    reordered[0] = sum;
    reordered[1] = (a[0] + b[0]) - a[0];
}
