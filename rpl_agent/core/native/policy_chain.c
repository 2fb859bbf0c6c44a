/* The chain of a policy at the centre of a frame, (I - gamma P) x = b on the states of a model with cycles that are worth
 * solving for: as arrays for sweeps, where factors would take more memory than the model. Guesses, not bounds. */
#include "support.h"

/* The rows that a policy plays in state s, from *first to the one before *last. */
INLINE void rows_played(const choice *agent, int64_t s, int64_t *first, int64_t *last)
{
    *first = agent->rows ? agent->rows[s] : agent->state_ptr[s];
    *last = agent->rows ? *first + 1 : agent->state_ptr[s + 1];
}

INLINE double share_of_row(const choice *agent, int64_t row)
{
    return agent->rows ? 1.0 : agent->weights[row];
}

int64_t policy_chain(int64_t n, const int64_t *solved, const int32_t *place, const choice *agent,
                     const row_chances *chances, double gamma, int64_t capacity, int32_t *indptr, int32_t *indices,
                     double *data)
{
    int64_t used = 0, first, last;
    indptr[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        double diagonal = 1.0 - gamma;
        rows_played(agent, solved[i], &first, &last);
        for (int64_t row = first; row < last; row++) {
            const double share = gamma * share_of_row(agent, row);
            for (int64_t t = chances->row_ptr[row]; t < chances->row_ptr[row + 1]; t++) {
                const int32_t j = chances->successor[t];
                const double mass = share * chances->p[chances->expression[t]];
                if (j == solved[i] || !(mass > 0.0))
                    continue;
                diagonal += mass;
                if (place[j] >= 0) {
                    assert(used < capacity);
                    indices[used] = place[j];
                    data[used++] = -mass;
                }
            }
        }
        assert(used < capacity);
        indices[used] = (int32_t)i;
        data[used++] = diagonal;
        indptr[i + 1] = (int32_t)used;
    }
    return used;
}

void policy_sums(int64_t n, const int64_t *solved, const choice *agent, const row_chances *chances, const double *reward,
                 double gamma, const double *v, double *total, double *slope)
{
    const int64_t r = chances->r;
    int64_t first, last;
    for (int64_t i = 0; i < n; i++) {
        total[i] = 0.0;
        for (int64_t k = 0; k < r; k++)
            slope[i * r + k] = 0.0;
        rows_played(agent, solved[i], &first, &last);
        for (int64_t row = first; row < last; row++) {
            const double share = share_of_row(agent, row);
            if (share == 0.0)
                continue;
            total[i] += share * reward[row];
            for (int64_t t = chances->row_ptr[row]; t < chances->row_ptr[row + 1]; t++) {
                const int64_t f = chances->expression[t];
                const double worth = gamma * share * v[chances->successor[t]];
                total[i] += chances->p[f] * worth;
                for (int64_t k = 0; k < r; k++)
                    slope[i * r + k] += chances->slope[f * r + k] * worth;
            }
        }
    }
}

void policy_reach(const choice *agent, const row_chances *chances, const bool *decided, int64_t start, bool *reached,
                  int64_t *waiting)
{
    int64_t found = 0, first, last;
    reached[start] = true;
    waiting[found++] = start;
    for (int64_t next = 0; next < found; next++) {
        const int64_t s = waiting[next];
        if (decided[s])
            continue;
        rows_played(agent, s, &first, &last);
        for (int64_t row = first; row < last; row++) {
            if (share_of_row(agent, row) == 0.0)
                continue;
            for (int64_t t = chances->row_ptr[row]; t < chances->row_ptr[row + 1]; t++) {
                const int32_t j = chances->successor[t];
                if (!reached[j]) {
                    reached[j] = true;
                    waiting[found++] = j;
                }
            }
        }
    }
}

void row_values(int64_t rows, const row_chances *chances, const double *reward, double gamma, const double *v, double *q)
{
    for (int64_t row = 0; row < rows; row++) {
        double mean = 0.0;
        for (int64_t t = chances->row_ptr[row]; t < chances->row_ptr[row + 1]; t++)
            mean += chances->p[chances->expression[t]] * v[chances->successor[t]];
        q[row] = reward[row] + gamma * mean;
    }
}
