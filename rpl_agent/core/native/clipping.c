/* Vertex graphs: cutting a simple polytope by one half-space at a time.
 *
 * A polytope is *simple* if exactly n constraints are tight at every vertex. Then each vertex has n edges, one per
 * constraint that it may leave, and cutting by a new half-space touches only the vertices it removes: every edge from a
 * removed to a kept vertex yields one new vertex, and two new vertices are joined when they share all but one of their
 * constraints. Perturbing the right sides makes every polytope simple, so there are no degenerate cases. */
#include <string.h>

#include "support.h"

/* ---------------------------------------------------------------------- one cut */
/* Makes `count` new vertices neighbours that share all but one of their constraints; false if those are not in pairs.
 * keys[e] is the hash of what is left when vertex e / (n - 1) leaves its constraint e % (n - 1). */
static bool join(int64_t n, int64_t count, const vertex_scratch *new)
{
    const int64_t each = n - 1, total = count * each;
    const uint64_t *keys = new->keys;
    int64_t size = 1, alone = 0;
    while (size < 2 * total)
        size *= 2;
    for (int64_t at = 0; at < size; at++)
        new->table[at] = -1;
    for (int64_t e = 0; e < total; e++) {
        int64_t at = (int64_t)(keys[e] & (uint64_t)(size - 1));
        while (new->table[at] >= 0 && keys[new->table[at]] != keys[e])
            at = (at + 1) & (size - 1);
        int64_t f = new->table[at];
        if (f < 0) {
            new->table[at] = (int32_t)e;
            alone++;
            continue;
        }
        if (new->neighbour[f / each * n + f % each] >= 0)
            return false; /* a third one */
        new->neighbour[e / each * n + e % each] = (int32_t)(f / each);
        new->neighbour[f / each * n + f % each] = (int32_t)(e / each);
        alone--;
    }
    return alone == 0;
}

/* Puts `count` new vertices into slots of dead ones, then behind the others. Their last neighbour is a vertex that was
 * kept, which leaves its constraint `leaving`; the others are new ones. */
static void insert(const vertex_graph *graph, const vertex_scratch *new, int64_t count)
{
    const int64_t n = graph->n;
    int64_t used = graph->sizes[0], at = 0;
    for (int64_t v = 0; v < used && at < count; v++)
        if (!graph->alive[v])
            new->slot[at++] = (int32_t)v;
    while (at < count)
        new->slot[at++] = (int32_t)used++;
    graph->sizes[0] = used;
    for (int64_t i = 0; i < count; i++) {
        int64_t v = new->slot[i], u = new->neighbour[i * n + n - 1];
        graph->alive[v] = 1;
        graph->neighbour[u * n + new->leaving[i]] = (int32_t)v;
        memcpy(graph->basis + v * n, new->basis + i * n, (size_t)n * sizeof(int32_t));
        memcpy(graph->point + v * n, new->point + i * n, (size_t)n * sizeof(double));
        for (int64_t k = 0; k < n - 1; k++)
            graph->neighbour[v * n + k] = new->slot[new->neighbour[i * n + k]];
        graph->neighbour[v * n + n - 1] = (int32_t)u;
    }
}

/* The i-th new vertex: where the edge on which v leaves its k-th constraint meets row number `row`; false if the table
 * does not know that edge from its other end. */
static bool new_vertex(const vertex_graph *graph, const vertex_scratch *new, int64_t i, int64_t v, int64_t k,
                       int32_t row)
{
    const int64_t n = graph->n;
    const int64_t u = graph->neighbour[v * n + k];
    const double *outside = graph->point + v * n, *inside = graph->point + u * n;
    int32_t *basis = new->basis + i * n;
    int64_t at = 0;
    for (int64_t q = 0; q < n; q++)
        if (q != k)
            basis[at++] = graph->basis[v * n + q];
    basis[n - 1] = row;
    /* The convex combination never leaves the edge, whatever the condition of the new basis. */
    double share = new->excess[v] / (new->excess[v] - new->excess[u]);
    for (int64_t j = 0; j < n; j++)
        new->point[i * n + j] = share * inside[j] + (1.0 - share) * outside[j];
    new->neighbour[i * n + n - 1] = (int32_t)u;
    new->leaving[i] = -1;
    for (int64_t q = 0; q < n; q++)
        if (graph->neighbour[u * n + q] == v)
            new->leaving[i] = (int32_t)q;
    for (int64_t q = 0; q < n - 1; q++) {
        new->keys[i * (n - 1) + q] = subset_key(n, basis, q);
        new->neighbour[i * n + q] = -1;
    }
    return new->leaving[i] >= 0;
}

