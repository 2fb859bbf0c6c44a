/* Chains: both players fixed. Means of rows, linear systems, and nature's distributions in floating point that stand
 * for exact ones: a row of floats rarely sums to 1, but it stands for an exact distribution with the same support
 * within nature's bounds if the bounds allow one there, and both means differ by at most (mass to be moved) * (span
 * of the values). */
#include <assert.h>

#include "sweeps.h"

/* ---------------------------------------------------------------------- means and linear systems */

void sum_rows(const row_arrays *model, const double *values, double *out)
{
    for (int64_t row = 0; row < model->count; row++) {
        double total = 0.0;
        for (int64_t t = model->row_ptr[row]; t < model->row_ptr[row + 1]; t++)
            total += values[model->expression[t]];
        out[row] = total;
    }
}

void row_means(const row_arrays *model, const double *values, double gamma, const double *reward, const double *p,
               double *q)
{
    const int32_t *successor = model->successor;
    for (int64_t row = 0; row < model->count; row++) {
        double low = INFINITY, total = 0.0;
        for (int64_t t = model->row_ptr[row]; t < model->row_ptr[row + 1]; t++)
            if (p[t] > 0.0 && values[successor[t]] < low)
                low = values[successor[t]];
        for (int64_t t = model->row_ptr[row]; t < model->row_ptr[row + 1]; t++)
            if (p[t] > 0.0 && values[successor[t]] > low)
                total += p[t] * (values[successor[t]] - low);
        q[row] = reward[row] + gamma * (low + total);
    }
}

int64_t assemble(const game *play, int64_t n, const int64_t *rows, const double *values, double offset, const double *p,
                 int32_t *indptr, int64_t capacity, int32_t *indices, double *data, double *rhs)
{
    const int64_t *row_ptr = play->rows->row_ptr;
    const int32_t *successor = play->rows->successor;
    int64_t k = 0;
    indptr[0] = 0;
    for (int64_t s = 0; s < n; s++) {
        double diagonal = 1.0 - play->gamma, right = offset;
        int64_t first = rows ? rows[s] : play->state_ptr[s], last = rows ? rows[s] + 1 : play->state_ptr[s + 1];
        for (int64_t row = first; row < last; row++) {
            double w = rows ? 1.0 : play->weights[row];
            if (w == 0.0)
                continue;
            right += w * play->reward[row];
            for (int64_t t = row_ptr[row]; t < row_ptr[row + 1]; t++) {
                int32_t j = successor[t];
                if (j == s || p[t] <= 0.0)
                    continue;
                double mass = play->gamma * w * p[t];
                diagonal += mass;
                if (j < n) {
                    indices[k] = j;
                    data[k++] = -mass;
                } else
                    right += mass * values[j];
            }
        }
        assert(k < capacity);
        indices[k] = (int32_t)s;
        data[k++] = diagonal;
        indptr[s + 1] = (int32_t)k;
        rhs[s] = right;
    }
    return k;
}

void chain_residual(int64_t n, const int32_t *indptr, const int32_t *indices, const double *data, const double *rhs,
                    const double *x, double *out)
{
    for (int64_t s = 0; s < n; s++) {
        out[s] = rhs[s];
        for (int64_t e = indptr[s]; e < indptr[s + 1]; e++)
            out[s] -= data[e] * x[indices[e]];
    }
}

int64_t relax_chain(int64_t n, const int32_t *indptr, const int32_t *indices, const double *data, const double *rhs,
                    double *x, int64_t sweeps, double tolerance)
{
    for (int64_t k = 0; k < sweeps; k++) {
        double change = 0.0;
        for (int64_t s = 0; s < n; s++) {
            const int64_t last = indptr[s + 1] - 1; /* where `assemble` writes the diagonal */
            double right = rhs[s], ahead = 0.0;
            for (int64_t e = indptr[s]; e < last; e++) {
                right -= data[e] * x[indices[e]];
                ahead -= indices[e] > s ? data[e] : 0.0;
            }
            if (!(data[last] > 0.0))
                continue;
            double step = right / data[last] - x[s];
            if (k % 2 == 0)
                step *= pace_of(ahead / data[last]);
            change = larger(change, fabs(step));
            x[s] += step;
        }
        if (change <= tolerance)
            return k + 1;
    }
    return sweeps;
}

/* ---------------------------------------------------------------------- nature's witness */

/* Whether the upper bounds of the transitions with p > least admit a distribution on them alone, exactly. */
static bool allows(int64_t a, int64_t b, const double *p, double least, const interval_rows *in)
{
    double total = 0.0;
    bool leaves = false;
    int64_t count = 0;
    for (int64_t t = a; t < b; t++)
        if (p[t] > least) {
            total += in->upper[in->expression[t]];
            count++;
        } else if (in->upper[in->expression[t]] > 0.0)
            leaves = true;
    if (!leaves)
        return total >= 1.0 - FEASIBILITY_TOLERANCE;
    if (fabs(total - 1.0) > 4.0 * count * UNIT_ROUNDOFF)
        return total > 1.0;
    exact_sum sum = {{0}, false};
    for (int64_t t = a; t < b; t++)
        if (p[t] > least)
            add_exactly(&sum, in->upper[in->expression[t]]);
    return reaches_one(&sum);
}

