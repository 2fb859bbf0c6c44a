/* Boxes of parameters that may meet a level set which is not convex (likelihood/polynomial/cover.py has the formulas).
 *
 * On a box theta = center + half y, |y_j| <= 1, every form is p + s.y + y'My up to `error`: its expansion, the terms of the
 * third order and above counted by their sizes. */
#include <stddef.h>

#include "bend.h"
#include "likelihood.h"

/* A model is taken for a bowl if its least curvature exceeds this share of its size: its inverse is accurate to 1e-10. */
#define FLATTEST 1e-4

/* One box, with the forms on it (n; M by lower triangles) and the quadratic model of the likelihood. */
typedef struct {
    const double *center, *half;
    double *powers[3]; /* (d, highest + 1): of the centre, the half widths and the reach */
    double *pairs, *terms, *p, *s, *M, *error, *at, *most, *K, *shares;
    double *H, *linear, *matrix, *inverse;
    double constant, bound, crude;
} box_model;

static box_model model_in(const likelihood_cover *set, double *memory)
{
    const int64_t d = set->d, n = set->n, table = d * (set->highest + 1);
    const int64_t sizes[] = {table, table, table, set->pair_ptr[set->monomials], set->terms, n, n * d,
                             n * triangle(d), n, n, n, n, set->windows, triangle(d), d, d * d, d * d};
    box_model box;
    double **parts[] = {&box.powers[0], &box.powers[1], &box.powers[2], &box.pairs, &box.terms, &box.p, &box.s,
                        &box.M, &box.error, &box.at, &box.most, &box.K, &box.shares, &box.H, &box.linear,
                        &box.matrix, &box.inverse};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        *parts[k] = memory;
        memory += sizes[k];
    }
    return box;
}

/* Whether the box misses a row A theta <= b of the domain. */
static bool is_outside(const likelihood_cover *set, const box_model *box)
{
    for (int64_t i = 0; i < set->rows; i++) {
        double least = 0.0, limit = set->b[i] + 1e-12 * (1.0 + fabs(set->b[i]));
        for (int64_t j = 0; j < set->d; j++)
            least += set->A[i * set->d + j] * box->center[j] - fabs(set->A[i * set->d + j]) * box->half[j];
        if (least > limit)
            return true;
    }
    return false;
}

/* prod_j theta_j^exponents_j, from a table of powers. */
INLINE double monomial(const likelihood_cover *set, const double *powers, const int64_t *exponents)
{
    double product = 1.0;
    for (int64_t j = 0; j < set->d; j++)
        product *= powers[j * (set->highest + 1) + exponents[j]];
    return product;
}

/* The forms on the box. What is rounded is less than 1e-14 (1 + terms) of the sum of all sizes. */
static void expand_forms(const likelihood_cover *set, box_model *box)
{
    const int64_t d = set->d, width = set->highest + 1;
    for (int64_t j = 0; j < d; j++) {
        const double at[] = {box->center[j], box->half[j], fabs(box->center[j]) + box->half[j]};
        for (int k = 0; k < 3; k++) {
            double *powers = box->powers[k] + j * width;
            powers[0] = 1.0;
            for (int64_t e = 1; e < width; e++)
                powers[e] = powers[e - 1] * at[k];
        }
    }
    for (int64_t q = 0; q < set->pair_ptr[set->monomials]; q++)
        box->pairs[q] = set->binomial[q] * monomial(set, box->powers[0], set->rest + q * d)
                        * monomial(set, box->powers[1], set->alpha + set->term[q] * d);
    for (int64_t i = 0; i < set->n; i++) {
        double size = 0.0, *s = box->s + i * d, *M = box->M + i * triangle(d);
        zero(set->terms, box->terms);
        for (int64_t e = set->entry_ptr[i]; e < set->entry_ptr[i + 1]; e++) {
            const int64_t m = set->monomial[e];
            size += fabs(set->coefficient[e]) * monomial(set, box->powers[2], set->exponents + m * d);
            for (int64_t q = set->pair_ptr[m]; q < set->pair_ptr[m + 1]; q++)
                box->terms[set->term[q]] += set->coefficient[e] * box->pairs[q];
        }
        box->error[i] = 1e-14 * (1.0 + set->terms) * size;
        box->p[i] = 0.0;
        zero(d, s);
        zero(triangle(d), M);
        for (int64_t t = 0; t < set->terms; t++) {
            const int64_t *alpha = set->alpha + t * d;
            int64_t degree = 0, first = 0, last = 0;
            for (int64_t j = d - 1; j >= 0; j--) {
                degree += alpha[j];
                first = alpha[j] ? j : first;
                last = alpha[d - 1 - j] ? d - 1 - j : last;
            }
            if (degree == 0)
                box->p[i] = box->terms[t];
            else if (degree == 1)
                s[first] = box->terms[t];
            else if (degree == 2) /* twice in the matrix, where its parameters differ */
                M[triangle(last) + first] = first == last ? box->terms[t] : 0.5 * box->terms[t];
            else
                box->error[i] += fabs(box->terms[t]);
        }
    }
}

