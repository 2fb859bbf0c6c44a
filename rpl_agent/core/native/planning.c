/* Planning of the tabular baselines: Gauss-Seidel value iteration over optimistic row distributions. No bounds here. */
#include <math.h>

#include "core.h"

/* Whether an optimistic nature prefers the value a to b. */
static bool better(double a, double b, bool maximise)
{
    return maximise ? a > b : a < b;
}

/* Takes `excess` mass away from the worst of the successors other than `best`: UCRL2's inner maximisation. */
static void take_from_the_worst(int64_t count, int64_t best, double excess, const int32_t *successor,
                                const double *values, bool maximise, double *work)
{
    while (excess > 1e-15) {
        int64_t giver = -1;
        for (int64_t t = 0; t < count; t++)
            if (t != best && work[t] > 0.0 &&
                (giver < 0 || (values[successor[t]] < values[successor[giver]]) == maximise))
                giver = t;
        if (giver < 0)
            return;
        double taken = fmin(excess, work[giver]);
        work[giver] -= taken;
        excess -= taken;
        if (taken <= 0.0)
            return;
    }
}

double optimistic_expectation(int64_t count, const int32_t *successor, const double *probability, const double *values,
                              double radius, double bonus, bool maximise, double *work)
{
    int64_t best = 0, worst = 0;
    for (int64_t t = 0; t < count; t++) {
        work[t] = probability[t];
        if (better(values[successor[t]], values[successor[best]], maximise))
            best = t;
        if (better(values[successor[t]], values[successor[worst]], !maximise))
            worst = t;
    }
    double top = values[successor[best]], bottom = values[successor[worst]], total = 0.0;
    if (top == bottom)
        return top;
    if (radius > 0.0) {
        double excess = fmin(0.5 * radius, 1.0 - work[best]);
        work[best] += excess;
        take_from_the_worst(count, best, excess, successor, values, maximise, work);
    }
    for (int64_t t = 0; t < count; t++)
        total += work[t] * values[successor[t]];
    if (bonus > 0.0) {
        total += bonus * (top - bottom);
        total = maximise ? fmin(total, top) : fmax(total, top);
    }
    return total;
}

int64_t plan_optimistically(const planning_task *task, const double *probability, const double *radius,
                            const double *bonus, double tolerance, int64_t max_sweeps, double *work, double *values,
                            int64_t *rows)
{
    for (int64_t sweep = 0; sweep < max_sweeps; sweep++) {
        double change = 0.0, scale = 1.0;
        for (int64_t i = 0; i < task->states; i++) {
            int64_t s = task->order[i], first = task->state_ptr[s];
            rows[s] = first;
            if (task->decided[s])
                continue;
            double best = 0.0;
            for (int64_t r = first; r < task->state_ptr[s + 1]; r++) {
                int64_t low = task->row_ptr[r];
                double expected = optimistic_expectation(task->row_ptr[r + 1] - low, task->successor + low,
                                                         probability + low, values, radius[r], bonus[r],
                                                         task->maximise, work);
                double value = task->reward[r] + task->discount * expected;
                if (r == first || better(value, task->maximise ? best + 1e-12 : best - 1e-12, task->maximise)) {
                    best = value;
                    rows[s] = r;
                }
            }
            change = fmax(change, fabs(best - values[s]));
            scale = fmax(scale, fabs(best));
            values[s] = best;
        }
        if (change <= tolerance * scale)
            return sweep + 1;
    }
    return max_sweeps;
}
