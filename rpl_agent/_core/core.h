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

#endif
