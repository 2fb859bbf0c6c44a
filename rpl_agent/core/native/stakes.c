/* Bets with fixed stakes on the mean of one bounded number, and the values of worlds without a model that follow.
 * The theorems are in rpl_agent/guarantee/open_world/__init__.py. */
#include <math.h>
#include <stddef.h>

#include "core.h"

/* The search for a mean ends when it is known up to this share of its distance from the average. */
#define ACCURACY 1e-3
/* A value that falls by less than this share of its range does not wake the rows that lead to it. */
#define NOTICED 1e-6
/* The largest mean that is tried below 1. */
#define NEARLY_ONE (1.0 - 0x1p-40)
#define MOST_TRIES 60

/* A lower bound of ln sum_i w_i prod_k (1 + part_k b_i (m - x_k) / (1 - m))^c_k; without parts they are 1.
 *
 * Let z = part b (m - x) / (1 - m), which is at least -b. Five roundings of z change log1p(z) by at most
 * 5 U |z| / (1 + z) <= 5 U |log1p(z)| / (1 - b); log1p is right up to 4 U; a sum of n terms adds n U. */
static double log_wealth(const stake_mixture *bets, int64_t n, const double *x, const double *count,
                         const double *part, double m)
{
    double term[MOST_STAKES], most = -INFINITY;
    for (int64_t i = 0; i < bets->size; i++) {
        double b = bets->stake[i], won = 0.0, lost = 0.0;
        for (int64_t k = 0; k < n; k++) {
            double stake = part ? part[k] * b : b;
            double gain = count[k] * log1p(stake * ((m - x[k]) / (1.0 - m)));
            won += gain > 0.0 ? gain : 0.0;
            lost -= gain < 0.0 ? gain : 0.0;
        }
        double error = UNIT_ROUNDOFF * (won + lost) * (8.0 / (1.0 - b) + (double)n + 16.0);
        term[i] = won - lost - error + bets->log_weight[i];
        most = term[i] > most ? term[i] : most;
    }
    double sum = 0.0;
    for (int64_t i = 0; i < bets->size; i++)
        sum += exp(term[i] - most);
    double total = most + log(sum);
    return total - UNIT_ROUNDOFF * (8.0 * fabs(most) + 4.0 * (double)bets->size + 64.0);
}

double stake_upper(const stake_mixture *bets, int64_t n, const double *x, const double *count, const double *part,
                   double level, double ceiling)
{
    double total = 0.0, sum = 0.0;
    for (int64_t k = 0; k < n; k++) {
        total += count[k];
        sum += count[k] * x[k];
    }
    double high = ceiling < NEARLY_ONE ? ceiling : NEARLY_ONE, mean = total > 0.0 ? sum / total : 1.0, low = mean;
    double above = low < high ? log_wealth(bets, n, x, count, part, high) - level : -1.0, below = -level;
    if (!(above >= 0.0))
        return ceiling;
    /* `high` always has enough wealth, so it may be returned whatever `low` is. At the average the wealth is at most 1.
     * Secants of an increasing function; where they move one end only, halve the distance to the other. */
    for (int tries = 0; tries < MOST_TRIES && high - low > ACCURACY * (high - mean); tries++) {
        double width = high - low, middle = low + width * (-below / (above - below));
        if (tries % 3 == 2 || !(middle > low + 0.01 * width && middle < high - 0.01 * width))
            middle = 1.0 - sqrt((1.0 - low) * (1.0 - high));
        if (!(middle > low && middle < high))
            break;
        double found = log_wealth(bets, n, x, count, part, middle) - level;
        if (found >= 0.0) {
            high = middle;
            above = found;
        } else {
            low = middle;
            below = found;
        }
    }
    return high;
}

/* Whether a row has been bounded with all its outcomes and their latest values. */
static bool is_current(const open_rows *rows, int64_t row, const int64_t *changed, int64_t tested)
{
    if (rows->row_ptr[row] == rows->row_ptr[row + 1])
        return true;
    if (tested < 0)
        return false;
    for (int64_t k = rows->row_ptr[row]; k < rows->row_ptr[row + 1]; k++)
        if (rows->successor[k] >= 0 && changed[rows->successor[k]] > tested)
            return false;
    return true;
}

