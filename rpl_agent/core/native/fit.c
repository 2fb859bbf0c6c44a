/* Newton's method for penalised likelihoods: the coordinates of a chart, small positive matrices, damped steps. */
#include "likelihood.h"

/* ---------------------------------------------------------------------- charts */
void coordinates(const parameter_chart *chart, int64_t count, const double *points, double *out)
{
    for (int64_t i = 0; i < count; i++, points += chart->k, out += chart->r) {
        zero(chart->r, out);
        add_coordinates(chart, points, out);
    }
}

/* out (r) = column j of dx/dz at z. */
static void jacobian_column(const parameter_chart *chart, const double *z, int64_t j, double *out, int64_t stride)
{
    const int64_t k = chart->k, r = chart->r, monomials = chart->monomials;
    for (int64_t c = 0; c < r; c++)
        out[c * stride] = monomials == 0 && c == j ? 1.0 : 0.0;
    for (int64_t m = 0; m < monomials; m++) {
        const int64_t *exponents = chart->exponents + m * k;
        if (exponents[j] == 0)
            continue;
        double slope = (double)exponents[j];
        for (int64_t l = 0; l < k; l++)
            for (int64_t e = exponents[l] - (l == j); e > 0; e--)
                slope *= z[l];
        for (int64_t c = 0; c < r; c++)
            out[c * stride] += chart->matrix[c * monomials + m] * slope;
    }
}

void jacobian(const parameter_chart *chart, const double *z, double *out)
{
    for (int64_t j = 0; j < chart->k; j++)
        jacobian_column(chart, z, j, out + j, chart->k);
}

/* ---------------------------------------------------------------------- positive definite matrices */
/* Lower triangle of factor (k, k) with factor factor' = matrix; false where the matrix is not positive. Plain loops:
 * for a handful of coordinates the threads of a linear algebra library cost more than the work. */
static bool cholesky(int64_t k, const double *matrix, double *factor)
{
    bool positive = true;
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j <= i; j++) {
            double total = less_dot(matrix[i * k + j], j, factor + i * k, factor + j * k);
            if (i == j) {
                positive = positive && 0.0 < total && total < INFINITY;
                factor[i * k + i] = sqrt(larger(total, 1e-300));
            } else {
                factor[i * k + j] = total / factor[j * k + j];
            }
        }
    return positive;
}

bool inverse_factor(int64_t k, const double *matrix, double *out)
{
    bool positive = cholesky(k, matrix, out);
    /* Column j of the inverse needs the columns from j on of the factor: it takes the place of the first of them. */
    for (int64_t j = 0; j < k; j++)
        for (int64_t i = 0; i < k; i++) {
            double total = i == j ? 1.0 : 0.0;
            for (int64_t l = j; l < i; l++)
                total -= out[i * k + l] * out[l * k + j];
            out[i * k + j] = i >= j ? total / out[i * k + i] : 0.0;
        }
    return positive;
}

/* out = matrix^-1 right for a positive definite matrix; its Cholesky factor (k, k) is written. */
static void solve_positive(int64_t k, const double *matrix, const double *right, double *factor, double *out)
{
    cholesky(k, matrix, factor);
    for (int64_t i = 0; i < k; i++)
        out[i] = less_dot(right[i], i, factor + i * k, out) / factor[i * k + i];
    for (int64_t i = k - 1; i >= 0; i--) {
        double total = out[i];
        for (int64_t l = i + 1; l < k; l++)
            total -= factor[l * k + i] * out[l];
        out[i] = total / factor[i * k + i];
    }
}

/* ---------------------------------------------------------------------- Newton */
/* b_i - A_i.z of a row of the domain. */
static double slack_of(const parameter_chart *chart, int64_t i, const double *z)
{
    return less_dot(chart->b[i], chart->k, chart->A + i * chart->k, z);
}

double penalised(const parameter_chart *chart, const observations *seen, double barrier, const double *z, double *x)
{
    double value = 0.0;
    for (int64_t i = 0; i < chart->rows; i++) {
        double slack = slack_of(chart, i, z);
        if (slack <= 0.0)
            return INFINITY;
        value -= barrier * log(slack);
    }
    coordinates(chart, 1, z, x);
    for (int64_t f = 0; f < seen->n; f++) {
        double probability = expression_at(seen, f, x);
        if (probability <= 0.0)
            return INFINITY;
        value -= seen->counts[f] * log(probability);
    }
    return value;
}

