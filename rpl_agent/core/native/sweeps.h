/* From nature's choices in rows to values of states: rewards, and what the agent draws or prefers. */
#ifndef RPL_SWEEPS_H
#define RPL_SWEEPS_H

#include <float.h>

#include "rows.h"

/* The relative error of reward + gamma q. */
#define PAID_UNIT (3.0 * UNIT_ROUNDOFF)

/* reward + gamma q, rounded to a side (1.0: up, -1.0: down). */
INLINE double paid(double q, double reward, double gamma, double side)
{
    if (q < INFINITY && (reward != 0.0 || (gamma != 1.0 && q != 0.0))) {
        q = reward + gamma * q;
        q += side * PAID_UNIT * (fabs(q) + 2.0 * fabs(reward) + FAINT);
    }
    return q;
}

/* The share of a row that may lead ahead, and how much of it is made up for: all of it would overshoot to the sides. */
#define MOST_AHEAD 0.5
#define MADE_UP 0.8

/* How much faster than its row says a state changes in a sweep that leaves its row's share `ahead` behind, if the states
 * there change as it does. Where most of the row leads ahead they do not: it would overshoot. */
INLINE double pace_of(double ahead)
{
    return ahead < MOST_AHEAD ? 1.0 / (1.0 - MADE_UP * ahead) : 1.0;
}

/* The mean of the rows that a fixed policy draws: base + total, of values between least and most. */
typedef struct mixture {
    double base, total, least, most;
    int64_t drawn;
} mixture;

#define NO_MIXTURE {0.0, 0.0, INFINITY, -INFINITY, 0}
/* How often the rounding of a mean is added to it: a check with another order of sums must confirm a sweep. */
#define SWEPT 3.0
#define LOOKED_AT 1.0

INLINE void mix_in(mixture *mix, double q, double weight)
{
    if (mix->drawn == 0)
        mix->base = q;
    else
        mix->total += weight * (q - mix->base);
    mix->least = smaller(mix->least, q);
    mix->most = larger(mix->most, q);
    mix->drawn++;
}

/* The mean, rounded to a side. It lies between the least and the largest of its terms, whatever rounding says. */
INLINE double mean_of(const mixture *mix, double side, double times)
{
    if (!(mix->most > mix->least) || mix->least == -INFINITY)
        return mix->drawn ? mix->least : 0.0;
    if (mix->most == INFINITY)
        return INFINITY;
    double mean = mix->base + mix->total;
    mean += side * times * UNIT_ROUNDOFF
            * ((2.0 * mix->drawn + 8.0) * (mix->most - mix->least) + 2.0 * fabs(mean) + FAINT);
    if (side > 0.0) /* NaN is no bound */
        return mean < mix->most ? mean : mix->most;
    return mean > mix->least ? mean : mix->least;
}

/* value moved by error to the side asked for. Beyond the largest float a bound from above is inf, one from below the
 * largest float. */
INLINE double rounded(double value, double error, bool upward)
{
    if (value == INFINITY && !upward)
        value = DBL_MAX;
    if (value == -INFINITY && upward)
        value = -DBL_MAX;
    return upward ? value + error : value - error;
}

/* reward + gamma q, bounded from a side. What is not a number (a sum that overflowed) says nothing: a bound that the
 * agent's choice cannot pass over. */
INLINE double row_total(double q, double reward, double gamma, bool upward)
{
    if (q != q)
        return upward ? INFINITY : -INFINITY;
    if (!(fabs(q) < INFINITY))
        return q;
    double total = paid(q, reward, gamma, upward ? 1.0 : -1.0); /* bit for bit the result of a sweep */
    return fabs(total) < INFINITY ? total : rounded(reward + gamma * q, 9.0 * UNIT_ROUNDOFF * DBL_MAX, upward);
}

/* The agent's value from the totals a..b of its rows. */
INLINE double state_image(int64_t a, int64_t b, const double *totals, int64_t agent, const double *weights, bool upward)
{
    double best = totals[a];
    mixture mix = NO_MIXTURE;
    for (int64_t row = a; row < b; row++) {
        if (agent == FIXED_AGENT && weights[row] > 0.0)
            mix_in(&mix, totals[row], weights[row]);
        else if (agent != FIXED_AGENT && (totals[row] > best) == (agent == MAX_AGENT))
            best = totals[row];
    }
    return agent == FIXED_AGENT ? mean_of(&mix, upward ? 1.0 : -1.0, LOOKED_AT) : best;
}

#endif
