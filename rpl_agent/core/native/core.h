/* The compiled core of rpl_agent: every function and struct that Python sees, declared once.
 *
 * Python decides, C computes: plain loops over arrays that the caller owns, no globals, no allocation inside a loop.
 * A `const` array is read only; OPTIONAL pointers may be NULL; matrices are row-major. Bounds are rounded outward by
 * explicit error terms in units of UNIT_ROUNDOFF, which holds because the compiler neither fuses nor reorders
 * operations.
 *
 * The loader (__init__.py) reads this file: one declaration a statement, `type name` or `type *name` a parameter.
 * A comment [length] right behind a pointer says how many numbers its array has at least, in terms of the other
 * parameters or fields: `x.y` is a field of a struct, `#x` the length of an array, `*` means that only contents tell.
 * The loader checks these lengths in every call. It makes the memory of a SCRATCH pointer that is given None. */
#ifndef RPL_CORE_H
#define RPL_CORE_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(default) /* what other headers declare is for the core alone */

#define OPTIONAL
#define SCRATCH
/* Unit roundoff of float64. */
#define UNIT_ROUNDOFF 0x1p-53
/* Added to rounding terms so that an underflowed product never yields an upper bound of 0. */
#define FAINT 1e-291
/* Sums of squares above this lose nothing significant to underflow; below it, scale the numbers first. */
#define SAFE_SQUARES 1e-280

/* ---------------------------------------------------------------------- rounding.c: checks of the compiler */

/* fused[i] = a[i] b[i] - c[i], quotient[i] = a[i] / c[0], reordered = (b[0] + b[1] + ..., (a[0] + b[0]) - a[0]), each
 * operation rounded by itself and in this order: bounds rely on it, and tests/core/test_core_rounding.py checks it. */
void rounded_once(int64_t count, const double *a /*[count]*/, const double *b /*[count]*/, const double *c /*[count]*/,
                  double *fused /*[count]*/, double *quotient /*[count]*/, double *reordered /*[2]*/);

/* ---------------------------------------------------------------------- memory.c */

/* Hands memory that was freed back to the system, where the C library keeps it; whether there was any. */
bool give_back(void);

/* ---------------------------------------------------------------------- support.c: min c.x over a region */

/* Most coordinates of a polytope with a vertex graph, so that a query's scratch fits on the stack. */
#define MAX_DIMENSION 16

/* The vertex graph of {x : rows x <= rhs, lower <= x <= upper}, dimension n, m rows, see PolytopeData. Queries only
 * read it, so threads may share it. */
typedef struct polytope {
    int64_t n;
    int64_t m;
    int64_t capacity;   /* vertices that the table has room for */
    int64_t slot_count; /* a power of two */
    int32_t *basis /*[capacity * n]*/;
    double *table /*[*]*/;
    double *point /*[capacity * n]*/;
    const double *rows /*[m * n]*/;
    const double *rhs /*[m]*/;
    const double *loose /*[m]*/;
    const double *lower /*[n]*/;
    const double *upper /*[n]*/;
    int64_t *counts /*[*]*/;
    int32_t *slots /*[slot_count]*/;
    const double *reach /*[n]*/;
    const double *mass /*[*]*/;
} polytope;

/* out[i] = a lower bound of min c.x over [lower, upper] (n), c = directions[i] (count, n). */
void support_box_many(int64_t count, int64_t n, const double *lower /*[n]*/, const double *upper /*[n]*/,
                      const double *directions /*[count * n]*/, double *out /*[count]*/);

/* out[i] = a certified lower bound of min c.x over {center + radius * factor z : |z| <= 1}, c = directions[i]
 * (count, n); factor (n, n) is L with H^-1 <= L L' in the order of symmetric matrices. */
void support_ellipsoid_many(int64_t count, int64_t n, const double *center /*[n]*/, const double *factor /*[n * n]*/,
                            double radius, const double *directions /*[count * n]*/, double *out /*[count]*/);

/* out[i] = a certified lower bound of min c.x over the polytope in its box, c = directions[i] (count, n). The walk
 * starts at vertex memory[i % length] of the table and leaves there where it ended. */
void support_polytope_many(const polytope *data, int64_t count, const double *directions /*[count * data.n]*/,
                           int64_t length, int32_t *memory /*[length]*/, double *out /*[count]*/);

/* Puts the vertex with this basis (n) into an empty table; false if the basis is singular. */
bool first_vertex(const polytope *data, const int32_t *basis /*[data.n]*/);

/* Walks to the optimum of every direction (count, n) and stores the vertices and edges on the way, until the
 * table is full. One thread only. */
void grow_table(const polytope *data, int64_t count, const double *directions /*[count * data.n]*/);

/* Rows and right sides of McCormick's inequalities of z_k = z_i z_j over bounds of z (n), and a middle tangent for
 * squares: products (count, 3) holds (k, i, j); rows, zero on entry, and rhs have 4 places for each product, 5 for
 * each square. */
void mccormick(int64_t count, int64_t n, const int64_t *products /*[3 * count]*/, const double *lower /*[n]*/,
               const double *upper /*[n]*/, double *rows /*[4 * count * n]*/, double *rhs /*[4 * count]*/);

/* Tightens bounds of z in place by z_k = z_i z_j in interval arithmetic, products (count, 3) in `order` (count). */
void propagate_products(int64_t count, const int64_t *products /*[3 * count]*/, const int64_t *order /*[count]*/,
                        double *lower /*[*]*/, double *upper /*[#lower]*/);

/* ---------------------------------------------------------------------- rows.c: nature's choices in a row */

/* Kinds of sets: a known MDP, bounds per expression, or a region: a polytope alone, an ellipsoid, the best per row of a
 * polytope, an ellipsoid (if there is one) and the interval hull, or a region of parameters, in which expressions are
 * not linear. */
#define POINT 0
#define INTERVAL 1
#define POLYTOPE 2
#define ELLIPSOID 3
#define BEST 4
#define CURVED 5
/* Most coordinates of a CURVED set. */
#define MAX_BENT 24
/* Bounds of a whole row may miss a distribution by this much: rounding of data, never used to decide between sets. */
#define FEASIBILITY_TOLERANCE 1e-9
/* Masses up to this in a computed distribution count as rounding errors. */
#define TRACE 1e-12

/* Rows and their transitions, of a model or a part of one: row_ptr (count + 1), successor and expression (T). */
typedef struct row_arrays {
    int64_t count;
    const int64_t *row_ptr /*[count + 1]*/;
    const int32_t *successor /*[row_ptr[count]]*/;
    const int32_t *expression /*[row_ptr[count]]*/;
} row_arrays;

/* The coordinates of a CURVED set: its expressions are f = constant + weights.y + y'M_f y up to error_f for every
 * theta = center + factor y of the region, |y| <= 1; polytope and ellipsoid are sets of theta. */
typedef struct bend {
    const double *M /*[#error * #center * (#center + 1) / 2]*/; /* (F) lower triangles, row by row */
    const double *error /*[*]*/;   /* (F) */
    const double *center /*[*]*/;  /* (n) */
    const double *factor /*[#center * #center]*/;  /* (n, n) */
    const double *inverse /*[#center * #center]*/; /* (n, n) of the factor, about */
    int64_t corners;       /* 0: none */
    /* (F, corners) a sum of expressions is at least the least sum of a column, up to rest_f */
    const double *B /*[corners * #error]*/;
    const double *rest /*[(corners > 0) * #error]*/;    /* (F) */
} bend;

/* Nature's choices in every row; for a region (kinds above INTERVAL): expressions f = constant + weights x (F, n)
 * of reduced coordinates x. */
typedef struct row_set {
    int64_t kind;
    const double *lower /*[*]*/; /* (F) the interval hull; of a known MDP both are the probability */
    const double *upper /*[#lower]*/;
    int64_t n;
    const double *constant OPTIONAL /*[*]*/;
    const double *weights OPTIONAL /*[n * #constant]*/;
    /* |constant| + |weights| max |x| over the region: the size of rounding terms */
    const double *mass OPTIONAL /*[#constant]*/;
    double tightness;            /* a bound from the far side adds tightness * span of the row's values */
    const polytope *polytope OPTIONAL;
    const double *center OPTIONAL /*[n]*/; /* the ellipsoid {center + radius * factor z : |z| <= 1} */
    const double *factor OPTIONAL /*[n * n]*/;
    double radius;
    int64_t length;
    /* (length) where the last walk of row i ended, at i % length; -1: it starts where that of the row before it
     * ended. Any vertex is valid: this affects only speed and last digits. */
    int32_t *memory OPTIONAL /*[length]*/;
    const bend *bend OPTIONAL; /* of CURVED sets, which have a polytope, an ellipsoid or both */
} row_set;

/* Memory of `threads` threads for rows of up to `longest` successors: memory (threads, 4 longest + 3 n), n the
 * coordinates of a region, and n (n + 1) / 2 + corners more for a CURVED set. */
typedef struct scratch {
    int64_t threads;
    int64_t longest;
    int64_t n;
    double *memory /*[threads * (4 * longest + 3 * n)]*/;
} scratch;

/* Whether n non-negative numbers sum to at least 1, without rounding. */
bool at_least_one(int64_t n, const double *terms /*[n]*/);

/* out[i] = bound of the extremum of sum_j p_j values[successor_j] in row chosen[i] (row i where it is NULL), i <
 * count. `maximise`: the direction of nature; `upward`: the side of the bound, false <= the extremum, true >= it. */
void row_bounds(int64_t count, const double *values /*[*]*/, bool maximise, bool upward, const row_arrays *model,
                const row_set *set, const scratch *space, const int64_t *chosen OPTIONAL /*[count]*/,
                double *out /*[count]*/);