/* Shares of the windows, the counts K that they give, and how low the mixture may be: `bound`. */
static void weigh(const likelihood_cover *set, box_model *box)
{
    for (int64_t w = 0; w < set->windows; w++)
        box->shares[w] = less_dot(set->offsets[w], set->n, box->at, set->counts + w * set->n);
    normalise(set->windows, box->shares);
    box->bound = set->level;
    zero(set->n, box->K);
    for (int64_t w = 0; w < set->windows; w++) {
        const double share = box->shares[w];
        if (share > 0.0)
            box->bound += share * log(share) - share * set->offsets[w];
        for (int64_t i = 0; i < set->n; i++)
            box->K[i] += share * set->counts[w * set->n + i];
    }
}

/* constant + linear.y + y'Hy <= -sum K ln h on the box, at most `bound` where it meets the set; `crude`: another bound. */
static void fit_model(const likelihood_cover *set, box_model *box)
{
    const int64_t d = set->d, n = set->n;
    double rounding = 0.0;
    for (int64_t i = 0; i < n; i++) { /* where p is small against its changes the logarithm has its largest value */
        box->most[i] = box->p[i] + box->error[i];
        for (int64_t j = 0; j < d; j++)
            box->most[i] += fabs(box->s[i * d + j]);
        for (int64_t j = 0, at = 0; j < d; j++)
            for (int64_t k = 0; k <= j; k++, at++)
                box->most[i] += (k < j ? 2.0 : 1.0) * fabs(box->M[i * triangle(d) + at]);
        const bool good = box->p[i] > 0.02 * box->most[i];
        box->at[i] = good ? log(box->p[i]) : box->most[i] > 0.0 ? log(box->most[i]) : 0.0;
    }
    weigh(set, box);
    box->constant = box->crude = 0.0;
    zero(triangle(d), box->H);
    zero(d, box->linear);
    for (int64_t i = 0; i < n; i++) {
        const double K = box->K[i], p = box->p[i], most = box->most[i], *s = box->s + i * d;
        if (K > 0.0 && !(most > 0.0))
            box->crude = INFINITY;
        box->crude -= most > 0.0 ? K * log(most) : 0.0;
        box->constant -= K * box->at[i];
        rounding += K * (1.0 + fabs(box->at[i]));
        if (!(p > 0.02 * most))
            continue;
        double slope = 0.0, top = most / p - 1.0;
        for (int64_t j = 0; j < d; j++)
            slope += fabs(s[j]) / p;
        const double bend = larger(top - slope, 0.0) + 4.0 * (d * d + 4.0) * UNIT_ROUNDOFF * (1.0 + top);
        const double kappa = smaller(1.0, bend / larger(slope, 1e-300)), steep = curvature(top) * (1.0 - kappa);
        box->constant -= K * (box->error[i] / p + 0.5 * steep * bend * slope);
        rounding += K * top;
        for (int64_t j = 0, at = 0; j < d; j++) {
            box->linear[j] -= K * s[j] / p;
            for (int64_t k = 0; k <= j; k++, at++)
                box->H[at] += K * (0.5 * steep * (s[j] / p) * (s[k] / p) - box->M[i * triangle(d) + at] / p);
        }
    }
    rounding *= 128.0 * UNIT_ROUNDOFF * (16.0 + n);
    box->constant -= rounding;
    box->crude -= rounding;
}

