/* The ellipsoid around a level set of the likelihood, rounding included (the theorem: likelihood/level_set.py).
 *
 * m is the centre of the expansion, e_f = f[x]/f[m] - 1, g(x) = g(m) + grad.(x-m) - sum K_f (ln(1+e_f) - e_f),
 * u = 2**-53, r the number of coordinates, n of expressions. */
#include "likelihood.h"

/* Bounds on expressions that move by less than this share do not move the ellipsoid. */
#define MIN_CHANGE 1e-4
/* Beyond these the data do not bound some direction, up to rounding: no ellipsoid. */
#define MAX_CONDITION 1e10
#define MAX_DEFECT 0.1

/* Of every expression: f[m], the relative error of that, and the weight of f f' in the Hessian. */
typedef struct {
    double *values, *doubt, *scale;
} at_center;

double curvature(double excess)
{
    double value = fabs(excess) < 1e-3 ? 1.0 - excess * (2.0 / 3.0 - 0.5 * excess * (1.0 - 0.8 * excess))
                                       : 2.0 * (excess - log1p(excess)) / (excess * excess);
    return value * (1.0 - 1e-9);
}

/* H (r, r) <= sum_f scale_f w_f w_f' in the order of symmetric matrices, whatever rounding does to the sum. An entry is
 * off by at most (n + 4) u sum_f scale |w_i| |w_j|; a matrix of such errors is at most the diagonal of its absolute row
 * sums (lost (r) is scratch), which is subtracted. */
static void lowered_hessian(const observations *seen, const double *scale, double *lost, double *H)
{
    const int64_t n = seen->n, r = seen->r;
    zero(r * r, H);
    zero(r, lost);
    for (int64_t f = 0; f < n; f++) {
        if (scale[f] == 0.0)
            continue;
        const double *w = seen->weights + f * r;
        double whole = 0.0;
        for (int64_t i = 0; i < r; i++)
            whole += fabs(w[i]);
        for (int64_t i = 0; i < r; i++) {
            double first = scale[f] * w[i];
            lost[i] += fabs(first) * whole;
            for (int64_t j = 0; j <= i; j++)
                H[i * r + j] += first * w[j];
        }
    }
    for (int64_t i = 0; i < r; i++) {
        for (int64_t j = 0; j < i; j++)
            H[j * r + i] = H[i * r + j];
        H[i * r + i] -= (2.0 * n + 16.0) * UNIT_ROUNDOFF * lost[i];
    }
}

/* The Frobenius norm of a matrix (r, r). */
static double norm(int64_t r, const double *matrix)
{
    return sqrt(plus_dot(0.0, r * r, matrix, matrix));
}

/* f[m], its relative error, and the gradient of g at m; raises `upper` to f[m]. Returns a bound on the gradient's
 * error. */
static double first_order(const observations *seen, const double *m, at_center at, double *upper, double *gradient)
{
    const int64_t n = seen->n, r = seen->r;
    double error = 0.0;
    zero(r, gradient);
    for (int64_t f = 0; f < n; f++) {
        double value = expression_at(seen, f, m);
        double doubt = (2.0 * r + 8.0) * UNIT_ROUNDOFF * expression_size(seen, f, m) / value;
        for (int64_t c = 0; c < r; c++) {
            double first = seen->counts[f] * seen->weights[f * r + c] / value;
            gradient[c] -= first;
            error += fabs(first) * ((2.0 * n + 16.0) * UNIT_ROUNDOFF + 2.0 * doubt);
        }
        at.values[f] = value;
        at.doubt[f] = doubt;
        upper[f] = larger(upper[f], value * (1.0 + doubt));
    }
    return error;
}

/* Lowers `upper` (n) to what the ellipsoid with H^-1 = factor'factor allows; the largest relative step. */
static double tighten(const observations *seen, at_center at, const double *center, const double *factor, double radius,
                      double *upper)
{
    const int64_t r = seen->r;
    double moved = 0.0;
    for (int64_t f = 0; f < seen->n; f++) {
        const double *w = seen->weights + f * r;
        double value = expression_at(seen, f, center), terms = expression_size(seen, f, center), form = 0.0;
        for (int64_t i = 0; i < r; i++) {
            double entry = 0.0, size = 0.0;
            for (int64_t j = 0; j <= i; j++) {
                double term = factor[i * r + j] * w[j];
                entry += term;
                size += fabs(term);
            }
            entry = fabs(entry) + (2.0 * r + 4.0) * UNIT_ROUNDOFF * size;
            form += entry * entry;
        }
        double spread = radius * sqrt(form) * (1.0 + 1e-9);
        double tighter = value + spread + (2.0 * r + 8.0) * UNIT_ROUNDOFF * terms;
        tighter = larger(tighter, at.values[f] * (1.0 + at.doubt[f]));
        if (tighter < upper[f]) {
            moved = larger(moved, (upper[f] - tighter) / upper[f]);
            upper[f] = tighter;
        }
    }
    return moved;
}