/* p (T) = nature's best distribution of every row within the interval hull, without rounding margins (to find
 * strategies); successors of value +inf get no mass when nature minimises. Rows with played 0 get some distribution.
 * totals (R): the mean above the smallest value; inf where no set of distributions can do better. */
void hull_strategies(const double *values /*[*]*/, bool maximise, const row_arrays *model,
                     const double *played /*[model.count]*/, const row_set *set, const scratch *space,
                     double *totals /*[model.count]*/, double *p /*[model.row_ptr[model.count]]*/);

/* The same over a region: p has the hull's distributions on entry; rows where the region is tighter are
 * overwritten. */
void region_strategies(const double *values /*[*]*/, bool maximise, const row_arrays *model,
                       const double *played /*[model.count]*/, const row_set *set, const scratch *space,
                       const double *totals /*[model.count]*/, double *p /*[model.row_ptr[model.count]]*/);

/* ---------------------------------------------------------------------- sweeps.c: Bellman sweeps */

#define MAX_AGENT 1
#define MIN_AGENT -1
#define FIXED_AGENT 0

/* The players and their rewards: states with rows state_ptr[s] to state_ptr[s + 1] - 1. */
typedef struct game {
    int64_t agent;        /* MAX_AGENT, MIN_AGENT, or FIXED_AGENT to play `weights` */
    bool maximise;        /* the direction of nature */
    double gamma;
    const int64_t *state_ptr /*[*]*/;
    const row_arrays *rows;
    const double *reward /*[rows.count]*/; /* (R) */
    const double *weights OPTIONAL /*[*]*/;
    const row_set *set;
} game;

/* out[s] = bound of (T values)(s) + offset for s in order (count); out == values makes it a Gauss-Seidel sweep.
 * chosen[s]: the agent's best row, written unless its policy is fixed. `upward` false gives out <= T values +
 * offset, true >=. Returns the largest change. */
double bellman(const game *play, int64_t count, const int64_t *order /*[count]*/,
               const double *values /*[#play.state_ptr - 1]*/, double *out /*[#play.state_ptr - 1]*/,
               int64_t *chosen OPTIONAL /*[#play.state_ptr - 1]*/, bool upward, double offset, const scratch *space);

/* low[s] <= (T low)(s) and high[s] >= (T high)(s) for s in order (count), successors first; rows[s]: the agent's best row
 * by the bound on its own side, low if it maximises, written unless its policy is fixed. */
void backward(const game *play, int64_t count, const int64_t *order /*[count]*/, double *low /*[#play.state_ptr - 1]*/,
              double *high /*[#play.state_ptr - 1]*/, int64_t *rows /*[#play.state_ptr - 1]*/, const scratch *space);

/* out (count) = bounds of reward + gamma * q, for row expectations q that may be infinite. */
void row_totals(int64_t count, const double *q /*[count]*/, const double *reward /*[count]*/, double gamma, bool upward,
                double *out /*[count]*/);

/* out (count) = the agent's value from the totals of its rows: rows state_ptr[i] to state_ptr[i + 1] - 1 belong to
 * state i. FIXED_AGENT draws them by weights, which sum to 1 in every state up to a relative error of (rows + 2) u
 * each. */
void state_images(int64_t count, const double *totals /*[state_ptr[count]]*/, const int64_t *state_ptr /*[count + 1]*/,
                  int64_t agent, const double *weights OPTIONAL /*[*]*/, bool upward, double *out /*[count]*/);

/* Numbers closer to 0 than this are not bounds: products of them are rounded by more than their size. */
#define SMALLEST 1e-290

/* Whether one of these values (count) is such a number. */
bool any_faint(int64_t count, const double *values /*[count]*/);

/* ---------------------------------------------------------------------- rewards.c */

/* reward (R): of the state and of the row, 0 in states (states) that are `over`. error (R): how far they may be from what was
 * meant, by the errors of both and, if it `adds` numbers, by the rounding of their sum. Returns the least reward, NaN if one
 * is not finite. */
double row_payments(int64_t states, const int64_t *state_ptr /*[states + 1]*/, const double *of_state /*[states]*/,
                    const double *of_row /*[state_ptr[states]]*/, const double *state_error OPTIONAL /*[states]*/,
                    const double *row_error OPTIONAL /*[state_ptr[states]]*/, bool adds,
                    const bool *over OPTIONAL /*[states]*/, double *reward /*[state_ptr[states]]*/,
                    double *error OPTIONAL /*[state_ptr[states]]*/);

/* sizes: the largest error as a share of its reward, infinite where that is 0; the largest error; the least reward. */
void error_sizes(int64_t count, const double *reward /*[count]*/, const double *error /*[count]*/, double *sizes /*[3]*/);

/* ---------------------------------------------------------------------- horizon.c: finite horizons */

/* out[k] (S) = bounds of T values[k] from one side for k < steps, of states that are not decided. The agent is free, draws
 * by the game's weights, or plays the rows given[k * stride] (S). Scratch: numbers (R + S). */
void horizon_images(const game *play, int64_t states, int64_t steps, bool upward, const bool *decided /*[states]*/,
                    const int64_t *given OPTIONAL /*[(steps - 1) * stride + states]*/, int64_t stride,
                    const double *values /*[steps * states]*/, double *out /*[steps * states]*/,
                    double *numbers SCRATCH /*[play.rows.count + states]*/, const scratch *space);

/* values[k] (S) = bounds from one side with k <= steps steps to go, from values[0], which decided states keep. rules[k]
 * (S), if requested: the best rows of a free agent with k + 1 steps to go. Otherwise as `horizon_images`. */
void horizon_backward(const game *play, int64_t states, int64_t steps, bool upward, const bool *decided /*[states]*/,
                      const int64_t *given OPTIONAL /*[(steps - 1) * stride + states]*/, int64_t stride,
                      double *values /*[(steps + 1) * states]*/,
                      const double *other OPTIONAL /*[(steps + 1) * states]*/,
                      int64_t *rules OPTIONAL /*[steps * states]*/,
                      double *numbers SCRATCH /*[play.rows.count + states]*/, const scratch *space);

/* ---------------------------------------------------------------------- chain.c: both players fixed */

/* Mass for a successor that must get some, but less than an ulp of the others'. */
#define SPECK 0x1p-60

/* out (R) = the sums of values (F) over the transitions of each row. */
void sum_rows(const row_arrays *model, const double *values /*[*]*/, double *out /*[model.count]*/);

/* q[row] = reward + gamma * sum p v under nature's distributions p (T), as min v + sum p (v - min v); successors
 * without mass do not count. */
void row_means(const row_arrays *model, const double *values /*[*]*/, double gamma,
               const double *reward /*[model.count]*/, const double *p /*[model.row_ptr[model.count]]*/,
               double *q /*[model.count]*/);

/* The chain (I - gamma P) x = rhs of states 0..n-1 as CSR arrays with room for `capacity` entries, those of the rows
 * that are played and n; how many there are.
 * `rows` (n): the agent's, NULL: play the game's weights. p (T): nature's distributions. Exits add their values to
 * rhs, `offset` is paid per step. The diagonal is written as the mass that leaves the state, which stays accurate
 * for states that almost always loop. */
int64_t assemble(const game *play, int64_t n, const int64_t *rows OPTIONAL /*[n]*/, const double *values /*[*]*/,
                 double offset, const double *p /*[play.rows.row_ptr[play.rows.count]]*/, int32_t *indptr /*[n + 1]*/,
                 int64_t capacity, int32_t *indices /*[capacity]*/, double *data /*[capacity]*/, double *rhs /*[n]*/);

/* out = rhs - A x of an assembled chain. */
void chain_residual(int64_t n, const int32_t *indptr /*[n + 1]*/, const int32_t *indices /*[indptr[n]]*/,
                    const double *data /*[indptr[n]]*/, const double *rhs /*[n]*/, const double *x /*[n]*/,
                    double *out /*[n]*/);

/* Gauss-Seidel on an assembled chain, states that plays end at first, until x changes by at most `tolerance`; sweeps used.
 * States that the chain never leaves keep their values. */
int64_t relax_chain(int64_t n, const int32_t *indptr /*[n + 1]*/, const int32_t *indices /*[indptr[n]]*/,
                    const double *data /*[indptr[n]]*/, const double *rhs /*[n]*/, double *x /*[n]*/, int64_t sweeps,
                    double tolerance);

/* Makes p (T), nature's greedy response to values, represent an exact one. Rounding leaves traces on successors that
 * the row does not need: they are dropped. It also hides the tiny mass that must leave a support whose upper bounds
 * miss 1 by less than an ulp: it is given to the next best successor. */
void tidy(const row_arrays *model, const row_set *set, const double *values /*[*]*/, bool maximise,
          double *p /*[model.row_ptr[model.count]]*/);

/* mass (R) = a bound on the mass between each row of p and an exact distribution on its support within bounds (F);
 * inf if there is none. A row with one successor has one distribution, whatever p says. */
void mass_to_move(const row_arrays *model, const double *lower /*[*]*/, const double *upper /*[#lower]*/,
                  const double *p /*[model.row_ptr[model.count]]*/, double *mass /*[model.count]*/);

/* costs (R) = how much moving `mass` (R) within the support of p (T) can change the mean of finite values. */
void moving_costs(const row_arrays *model, const double *values /*[*]*/,
                  const double *p /*[model.row_ptr[model.count]]*/, const double *mass /*[model.count]*/,
                  double *costs /*[model.count]*/);

/* ---------------------------------------------------------------------- graph.c, order.c: holding plays, components */

/* Who chooses the row of a state: the other side, oneself, or a fixed policy that draws it. */
#define ALL_ROWS 0
#define ANY_ROW 1
#define DRAWN_ROW 2
/* Kinds of states in the order of solution: one backward step, only loops, or a fixpoint. */
#define TRIVIAL 0
#define SINK 1
#define CYCLIC 2

