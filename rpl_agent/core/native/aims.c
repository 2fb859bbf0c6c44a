/* Estimates at marks, and directions of bets: the numbers of guarantee/checker.py, bit for bit.
 *
 * The checker recomputes them in Python from the data before a mark, so every sum here is either exact until it is
 * rounded once, as math.fsum is, or made in the checker's order. */
#include <string.h>

#include "support.h"

/* ---------------------------------------------------------------------- exact sums */
/* Numbers of at most 2098 binary places leave at most this many parts that do not overlap. */
#define MOST_PARTS 48

/* The sum of its parts, which do not overlap and grow in size (Shewchuk 1997). */
typedef struct exact_sum {
    int64_t count;
    double part[MOST_PARTS];
} exact_sum;

INLINE void include(exact_sum *sum, double term)
{
    int64_t kept = 0;
    for (int64_t k = 0; k < sum->count; k++) {
        double part = sum->part[k], large = fabs(term) < fabs(part) ? part : term;
        double small = large == term ? part : term, total = large + small, lost = small - (total - large);
        if (lost != 0.0)
            sum->part[kept++] = lost;
        term = total;
    }
    sum->part[kept] = term;
    sum->count = kept + 1;
}

/* The nearest number; of two that are equally near, the even one. */
INLINE double rounded(const exact_sum *sum)
{
    int64_t k = sum->count - 1;
    double total = k < 0 ? 0.0 : sum->part[k], lost = 0.0;
    while (k > 0 && lost == 0.0) {
        double before = total;
        total = before + sum->part[--k];
        lost = sum->part[k] - (total - before);
    }
    /* Half a unit was lost, and what is left beyond it has the same sign: then the other neighbour is nearer. */
    if (k > 0 && lost != 0.0 && (lost < 0.0) == (sum->part[k - 1] < 0.0)) {
        double other = total + 2.0 * lost;
        if (other - total == 2.0 * lost)
            total = other;
    }
    return total;
}

static double exact_dot(double start, int64_t n, const double *a, const double *b)
{
    exact_sum sum;
    sum.count = 0;
    include(&sum, start);
    for (int64_t i = 0; i < n; i++)
        include(&sum, a[i] * b[i]);
    return rounded(&sum);
}

/* ---------------------------------------------------------------------- rows c + w.x */
void rows_at(int64_t count, int64_t n, const double *rows, const double *x, double *out)
{
    for (int64_t f = 0; f < count; f++)
        out[f] = exact_dot(rows[f * (n + 1)], n, rows + f * (n + 1) + 1, x);
}

/* sum_f weights_f w_fi w_fj. Products are rounded in this order, so that i and j are not alike. */
static double curvature(int64_t count, int64_t n, const double *rows, const double *weights, int64_t i, int64_t j)
{
    exact_sum sum;
    sum.count = 0;
    for (int64_t f = 0; f < count; f++)
        include(&sum, weights[f] * rows[f * (n + 1) + 1 + i] * rows[f * (n + 1) + 1 + j]);
    return rounded(&sum);
}

/* The first n columns of matrix (n, n + 1) = sum_f weights_f w_f w_f'. */
static void curvatures(int64_t count, int64_t n, const double *rows, const double *weights, double *matrix)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            matrix[i * (n + 1) + j] = curvature(count, n, rows, weights, i, j);
}

/* out (n) = the solution for the last column of matrix (n, n + 1), which is overwritten; false if it is not positive. */
static bool eliminate(int64_t n, double *matrix, double *out)
{
    for (int64_t k = 0; k < n; k++) {
        const double *pivot = matrix + k * (n + 1);
        if (!(pivot[k] > 0.0))
            return false;
        for (int64_t i = 0; i < n; i++) {
            double *row = matrix + i * (n + 1), factor = row[k] / pivot[k];
            for (int64_t j = 0; i != k && j <= n; j++)
                row[j] = row[j] - factor * pivot[j];
        }
    }
    for (int64_t k = 0; k < n; k++)
        out[k] = matrix[k * (n + 1) + n] / matrix[k * (n + 1) + k];
    return true;
}

