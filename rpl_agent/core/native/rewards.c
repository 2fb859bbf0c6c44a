/* What the rows of a model pay, and how far that is from what was meant. */
#include <math.h>

#include "core.h"

double row_payments(int64_t states, const int64_t *state_ptr, const double *of_state, const double *of_row,
                    const double *state_error, const double *row_error, bool adds, const bool *over, double *reward,
                    double *error)
{
    double least = INFINITY;
    bool finite = true;
    for (int64_t s = 0; s < states; s++)
        for (int64_t row = state_ptr[s]; row < state_ptr[s + 1]; row++) {
            const bool pays = !(over && over[s]);
            const double total = of_state[s] + of_row[row], rest = total - of_state[s];
            reward[row] = pays ? total : 0.0;
            least = reward[row] < least ? reward[row] : least;
            finite &= fabs(reward[row]) < INFINITY;
            if (!error)
                continue;
            double off = adds ? fabs((of_state[s] - (total - rest)) + (of_row[row] - rest)) : 0.0; /* Knuth: exact */
            off += state_error ? state_error[s] : 0.0;
            off += row_error ? row_error[row] : 0.0;
            error[row] = pays ? off * (1.0 + 8.0 * UNIT_ROUNDOFF) : 0.0;
        }
    return finite ? least : NAN;
}

void error_sizes(int64_t count, const double *reward, const double *error, double *sizes)
{
    sizes[0] = sizes[1] = 0.0;
    sizes[2] = INFINITY;
    for (int64_t row = 0; row < count; row++) {
        const double share = error[row] == 0.0 ? 0.0 : error[row] / fabs(reward[row]);
        sizes[0] = share <= sizes[0] ? sizes[0] : share; /* NaN stays */
        sizes[1] = error[row] <= sizes[1] ? sizes[1] : error[row];
        sizes[2] = reward[row] < sizes[2] ? reward[row] : sizes[2];
    }
}