/* States 0..count-1 with rows, exits count..size-1 without; sources[first[j]:first[j + 1]] lead to j. */
typedef struct graph {
    int64_t count;
    int64_t size;
    const int64_t *state_ptr /*[count + 1]*/;
    const int64_t *row_ptr /*[state_ptr[count] + 1]*/;
    const int32_t *successor /*[row_ptr[state_ptr[count]]]*/;
    const int64_t *first OPTIONAL /*[size + 1]*/;   /* (size + 1) */
    const int32_t *sources OPTIONAL /*[row_ptr[state_ptr[count]]]*/; /* (T) */
} graph;

/* A queue of states: a ring buffer of `count` places, and marks of its members. */
typedef struct queue {
    int64_t head;
    int64_t length;
    int64_t *states /*[*]*/;
    bool *waiting /*[#states]*/;
} queue;

/* Nature's choices, as used by the graph. lo, hi (T): bounds of a nature that wants to hold the play; lo NULL: of
 * one that does not, and stays only if hi leaves it no way out. For a region also the set, tighter than its hull,
 * with the expressions (T) of the graph's transitions. Scratch: outside (size), space. */
typedef struct moves {
    const double *lo OPTIONAL /*[#hi]*/;
    const double *hi /*[*]*/;
    const row_set *set OPTIONAL;
    const int32_t *expression OPTIONAL /*[#hi]*/;
    double *outside OPTIONAL /*[*]*/;
    const scratch *space OPTIONAL;
} moves;

/* Writes first (size + 1) and sources (T) of a graph. */
void predecessors(const graph *g, int64_t *first /*[g.size + 1]*/,
                  int32_t *sources /*[g.row_ptr[g.state_ptr[g.count]]]*/);

/* lo, hi (T) = bounds (F) per transition, hi = 0 and lo > 0 exactly where no and every distribution of its row says
 * so: a transition gets no mass where the others' lower bounds sum to 1, and some where their upper bounds do not. */
void attainable(const row_arrays *model, const double *lower /*[*]*/, const double *upper /*[#lower]*/,
                double *lo /*[model.row_ptr[model.count]]*/, double *hi /*[model.row_ptr[model.count]]*/);

/* out (count) = whether nature can keep all mass of each row on the transitions marked in `inside` (T). */
void staying_rows(int64_t count, const int64_t *row_ptr /*[count + 1]*/, const bool *inside /*[row_ptr[count]]*/,
                  const double *lo /*[row_ptr[count]]*/, const double *hi /*[row_ptr[count]]*/, bool *out /*[count]*/);

/* Shrinks `inside` (size) to its largest subset in which the play can be held forever. usable (R): 2, the row may be
 * used for holding; 1, it is played but cannot hold (it pays); 0, it is not played. ANY_ROW: one usable row per state
 * suffices; ALL_ROWS: every played row must stay. */
void hold_set(const graph *g, const moves *of, const int8_t *usable /*[g.state_ptr[g.count]]*/, int64_t quantifier,
              bool *inside /*[g.size]*/, queue *q);

/* Shrinks X (size), the states that may be finite, goal included, to those from which the minimiser keeps the total
 * finite. must_reach: it can reach the goal almost surely (nu X. mu Y). Otherwise: it can almost surely reach the
 * goal or, from some point on, loop without paying (nu X. mu Y. nu Z). played, pays (R): rows in play, rows with a
 * positive reward. ANY_ROW: the minimiser chooses the row; ALL_ROWS: the other side does; DRAWN_ROW: a fixed policy
 * draws it. nature_helps: whether nature is the minimiser. Scratch: usable (R), sets (4 size). */
void finite_set(const graph *g, const moves *nature, const bool *played /*[g.state_ptr[g.count]]*/,
                const bool *pays /*[g.state_ptr[g.count]]*/, int64_t quantifier, bool nature_helps, bool must_reach,
                const bool *goal /*[g.size]*/, bool *X /*[g.size]*/, int8_t *usable /*[g.state_ptr[g.count]]*/,
                bool *sets SCRATCH /*[4 * g.size]*/, queue *q);

/* Chooses rows that leave: extends an attractor of the exits, preferred rows first; the number of states not
 * attracted. nature: where it is on the chooser's side, its distribution as lo and hi. preferred, allowed,
 * pays (R): rows that pay count as progress whatever follows. adversary: whether nature may avoid the attractor.
 * rows (count): written where a state was attracted. Scratch: sets (2 size). */
int64_t progress_rows(const graph *g, const moves *nature, const bool *preferred /*[g.state_ptr[g.count]]*/,
                      const bool *allowed /*[g.state_ptr[g.count]]*/, const bool *pays /*[g.state_ptr[g.count]]*/,
                      bool adversary, int64_t *rows /*[g.count]*/, bool *sets SCRATCH /*[2 * g.size]*/, queue *q);

/* Whether every state of `members` (count) has a row with usable (R; NULL: 2 everywhere) > 0, and plays within them by rows
 * where it is 2 only move to larger ranks (count; NULL: to larger numbers): none stays. */
bool runs_forward(const graph *g, const bool *members /*[g.count]*/,
                  const int8_t *usable OPTIONAL /*[g.state_ptr[g.count]]*/, const int32_t *rank OPTIONAL /*[g.count]*/);

/* order (count): the undecided states without those that only loop, successors first; how many, or -1 if a play can come
 * back, which is looked for first. Kahn's algorithm, by numbers where it has a choice: the sweeps then go through the
 * arrays almost in their order, where that of a depth-first search jumps. Scratch: next, waits (count). */
int64_t forward_order(const graph *g, const bool *decided /*[g.count]*/, int64_t *order /*[g.count]*/,
                      int64_t *next SCRATCH /*[g.count]*/, int32_t *waits SCRATCH /*[g.count]*/);

/* order (count): states by the number of steps to the exits marked in `ends` (size - count), the nearest first; how many
 * can reach them, the others follow. Scratch: seen (count). */
int64_t backward_order(const graph *g, const bool *ends /*[g.size - g.count]*/, int64_t *order /*[g.count]*/,
                       bool *seen SCRATCH /*[g.count]*/);

/* The mean distance in `order` (count) between a state and the farthest of its successors that are states. Scratch:
 * place (count). */
double front_of(const graph *g, const int64_t *order /*[g.count]*/, int64_t *place SCRATCH /*[g.count]*/);

/* Strongly connected components (Tarjan, iterative); decided states have no edges. order (count): states, components
 * consecutive, successors first. component (count): their numbers, successors have smaller or equal ones. Returns
 * how many. Scratch: space (5 count). */
int64_t components(const graph *g, const bool *decided /*[g.count]*/, int64_t *order /*[g.count]*/,
                   int64_t *component /*[g.count]*/, int64_t *space SCRATCH /*[5 * g.count]*/);

/* kind (count): TRIVIAL, SINK (every row only loops; if `sinks`) or CYCLIC. depth (count): length of
 * the longest path of components below the state's own; counts cyclic components only, unless `every`. */
void layers(const graph *g, const bool *decided /*[g.count]*/, const int64_t *order /*[g.count]*/,
            const int64_t *component /*[g.count]*/, bool sinks, bool every, int8_t *kind /*[g.count]*/,
            int64_t *depth /*[g.count]*/);

/* A guess of costs: the cheapest path to an exit, a transition of probability p (T; any distributions of nature) costing
 * reward / p, the price of trying a row until it happens if every failure stayed where it is. order (count): states by
 * their cost, the cheapest first, which carries values furthest. cost (size): 0 where no exit of finite value can be
 * reached. Scratch: weight (T), space (2 size). */
void retry_costs(const graph *g, const double *p /*[g.row_ptr[g.state_ptr[g.count]]]*/,
                 const double *reward /*[g.state_ptr[g.count]]*/, const double *exit_values /*[*]*/,
                 int64_t *order /*[g.count]*/, double *cost /*[g.size]*/,
                 double *weight SCRATCH /*[g.row_ptr[g.state_ptr[g.count]]]*/, int64_t *space SCRATCH /*[2 * g.size]*/);

/* The local model on `states` (count) of g: its arrays, the rows that they come from, the labels of its transitions (of
 * those of g), and its exits, of which there are as many as it returns. position (all states of g): -1 on entry and on
 * return. */
int64_t extract(const graph *g, int64_t count, const int64_t *states /*[count]*/, int64_t *position /*[g.size]*/,
                int64_t *state_ptr /*[count + 1]*/, int64_t *row_ptr /*[*]*/, int32_t *successor /*[*]*/,
                int64_t *row_of /*[*]*/, const int32_t *labels /*[g.row_ptr[g.state_ptr[g.count]]]*/,
                int32_t *label /*[#successor]*/, int64_t *exits /*[*]*/);

/* ---------------------------------------------------------------------- repetition.c: repeated chance */

/* The last transition, and its place in the data, in each context of one kind: a table with linear probing, -1 in the
 * `last` of empty slots, at most half full. tally: contexts stored, the rate (a power of two: only codes that are
 * multiples of it are stored), steps with the same outcome as the last time, with another one, and the places of the
 * latest pair with the same. others: the sum of ln(k - 1) over those with another outcome of k; matched (T): outcomes of
 * both. */
typedef struct contexts {
    int64_t slots; /* a power of two */
    uint64_t *code /*[slots]*/;
    int64_t *last /*[slots]*/;
    int64_t *place /*[slots]*/;
    int64_t *matched /*[*]*/;
    int64_t *tally /*[6]*/;
    double *others /*[1]*/;
} contexts;

/* out (n) = the hashes of words (n). */
void mix_words(int64_t n, const uint64_t *words /*[n]*/, uint64_t *out /*[n]*/);