/* Intersects with {x : row.x <= bound}, in place; nothing changes unless CLIP_CUT is returned. The new constraint gets
 * the number `id`, larger than every one in use, so that bases stay sorted. */
static int64_t clip(const vertex_graph *graph, const vertex_scratch *new, int32_t id, const double *row, double bound)
{
    const int64_t n = graph->n, used = graph->sizes[0];
    const int32_t *neighbour = graph->neighbour;
    const double *point = graph->point;
    double *excess = new->excess;
    uint8_t *alive = graph->alive;
    int64_t kept = 0, removed = 0, crossing = 0, made = 0;
    for (int64_t v = 0; v < used; v++) {
        if (!alive[v])
            continue;
        excess[v] = plus_dot(-bound, n, row, point + v * n);
        if (excess[v] > 0.0)
            removed++;
        else
            kept++;
    }
    if (removed == 0)
        return CLIP_UNCHANGED;
    if (kept == 0)
        return CLIP_EMPTY;
    for (int64_t v = 0; v < used; v++)
        if (alive[v] && excess[v] > 0.0)
            for (int64_t k = 0; k < n; k++)
                crossing += excess[neighbour[v * n + k]] <= 0.0;
    if (crossing < n)
        return CLIP_INCONSISTENT;
    if (kept + crossing > graph->capacity)
        return CLIP_FULL;
    for (int64_t v = 0; v < used; v++)
        if (alive[v] && excess[v] > 0.0)
            for (int64_t k = 0; k < n; k++)
                if (excess[neighbour[v * n + k]] <= 0.0 && !new_vertex(graph, new, made++, v, k, id))
                    return CLIP_INCONSISTENT;
    if (!join(n, crossing, new))
        return CLIP_INCONSISTENT;
    for (int64_t v = 0; v < used; v++)
        if (alive[v] && excess[v] > 0.0)
            alive[v] = 0;
    insert(graph, new, crossing);
    return CLIP_CUT;
}

/* ---------------------------------------------------------------------- many rows */
/* Check every row that is not ROW_REDUNDANT at all vertices. worst (m) becomes the largest violation over its
 * tolerance. A row that no vertex violates is ROW_REDUNDANT, one that is the most violated row of some vertex
 * ROW_CHOSEN; whether there is one of the latter. Scratch, one per vertex: its worst violation and the row of it. */
static bool most_violated(const vertex_graph *graph, const new_rows *rows, double *best, int32_t *row_of, double *worst)
{
    const int64_t n = graph->n, used = graph->sizes[0];
    const uint8_t *alive = graph->alive;
    const double *point = graph->point;
    double low[MAX_DIMENSION], high[MAX_DIMENSION];
    bool found = false;
    for (int64_t j = 0; j < n; j++) {
        low[j] = INFINITY;
        high[j] = -INFINITY;
    }
    for (int64_t v = 0; v < used; v++) {
        best[v] = 0.0;
        row_of[v] = -1;
        for (int64_t j = 0; j < n && alive[v]; j++) {
            low[j] = smaller(low[j], point[v * n + j]);
            high[j] = larger(high[j], point[v * n + j]);
        }
    }
    for (int64_t i = 0; i < rows->m; i++) {
        if (rows->status[i] == ROW_REDUNDANT)
            continue;
        const double *row = rows->rows + i * n;
        double largest = -rows->loose[i];
        for (int64_t j = 0; j < n; j++) /* rows beyond the box of all vertices, usually most, need no check at each */
            largest += row[j] * (row[j] > 0.0 ? high[j] : low[j]);
        if (largest <= 0.0) {
            rows->status[i] = ROW_REDUNDANT;
            continue;
        }
        largest = -INFINITY;
        for (int64_t v = 0; v < used; v++) {
            if (!alive[v])
                continue;
            double excess = plus_dot(-rows->loose[i], n, row, point + v * n);
            largest = larger(largest, excess);
            if (excess > best[v]) {
                best[v] = excess;
                row_of[v] = (int32_t)i;
            }
        }
        worst[i] = largest / rows->tolerance[i];
        rows->status[i] = largest > rows->tolerance[i] ? ROW_VIOLATED : ROW_REDUNDANT;
    }
    for (int64_t v = 0; v < used; v++)
        if (row_of[v] >= 0 && rows->status[row_of[v]] == ROW_VIOLATED) {
            rows->status[row_of[v]] = ROW_CHOSEN;
            found = true;
        }
    return found;
}