/* The centre c = m - d, d near H^-1 grad, and the radius of {(x-c)'H(x-c) <= radius^2} that holds every x with
 * grad.(x-m) + (x-m)'H(x-m)/2 <= room. For any d that inequality reads y^2/2 - rho.(x-c) <= K, where y^2 =
 * (x-c)'H(x-c), rho = H d - grad is small, and K = room - d'Hd/2 + grad.d. So y <= p + sqrt(p^2 + 2 K) for any p >=
 * sqrt(rho'H^-1 rho): d need not be exact. step, half (r) are scratch. */
static double completed_square(int64_t r, const double *m, const double *gradient, double room, const double *H,
                               const double *factor, double enlarged, double *step, double *half, double *center)
{
    for (int64_t i = 0; i < r; i++)
        half[i] = plus_dot(0.0, i + 1, factor + i * r, gradient);
    for (int64_t i = 0; i < r; i++) {
        step[i] = 0.0;
        for (int64_t j = i; j < r; j++)
            step[i] += factor[j * r + i] * half[j];
        center[i] = m[i] - step[i];
    }
    double quadratic = 0.0, linear = 0.0, sizes = 0.0, off = 0.0;
    for (int64_t i = 0; i < r; i++) {
        double rest = -gradient[i], terms = fabs(gradient[i]);
        for (int64_t j = 0; j < r; j++) {
            double term = H[i * r + j] * step[j];
            rest += term;
            terms += fabs(term);
        }
        quadratic += (rest + gradient[i]) * step[i];
        linear += gradient[i] * step[i];
        sizes += terms * fabs(step[i]);
        /* the rounding of the centre moves m - d as a change of d would */
        for (int64_t j = 0; j < r; j++)
            terms += fabs(H[i * r + j]) * fabs(m[j]);
        half[i] = fabs(rest) + (2.0 * r + 8.0) * UNIT_ROUNDOFF * terms;
    }
    for (int64_t i = 0; i < r; i++) {
        double entry = 0.0;
        for (int64_t j = 0; j <= i; j++)
            entry += fabs(factor[i * r + j]) * half[j];
        off += entry * entry;
    }
    off = sqrt(off) * enlarged * (1.0 + 1e-9);
    double constant = room - 0.5 * quadratic + linear + (4.0 * r + 16.0) * UNIT_ROUNDOFF * sizes;
    return (off + sqrt(larger(off * off + 2.0 * constant, 0.0))) * (1.0 + 1e-12);
}

double enclose(const observations *seen, const double *m, double room, double reach, int64_t rounds, double *scratch,
               double *upper, double *center, double *H)
{
    const int64_t n = seen->n, r = seen->r;
    at_center at = {scratch, scratch + n, scratch + 2 * n};
    double *gradient = scratch + 3 * n, *step = gradient + r, *half = step + r, *spare = half + r;
    double *factor = spare + 2 * r, radius2 = -1.0;
    room += reach * first_order(seen, m, at, upper, gradient);
    for (int64_t round = 0; round < rounds; round++) {
        for (int64_t f = 0; f < n; f++) {
            at.scale[f] = 0.0; /* zero curvature is sound, and the best known if rounding is as large as f[m] */
            if (at.doubt[f] < 0.25) {
                double excess = upper[f] / (at.values[f] * (1.0 - at.doubt[f])) - 1.0;
                at.scale[f] = seen->counts[f] * curvature(excess) * (1.0 - 2.0 * at.doubt[f]);
                at.scale[f] /= at.values[f] * at.values[f];
            }
        }
        lowered_hessian(seen, at.scale, spare, H);
        if (!inverse_factor(r, H, factor))
            return -1.0;
        double defect = factor_defect(r, H, factor, spare), size = norm(r, factor);
        if (!(defect < MAX_DEFECT && norm(r, H) * (size * size) < MAX_CONDITION))
            return -1.0;
        double enlarged = 1.0 / sqrt(1.0 - defect);
        double radius = completed_square(r, m, gradient, room, H, factor, enlarged, step, half, center);
        if (!(radius < INFINITY))
            return -1.0;
        radius2 = radius * radius;
        if (tighten(seen, at, center, factor, radius * enlarged, upper) < MIN_CHANGE)
            break;
    }
    return radius2 * (1.0 + 1e-12);
}