/* Codes (n) of the number of each step in its episode, and of the episode so far; an episode begins where `starts` (n).
 * state: (step, sum, power) after the last piece, (0, 0, 1) before the first. */
void episode_codes(int64_t n, const int64_t *transitions /*[n]*/, const bool *starts /*[n]*/, uint64_t *state /*[3]*/,
                   uint64_t *steps /*[n]*/, uint64_t *episodes /*[n]*/);

/* codes (n) of the `width` transitions before each of the last n; the first of the data have codes of their own. */
void window_codes(int64_t n, int64_t before, int64_t width, const int64_t *transitions /*[before + n]*/,
                  uint64_t *codes /*[n]*/);

/* Compares steps (n) with the last ones in their contexts, whose codes are without the row; the first of them has a
 * place in the data. How many were compared: fewer than n if the table needs room. */
int64_t compare_contexts(const contexts *table, int64_t n, const uint64_t *codes /*[n]*/,
                         const int64_t *transitions /*[n]*/, int64_t place, const int32_t *row_of /*[#table.matched]*/,
                         const int64_t *row_ptr /*[*]*/);

/* Moves what the rate selects into the new table, which is empty; tables may share their tally. */
void move_contexts(const contexts *old, const contexts *new);

/* ---------------------------------------------------------------------- counting.c: the evidence */
#define NO_ROW -1
#define NO_SUCCESSOR -2

/* out[k] = the transition of record (states[k], actions[k], successors[k]), else NO_ROW or NO_SUCCESSOR. */
void locate(int64_t count, const int64_t *states /*[count]*/, const int64_t *actions /*[count]*/,
            const int64_t *successors /*[count]*/, int64_t num_states, const int64_t *state_ptr /*[num_states + 1]*/,
            const int32_t *action /*[state_ptr[num_states]]*/, const int64_t *row_ptr /*[state_ptr[num_states] + 1]*/,
            const int32_t *successor /*[row_ptr[state_ptr[num_states]]]*/, int64_t *out /*[count]*/);

/* How many transitions carry an expression that their row has had before; last[f] (F), -1 on entry, becomes the last row
 * with f. out[t], if requested: how many successors of t's row carry t's expression, at its first place; at the others the way
 * back to it, < 0. Scratch, if `out` is requested: first (F). */
int64_t multiplicities(int64_t num_rows, const int64_t *row_ptr /*[num_rows + 1]*/,
                       const int32_t *expression /*[row_ptr[num_rows]]*/, int64_t *last /*[*]*/,
                       int64_t *first OPTIONAL /*[#last]*/, int32_t *out OPTIONAL /*[row_ptr[num_rows]]*/);

/* Adds pooled successes and trials (E) of rows (count). group_of (T) is the group of a transition; event_of (G) the event of
 * a group or -1 (none); positive (G) whether the group is the event or its complement. A row that carries both is one
 * trial. Scratch: hits (G) zeros, seen (E) filled with -1. */
void pool_events(int64_t count, const int64_t *rows /*[count]*/, const int64_t *row_ptr /*[*]*/,
                 const int32_t *group_of /*[*]*/, const int64_t *transitions /*[*]*/, const int64_t *event_of /*[*]*/,
                 const bool *positive /*[#event_of]*/, int64_t *hits /*[#event_of]*/, int64_t *seen /*[*]*/,
                 int64_t *successes /*[#seen]*/, int64_t *trials /*[#seen]*/);

/* Ends of {p : ln M(p) < log_threshold}, on the outside; M(p) is the Beta(1/2, 1/2) mixture martingale
 * B(K+1/2, N-K+1/2) / (B(1/2, 1/2) p^K (1-p)^(N-K)) of K successes in N trials. */
void anytime_bounds(int64_t count, const double *successes /*[count]*/, const double *trials /*[count]*/,
                    double log_threshold, double *lower /*[count]*/, double *upper /*[count]*/);

/* ---------------------------------------------------------------------- stakes.c: bets on one number per row, no model */
#define MOST_STAKES 32

/* Stakes b in (0, 1), fixed for ever, and logarithms of their weights, rounded down; at most MOST_STAKES. */
typedef struct stake_mixture {
    int64_t size;
    const double *stake /*[size]*/;
    const double *log_weight /*[size]*/;
} stake_mixture;

/* What was seen of rows: those of state s are state_ptr[s] to state_ptr[s + 1], the outcomes of a row row_ptr[row] to
 * row_ptr[row + 1]. A row of known chances has them as its counts, and a negative level. */
typedef struct open_rows {
    int64_t states;
    int64_t rows;
    const int64_t *state_ptr /*[states + 1]*/;
    const int64_t *row_ptr /*[rows + 1]*/;
    const double *reward /*[row_ptr[rows]]*/;
    const int64_t *successor /*[row_ptr[rows]]*/; /* -1 after an end */
    const double *count /*[row_ptr[rows]]*/;
    const double *low /*[rows]*/;   /* least and largest r + discount V(s') of a step */
    const double *high /*[rows]*/;
    const double *level /*[rows]*/; /* ln 1/share, rounded up */
    double discount;
    bool certain; /* every row has one outcome, which was seen */
} open_rows;

/* An upper bound, at most `ceiling`, of the least m in (0, 1) with sum_i w_i prod_k (1 + b_i (m - x_k) / (1 - m))^c_k
 * >= exp(level), for numbers x in [0, 1] that were seen count times; `ceiling` where it proves no less. Where there are
 * parts in (0, 1], number k is bet on with this part of every stake, part_k b_i. */
double stake_upper(const stake_mixture *bets, int64_t n, const double *x /*[n]*/, const double *count /*[n]*/,
                   const double *part OPTIONAL /*[n]*/, double level, double ceiling);

/* Lowers bounds of rows and states (upper), at most `most` times round, until no state notices; returns how often. A row
 * is bounded with the values `next` of its successors, which are `upper` itself or those with one step less to go.
 * changed: the time at which a value fell; tested: the time at which a row was bounded, -1 after new data. */
int64_t open_sweeps(const open_rows *rows, const stake_mixture *bets, int64_t most,
                    const double *next /*[rows.states]*/, const int64_t *next_changed /*[rows.states]*/,
                    double *row_upper /*[rows.rows]*/, double *upper /*[rows.states]*/,
                    int64_t *changed /*[rows.states]*/, int64_t *tested /*[rows.rows]*/,
                    int64_t *clock /*[1]*/, double *x SCRATCH /*[rows.row_ptr[rows.rows]]*/);

/* ---------------------------------------------------------------------- sweeps over parts in which plays come back */

/* These hold against a known nature (known.c, approach.c) and against any other (solver/cyclic/sweeping.py). Sweeps over the
 * strategies of one full sweep, and the share of its change that they may leave: */
#define INNER 24
#define LEFT 0.1
/* How often in a row they may leave more before BiCGSTAB takes over; and the most full sweeps. */
#define PATIENCE 3
#define MOST_FULL_SWEEPS 200
/* Attempts to find bounds, each with values closer to the fixpoint. */
#define ROUNDS 12
/* Bounds that are too wide are asked again, at most so many times narrower, and those that fail narrower by this factor:
 * either may be due to a strategy that pays for wide margins only. */
#define MOST_EXCESS 8.0
#define NARROWER 0.25
/* Only bounds this narrow are mended: above it more digits take fewer sweeps than mending. */
#define FINE 1e-6
/* Steps to a target are counted when values change by less: a count takes as many sweeps as the values do, and as long as
 * these change by more, rows change and need another. */
#define COUNTED 2e-7
/* States that are verified before the first look for a failure. */
#define AT_FIRST 256
/* The mean distance between a place and the farthest that it leads to, up to which factors are worth their fill. */
#define NARROW 120.0
/* Margins below this, relative to the values, are not far enough from rounding. */
#define LEAST_MARGIN 2e-14

/* ---------------------------------------------------------------------- known.c, decided.c, loops.c, part.c, approach.c: a known nature */

/* Probabilities to `reach` a target, costs that are infinite if it is missed (`must_reach`), or sums of rewards >= 0. */
typedef struct question {
    bool reach;
    bool must_reach;
    double precision; /* the width at any state, relative to values above 1 */
    int64_t budget;   /* the most sweeps */
    int64_t capacity; /* the most transitions of a chain of the agent's rows */
    int64_t longest;  /* the most of a row */
    int64_t threads;
    int64_t start;    /* the only state whose value is asked; -1: all are */
} question;

/* Bounds low, high (S) and the agent's rows (S) of a game whose set is a POINT and whose gamma is 1, where plays end in
 * `decided` states (S), which are worth 0 unless they are targets (S); `guess` (S): a start. If the graph decides the only
 * state that is asked for, bounds of others may be trivial. Returns the number of sweeps, or -1 where sweeps are not the way
 * to solve it: then nothing that was written means anything. */
int64_t solve_known(const game *play, const graph *g, const question *asked, const bool *target /*[g.count]*/,
                    const bool *decided /*[g.count]*/, const double *guess OPTIONAL /*[g.count]*/,
                    double *low /*[g.count]*/, double *high /*[g.count]*/, int64_t *rows /*[g.count]*/,
                    double *memory SCRATCH /*[4 * asked.threads * asked.longest + 27 * g.count
                                              + 2 * g.state_ptr[g.count] + g.row_ptr[g.state_ptr[g.count]]
                                              + asked.capacity + (7 * g.count + 2 * g.state_ptr[g.count]
                                              + g.row_ptr[g.state_ptr[g.count]] + asked.capacity) / 2
                                              + 4 * g.count / 8 + 20]*/);

/* How far a search for totals goes. */
typedef struct effort {
    double tolerance; /* of totals, per step */
    int64_t budget;   /* the most sweeps */
    double most;      /* a total above it ends the search */
    int64_t capacity; /* the most transitions of a chain of the agent's rows */
} effort;