bool fit_rows(int64_t count, int64_t n, const double *rows, const double *counts, double *scratch, double *x)
{
    double *p = scratch, *pull = p + count, *second = pull + count, *matrix = second + count, *step = matrix + n * (n + 1);
    for (int64_t round = 0; round < 64; round++) {
        rows_at(count, n, rows, x, p);
        for (int64_t f = 0; f < count; f++) {
            if (!(p[f] > 0.0))
                return false;
            pull[f] = counts[f] / p[f];
            second[f] = pull[f] / p[f];
        }
        curvatures(count, n, rows, second, matrix);
        for (int64_t i = 0; i < n; i++) {
            exact_sum score;
            score.count = 0;
            for (int64_t f = 0; f < count; f++)
                include(&score, pull[f] * rows[f * (n + 1) + 1 + i]);
            matrix[i * (n + 1) + n] = rounded(&score);
        }
        if (!eliminate(n, matrix, step))
            break;
        double size = 0.0;
        for (int64_t f = 0; f < count; f++)
            size = larger(size, fabs(exact_dot(0.0, n, rows + f * (n + 1) + 1, step)) / p[f]);
        for (int64_t i = 0; i < n; i++)
            x[i] = x[i] + step[i] / (1.0 + size);
        if (size < 0x1p-30)
            break;
    }
    return true;
}

bool spread_rows(int64_t count, int64_t n, const double *rows, const double *counts, const double *x, double *scratch,
                 double *out)
{
    double *weights = scratch, *matrix = weights + count;
    rows_at(count, n, rows, x, weights);
    for (int64_t f = 0; f < count; f++) {
        if (!(weights[f] > 0.0))
            return false;
        weights[f] = counts[f] / weights[f] / weights[f];
    }
    curvatures(count, n, rows, weights, matrix);
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < n; i++) {
            double rest = matrix[i * (n + 1) + j] - exact_dot(0.0, i < j ? 0 : j, out + i * n, out + j * n);
            if (i == j && !(rest > 0.0))
                return false;
            out[i * n + j] = i < j ? 0.0 : i == j ? sqrt(rest) : rest / out[j * n + j];
        }
    return true;
}

void aim(int64_t count, int64_t n, const double *rows, const double *p, const double *trials, const double *gradient,
         double *scratch, double *shift, double *unit)
{
    double *weights = scratch, *matrix = weights + count;
    for (int64_t f = 0; f < count; f++)
        weights[f] = trials[f] / p[f];
    curvatures(count, n, rows, weights, matrix);
    exact_sum trace;
    trace.count = 0;
    for (int64_t i = 0; i < n; i++)
        include(&trace, matrix[i * (n + 1) + i]);
    const double ridge = rounded(&trace) * 0x1p-30 + 1e-300;
    for (int64_t i = 0; i < n; i++) {
        matrix[i * (n + 1) + i] += ridge;
        matrix[i * (n + 1) + n] = gradient[i];
    }
    if (!eliminate(n, matrix, shift))
        zero(n, shift);
    const double size = exact_dot(0.0, n, gradient, shift), scale = 0.0 < size && size < 1e300 ? 1.0 / sqrt(size) : 0.0;
    for (int64_t f = 0; f < count; f++)
        unit[f] = scale * exact_dot(0.0, n, rows + f * (n + 1) + 1, shift) / p[f];
}

/* ---------------------------------------------------------------------- the gradient of the best value */
/* The best row of a state, with its value in *best; sums in the order of the model. */
static int64_t best_row(const bet_model *model, int64_t state, const double *passed, const double *behind, double *best)
{
    int64_t found = -1;
    for (int64_t row = model->state_ptr[state]; row < model->state_ptr[state + 1]; row++) {
        double value = model->reward[row];
        for (int64_t t = model->row_ptr[row]; t < model->row_ptr[row + 1]; t++)
            value += passed[t] * behind[model->successor[t]];
        if (found < 0 || (model->maximise ? value > *best : value < *best)) {
            found = row;
            *best = value;
        }
    }
    return found;
}

