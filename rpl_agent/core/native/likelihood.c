/* Sums over observed expressions: likelihoods, their tangents and Taylor forms, particles, and marginals.
 *
 * g_j(x) = -sum_f K_jf ln f[x] for window j; sums are plain: their rounding, bounded by `rounding_size`, is far below
 * what moves a region. */
#include "likelihood.h"

/* Steps on a ray towards the boundary of a set that is almost an ellipsoid. */
#define RAY_STEPS 5

/* ---------------------------------------------------------------------- likelihoods and tangents */
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

void tangents(const observations *seen, const double *offsets, int64_t count, const double *points, double *values,
              double *gradients, double *shares)
{
    const int64_t n = seen->n, r = seen->r, windows = seen->windows;
    for (int64_t i = 0; i < count; i++, points += r, gradients += r, shares += windows) {
        log_likelihoods_at(seen, points, shares);
        for (int64_t j = 0; j < windows; j++)
            shares[j] += offsets[j];
        values[i] = normalise(windows, shares);
        zero(r, gradients);
        if (!(fabs(values[i]) < INFINITY))
            continue;
        for (int64_t f = 0; f < n; f++) {
            double mixed = 0.0;
            for (int64_t j = 0; j < windows; j++)
                mixed += shares[j] * seen->counts[j * n + f];
            if (mixed > 0.0) {
                mixed /= expression_at(seen, f, points);
                for (int64_t c = 0; c < r; c++)
                    gradients[c] -= seen->weights[f * r + c] * mixed;
            }
        }
    }
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

/* ---------------------------------------------------------------------- Taylor forms */
/* Adds window j's terms of expression f: k = K_jf, slope (r) = weights_f / f[x]. */
static void add_terms(int64_t r, double k, const double *slope, double *linear, double *quadratic, double *cubic,
                      double *size)
{
    for (int64_t c = 0; c < r; c++) {
        double first = k * slope[c];
        linear[c] -= first;
        size[c] += fabs(first);
        for (int64_t d = 0; d <= c; d++) {
            double second = first * slope[d];
            quadratic[c * r + d] += second;
            for (int64_t e = 0; e <= d; e++)
                cubic[(c * r + d) * r + e] += second * slope[e];
        }
    }
}

/* Makes one window's quadratic form symmetric, and every entry of the cubic one stand for all its permutations. */
static void complete_forms(int64_t r, double *quadratic, double *cubic)
{
    for (int64_t c = 0; c < r; c++)
        for (int64_t d = 0; d <= c; d++) {
            quadratic[d * r + c] = quadratic[c * r + d];
            for (int64_t e = 0; e <= d; e++)
                cubic[(c * r + d) * r + e] *= c > d && d > e ? 6.0 : c > e ? 3.0 : 1.0;
        }
}

void expand_likelihoods(const observations *seen, const double *x, double *scratch, double *value, double *linear,
                        double *quadratic, double *cubic, double *size)
{
    const int64_t n = seen->n, r = seen->r, windows = seen->windows;
    double *slope = scratch, *carry = scratch + r;
    zero(windows, value);
    zero(windows, carry);
    zero(windows * r, linear);
    zero(windows * r * r, quadratic);
    zero(windows * r * r * r, cubic);
    zero(r, size);
    for (int64_t f = 0; f < n; f++) {
        double probability = expression_at(seen, f, x), logarithm = log(probability);
        for (int64_t c = 0; c < r; c++)
            slope[c] = seen->weights[f * r + c] / probability;
        for (int64_t j = 0; j < windows; j++) {
            double k = seen->counts[j * n + f];
            if (k == 0.0)
                continue;
            /* the rounding error of each sum is exact, and carried */
            double term = -k * logarithm, total = value[j] + term, added = total - value[j];
            carry[j] += (value[j] - (total - added)) + (term - added);
            value[j] = total;
            add_terms(r, k, slope, linear + j * r, quadratic + j * r * r, cubic + j * r * r * r, size);
        }
    }
    for (int64_t j = 0; j < windows; j++) {
        value[j] += carry[j];
        complete_forms(r, quadratic + j * r * r, cubic + j * r * r * r);
    }
}

double largest_ratio(const observations *seen, const double *x, const double *factor)
{
    const int64_t r = seen->r;
    double largest = 0.0;
    for (int64_t f = 0; f < seen->n; f++) {
        double probability = expression_at(seen, f, x), form = 0.0;
        for (int64_t c = 0; c < r; c++) {
            double entry = plus_dot(0.0, r, factor + c * r, seen->weights + f * r);
            form += entry * entry;
        }
        largest = larger(largest, form / (probability * probability));
    }
    return largest;
}

/* The third-order value of window j's g at a step (r) from the centre; *form = step' quadratic step. */
INLINE double taylor(const likelihood_expansion *at, int64_t j, const double *step, double *form)
{
    const int64_t r = at->r;
    const double *linear = at->linear + j * r, *quadratic = at->quadratic + j * r * r;
    const double *cubic = at->cubic + j * r * r * r;
    double second = 0.0, third = 0.0, first = 0.0;
    for (int64_t c = 0; c < r; c++) {
        double seconds = 0.0, thirds = 0.0;
        for (int64_t d = 0; d <= c; d++) {
            double inner = 0.0;
            for (int64_t e = 0; e <= d; e++)
                inner += cubic[(c * r + d) * r + e] * step[e];
            seconds += quadratic[c * r + d] * step[d];
            thirds += inner * step[d];
        }
        first += linear[c] * step[c];
        second += (2.0 * seconds - quadratic[c * r + c] * step[c]) * step[c];
        third += thirds * step[c];
    }
    *form = second;
    return at->value[j] + first + 0.5 * second - third / 3.0;
}

/* step' matrix step of a symmetric matrix (k, k). */
INLINE double half_form(int64_t k, const double *matrix, const double *step)
{
    double total = 0.0;
    for (int64_t c = 0; c < k; c++) {
        double inner = plus_dot(0.0, c, matrix + c * k, step);
        total += (2.0 * inner + matrix[c * k + c] * step[c]) * step[c];
    }
    return total;
}

void likelihood_bounds(const parameter_chart *chart, const likelihood_expansion *at, int64_t window,
                       const double *center, int64_t count, const double *points, double *scratch, double *out)
{
    const int64_t k = chart->k, r = chart->r;
    double *aside = scratch, *step = scratch + k;
    for (int64_t i = 0; i < count; i++, points += k) {
        out[i] = INFINITY;
        if (chart->monomials > 0) {
            for (int64_t l = 0; l < k; l++)
                aside[l] = points[l] - center[l];
            if (half_form(k, at->near, aside) > 1.5 * at->reach)
                continue;
        }
        for (int64_t c = 0; c < r; c++)
            step[c] = -at->x[c];
        add_coordinates(chart, points, step);
        double distance = half_form(r, at->metric, step);
        if (!(distance <= at->reach))
            continue;
        double error = 0.0, form;
        for (int64_t c = 0; c < r; c++)
            error += at->drift[c] * fabs(step[c]);
        double largest = sqrt(larger(at->ratio * distance, 0.0)), third = taylor(at, window, step, &form);
        out[i] = third + form * largest * largest / (4.0 * (1.0 - largest)) + error;
    }
}

void ray_lengths(const parameter_chart *chart, const likelihood_expansion *at, const double *z, const double *offsets,
                 double level, double base, int64_t count, const double *rays, const double *longest, double *scratch,
                 double *lengths, double *shares)
{
    const int64_t k = chart->k, r = chart->r, windows = at->windows;
    double *moved = scratch, *step = scratch + k;
    for (int64_t i = 0; i < count; i++, rays += k, shares += windows)
        for (int steps = 0; steps < RAY_STEPS; steps++) {
            for (int64_t c = 0; c < k; c++)
                moved[c] = z[c] + lengths[i] * rays[c];
            zero(r, step);
            add_coordinates(chart, moved, step);
            for (int64_t c = 0; c < r; c++)
                step[c] -= at->x[c];
            for (int64_t j = 0; j < windows; j++) {
                double form, third = taylor(at, j, step, &form);
                /* far away the cubic term bends the model down; half the square is a floor of what is sensible */
                shares[j] = offsets[j] + larger(third, at->value[j] + 0.25 * form);
            }
            double rise = normalise(windows, shares) - base;
            double length = rise > 0.0 ? lengths[i] * sqrt((level - base) / rise) : 2.0 * lengths[i];
            lengths[i] = smaller(length, longest[i]);
        }
}

/* ---------------------------------------------------------------------- particles */
int64_t particles_inside(const parameter_chart *chart, int64_t count, const double *normals, double longest2,
                         const double *mean, const double *factor, bool *near, double *out)
{
    const int64_t k = chart->k;
    int64_t found = 0;
    for (int64_t row = 0; row < chart->rows; row++) {
        const double *A = chart->A + row * k;
        double room = chart->b[row], width2 = 0.0;
        for (int64_t j = 0; j < k; j++) {
            room -= A[j] * mean[j];
            double moved = plus_dot(0.0, k, factor + j * k, A);
            width2 += moved * moved;
        }
        near[row] = room <= 0.0 || room * room < longest2 * width2;
    }
    for (int64_t i = 0; i < count; i++, normals += k) {
        double *point = out + found * k;
        for (int64_t j = 0; j < k; j++)
            point[j] = mean[j];
        for (int64_t l = 0; l < k; l++)
            for (int64_t j = 0; j < k; j++)
                point[j] += normals[l] * factor[l * k + j];
        bool inside = true;
        for (int64_t row = 0; row < chart->rows && inside; row++)
            inside = !near[row] || !(plus_dot(0.0, k, chart->A + row * k, point) > chart->b[row]);
        found += inside;
    }
    return found;
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
