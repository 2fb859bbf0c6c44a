/* Support queries of products of distributions, each bounded by intervals. */
#include "support.h"

/* Adds to *total the minimum of sum_j cost_j x_j over block k, whose slots (n) have the costs as keys, and to *size what its
 * rounding is a multiple of. Water-filling: the last probability, 1 - sum x, has cost 0; mass goes to the cheapest
 * coordinates first. */
static void fill_block(const interval_blocks *blocks, int64_t k, int64_t n, ranked *slots, double largest,
                       double *total, double *size)
{
    const double *lower = blocks->lower + blocks->block_ptr[k], *upper = blocks->upper + blocks->block_ptr[k];
    double last = blocks->rest_lower[k], rest = 1.0;
    for (int64_t j = 0; j < n; j++) {
        double low = j == n - 1 ? last : lower[j];
        rest -= low;
        *total += slots[j].key * low;
    }
    sort_ranked(n, slots);
    for (int64_t i = 0; i < n && rest > 0.0; i++) {
        int64_t j = (int64_t)slots[i].place;
        double width = j == n - 1 ? blocks->rest_upper[k] - last : upper[j] - lower[j];
        double share = rest <= width ? rest : width;
        *total += slots[i].key * share;
        rest -= share;
    }
    /* Probabilities are accurate to n u, and mass that no bound has room for is rounding too. */
    *size += largest * ((double)n + 4.0) * 4.0 + largest * fmax(rest, 0.0) / UNIT_ROUNDOFF;
}

void minimize_interval_blocks(const interval_blocks *blocks, int64_t count, const int64_t *indptr,
                              const int64_t *indices, const double *data, double *scratch, double *out)
{
    ranked *slots = (ranked *)scratch;
    for (int64_t i = 0; i < count; i++) {
        double total = 0.0, size = 0.0;
        for (int64_t at = indptr[i]; at < indptr[i + 1];) {
            int64_t k = blocks->block_of[indices[at]], first = blocks->block_ptr[k];
            int64_t n = blocks->block_ptr[k + 1] - first + 1;
            for (int64_t j = 0; j < n; j++)
                slots[j] = (ranked){0.0, (double)j};
            double largest = 0.0;
            for (; at < indptr[i + 1] && blocks->block_of[indices[at]] == k; at++) {
                slots[indices[at] - first].key = data[at];
                largest = fmax(largest, fabs(data[at]));
            }
            if (blocks->closed[k])
                fill_block(blocks, k, n, slots, largest, &total, &size);
        }
        out[i] += total - UNIT_ROUNDOFF * size * 2.0;
    }
}