/* Gives a speck to the best successor without mass that may have some; false if there is none of finite value. */
static bool open_best(int64_t a, int64_t b, double *p, const double *values, double sign, const interval_rows *in)
{
    int64_t best = -1;
    for (int64_t t = a; t < b; t++)
        if (p[t] == 0.0 && in->upper[in->expression[t]] > 0.0 && values[in->successor[t]] < INFINITY
            && (best < 0 || sign * values[in->successor[t]] < sign * values[in->successor[best]]))
            best = t;
    if (best >= 0)
        p[best] = smaller(in->upper[in->expression[best]], SPECK);
    return best >= 0;
}

void tidy(const row_arrays *model, const row_set *set, const double *values, bool maximise, double *p)
{
    const interval_rows in = intervals_of(model, set);
    for (int64_t row = 0; row < model->count; row++) {
        int64_t a = model->row_ptr[row], b = model->row_ptr[row + 1];
        if (b - a == 1)
            continue;
        bool traces = false, holes = false;
        for (int64_t t = a; t < b; t++) {
            int32_t f = in.expression[t];
            p[t] = smaller(larger(p[t], in.lower[f]), in.upper[f]);
            traces = traces || (0.0 < p[t] && p[t] <= TRACE && in.lower[f] == 0.0);
            holes = holes || p[t] == 0.0;
        }
        if (traces && allows(a, b, p, TRACE, &in)) {
            for (int64_t t = a; t < b; t++)
                if (p[t] <= TRACE && in.lower[in.expression[t]] == 0.0)
                    p[t] = 0.0;
            continue;
        }
        while (holes && !allows(a, b, p, 0.0, &in))
            holes = open_best(a, b, p, values, maximise ? -1.0 : 1.0, &in);
    }
}

/* Whether the bounds of a row allow an exact distribution whose support is that of p. Nothing may be left out that
 * has a lower bound, nothing be in that has an upper bound of 0; the upper bounds on the support must reach 1, and
 * the lower bounds must leave some mass for a member without one. */
static bool has_exact(int64_t a, int64_t b, const double *p, const interval_rows *in)
{
    bool some = false, holes = false, unbound = false;
    for (int64_t t = a; t < b; t++) {
        double lower = in->lower[in->expression[t]], upper = in->upper[in->expression[t]];
        if (!(0.0 <= p[t] && p[t] < INFINITY) || (p[t] > 0.0 && upper == 0.0) || (p[t] == 0.0 && lower > 0.0))
            return false;
        if (p[t] > 0.0) {
            some = true;
            unbound = unbound || lower == 0.0;
        } else
            holes = true;
    }
    if (!some || (holes && !allows(a, b, p, 0.0, in)))
        return false;
    if (!unbound)
        return true;
    exact_sum sum = {{0}, false};
    for (int64_t t = a; t < b; t++)
        if (p[t] > 0.0)
            add_exactly(&sum, in->lower[in->expression[t]]);
    return !reaches_one(&sum);
}

void mass_to_move(const row_arrays *model, const double *lower, const double *upper, const double *p, double *mass)
{
    const interval_rows in = {model->successor, model->expression, lower, upper};
    for (int64_t row = 0; row < model->count; row++) {
        int64_t a = model->row_ptr[row], b = model->row_ptr[row + 1];
        mass[row] = 0.0;
        if (b - a == 1)
            continue;
        if (!has_exact(a, b, p, &in)) {
            mass[row] = INFINITY;
            continue;
        }
        double moved = (b - a) * UNIT_ROUNDOFF, total = 0.0;
        for (int64_t t = a; t < b; t++) {
            int32_t f = in.expression[t];
            double inside = smaller(larger(p[t], lower[f]), upper[f]);
            moved += fabs(p[t] - inside);
            total += inside;
        }
        mass[row] = 2.0 * (moved + fabs(1.0 - total));
    }
}

void moving_costs(const row_arrays *model, const double *values, const double *p, const double *mass, double *costs)
{
    for (int64_t row = 0; row < model->count; row++) {
        double low = INFINITY, high = -INFINITY;
        for (int64_t t = model->row_ptr[row]; t < model->row_ptr[row + 1]; t++) {
            double v = values[model->successor[t]];
            if (p[t] > 0.0 && v < INFINITY) {
                low = smaller(low, v);
                high = larger(high, v);
            }
        }
        costs[row] = mass[row];
        if (mass[row] < INFINITY)
            costs[row] = mass[row] > 0.0 && high > low ? mass[row] * (high - low) + UNIT_ROUNDOFF * FAINT : 0.0;
    }
}