/* One sweep from the last state to the first; of rows that are equally good the one that led there stays. */
static void sweep(const bet_model *model, const double *passed, const double *behind, double *values, int64_t *rule)
{
    for (int64_t s = model->states - 1; s >= 0; s--) {
        double value = 0.0;
        int64_t row = model->decided[s] ? -1 : best_row(model, s, passed, behind, &value);
        if (row >= 0 && (value != values[s] || rule[s] < 0)) {
            values[s] = value;
            rule[s] = row;
        }
    }
}

static bool is_settled(int64_t count, const double *values, const double *old)
{
    for (int64_t s = 0; s < count; s++)
        if (!(fabs(values[s] - old[s]) <= 0x1p-12 * fabs(values[s])))
            return false;
    return true;
}

/* weight (F) += passages of one step times the value behind them; mass moves on to `moved`, which may be the same. */
static double pass(const bet_model *model, const double *chance, const double *behind, const int64_t *rule,
                   double *mass, double *moved, double *weight)
{
    for (int64_t s = 0; s < model->states; s++) {
        if (rule[s] < 0)
            continue;
        const double here = mass[s];
        mass[s] = 0.0;
        for (int64_t t = model->row_ptr[rule[s]]; here != 0.0 && t < model->row_ptr[rule[s] + 1]; t++) {
            double part = here * model->factor[t] / model->denominator;
            weight[model->expression[t]] += part * behind[model->successor[t]];
            moved[model->successor[t]] += part * chance[model->expression[t]];
        }
    }
    exact_sum left;
    left.count = 0;
    for (int64_t s = 0; s < model->states; s++)
        if (rule[s] >= 0)
            include(&left, moved[s]);
    return rounded(&left);
}

/* Values behind each step in values[k] (states), and its rule in rules[k], from the last step on. */
static void plan_steps(const bet_model *model, int64_t steps, const double *passed, double *values, int64_t *rules)
{
    const int64_t states = model->states;
    for (int64_t k = 0; k < steps; k++, values += states, rules += states) {
        memcpy(values + states, values, states * sizeof(double));
        if (k > 0)
            memcpy(rules, rules - states, states * sizeof(int64_t));
        sweep(model, passed, values, values + states, rules);
    }
}

/* The values (states) and the rule that at most so many sweeps lead to; old: scratch (states). */
static void plan_sweeps(const bet_model *model, int64_t sweeps, const double *passed, double *values, double *old,
                        int64_t *rule)
{
    for (int64_t k = 0; k < sweeps; k++) {
        memcpy(old, values, model->states * sizeof(double));
        sweep(model, passed, values, values, rule);
        if (is_settled(model->states, values, old))
            break;
    }
}

void passages(const bet_model *model, int64_t sweeps, const double *chance, double *passed, double *values,
              int64_t *rules, double *mass, double *weight)
{
    const int64_t states = model->states;
    for (int64_t t = 0; t < model->row_ptr[model->rows]; t++)
        passed[t] = chance[model->expression[t]] * model->factor[t] / model->denominator;
    memcpy(values, model->final, states * sizeof(double));
    for (int64_t s = 0; s < states; s++)
        rules[s] = -1;
    if (model->in_steps)
        plan_steps(model, sweeps, passed, values, rules);
    else
        plan_sweeps(model, sweeps, passed, values, values + states, rules);
    zero(2 * states, mass);
    mass[model->initial] = 1.0;
    double left = 1.0;
    for (int64_t k = sweeps - 1; k >= 0 && left >= 0x1p-8; k--) {
        const int64_t place = model->in_steps ? k * states : 0;
        double *moved = model->in_steps ? mass + states : mass;
        left = pass(model, chance, values + place, rules + place, mass, moved, weight);
        if (model->in_steps) {
            memcpy(mass, moved, states * sizeof(double));
            zero(states, moved);
        }
    }
}