/* values (S) = the largest totals of rewards (R) of any sign that an agent collects who may stop at any state, in states
 * that are not `done` (S); not bounds. chances (F) of the expressions (T). Returns the number of sweeps, or -1 where more
 * would be needed than allowed or a total is too large. */
int64_t worst_totals(const graph *g, double gamma, const double *chances /*[*]*/,
                     const int32_t *expression /*[g.row_ptr[g.state_ptr[g.count]]]*/,
                     const double *reward /*[g.state_ptr[g.count]]*/, const effort *allowed, const bool *done /*[g.count]*/,
                     double *values /*[g.count]*/,
                     double *numbers SCRATCH /*[11 * g.count + 2 * g.state_ptr[g.count]
                                                + g.row_ptr[g.state_ptr[g.count]] + allowed.capacity]*/,
                     int32_t *indices SCRATCH /*[5 * g.count + 3 + g.state_ptr[g.count]
                                                 + g.row_ptr[g.state_ptr[g.count]] + allowed.capacity]*/,
                     int64_t *integers SCRATCH /*[10 * g.count]*/);

/* ---------------------------------------------------------------------- guess.c: a known nature, without bounds */

/* A model at one parameter: chances p (F) with derivatives slope (F, d). The agent plays weights (R), without gradients, or
 * its best rows: sign 1 for the largest value, -1 for the least; a later row has to be better by `tie` of the value. */
typedef struct point_model {
    int64_t states;       /* with rows, exits behind them without */
    int64_t count;
    const int64_t *order /*[count]*/; /* (count) of a sweep */
    const int64_t *state_ptr /*[states + 1]*/;
    const row_arrays *rows;
    const double *reward /*[rows.count]*/; /* (R) */
    const double *weights OPTIONAL /*[rows.count]*/;
    const double *p /*[*]*/;
    int64_t d;
    const double *slope /*[d * #p]*/;
    double gamma;
    double sign;
    double tie;
} point_model;

/* One sweep: v_out (S) = reward + gamma p.v of what is played and g_out (S, d) its gradient; they may be v, g. rows (S), if
 * requested: the best rows. change (2) = the largest change of v and of g. Scratch: sum (d). */
void value_sweep(const point_model *m, const double *v /*[m.states]*/, const double *g /*[m.d * m.states]*/,
                 double *v_out /*[m.states]*/, double *g_out /*[m.d * m.states]*/, double *sum SCRATCH /*[m.d]*/,
                 int64_t *rows OPTIONAL /*[m.states]*/, double *change /*[2]*/);

/* Sweeps in place until nothing changes by more than `share` of the largest number, at most `most`; how many. */
int64_t value_sweeps(const point_model *m, int64_t most, double share, double *v /*[m.states]*/,
                     double *g /*[m.d * m.states]*/, double *sum SCRATCH /*[m.d]*/, int64_t *rows OPTIONAL /*[m.states]*/);

/* ---------------------------------------------------------------------- explore.c: states of a program */

/* Distinct rows of `width` words, numbered as they come, with a hash table of `slots` (a power of two, at least
 * twice the rows that there is room for) numbers, -1 where free. */
typedef struct {
    int64_t width;
    int64_t room;
    int64_t *count /*[1]*/;
    int64_t *row /*[room * width]*/;
    int64_t slots;
    int32_t *slot /*[slots]*/;
} key_table;

/* A program as arrays: V variables, C commands, U updates; x_ptr holds ranges of what x has. A state is a key of W
 * words, in which each variable has some bits. */
typedef struct {
    int64_t variables;
    int64_t words;
    int64_t commands;
    int64_t actions;
    int64_t parts;             /* most modules that take part in one action */
    const int64_t *var_word /*[variables]*/;   /* (V) which word of the key */
    const int64_t *var_shift /*[variables]*/;  /* (V) */
    const int64_t *var_mask /*[variables]*/;   /* (V) */
    const int64_t *var_size /*[variables]*/;   /* (V) */
    const int64_t *var_low /*[variables]*/;    /* (V) */
    const int64_t *step /*[4 * code_ptr[commands + 1]]*/; /* (., 4) operation and arguments, all parts one after another */
    const int64_t *code_ptr /*[commands + 2]*/;   /* (C+2) part 0: the guards; part c+1: the updates of command c */
    const int64_t *guard /*[commands]*/;      /* (C) step of its guard */
    const int64_t *update_ptr /*[commands + 1]*/; /* (C+1) */
    const int64_t *chance_ptr /*[update_ptr[commands] + 1]*/; /* (U+1) */
    const int64_t *chance /*[chance_ptr[update_ptr[commands]]]*/; /* steps, all 0 where the update has probability 0 */
    const int64_t *assign_ptr /*[update_ptr[commands] + 1]*/; /* (U+1) */
    const int64_t *assign /*[2 * assign_ptr[update_ptr[commands]]]*/;     /* (., 2) variable, step of the new value */
    const int64_t *action_ptr /*[actions + 1]*/; /* (actions+1) modules that take part in an action */
    const int64_t *member_ptr /*[action_ptr[actions] + 1]*/; /* (.+1) commands of such a module */
    const int64_t *member /*[member_ptr[action_ptr[actions]]]*/;
    const int64_t *lookup_ptr /*[*]*/; /* variables of the lookups */
    const int64_t *lookup /*[*]*/;     /* (., 2) variable, radix of the combination's number */
} program;

/* Places in `counts` of a store. */
#define COUNT_NEXT 0
#define COUNT_CHOICES 1
#define COUNT_TRANSITIONS 2

/* The result of exploration so far. */
typedef struct {
    const key_table *states;
    const key_table *combinations; /* of commands taken together: (action, commands, padded with -1) */
    const key_table *values;       /* (lookup, key) whose `value` the plain evaluator has given */
    const int64_t *value /*[*]*/;
    int64_t *counts /*[3]*/;               /* (3) the next state to expand; choices and transitions so far */
    int32_t *level /*[states.room]*/;
    int64_t choice_room;
    int32_t *choice_state /*[choice_room]*/;
    int32_t *choice_combination /*[choice_room]*/;
    int64_t *choice_end /*[choice_room]*/;           /* one past its last transition */
    int64_t transition_room;
    int32_t *successor /*[transition_room]*/;
    int64_t *branch /*[transition_room]*/; /* which update of each command, mixed radix, last command fastest */
} store;

/* Output of threads before it is numbered: of each of `chunks` threads at most so many states, choices, transitions. */
typedef struct {
    int64_t chunks;
    int64_t states;
    int64_t choices;
    int64_t transitions;
    int64_t *scratch /*[*]*/;    /* (chunks, explore_scratch(program)) */
    int64_t *state_end /*[chunks * states]*/;  /* (chunks, states) */
    int64_t *choice /*[*]*/;     /* (chunks, choices, parts + 3) */
    int64_t *transition /*[*]*/; /* (chunks, transitions, W + 2) */
    int64_t *report /*[5 * chunks]*/;     /* (chunks, 5) status, states expanded, and what Python has to know */
} buffers;

/* Why `explore` came back. FULL: some array has no room for what report[1] buffers may hold. report of NEEDS_VALUE:
 * (., ., lookup, key); of OUTSIDE, in state COUNT_NEXT: (., ., command, assignment, value). */
#define EXPLORE_DONE 0
#define EXPLORE_PAUSED 1
#define EXPLORE_FULL 2
#define EXPLORE_SLAB_TOO_SMALL 3
#define EXPLORE_NEEDS_VALUE 4
#define EXPLORE_OUTSIDE 5
/* The combination of a state in which nothing is enabled: it stays there. */
#define DEADLOCK -1

/* Bytecode operations. An argument is the index of an earlier step unless noted otherwise. */
#define OP_CONSTANT 0 /* the argument */
#define OP_COLUMN 1   /* variable */
#define OP_LOOKUP 2   /* value of the plain evaluator: number of the lookup */
#define OP_ADD 3
#define OP_MULTIPLY 4
#define OP_MINIMUM 5
#define OP_MAXIMUM 6
#define OP_FLOOR 7    /* step, divisor */
#define OP_CEIL 8     /* step, divisor */
#define OP_MOD 9
#define OP_POWER 10
#define OP_IF 11
#define OP_AND 12
#define OP_OR 13
#define OP_NOT 14
#define OP_EQUAL 15
#define OP_NOT_EQUAL 16
#define OP_LESS 17
#define OP_LESS_EQUAL 18

/* The number of a row, which is put into the table if it is new; the caller sees to it that there is room. */
int64_t insert_row(const key_table *t, const int64_t *row /*[t.width]*/);

/* Fills an empty hash table. */
void rehash(const key_table *t);

/* out (wanted, count): the values of steps `which` of bytecode without lookups, on states whose variables are the rows of
 * columns (variables, count). Scratch: steps + variables. */
void run_code_columns(int64_t count, int64_t variables, const int64_t *columns /*[count * variables]*/, int64_t steps,
                      const int64_t *step /*[4 * steps]*/, int64_t wanted, const int64_t *which /*[wanted]*/,
                      int64_t *scratch SCRATCH /*[steps + variables]*/, int64_t *out /*[wanted * count]*/);

/* Words of scratch that one thread needs. */
int64_t explore_scratch(const program *p);

/* Expands states until none is left, more than max_states are known or `pause` were expanded: see EXPLORE_DONE. */
int64_t explore(const program *p, const store *found, const buffers *b, int64_t max_states, int64_t pause);

/* ---------------------------------------------------------------------- simulate.c: episodes, lanes, Q-learning */