int64_t cut_by_rows(const vertex_graph *graph, const vertex_scratch *scratch, const new_rows *rows, double *ranks,
                    int64_t *refused)
{
    const int64_t n = graph->n;
    double *worst = ranks;
    ranked *chosen = (ranked *)(ranks + rows->m); /* by minus how much the worst vertex violates them */
    while (most_violated(graph, rows, scratch->excess, scratch->leaving, worst)) {
        int64_t count = 0;
        for (int64_t i = 0; i < rows->m; i++)
            if (rows->status[i] == ROW_CHOSEN)
                chosen[count++] = (ranked){-worst[i], (double)i};
        sort_ranked(count, chosen);
        for (int64_t k = 0; k < count; k++) {
            int64_t i = (int64_t)chosen[k].place, held = graph->sizes[1];
            rows->status[i] = ROW_REDUNDANT;
            int64_t outcome = clip(graph, scratch, (int32_t)held, rows->rows + i * n, rows->loose[i]);
            if (outcome == CLIP_CUT) {
                memcpy(graph->rows + held * n, rows->rows + i * n, (size_t)n * sizeof(double));
                graph->rhs[held] = rows->rhs[i];
                graph->loose[held] = rows->loose[i];
                graph->sizes[1]++;
            } else if (outcome != CLIP_UNCHANGED) {
                for (int64_t j = k + 1; j < count; j++)
                    rows->status[(int64_t)chosen[j].place] = ROW_VIOLATED;
                *refused = i;
                return outcome;
            }
        }
    }
    return CLIP_CUT;
}

/* ---------------------------------------------------------------------- whole graphs */
void box_graph(const vertex_graph *graph)
{
    const int64_t n = graph->n, corners = INT64_C(1) << n;
    assert(n >= 2 && n <= MAX_DIMENSION && corners <= graph->capacity);
    for (int64_t v = 0; v < corners; v++) {
        graph->alive[v] = 1;
        for (int64_t j = 0; j < n; j++) {
            int64_t side = (v >> j) & 1;
            graph->basis[v * n + j] = (int32_t)(2 * j + side);
            graph->point[v * n + j] = side ? -graph->loose[2 * j + 1] : graph->loose[2 * j];
            graph->neighbour[v * n + j] = (int32_t)(v ^ (INT64_C(1) << j));
        }
    }
    graph->sizes[0] = corners;
}

/* The living vertex that goes furthest against sign * e_j; -1 if there is none. */
static int64_t furthest(const vertex_graph *graph, int64_t j, double sign)
{
    const int64_t n = graph->n, used = graph->sizes[0];
    const uint8_t *alive = graph->alive;
    const double *point = graph->point + j;
    int64_t best = -1;
    double least = INFINITY;
    for (int64_t v = 0; v < used; v++)
        if (alive[v] && sign * point[v * n] < least) {
            best = v;
            least = sign * point[v * n];
        }
    return best;
}

void tighten_box(const vertex_graph *graph, const double *lower, const double *upper, double *low, double *high)
{
    const int64_t n = graph->n;
    double inverse[MAX_DIMENSION * MAX_DIMENSION], y[MAX_DIMENSION], direction[MAX_DIMENSION] = {0.0};
    for (int64_t j = 0; j < n; j++)
        for (int side = 0; side < 2; side++) {
            double sign = side == 0 ? 1.0 : -1.0;
            int64_t best = furthest(graph, j, sign);
            if (best < 0 || !invert_basis(n, graph->rows, graph->basis + best * n, inverse))
                continue;
            direction[j] = sign;
            multipliers(n, inverse, direction, y);
            double bound = safe_bound(n, graph->rows, graph->rhs, lower, upper, graph->basis + best * n, direction, y);
            direction[j] = 0.0;
            if (side == 0)
                low[j] = larger(low[j], bound);
            else
                high[j] = smaller(high[j], -bound);
        }
}

int64_t fill_table(const polytope *data, int64_t count, const int32_t *basis, const double *point,
                   const int32_t *neighbour)
{
    const int64_t n = data->n, width = n * n + 4 * n;
    double inverse[MAX_DIMENSION * MAX_DIMENSION];
    int64_t singular = 0;
    assert(n <= MAX_DIMENSION && count <= data->capacity);
    for (int64_t v = 0; v < count; v++) {
        if (!invert_basis(n, data->rows, basis + v * n, inverse)) {
            singular++;
            continue;
        }
        write_record(data, v, basis + v * n, inverse, point + v * n);
        for (int64_t k = 0; k < n; k++)
            data->table[v * width + n * n + 3 * n + k] = neighbour[v * n + k];
    }
    data->counts[0] = count;
    return singular;
}
