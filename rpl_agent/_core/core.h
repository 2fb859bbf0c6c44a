/* The compiled core of rpl_agent: every function and struct that Python sees, declared once.
 *
 * Python decides, C computes: plain loops over arrays that the caller owns, no globals, no allocation inside a loop.
 * A `const` array is read only; OPTIONAL pointers may be NULL; matrices are row-major. Bounds are rounded outward by explicit
 * error terms in units of UNIT_ROUNDOFF, which holds because the compiler neither fuses nor reorders operations.
 * The loader (__init__.py) reads this file: one declaration a statement, `type name` or `type *name` a parameter. */
#ifndef RPL_CORE_H
#define RPL_CORE_H

#include <stdbool.h>
#include <stdint.h>

#define OPTIONAL
/* Of float64: the relative error bound of one operation. */
#define UNIT_ROUNDOFF 0x1p-53
/* Added to rounding terms so that an underflowed product never yields an upper bound of 0. */
#define FAINT 1e-291
/* Sums of squares above this have lost nothing that counts to underflow; below it, scale the numbers first. */
#define SAFE_SQUARES 1e-280

/* ---------------------------------------------------------------------- support.c: min c.x over a region */

/* out[i] = a certified lower bound of min c.x over {center + radius * factor z : |z| <= 1}, c = directions[i] (count, n);
 * factor (n, n) is L with H^-1 <= L L' in the order of symmetric matrices. */
void support_ellipsoid_many(int64_t count, int64_t n, const double *center, const double *factor, double radius,
                            const double *directions, double *out);

/* ---------------------------------------------------------------------- counting.c: the evidence */
#define NO_ROW -1
#define NO_SUCCESSOR -2

/* out[k] = the transition of record (states[k], actions[k], successors[k]), NO_ROW or NO_SUCCESSOR where there is none. */
void locate(int64_t count, const int64_t *states, const int64_t *actions, const int64_t *successors, int64_t num_states,
            const int64_t *state_ptr, const int32_t *action, const int64_t *row_ptr, const int32_t *successor,
            int64_t *out);

/* out[t] = how many successors of t's row carry t's expression, at its first place; 0 at the others.
 * Scratch: last, first (F), last filled with -1. */
void multiplicities(int64_t num_rows, const int64_t *row_ptr, const int32_t *expression, int64_t *last, int64_t *first,
                    int32_t *out);

/* Adds pooled successes and trials (E). group_of (T) is the group of a transition; event_of (G) the event of a group or -1
 * (constant); positive (G) whether the group is the event or its complement. A row that carries both is one trial.
 * Scratch: hits (G) zeros, seen (E) filled with -1. */
void pool_events(int64_t num_rows, const int64_t *row_ptr, const int32_t *group_of, const int64_t *transitions,
                 const int64_t *event_of, const bool *positive, int64_t *hits, int64_t *seen, int64_t *successes,
                 int64_t *trials);

/* Ends of {p : ln M(p) < log_threshold}, on the outside; M(p) is the Beta(1/2, 1/2) mixture martingale
 * B(K+1/2, N-K+1/2) / (B(1/2, 1/2) p^K (1-p)^(N-K)) of K successes in N trials. */
void anytime_bounds(int64_t count, const double *successes, const double *trials, double log_threshold, double *lower,
                    double *upper);

#endif