/* A Markov decision process to draw from. `cumulative` (T,) holds running sums of its probabilities (`cumulate`);
 * `reward` (R,) is paid on leaving by a row, `arrival` (S,) on reaching a state. Episodes end in `stop` states; a
 * `silent` state is passed without a step. */
typedef struct {
    const int64_t *state_ptr /*[*]*/;
    const int64_t *row_ptr /*[state_ptr[#state_ptr - 1] + 1]*/;
    const int32_t *successor /*[row_ptr[state_ptr[#state_ptr - 1]]]*/;
    const double *cumulative /*[row_ptr[state_ptr[#state_ptr - 1]]]*/;
    const double *reward /*[state_ptr[#state_ptr - 1]]*/;
    const double *arrival /*[#state_ptr - 1]*/;
    const bool *stop /*[#state_ptr - 1]*/;
    const bool *silent /*[#state_ptr - 1]*/;
    int64_t initial;
} world;

/* When `run_episodes` stops: a count, which it keeps up to date, reaches its limit. NULL: no such limit. */
typedef struct {
    int64_t *row_count OPTIONAL /*[*]*/;
    const int64_t *row_limit OPTIONAL /*[*]*/;
    const int32_t *expression /*[*]*/;
    int64_t *expression_count OPTIONAL /*[*]*/;
    const int64_t *expression_limit OPTIONAL /*[*]*/;
} limits;

/* What an episode is worth: gain (T,) of each transition from a state that is not silent, or from a silent start, times
 * discount^step, in the first `horizon` steps. gain NULL: what the world pays. */
typedef struct {
    const double *gain OPTIONAL /*[*]*/;
    double discount;
    int64_t horizon;
} worth;

/* The lanes of a vector environment, each with its own random state: `rng` (count, 4). They are cut after
 * max_steps, if that is positive. */
typedef struct {
    int64_t count;
    int64_t max_steps;
    uint64_t *rng /*[4 * count]*/;
    int64_t *row /*[count]*/;
    int64_t *state /*[count]*/;
    int64_t *steps /*[count]*/;
    bool *over /*[count]*/;
} lanes;

/* Q-learning: epsilon falls from 1 to epsilon_min over `decay` episodes; the n-th visit learns at the rate n^-omega. */
typedef struct {
    double decay;
    double epsilon_min;
    double omega;
    double discount;
} learning;

/* Uniform in [0, 1) with 53 random bits: xoshiro256++ with the state (4,). */
double next_double(uint64_t *state /*[4]*/);

/* The state (4,) of a seed by splitmix64, which the authors of xoshiro recommend for this. */
void seed_state(uint64_t seed, uint64_t *state /*[4]*/);

/* Running sums of weights within each of `count` segments; the last positive one is exactly 1, so that draws land. */
void cumulate(int64_t count, const int64_t *pointer /*[count + 1]*/, const double *weights /*[pointer[count]]*/,
              double *out /*[pointer[count]]*/);

/* Simulates episodes, at most so many: the one in which a count reaches its limit is the last. Returns their number.
 * `policy` (R,) holds running sums of a policy; counts (T,) are added to. returns, values (what an episode is worth),
 * lengths and last (the state in which it ended) have one number per episode; stopped (1,) says whether a limit was
 * reached. */
int64_t run_episodes(const world *w, const double *policy /*[w.state_ptr[#w.state_ptr - 1]]*/, int64_t max_steps,
                     int64_t episodes, uint64_t *rng /*[4]*/, int64_t *counts /*[#w.successor]*/, const limits *until,
                     const worth *asked, double *returns /*[episodes]*/, double *values /*[episodes]*/,
                     int64_t *lengths /*[episodes]*/, int64_t *last /*[episodes]*/, bool *stopped /*[1]*/);

/* A new episode in the lanes `which` (count,). */
void reset_lanes(const world *w, const lanes *l, const bool *which /*[l.count]*/);

/* Row of each lane's state and action, -1 where it is skipped or not enabled; returns the first lane whose action is
 * not enabled, or -1. */
int64_t find_rows(const world *w, const int32_t *row_action /*[w.state_ptr[#w.state_ptr - 1]]*/, const lanes *l,
                  const int64_t *actions /*[l.count]*/, const bool *skip /*[l.count]*/);

/* Advances each lane by one step; a lane whose row is -1 only begins a new episode. `over` says which episodes ended
 * with this step and `final` in which states, also where `same_step` began the next one already. */
void step_lanes(const world *w, const lanes *l, bool same_step, int64_t threads, int64_t *final /*[l.count]*/,
                double *rewards /*[l.count]*/, bool *terminations /*[l.count]*/, bool *truncations /*[l.count]*/);

/* out (count, actions): 1 where an action is enabled. */
void action_masks(int64_t count, int64_t actions, const int64_t *state_ptr /*[*]*/, const int32_t *row_action /*[*]*/,
                  const int64_t *states /*[count]*/, int8_t *out /*[count * actions]*/);

/* Q-learning, epsilon-greedy, in the episodes first, ..., first + episodes - 1; returns their steps. An update moves
 * q by n^-omega (reward + arrival + discount max q' - q), without q' where the next state is `terminal`: an episode
 * that was cut bootstraps from its last state. The world's probabilities serve only to draw its steps. */
int64_t q_episodes(const world *w, const learning *how, const bool *terminal /*[#w.state_ptr - 1]*/, int64_t max_steps,
                   int64_t first, int64_t episodes, uint64_t *rng /*[4]*/,
                   double *q /*[w.state_ptr[#w.state_ptr - 1]]*/, int64_t *visits /*[w.state_ptr[#w.state_ptr - 1]]*/);

/* ---------------------------------------------------------------------- planning.c: the tabular baselines */

/* What a planner is given; `order` (S) is the order of its sweeps, `reward` (R,) is paid on leaving by a row. */
typedef struct {
    int64_t states;
    const int64_t *state_ptr /*[states + 1]*/;
    const int64_t *row_ptr /*[state_ptr[states] + 1]*/;
    const int32_t *successor /*[row_ptr[state_ptr[states]]]*/;
    const int64_t *order /*[states]*/;
    const bool *decided /*[states]*/;
    const double *reward /*[state_ptr[states]]*/;
    double discount;
    bool maximise;
} planning_task;

/* The best expectation of values over |p - probability|_1 <= radius in a row of `count` successors, plus bonus times
 * the range of their values, but never beyond the best of them. work (count): scratch. */
double optimistic_expectation(int64_t count, const int32_t *successor /*[count]*/,
                              const double *probability /*[count]*/, const double *values /*[*]*/, double radius,
                              double bonus, bool maximise, double *work SCRATCH /*[count]*/);

/* Gauss-Seidel sweeps until no value changes by more than tolerance, relative to the largest; returns their number.
 * values (S): the start, fixed where decided; rows (S): the greedy rows; work: scratch for the longest row. */
int64_t plan_optimistically(const planning_task *task, const double *probability /*[#task.successor]*/,
                            const double *radius /*[task.state_ptr[task.states]]*/,
                            const double *bonus /*[task.state_ptr[task.states]]*/, double tolerance, int64_t max_sweeps,
                            double *work /*[*]*/, double *values /*[task.states]*/, int64_t *rows /*[task.states]*/);

/* ---------------------------------------------------------------------- product.c: products of distributions */

/* Block k: x of the coordinates block_ptr[k]:block_ptr[k + 1] with lower <= x <= upper and
 * rest_lower[k] <= 1 - sum x <= rest_upper[k], if closed[k]; block_of is the inverse. */
typedef struct interval_blocks {
    const int64_t *block_of /*[*]*/;
    const int64_t *block_ptr /*[#closed + 1]*/;
    const bool *closed /*[*]*/;
    const double *lower /*[#block_of]*/;
    const double *upper /*[#block_of]*/;
    const double *rest_lower /*[#closed]*/;
    const double *rest_upper /*[#closed]*/;
} interval_blocks;

/* Adds to out[i] a lower bound of min c.x over the closed blocks that c, row i of a sparse matrix (count rows, indices
 * ascending in each), touches. Scratch: 2 (n + 1) of the largest block's n. */
void minimize_interval_blocks(const interval_blocks *blocks, int64_t count, const int64_t *indptr /*[count + 1]*/,
                              const int64_t *indices /*[indptr[count]]*/, const double *data /*[indptr[count]]*/,
                              double *scratch /*[*]*/, double *out /*[count]*/);

/* ---------------------------------------------------------------------- clipping.c: vertex graphs */

/* Effect of a half-space on a polytope: it is redundant; it cuts; no vertex satisfies it; the table is too small;
 * rounding spoils the combinatorics. */
#define CLIP_UNCHANGED 0
#define CLIP_CUT 1
#define CLIP_EMPTY 2
#define CLIP_FULL 3
#define CLIP_INCONSISTENT 4
/* Status of a row: redundant, to be checked later, to be cut next. */
#define ROW_REDUNDANT 0
#define ROW_VIOLATED 1
#define ROW_CHOSEN 2

/* A simple polytope of dimension 2 <= n <= MAX_DIMENSION: n tight rows, ascending, and n neighbours of each vertex,
 * the k-th across the k-th row. sizes (2): slots in use, dead ones included, and rows in use. */
typedef struct vertex_graph {
    int64_t n;
    int64_t capacity;
    int32_t *basis /*[capacity * n]*/;
    int32_t *neighbour /*[capacity * n]*/;
    double *point /*[capacity * n]*/;
    uint8_t *alive /*[capacity]*/;
    int64_t *sizes /*[2]*/;
    double *rows /*[n * #rhs]*/;
    double *rhs /*[*]*/;
    double *loose /*[#rhs]*/; /* rhs perturbed outward: where the vertices are */
} vertex_graph;

/* Scratch of a cut: excess, slot, leaving (capacity); basis, neighbour, point (capacity, n) as in the graph; keys
 * (capacity, n - 1) and four times as many places in the table. */