/* An upper bound of the mean of r + discount next[s'] over the outcomes of a row, at most `known`; all rounded up. */
static double row_bound_upper(const open_rows *rows, const stake_mixture *bets, const double *next, int64_t row,
                              double known, double *x)
{
    int64_t first = rows->row_ptr[row], n = rows->row_ptr[row + 1] - first;
    double low = rows->low[row], range = rows->high[row] - low, most = low, mean = 0.0, size = 0.0;
    for (int64_t k = 0; k < n; k++) {
        int64_t after = rows->successor[first + k];
        double rest = after < 0 ? 0.0 : rows->discount * next[after], number = rows->reward[first + k] + rest;
        double slack = 8.0 * UNIT_ROUNDOFF * (fabs(rows->reward[first + k]) + fabs(rest) + fabs(low));
        double share = (number - low + slack) / range * (1.0 + 8.0 * UNIT_ROUNDOFF);
        x[k] = share < 0.0 ? 0.0 : share < 1.0 ? share : 1.0;
        most = number + slack > most ? number + slack : most;
        mean += rows->count[first + k] * (number + slack);
        size += rows->count[first + k] * (fabs(number) + slack);
    }
    if (rows->level[row] < 0.0) { /* known chances, which sum to 1 up to their rounding */
        double found = mean + UNIT_ROUNDOFF * (4.0 * (double)n + 16.0) * size;
        return found < known ? found : known;
    }
    if (rows->certain)
        return most < known ? most : known;
    double ceiling = (known - low) / range;
    double bound = stake_upper(bets, n, x, rows->count + first, NULL, rows->level[row], ceiling < 1.0 ? ceiling : 1.0);
    double found = low + bound * range + 8.0 * UNIT_ROUNDOFF * (fabs(low) + range);
    return found < known ? found : known;
}

/* The row of a state whose bound is the largest; rows that are not need no new bound, their old one holds.
 *
 * Without chance it is one that is not current, if there is one: whoever explores would take an old bound that equals
 * the largest for one as good, and visit the row again, which shows nothing. Where there is chance, it shows something.
 */
static int64_t largest_row(const open_rows *rows, int64_t s, const double *row_upper, const int64_t *next_changed,
                           const int64_t *tested)
{
    int64_t best = rows->state_ptr[s], last = rows->state_ptr[s + 1];
    for (int64_t row = best + 1; row < last; row++)
        best = row_upper[row] > row_upper[best] ? row : best;
    if (rows->certain)
        for (int64_t row = best; row < last; row++)
            if (row_upper[row] == row_upper[best] && !is_current(rows, row, next_changed, tested[row]))
                return row;
    return best;
}

int64_t open_sweeps(const open_rows *rows, const stake_mixture *bets, int64_t most, const double *next,
                    const int64_t *next_changed, double *row_upper, double *upper, int64_t *changed, int64_t *tested,
                    int64_t *clock, double *x)
{
    int64_t sweep = 0;
    bool fell = true;
    for (; sweep < most && fell; sweep++) {
        fell = false;
        for (int64_t j = 0; j < rows->states; j++) {
            int64_t s = sweep % 2 ? j : rows->states - 1 - j, best;
            if (rows->state_ptr[s] == rows->state_ptr[s + 1]) /* a value that is known */
                continue;
            for (;;) {
                best = largest_row(rows, s, row_upper, next_changed, tested);
                if (is_current(rows, best, next_changed, tested[best]))
                    break;
                row_upper[best] = row_bound_upper(rows, bets, next, best, row_upper[best], x);
                tested[best] = *clock;
            }
            if (row_upper[best] >= upper[s])
                continue;
            bool noticed = upper[s] - row_upper[best] > NOTICED * (rows->high[best] - rows->low[best]);
            upper[s] = row_upper[best];
            if (noticed) {
                changed[s] = ++*clock;
                fell = true;
            }
        }
    }
    return sweep;
}