/* Of the likelihood in x: gradient (r) and curvature (r, r), symmetric. */
static void derivatives_in_x(const observations *seen, const double *x, double *gradient, double *curvature)
{
    const int64_t r = seen->r;
    zero(r, gradient);
    zero(r * r, curvature);
    for (int64_t f = 0; f < seen->n; f++) {
        const double *w = seen->weights + f * r;
        double probability = expression_at(seen, f, x);
        double first = seen->counts[f] / probability, second = first / probability;
        for (int64_t c = 0; c < r; c++) {
            gradient[c] -= first * w[c];
            for (int64_t d = 0; d <= c; d++)
                curvature[c * r + d] += second * w[c] * w[d];
        }
    }
    for (int64_t c = 0; c < r; c++)
        for (int64_t d = 0; d < c; d++)
            curvature[d * r + c] = curvature[c * r + d];
}

/* Gradient (k) of `penalised`, likelihood curvature (k, k) and curvature with the barrier at an interior z with x =
 * x(z). Scratch: r + r r + r k. */
static void derivatives(const parameter_chart *chart, const observations *seen, double barrier, const double *z,
                        const double *x, double *scratch, double *gradient, double *information, double *precision)
{
    const int64_t k = chart->k, r = chart->r;
    double *in_x = scratch, *curvature = in_x + r, *slopes = curvature + r * r;
    derivatives_in_x(seen, x, in_x, curvature);
    if (chart->monomials == 0) {
        for (int64_t i = 0; i < k; i++)
            gradient[i] = in_x[i];
        for (int64_t i = 0; i < k * k; i++)
            information[i] = curvature[i];
    } else {
        jacobian(chart, z, slopes);
        for (int64_t i = 0; i < k; i++) {
            gradient[i] = 0.0;
            for (int64_t c = 0; c < r; c++)
                gradient[i] += slopes[c * k + i] * in_x[c];
            for (int64_t j = 0; j < k; j++) {
                double total = 0.0;
                for (int64_t c = 0; c < r; c++)
                    for (int64_t d = 0; d < r; d++)
                        total += slopes[c * k + i] * curvature[c * r + d] * slopes[d * k + j];
                information[i * k + j] = total;
            }
        }
    }
    for (int64_t i = 0; i < k * k; i++)
        precision[i] = information[i];
    for (int64_t i = 0; i < chart->rows; i++) {
        const double *A = chart->A + i * k;
        double slack = slack_of(chart, i, z), square = slack * slack;
        for (int64_t j = 0; j < k; j++) {
            gradient[j] += barrier * A[j] / slack;
            for (int64_t l = 0; l < k; l++)
                precision[j * k + l] += barrier * A[j] * A[l] / square;
        }
    }
}

double newton(const parameter_chart *chart, const observations *seen, double barrier, int64_t steps, double tolerance,
              double *scratch, double *z, double *x, double *information, double *precision)
{
    const int64_t k = chart->k;
    double *gradient = scratch, *step = gradient + k, *candidate = step + k, *factor = candidate + k;
    double *rest = factor + k * k;
    double value = penalised(chart, seen, barrier, z, x), decrease = INFINITY;
    derivatives(chart, seen, barrier, z, x, rest, gradient, information, precision);
    for (int64_t taken = 0; taken < steps; taken++) {
        solve_positive(k, precision, gradient, factor, step);
        decrease = plus_dot(0.0, k, gradient, step);
        if (decrease < tolerance)
            break;
        double length = 1.0, trial = INFINITY;
        bool moved = false;
        for (; length > 1e-12 && !moved; length *= 0.5) {
            for (int64_t i = 0; i < k; i++)
                candidate[i] = z[i] - length * step[i];
            trial = penalised(chart, seen, barrier, candidate, x);
            moved = trial <= value - 1e-4 * length * decrease;
        }
        if (!moved) /* rounding: no further decrease can be resolved */
            break;
        for (int64_t i = 0; i < k; i++)
            z[i] = candidate[i];
        value = trial;
        derivatives(chart, seen, barrier, z, x, rest, gradient, information, precision);
    }
    coordinates(chart, 1, z, x);
    return decrease;
}