typedef struct vertex_scratch {
    double *excess /*[*]*/;
    int32_t *basis /*[*]*/;
    int32_t *neighbour /*[#basis]*/;
    double *point /*[#basis]*/;
    int32_t *slot /*[#excess]*/;
    int32_t *leaving /*[#excess]*/;
    uint64_t *keys /*[*]*/;
    int32_t *table /*[4 * #keys]*/;
} vertex_scratch;

/* m rows to cut by, and what becomes of each. */
typedef struct new_rows {
    int64_t m;
    const double *rows /*[*]*/;
    const double *rhs /*[m]*/;
    const double *loose /*[m]*/;
    const double *tolerance /*[m]*/; /* a row violated by less is left out */
    uint8_t *status /*[m]*/;
} new_rows;

/* The 2^n vertices of the box whose rows are x_j <= loose[2 j] and -x_j <= loose[2 j + 1]. */
void box_graph(const vertex_graph *graph);

/* Cuts by the most violated rows. Returns CLIP_CUT once none is violated, else why a row cannot cut, with that row in
 * *refused, which then counts as redundant. The graph has room for all rows. Scratch: ranks (3 m). */
int64_t cut_by_rows(const vertex_graph *graph, const vertex_scratch *scratch, const new_rows *rows,
                    double *ranks SCRATCH /*[3 * rows.m]*/, int64_t *refused /*[1]*/);

/* Raises low and lowers high (n) to certified bounds of the polytope's coordinates inside the box [lower, upper]:
 * each bound comes from the basis of the vertex that lies furthest out. */
void tighten_box(const vertex_graph *graph, const double *lower /*[graph.n]*/, const double *upper /*[graph.n]*/,
                 double *low /*[graph.n]*/, double *high /*[graph.n]*/);

/* Writes `count` vertices with their edges (count, n) into an empty table; the number of singular bases. */
int64_t fill_table(const polytope *data, int64_t count, const int32_t *basis /*[count * data.n]*/,
                   const double *point /*[count * data.n]*/, const int32_t *neighbour /*[count * data.n]*/);

/* ---------------------------------------------------------------------- likelihood.c: sums over data */

/* Expressions f = constant_f + weights_f.x (n of them, r coordinates) with counts K (windows, n);
 * g_j(x) = -sum_f K_jf ln f[x]. Where one window is asked for, the first counts. */
typedef struct observations {
    int64_t n;
    int64_t r;
    int64_t windows;
    const double *constant /*[n]*/;
    const double *weights /*[n * r]*/;
    const double *counts /*[windows * n]*/;
} observations;

/* Coordinates z (k) of parameters with the domain's rows A z <= b, and x(z) = matrix @ prod_j z_j^exponents[., j] (r);
 * without monomials x = z. */
typedef struct parameter_chart {
    int64_t k;
    int64_t r;
    int64_t monomials;
    int64_t rows;
    const int64_t *exponents /*[monomials * k]*/;
    const double *matrix /*[monomials * r]*/;
    const double *A /*[rows * k]*/;
    const double *b /*[rows]*/;
} parameter_chart;

/* out (count, windows) = g_j at points x (count, r), inf outside its domain. */
void log_likelihoods(const observations *seen, int64_t count, const double *points /*[count * seen.r]*/,
                     double *out /*[count * seen.windows]*/);

/* sum_f K_f (1 + |ln f[x]| + (2 + r) (|constant_f| + |weights_f|.|x|) / f[x]). */
double rounding_size(const observations *seen, const double *x /*[seen.r]*/);

/* sum_i e^(least - g_i), *least the least of g (count); (0, inf) where nothing is finite. */
double exponential_sum(int64_t count, const double *g /*[count]*/, double *least /*[1]*/);

/* ln of the Dirichlet(1/2)-multinomial probability of each row's observed sequence of successors, out (num_rows). */
void dirichlet_log_marginals(int64_t num_rows, const int64_t *row_ptr /*[num_rows + 1]*/,
                             const int64_t *transitions /*[row_ptr[num_rows]]*/, double *out /*[num_rows]*/);

/* ---------------------------------------------------------------------- fit.c: Newton's method */

/* out (count, r) = x(z) of points (count, k). */
void coordinates(const parameter_chart *chart, int64_t count, const double *points /*[count * chart.k]*/,
                 double *out /*[count * chart.r]*/);

/* out (r, k) = dx/dz. */
void jacobian(const parameter_chart *chart, const double *z /*[chart.k]*/, double *out /*[chart.r * chart.k]*/);

/* out (k, k) = the inverse of the Cholesky factor of a matrix, zeros above its diagonal; false where there is none. */
bool inverse_factor(int64_t k, const double *matrix /*[k * k]*/, double *out /*[k * k]*/);

/* -sum_f K_f ln f[x(z)] - barrier sum_i ln(b_i - A_i.z), inf outside; x (r) is written. */
double penalised(const parameter_chart *chart, const observations *seen, double barrier, const double *z /*[chart.k]*/,
                 double *x /*[chart.r]*/);

/* Damped Newton on `penalised` from an interior z, which is overwritten: x = x(z), the likelihood's curvature (k, k)
 * and that with the barrier. Returns the last predicted decrease. Scratch: 3 k + k k + r + r r + r k. */
double newton(const parameter_chart *chart, const observations *seen, double barrier, int64_t steps, double tolerance,
              double *scratch SCRATCH /*[3 * chart.k + chart.k * chart.k + chart.r + chart.r * chart.r + chart.r * chart.k]*/,
              double *z /*[chart.k]*/, double *x /*[chart.r]*/, double *information /*[chart.k * chart.k]*/,
              double *precision /*[chart.k * chart.k]*/);

/* Damped Newton on G - barrier sum_i ln(b_i - A_i.x), G = ln sum_j e^(offsets_j - sum_f K_jf ln f[x]), in a chart with
 * z = x, from an interior x, which is overwritten. Scratch: 4 k + 5 k k + windows + n. */
void newton_of_sum(const parameter_chart *chart, const observations *seen, const double *offsets /*[seen.windows]*/,
                   double barrier, int64_t steps, double tolerance,
                   double *scratch SCRATCH /*[4 * chart.k + 5 * chart.k * chart.k + seen.windows + seen.n]*/,
                   double *x /*[chart.k]*/);

/* ---------------------------------------------------------------------- aims.c: estimates at marks, directions of bets */

/* All numbers of this file are those of guarantee/checker.py, bit for bit. Rows are (c, w) for c + w.x (count, n + 1). */

/* out (count) = the rows at x (n). */
void rows_at(int64_t count, int64_t n, const double *rows /*[count * (n + 1)]*/, const double *x /*[n]*/,
             double *out /*[count]*/);

/* `Coordinates.fit` from x, which is overwritten; false if a row is not positive on the way. */
bool fit_rows(int64_t count, int64_t n, const double *rows /*[count * (n + 1)]*/, const double *counts /*[count]*/,
              double *scratch SCRATCH /*[3 * count + n * (n + 2)]*/, double *x /*[n]*/);

/* out (n, n) = `Coordinates.spread`, zeros above its diagonal; false if there is none. */
bool spread_rows(int64_t count, int64_t n, const double *rows /*[count * (n + 1)]*/, const double *counts /*[count]*/,
                 const double *x /*[n]*/, double *scratch SCRATCH /*[count + n * (n + 1)]*/, double *out /*[n * n]*/);

/* shift (n) and unit (count) of `Bets._aim`, from probabilities p and trials of the rows, and the gradient (n). */
void aim(int64_t count, int64_t n, const double *rows /*[count * (n + 1)]*/, const double *p /*[count]*/,
         const double *trials /*[count]*/, const double *gradient /*[n]*/,
         double *scratch SCRATCH /*[count + n * (n + 1)]*/, double *shift /*[n]*/, double *unit /*[count]*/);

/* The model whose best value is bet on. A passage of transition t counts factor_t / denominator. */
typedef struct bet_model {
    int64_t states;
    int64_t rows;
    int64_t initial;
    const int64_t *state_ptr /*[states + 1]*/;
    const int64_t *row_ptr /*[rows + 1]*/;
    const int32_t *successor /*[row_ptr[rows]]*/;
    const int32_t *expression /*[row_ptr[rows]]*/;
    const double *factor /*[row_ptr[rows]]*/;
    double denominator;
    const double *reward /*[rows]*/;
    const bool *decided /*[states]*/; /* where plays end */
    const double *final /*[states]*/; /* the value of a play that ends, or is over, there */
    bool maximise;
    bool in_steps; /* whether there is a horizon */
} bet_model;

/* weight (F) += expected passages of each expression times the value behind them, under the best policy for these
 * chances (F), as in `Bets._slope`, after so many sweeps or steps. */
void passages(const bet_model *model, int64_t sweeps, const double *chance /*[*]*/,
              double *passed SCRATCH /*[model.row_ptr[model.rows]]*/,
              double *values SCRATCH /*[(model.in_steps * (sweeps - 1) + 2) * model.states]*/,
              int64_t *rules SCRATCH /*[(model.in_steps * (sweeps - 1) + 1) * model.states]*/,
              double *mass SCRATCH /*[2 * model.states]*/, double *weight /*[#chance]*/);

/* ---------------------------------------------------------------------- residual.c: affine value functions */

/* What is played in a state: its row of `rows` (S), or all of its rows by their weights (R), or, where both are NULL,
 * any row of a free agent that is not dropped (R), so that every row is checked separately. */
typedef struct choice {
    const int64_t *state_ptr /*[*]*/;
    const int64_t *rows OPTIONAL /*[*]*/;
    const double *weights OPTIONAL /*[*]*/;
    const bool *dropped OPTIONAL /*[*]*/;
} choice;

