/* Rows over a region of parameters, whose expressions are quadratic (see `bend` in core.h).
 *
 * With l = sum_i d_i slope_i and M = sum_i d_i M_i, d >= 0, the mean of a row is, up to errors and a constant, l.y + y'My for
 * theta = center + factor y, |y| <= 1. For any z and any k >= 0 with M + k I positive semidefinite
 *
 *     y'My >= y'(M + k I)y - k >= 2 ((M + k I)z).y - z'(M + k I)z - k,
 *
 * so that one support query in the direction factor^-T (l + 2 (M + k I)z) bounds the row. z is where the right side is least on
 * the ray towards -l, within the ball: then the bound is right to second order. */
#ifndef RPL_BEND_H
#define RPL_BEND_H

#include "support.h"

/* How far towards the ball's boundary z may lie: regions do not fill their balls. */
#define TOWARDS 0.95
/* Halvings of the bracket in which the least eigenvalue lies, for rows and for residuals: those are paid for in rounds, which
 * end only where the bound hardly jumps. */
#define ROW_HALVINGS 4
#define RESIDUAL_HALVINGS 8

/* Entries of a lower triangle. */
INLINE int64_t triangle(int64_t n) { return n * (n + 1) / 2; }

/* Whether M + k I (lower triangle M) is proved to be positive semidefinite, by a Cholesky factorisation that stays positive
 * when the diagonal is lowered by more than all rounding; size: the sum of all |entries| of M. factor: scratch (triangle). */
CALLED bool is_semidefinite(int64_t n, const double *M, double k, double size, double *factor)
{
    const double lowered = k - (4.0 * n + 16.0) * UNIT_ROUNDOFF * (size + n * k);
    for (int64_t i = 0, at = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++, at++) {
            double entry = M[at] + (i == j ? lowered : 0.0);
            for (int64_t m = 0; m < j; m++)
                entry -= factor[triangle(i) + m] * factor[triangle(j) + m];
            if (i == j) {
                if (!(entry > 0.0))
                    return false;
                factor[at] = sqrt(entry);
            } else
                factor[at] = entry / factor[triangle(j) + j];
        }
    return true;
}

/* k >= 0 with M + k I positive semidefinite, little more than max(0, -least eigenvalue); *size: the sum of all |entries| of M.
 *
 * With m = tr M / n and s^2 = |M|^2 / n - m^2 (Frobenius) the least eigenvalue is at least m - s sqrt(n - 1) (Wolkowicz and
 * Styan), with equality for n <= 2, and at most m - s / sqrt(n - 1). Beyond, the bracket is halved where k counts. */
CALLED double negative_part(int64_t n, const double *M, double least, int halvings, double *size, double *factor)
{
    double trace = 0.0, square = 0.0, all = 0.0, unit = 32.0 * n * UNIT_ROUNDOFF;
    for (int64_t j = 0, at = 0; j < n; j++)
        for (int64_t k = 0; k <= j; k++, at++) {
            double twice = k < j ? 2.0 : 1.0;
            square += twice * M[at] * M[at];
            all += twice * fabs(M[at]);
            if (k == j)
                trace += M[at];
        }
    *size = all;
    if (square < SAFE_SQUARES) /* squares underflow */
        return all * (1.0 + unit);
    double mean = trace / n, spread = sqrt(larger(square / n - mean * mean, 0.0) + unit * square);
    double high = larger(spread * sqrt(n - 1.0) + unit * sqrt(square) - mean, 0.0);
    if (n <= 2 || high <= least)
        return high;
    double low = larger(spread / sqrt(n - 1.0) - mean, 0.0);
    for (int i = 0; i < halvings; i++) {
        double middle = 0.5 * (low + high);
        if (is_semidefinite(n, M, middle, all, factor))
            high = middle;
        else
            low = middle;
    }
    return high;
}

/* out = (M + k I)z. */
INLINE void times(int64_t n, const double *M, double k, const double *z, double *out)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = k * z[i];
        for (int64_t j = 0; j < n; j++)
            out[i] += M[j <= i ? triangle(i) + j : triangle(j) + i] * z[j];
    }
}

/* Turns l (n) into a direction w and returns a number b with l.y + y'My >= w.theta + b on the ball, rounding included.
 * Scratch: z (n), w (triangle). */
CALLED double turned(int64_t n, const bend *bent, const double *M, double *l, double *z, double *w)
{
    double size, largest = 0.0, squares = 0.0, form = 0.0, left = 0.0, shift = 0.0;
    for (int64_t j = 0; j < n; j++)
        largest = larger(largest, fabs(l[j]));
    const double k = negative_part(n, M, 0.01 * largest, ROW_HALVINGS, &size, w);
    for (int64_t j = 0; j < n; j++) {
        z[j] = largest > 0.0 ? l[j] / largest : 0.0; /* scaled: squares may underflow */
        squares += z[j] * z[j];
    }
    const double norm = largest * sqrt(squares);
    for (int64_t j = 0; j < n; j++)
        z[j] = squares > 0.0 ? -z[j] / sqrt(squares) : 0.0;
    times(n, M, k, z, w);
    for (int64_t j = 0; j < n; j++)
        form += w[j] * z[j];
    /* on the ray t z: -t |l| + t^2 form */
    const double t = form > 0.0 ? smaller(TOWARDS, 0.5 * norm / form) : TOWARDS;
    double sizes = 4.0 * (size + n * k);
    for (int64_t j = 0; j < n; j++) {
        z[j] *= t;
        l[j] += 2.0 * t * w[j];
        sizes += fabs(l[j]);
    }
    form *= t * t;
    for (int64_t j = 0; j < n; j++) {
        w[j] = 0.0;
        for (int64_t i = 0; i < n; i++)
            w[j] += bent->inverse[i * n + j] * l[i];
        shift += w[j] * bent->center[j];
        sizes += fabs(w[j] * bent->center[j]);
    }
    for (int64_t j = 0; j < n; j++) { /* l.y = w.(theta - center) + (l - factor'w).y */
        double rest = l[j];
        for (int64_t i = 0; i < n; i++) {
            rest -= bent->factor[i * n + j] * w[i];
            sizes += fabs(bent->factor[i * n + j] * w[i]);
        }
        left += fabs(rest);
    }
    for (int64_t j = 0; j < n; j++)
        l[j] = w[j];
    return -form - k - shift - left - (8.0 * n + 32.0) * UNIT_ROUNDOFF * sizes;
}

#endif