/* ---------------------------------------------------------------------- sums over windows */
/* G - barrier sum_i ln(b_i - A_i.x), inf outside; the windows' shares (J) at x and their mixed counts (n). */
static double penalised_sum(const parameter_chart *chart, const observations *seen, const double *offsets,
                            double barrier, const double *x, double *shares, double *mixed)
{
    double value = 0.0;
    for (int64_t i = 0; i < chart->rows; i++) {
        double slack = slack_of(chart, i, x);
        if (!(slack > 0.0))
            return INFINITY;
        value -= barrier * log(slack);
    }
    for (int64_t f = 0; f < seen->n; f++) {
        double probability = expression_at(seen, f, x);
        if (!(probability > 0.0))
            return INFINITY;
        mixed[f] = log(probability);
    }
    for (int64_t j = 0; j < seen->windows; j++)
        shares[j] = less_dot(offsets[j], seen->n, seen->counts + j * seen->n, mixed);
    value += normalise(seen->windows, shares);
    zero(seen->n, mixed);
    for (int64_t j = 0; j < seen->windows; j++)
        for (int64_t f = 0; f < seen->n; f++)
            mixed[f] += shares[j] * seen->counts[j * seen->n + f];
    return value;
}

/* Adds the windows' spread to the curvature (k, k): the sum of shares_j d_j d_j', where d_j = sum_f (mixed_f - K_jf)
 * grad f / f is how much the slope of window j differs from that of G. Scratch: slope (k). */
static void add_spread(const observations *seen, const double *x, const double *shares, const double *mixed,
                       double *slope, double *curvature)
{
    const int64_t r = seen->r;
    for (int64_t j = 0; j < seen->windows; j++) {
        zero(r, slope);
        for (int64_t f = 0; f < seen->n; f++) {
            double amount = (mixed[f] - seen->counts[j * seen->n + f]) / expression_at(seen, f, x);
            for (int64_t c = 0; c < r; c++)
                slope[c] += amount * seen->weights[f * r + c];
        }
        for (int64_t c = 0; c < r; c++)
            for (int64_t d = 0; d < r; d++)
                curvature[c * r + d] += shares[j] * slope[c] * slope[d];
    }
}

/* At most 1, and nearly as far as x - length step stays in the domain with positive expressions. */
static double largest_step(const parameter_chart *chart, const observations *seen, const double *x, const double *step)
{
    double least = INFINITY;
    for (int64_t i = 0; i < chart->rows; i++) {
        double used = less_dot(0.0, chart->k, chart->A + i * chart->k, step);
        least = used > 0.0 ? smaller(least, slack_of(chart, i, x) / used) : least;
    }
    for (int64_t f = 0; f < seen->n; f++) {
        double used = plus_dot(0.0, seen->r, seen->weights + f * seen->r, step);
        least = used > 0.0 ? smaller(least, expression_at(seen, f, x) / used) : least;
    }
    return smaller(1.0, 0.99 * least);
}

void newton_of_sum(const parameter_chart *chart, const observations *seen, const double *offsets, double barrier,
                   int64_t steps, double tolerance, double *scratch, double *x)
{
    const int64_t k = chart->k;
    double *gradient = scratch, *step = gradient + k, *candidate = step + k, *factor = candidate + k;
    double *information = factor + k * k, *precision = information + k * k, *shares = precision + k * k;
    double *mixed = shares + seen->windows, *rest = mixed + seen->n;
    observations all = *seen; /* one window with the mixed counts: its slope is that of G */
    all.counts = mixed;
    double value = penalised_sum(chart, seen, offsets, barrier, x, shares, mixed);
    for (int64_t taken = 0; taken < steps && value < INFINITY; taken++) {
        derivatives(chart, &all, barrier, x, x, rest, gradient, information, precision);
        add_spread(seen, x, shares, mixed, candidate, precision);
        for (double ridge = 1e-15; !cholesky(k, precision, factor) && ridge < 1.0; ridge *= 100.0)
            for (int64_t i = 0; i < k; i++) /* directions without data or rows nearby: any curvature will do */
                precision[i * k + i] *= 1.0 + ridge;
        solve_positive(k, precision, gradient, factor, step);
        double decrease = plus_dot(0.0, k, gradient, step), length = largest_step(chart, seen, x, step), trial = INFINITY;
        if (!(decrease > tolerance))
            break;
        for (; length > 1e-12; length *= 0.5) {
            for (int64_t i = 0; i < k; i++)
                candidate[i] = x[i] - length * step[i];
            trial = penalised_sum(chart, seen, offsets, barrier, candidate, shares, mixed);
            if (trial <= value - 0.25 * length * decrease)
                break;
        }
        if (length <= 1e-12) /* rounding: no further decrease can be resolved */
            break;
        for (int64_t i = 0; i < k; i++)
            x[i] = candidate[i];
        value = trial;
    }
}