/* Transitions, and the functions p_f + slope_f.y (F; F, r) that their probabilities are, up to error_f; with a curvature,
 * p_f + slope_f.y + y'M_f y, M_f its lower triangle, row by row, and bend_f (F) a bound of |y'M_f y|. y is in the
 * unit ball, or, where is_box, in the cube of all |y_j| <= 1. */
typedef struct row_chances {
    int64_t r;
    bool is_box;
    const int64_t *row_ptr /*[*]*/;
    const int32_t *successor /*[row_ptr[#row_ptr - 1]]*/;
    const int32_t *expression /*[row_ptr[#row_ptr - 1]]*/;
    const double *p /*[*]*/;
    const double *slope /*[r * #p]*/;
    const double *error /*[#p]*/;
    const double *curvature OPTIONAL /*[#p * r * (r + 1) / 2]*/; /* (F, r (r + 1) / 2) */
    const double *bend OPTIONAL /*[#p]*/;
} row_chances;

/* ---------------------------------------------------------------------- policy_chain.c: a policy where plays come back */

/* I - gamma P of a policy at the centre, y = 0, on the states `solved` (n), as `assemble` writes it; place (S): the place
 * of each state among them, -1 for others. Returns the number of entries, at most `capacity`. */
int64_t policy_chain(int64_t n, const int64_t *solved /*[n]*/, const int32_t *place /*[*]*/, const choice *agent,
                     const row_chances *chances, double gamma, int64_t capacity, int32_t *indptr /*[n + 1]*/,
                     int32_t *indices /*[capacity]*/, double *data /*[capacity]*/);

/* total (n) = reward + gamma P v of a policy in the states `solved` (n), for values v (S), and slope (n, r) its derivative
 * by the probabilities alone. */
void policy_sums(int64_t n, const int64_t *solved /*[n]*/, const choice *agent, const row_chances *chances,
                 const double *reward /*[#chances.row_ptr - 1]*/, double gamma, const double *v /*[*]*/,
                 double *total /*[n]*/, double *slope /*[chances.r * n]*/);

/* Marks in `reached` (S) what a policy can reach from a start; a play ends in decided states. */
void policy_reach(const choice *agent, const row_chances *chances, const bool *decided /*[#reached]*/, int64_t start,
                  bool *reached /*[*]*/, int64_t *waiting SCRATCH /*[#reached]*/);

/* q (R) = reward + gamma times the mean of v (S) at the centre. */
void row_values(int64_t rows, const row_chances *chances, const double *reward /*[rows]*/, double gamma,
                const double *v /*[*]*/, double *q /*[rows]*/);

/* out[i] >= 0 with M[i] + out[i] I positive semidefinite, M (count, n (n + 1) / 2) lower triangles: little more than
 * max(0, -least eigenvalue). factor: scratch (n (n + 1) / 2). */
void negative_parts(int64_t count, int64_t n, const double *M /*[count * n * (n + 1) / 2]*/,
                    double *factor SCRATCH /*[n * (n + 1) / 2]*/, double *out /*[count]*/);

/* out (R): the residuals of single rows for U = u + g.y (S; S, r) and all y; of_row (R): their states. Scratch: 2 r + 2 r r. */
void row_residuals(int64_t rows, const int32_t *of_row /*[rows]*/, const row_chances *chances,
                   const double *reward /*[rows]*/, double gamma, double sign, const double *u /*[*]*/,
                   const double *g /*[chances.r * #u]*/,
                   double *scratch SCRATCH /*[2 * chances.r + 2 * chances.r * chances.r]*/, double *out /*[rows]*/);

/* The first of the held states (S) where sign (u + g.y) may be negative for some |y_j| <= 1, rounding included; -1: none. */
int64_t wrong_sign(int64_t count, const bool *held /*[count]*/, int64_t r, double sign, const double *u /*[count]*/,
                   const double *g /*[count * r]*/);

/* out[s] >= sign (T U - U) of what may be played in each state s of `order`, for all |y| <= 1, rounding included: a
 * value <= 0 proves the inequality of the state. sign is 1 for upper functions, -1 for lower ones. With margin >= 0
 * a state that misses it is raised at once, by what it misses and the margin, and out is that rise: the least slack if
 * `order` has successors first and gamma = 1. Without a margin, threads share the states. Scratch: 2 r + 2 r r each. */
void residuals(int64_t count, const int64_t *order /*[count]*/, const choice *agent, const row_chances *chances,
               const double *reward /*[#chances.row_ptr - 1]*/, double gamma, double sign, double margin,
               double *u /*[#agent.state_ptr - 1]*/, const double *g /*[chances.r * (#agent.state_ptr - 1)]*/,
               int64_t threads, double *scratch SCRATCH /*[threads * (2 * chances.r + 2 * chances.r * chances.r)]*/,
               double *out /*[#agent.state_ptr - 1]*/);

/* Values v (S) and gradients g (S, r) of the states of `order`, in which successors come first: of what is played, or,
 * with sense 1 or -1 (0: none), of the best row, which best (S) then gets. */
void expand_backward(int64_t count, const int64_t *order /*[count]*/, const choice *agent, const row_chances *chances,
                     const double *reward /*[#chances.row_ptr - 1]*/, double sense,
                     double *v /*[#agent.state_ptr - 1]*/, double *g /*[chances.r * (#agent.state_ptr - 1)]*/,
                     int64_t *best /*[*]*/);

/* Marks what is reached (S) from the marked states by what is played; `order` has successors first. */
void reach_forward(int64_t count, const int64_t *order /*[count]*/, const choice *agent, const row_chances *chances,
                   bool *reached /*[#agent.state_ptr - 1]*/);

/* What is played with k + 1 <= steps steps to go: agent.rows + k * stride, where it has rows. */
typedef struct step_rules {
    int64_t states;
    int64_t steps;
    const choice *agent;
    int64_t stride;
} step_rules;

/* rows[k] (S) = the best rows at the centre with k + 1 steps to go, and v[k + 1] (S) their values, from v[0];
 * decided states keep theirs. sense: 1 or -1. */
void greedy_steps(int64_t states, int64_t steps, const int64_t *state_ptr /*[states + 1]*/,
                  const bool *decided /*[states]*/, const row_chances *chances,
                  const double *reward /*[#chances.row_ptr - 1]*/, double gamma, double sense,
                  double *v /*[(steps + 1) * states]*/, int64_t *rows /*[steps * states]*/);

/* visits (R) += how often each row is expected if rows (S) are played from the states with mass (S), which is changed,
 * until a stopped state; in `order` successors come first. */
void visit_forward(int64_t count, const int64_t *order /*[count]*/, const bool *stopped /*[*]*/,
                   const row_chances *chances, const int64_t *rows /*[#stopped]*/, double *mass /*[#stopped]*/,
                   double *visits /*[#chances.row_ptr - 1]*/);

/* The same in `steps` steps, where rows[k] (S) is played with k + 1 of them to go; mass (2, S), of which the second is 0. */
void visit_steps(int64_t states, int64_t steps, const bool *stopped /*[states]*/, const row_chances *chances,
                 const int64_t *rows /*[steps * states]*/, double *mass /*[2 * states]*/,
                 double *visits /*[#chances.row_ptr - 1]*/);

/* reached[k] (S): marks undecided states that are reached with k steps to go, from those marked on entry. */
void reach_steps(const step_rules *rules, const bool *decided /*[rules.states]*/, const row_chances *chances,
                 bool *reached /*[(rules.steps + 1) * rules.states]*/);

/* v[k + 1] (S) and g[k + 1] (S, r): value and gradient of what is played, from those of k steps. */
void expand_steps(const step_rules *rules, const bool *decided /*[rules.states]*/, const row_chances *chances,
                  const double *reward /*[#chances.row_ptr - 1]*/, double gamma,
                  double *v /*[(rules.steps + 1) * rules.states]*/,
                  double *g /*[(rules.steps + 1) * rules.states * chances.r]*/);

/* out[k] (S) >= sign (T U_k - U_(k+1)) for all |y| <= 1, U_k = u[k] + g[k].y, or 0 where that is enough: <= 0 proves the
 * inequality. 0 in states that are decided or not in scope[k + 1] (S), inf where a play leaves the scope before a decided
 * state. Scratch: 2 r + 2 r r. */
void step_residuals(const step_rules *rules, const bool *decided /*[rules.states]*/,
                    const bool *scope /*[(rules.steps + 1) * rules.states]*/, const row_chances *chances,
                    const double *reward /*[#chances.row_ptr - 1]*/, double gamma, double sign,
                    double *u /*[(rules.steps + 1) * rules.states]*/,
                    const double *g /*[(rules.steps + 1) * rules.states * chances.r]*/,
                    double *scratch SCRATCH /*[2 * chances.r + 2 * chances.r * chances.r]*/,
                    double *out /*[rules.steps * rules.states]*/);

/* slack[k] (S), 0 for k = 0 and outside scope[k] (S), with which u[k] = v[k] + sign slack[k] satisfies its inequality: what
 * it misses it by and `rounding` times the largest value. Scratch: u (steps + 1, S), 2 r + 2 r r. */
void raise_steps(const step_rules *rules, const bool *scope /*[(rules.steps + 1) * rules.states]*/,
                 const row_chances *chances, const double *reward /*[#chances.row_ptr - 1]*/, double gamma, double sign,
                 double rounding, const double *v /*[(rules.steps + 1) * rules.states]*/,
                 const double *g /*[(rules.steps + 1) * rules.states * chances.r]*/,
                 double *slack /*[(rules.steps + 1) * rules.states]*/, double *u /*[(rules.steps + 1) * rules.states]*/,
                 double *scratch SCRATCH /*[2 * chances.r + 2 * chances.r * chances.r]*/);

#pragma GCC visibility pop

#endif