/* The set in the box lies in (y - ball)'H (y - ball) <= *radius2, where H is a bowl (its inverse: `inverse`), else *radius2
 * is inf; false if it is empty. shape (d, d) is H, or I. */
static bool enclosed(int64_t d, box_model *box, double *ball, double *shape, double *radius2)
{
    double slope = 0.0, dips = 0.0, mixed = 0.0, size = 0.0, missed = 0.0, rise = 0.0, far = 1.0;
    for (int64_t j = 0, at = 0; j < d; j++) {
        slope += fabs(box->linear[j]);
        for (int64_t k = 0; k <= j; k++, at++) {
            size += (k < j ? 2.0 : 1.0) * fabs(box->H[at]);
            if (k < j)
                mixed += 2.0 * fabs(box->H[at]);
            else
                dips += smaller(box->H[at], 0.0);
            shape[j * d + k] = shape[k * d + j] = box->H[at];
        }
    }
    bool bowl = is_semidefinite(d, box->H, -FLATTEST * size, box->matrix);
    for (int64_t j = 0; j < d * d; j++)
        box->matrix[j] = shape[j];
    bowl = bowl && invert(d, box->matrix, box->inverse);
    for (int64_t j = 0; j < d; j++) {
        ball[j] = 0.0;
        for (int64_t k = 0; k < d; k++) {
            shape[j * d + k] = bowl ? shape[j * d + k] : j == k;
            ball[j] -= bowl ? 0.5 * box->inverse[j * d + k] * box->linear[k] : 0.0;
        }
        far += fabs(ball[j]);
    }
    /* for any y0, l.y + y'Hy = (y - y0)'H(y - y0) - y0'Hy0 + (l + 2Hy0).y; here the last term is rounding */
    for (int64_t j = 0; j < d; j++) {
        const double turned = plus_dot(0.0, d, shape + j * d, ball);
        rise += ball[j] * turned;
        missed += fabs(box->linear[j] + 2.0 * turned);
    }
    const double room = box->bound - box->constant;
    *radius2 = bowl ? room + rise + missed + 1e-12 * (fabs(room) + size * far * far) : INFINITY;
    return !(box->constant - slope + dips - mixed > box->bound) && !(box->crude > box->bound) && !(*radius2 < 0.0);
}

/* An upper bound of a.theta over the set in the box. */
static double reach_of(int64_t d, const box_model *box, const double *a, const double *ball, double radius2)
{
    double middle = 0.0, size = 0.0, corner = 0.0, along = 0.0, squares = 0.0;
    for (int64_t j = 0; j < d; j++) {
        const double scaled = a[j] * box->half[j];
        middle += a[j] * box->center[j];
        size += fabs(a[j]) * (fabs(box->center[j]) + box->half[j]);
        corner += fabs(scaled);
        along += scaled * ball[j];
        for (int64_t k = 0; radius2 < INFINITY && k < d; k++)
            squares += scaled * box->inverse[j * d + k] * (a[k] * box->half[k]);
    }
    const double within = along + sqrt(larger(radius2 * squares, 0.0)) * (1.0 + 1e-6);
    return middle + 1e-12 * size + (radius2 < INFINITY && within < corner ? within : corner);
}

void cover_boxes(const likelihood_cover *set, int64_t count, const double *center, const double *half,
                 int64_t directions, const double *a, bool *kept, double *ball, double *shape, double *radius2,
                 double *reach, double *memory)
{
    const int64_t d = set->d;
    box_model box = model_in(set, memory);
    for (int64_t i = 0; i < count; i++) {
        box.center = center + i * d;
        box.half = half + i * d;
        kept[i] = !is_outside(set, &box);
        if (!kept[i])
            continue;
        expand_forms(set, &box);
        fit_model(set, &box);
        kept[i] = enclosed(d, &box, ball + i * d, shape + i * d * d, radius2 + i);
        for (int64_t k = 0; kept[i] && k < directions; k++)
            reach[i * directions + k] = reach_of(d, &box, a + k * d, ball + i * d, radius2[i]);
    }
}
