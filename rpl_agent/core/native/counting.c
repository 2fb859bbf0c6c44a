/* The evidence: the transition of a record, pooled counts of events, and intervals valid at all times. */
#include <math.h>

#include "core.h"

void locate(int64_t count, const int64_t *states, const int64_t *actions, const int64_t *successors, int64_t num_states,
            const int64_t *state_ptr, const int32_t *action, const int64_t *row_ptr, const int32_t *successor,
            int64_t *out)
{
    for (int64_t k = 0; k < count; k++) {
        int64_t s = states[k];
        out[k] = NO_ROW;
        if (s < 0 || s >= num_states)
            continue;
        for (int64_t r = state_ptr[s]; r < state_ptr[s + 1]; r++) {
            if (action[r] != actions[k])
                continue;
            out[k] = NO_SUCCESSOR;
            for (int64_t t = row_ptr[r]; t < row_ptr[r + 1]; t++)
                if (successor[t] == successors[k]) {
                    out[k] = t;
                    break;
                }
            break;
        }
    }
}

int64_t multiplicities(int64_t num_rows, const int64_t *row_ptr, const int32_t *expression, int64_t *last,
                       int64_t *first, int32_t *out)
{
    int64_t repeated = 0;
    for (int64_t r = 0; r < num_rows; r++)
        for (int64_t t = row_ptr[r]; t < row_ptr[r + 1]; t++) {
            int32_t f = expression[t];
            bool again = last[f] == r;
            repeated += again;
            last[f] = r;
            if (!out)
                continue;
            first[f] = again ? first[f] : t;
            out[t] = (int32_t)(first[f] - t);
            out[first[f]]++;
        }
    return repeated;
}

void pool_events(int64_t count, const int64_t *rows, const int64_t *row_ptr, const int32_t *group_of,
                 const int64_t *transitions, const int64_t *event_of, const bool *positive, int64_t *hits,
                 int64_t *seen, int64_t *successes, int64_t *trials)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t n = 0, r = rows[i];
        for (int64_t t = row_ptr[r]; t < row_ptr[r + 1]; t++) {
            n += transitions[t];
            hits[group_of[t]] += transitions[t];
        }
        for (int64_t t = row_ptr[r]; t < row_ptr[r + 1]; t++) {
            int32_t g = group_of[t];
            int64_t e = event_of[g];
            if (e >= 0 && seen[e] != r) {
                seen[e] = r;
                trials[e] += n;
                successes[e] += positive[g] ? hits[g] : n - hits[g];
            }
        }
        for (int64_t t = row_ptr[r]; t < row_ptr[r + 1]; t++)
            hits[group_of[t]] = 0;
    }
}

/* A point below {p : -k ln p - (n-k) ln(1-p) < excess}, at its end up to rounding, for k > 0.
 * With q = ln p the left side is convex, and the start drops its second term, so it lies outside: Newton from outside a
 * convex level set stays outside and converges monotonically. */
static double anytime_lower(double k, double n, double excess)
{
    double q = -excess / k;
    if (q >= -1e-300)
        q = -1e-300;
    for (int step = 0; step < 60; step++) {
        double p = exp(q);
        double value = -k * q - (n - k) * log1p(-p) - excess;
        double slope = -k + (n - k) * p / (1.0 - p);
        if (value <= 0.0 || slope >= 0.0)
            break;
        q -= value / slope;
        if (value < 1e-4) /* what is left is about its square, in nats, and outside still */
            break;
    }
    return exp(q);
}

void anytime_bounds(int64_t count, const double *successes, const double *trials, double log_threshold, double *lower,
                    double *upper)
{
    for (int64_t i = 0; i < count; i++) {
        double k = successes[i], n = trials[i];
        lower[i] = 0.0;
        upper[i] = 1.0;
        if (n <= 0.0)
            continue;
        double log_beta = lgamma(k + 0.5) + lgamma(n - k + 0.5) - lgamma(n + 1.0) - log(3.141592653589793);
        /* lgamma and the logarithms carry relative errors of a few ulp of terms of size n: widen by more */
        double excess = log_threshold - log_beta + 1e-13 * n + 1e-12;
        if (k > 0.0)
            lower[i] = anytime_lower(k, n, excess);
        if (k < n)
            upper[i] = 1.0 - anytime_lower(n - k, n, excess);
    }
}
