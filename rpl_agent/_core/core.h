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

/* Of the coordinates of a polytope with a vertex graph: what a query needs fits on the stack. */
#define MAX_DIMENSION 16

/* The vertex graph of {x : rows x <= rhs, lower <= x <= upper}, dimension n, m rows, see PolytopeData. Queries only read
 * it, so threads may share it. */
typedef struct polytope {
    int64_t n;
    int64_t m;
    int64_t capacity;   /* vertices that the table has room for */
    int64_t slot_count; /* a power of two */
    int32_t *basis;
    double *table;
    double *point;
    const double *rows;
    const double *rhs;
    const double *loose;
    const double *lower;
    const double *upper;
    int64_t *counts;
    int32_t *slots;
    const double *reach;
    const double *mass;
} polytope;

/* out[i] = a lower bound of min c.x over [lower, upper] (n), c = directions[i] (count, n). */
void support_box_many(int64_t count, int64_t n, const double *lower, const double *upper, const double *directions,
                      double *out);

/* out[i] = a certified lower bound of min c.x over {center + radius * factor z : |z| <= 1}, c = directions[i] (count, n);
 * factor (n, n) is L with H^-1 <= L L' in the order of symmetric matrices. */
void support_ellipsoid_many(int64_t count, int64_t n, const double *center, const double *factor, double radius,
                            const double *directions, double *out);

/* out[i] = a certified lower bound of min c.x over the polytope, c = directions[i] (count, n). The walk starts at vertex
 * memory[i % length] of the table and leaves there where it ended. */
void support_polytope_many(const polytope *data, int64_t count, const double *directions, int64_t length,
                           int32_t *memory, double *out);

/* Puts the vertex with this basis (n) into an empty table; false if the basis is singular. */
bool first_vertex(const polytope *data, const int32_t *basis);

/* Walks to the optimum of every direction (count, n) and remembers the vertices and edges met on the way, until the table
 * is full. One thread only. */
void grow_table(const polytope *data, int64_t count, const double *directions);

/* Rows and right sides of McCormick's inequalities of z_k = z_i z_j over bounds of z (n), and a middle tangent for squares:
 * products (count, 3) holds (k, i, j); rows, zero on entry, and rhs have 4 places for each product, 5 for each square. */
void mccormick(int64_t count, int64_t n, const int64_t *products, const double *lower, const double *upper,
               double *rows, double *rhs);

/* Tightens bounds of z in place by z_k = z_i z_j in interval arithmetic, products (count, 3) in `order` (count). */
void propagate_products(int64_t count, const int64_t *products, const int64_t *order, double *lower, double *upper);

/* ---------------------------------------------------------------------- rows.c: what nature may do in a row */

/* ---------------------------------------------------------------------- sweeps.c: Bellman sweeps */

/* ---------------------------------------------------------------------- chain.c: both players fixed */

/* ---------------------------------------------------------------------- graph.c: where a play can be held, components */

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
