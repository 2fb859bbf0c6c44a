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
/* Halvings of the bracket in which the least eigenvalue lies, where it has no estimate. */
#define HALVINGS 8
/* Eigenvalues are estimated up to this dimension. */
#define ESTIMATED 6

/* Entries of a lower triangle. */
INLINE int64_t triangle(int64_t n) { return n * (n + 1) / 2; }

/* Whether all pivots of M (lower triangle) with `lowered` added to its diagonal are positive. left: scratch (triangle). */
INLINE bool pivots_positive(int64_t n, const double *M, double lowered, double *left)
{
    for (int64_t i = 0, at = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++, at++)
            left[at] = M[at] + (i == j ? lowered : 0.0);
    for (int64_t j = 0; j < n; j++) {
        const double pivot = left[triangle(j) + j], inverse = 1.0 / pivot;
        if (!(pivot > 0.0))
            return false;
        for (int64_t i = j + 1; i < n; i++) {
            const double share = left[triangle(i) + j] * inverse;
            for (int64_t m = j + 1; m <= i; m++)
                left[triangle(i) + m] -= share * left[triangle(m) + j];
        }
    }
    return true;
}

/* FOR_N(n), with loops over few parameters unrolled. */
#define UNROLLED(n)                                                                                                  \
    switch (n) {                                                                                                     \
    case 3: return FOR_N(3);                                                                                         \
    case 4: return FOR_N(4);                                                                                         \
    case 5: return FOR_N(5);                                                                                         \
    case 6: return FOR_N(6);                                                                                         \
    default: return FOR_N(n);                                                                                        \
    }

/* Whether M + k I (lower triangle M) is proved to be positive semidefinite, by pivots that stay positive when the diagonal is
 * lowered by more than all rounding: the backward error is at most (n + 5) u times the trace. factor: scratch (triangle). */
CALLED bool is_semidefinite(int64_t n, const double *M, double k, double *factor)
{
    double size = 0.0;
    for (int64_t j = 0; j < n; j++)
        size += fabs(M[triangle(j) + j]);
    const double lowered = k - (4.0 * n + 16.0) * UNIT_ROUNDOFF * (size + n * k);
#define FOR_N(n) pivots_positive(n, M, lowered, factor)
    UNROLLED(n)
#undef FOR_N
}

/* About (middle - least eigenvalue of M) / scale, n <= ESTIMATED, where B = (middle I - M) / scale has trace 0 and the
 * sum of squares n.
 *
 * Newton's identities give the characteristic polynomial from the traces of powers of B. Its zeros are real, so
 * Laguerre's iteration comes down to the largest one from sqrt(n - 1), which is a bound. */
INLINE double largest_zero(int64_t n, const double *M, double middle, double scale)
{
    double B[ESTIMATED * ESTIMATED], power[2][ESTIMATED * ESTIMATED], traces[ESTIMATED + 1], c[ESTIMATED + 1];
    const double *below = B;
    for (int64_t i = 0, at = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++, at++)
            B[i * n + j] = B[j * n + i] = ((i == j ? middle : 0.0) - M[at]) / scale;
    for (int64_t m = 1; 2 * m <= n; m++) { /* B^m is `below`, from it traces of B^(2m) and B^(2m + 1) */
        double *next = power[m % 2];
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j <= i; j++) {
                double entry = 0.0;
                for (int64_t l = 0; l < n; l++)
                    entry += below[i * n + l] * B[l * n + j];
                next[i * n + j] = next[j * n + i] = entry;
            }
        double even = 0.0, odd = 0.0;
        for (int64_t i = 0; i < n * n; i++) {
            even += below[i] * below[i];
            odd += below[i] * next[i];
        }
        traces[2 * m] = even;
        if (2 * m + 1 <= n)
            traces[2 * m + 1] = odd;
        below = next;
    }
    traces[1] = 0.0;
    c[0] = 1.0;
    for (int64_t m = 1; m <= n; m++) {
        double sum = 0.0;
        for (int64_t i = 1; i <= m; i++)
            sum -= c[m - i] * traces[i];
        c[m] = sum / m;
    }
    double x = sqrt(n - 1.0), step = INFINITY;
    for (int round = 0; round < 8 && step > 1e-3; round++) {
        double p = 1.0, first = 0.0, half_second = 0.0;
        for (int64_t m = 1; m <= n; m++) {
            half_second = half_second * x + first;
            first = first * x + p;
            p = p * x + c[m];
        }
        if (!(p > 0.0)) /* there, but for rounding */
            break;
        const double G = first / p, H = G * G - 2.0 * half_second / p;
        step = n / (G + sqrt(larger((n - 1.0) * (n * H - G * G), 0.0)));
        x -= step;
    }
    return x;
}

CALLED double estimate(int64_t n, const double *M, double middle, double scale)
{
#define FOR_N(n) largest_zero(n, M, middle, scale)
    UNROLLED(n)
#undef FOR_N
}

/* k >= 0 with M + k I positive semidefinite, little more than max(0, -least eigenvalue); *size: the sum of all |entries| of M.
 *
 * With m = tr M / n and s^2 = |M|^2 / n - m^2 (Frobenius) the least eigenvalue is at least m - s sqrt(n - 1) (Wolkowicz and
 * Styan), with equality for n <= 2, and at most m - s / sqrt(n - 1). Beyond, an estimate is proved, or the bracket is halved,
 * where k counts. */
CALLED double negative_part(int64_t n, const double *M, double least, double *size, double *factor)
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
    if (n <= 2 || high <= least || !(square < INFINITY))
        return high;
    double low = larger(spread / sqrt(n - 1.0) - mean, 0.0);
    if (n <= ESTIMATED) {
        const double k = larger(spread * (estimate(n, M, mean, spread) + 1e-6) - mean, 0.0);
        if (k < high && is_semidefinite(n, M, k, factor))
            return k;
    }
    for (int i = 0; i < HALVINGS; i++) {
        double middle = 0.5 * (low + high);
        if (is_semidefinite(n, M, middle, factor))
            high = middle;
        else
            low = middle;
    }
    return high;
}

/* out = (M + k I)z. */
INLINE void times(int64_t n, const double *M, double k, const double *z, double *out)
{
    for (int64_t i = 0, at = 0; i < n; i++, at++) {
        out[i] = k * z[i];
        for (int64_t j = 0; j < i; j++, at++) {
            out[i] += M[at] * z[j];
            out[j] += M[at] * z[i];
        }
        out[i] += M[at] * z[i];
    }
}

/* Turns l (n) into a direction w and returns a number b with l.y + y'My >= w.theta + b on the ball, rounding included.
 * Scratch: z (n), w (triangle). */
INLINE double turned_in(int64_t n, const bend *bent, const double *M, double *l, double *z, double *w)
{
    double size, largest = 0.0, squares = 0.0, form = 0.0, left = 0.0, shift = 0.0;
    for (int64_t j = 0; j < n; j++)
        largest = larger(largest, fabs(l[j]));
    const double k = negative_part(n, M, 0.01 * largest, &size, w);
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

CALLED double turned(int64_t n, const bend *bent, const double *M, double *l, double *z, double *w)
{
#define FOR_N(n) turned_in(n, bent, M, l, z, w)
    UNROLLED(n)
#undef FOR_N
}

#endif
