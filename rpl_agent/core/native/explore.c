/* Breadth-first exploration of a program whose guards and updates are bytecode.
 *
 * A round has two parts. Threads expand states, each a range of its own, into a buffer of its own: they only read what was
 * known before the round. Then one thread goes through the buffers in the order of the states and numbers new items. So
 * numbers do not depend on how many threads there are, and a state that cannot be expanded leaves no trace. */
#include <assert.h>
#include <string.h>

#include "core.h"
#include "threads.h"

/* A second thread is started for this many states or more. */
#define STATES_PER_THREAD 512
/* A row that was not known when the round began. */
#define UNKNOWN -2

/* ---------------------------------------------------------------------- tables of rows */

static int64_t slot_of(const key_table *t, const int64_t *row)
{
    uint64_t h = 1, mask = (uint64_t)t->slots - 1;
    for (int64_t w = 0; w < t->width; w++) {
        h = (h ^ (uint64_t)row[w]) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    for (h &= mask; t->slot[h] >= 0; h = (h + 1) & mask) {
        const int64_t *known = t->row + t->slot[h] * t->width;
        int64_t w = 0;
        while (w < t->width && known[w] == row[w])
            w++;
        if (w == t->width)
            break;
    }
    return (int64_t)h;
}

int64_t insert_row(const key_table *t, const int64_t *row)
{
    int64_t slot = slot_of(t, row);
    if (t->slot[slot] < 0) {
        assert(*t->count < t->room && 2 * t->room <= t->slots);
        memcpy(t->row + *t->count * t->width, row, (size_t)t->width * sizeof *row);
        t->slot[slot] = (int32_t)(*t->count)++;
    }
    return t->slot[slot];
}

void rehash(const key_table *t)
{
    for (int64_t i = 0; i < *t->count; i++)
        t->slot[slot_of(t, t->row + i * t->width)] = (int32_t)i;
}

/* ---------------------------------------------------------------------- bytecode */

static int64_t floor_divide(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static int64_t power(int64_t base, int64_t exponent)
{
    int64_t result = 1;
    for (int64_t i = 0; i < exponent; i++)
        result *= base;
    return result;
}

/* The number of a lookup's combination of variables, in mixed radix. */
static int64_t lookup_key(const program *p, int64_t number, const int64_t *column)
{
    int64_t key = 0;
    for (int64_t i = p->lookup_ptr[number]; i < p->lookup_ptr[number + 1]; i++) {
        int64_t v = p->lookup[2 * i];
        key += (column[v] - p->var_low[v]) * p->lookup[2 * i + 1];
    }
    return key;
}

/* out[k] = the value of step k on the state in `column`. Returns the step of a lookup whose value is not known, or -1. */
static int64_t run_code(int64_t count, const int64_t *step, const int64_t *column, const program *p, const store *found,
                        int64_t *out)
{
    for (int64_t k = 0; k < count; k++, step += 4) {
        int64_t a = step[1], b = step[2];
        switch (step[0]) {
        case OP_CONSTANT: out[k] = a; break;
        case OP_COLUMN: out[k] = column[a]; break;
        case OP_ADD: out[k] = out[a] + out[b]; break;
        case OP_MULTIPLY: out[k] = out[a] * out[b]; break;
        case OP_MINIMUM: out[k] = out[a] < out[b] ? out[a] : out[b]; break;
        case OP_MAXIMUM: out[k] = out[a] > out[b] ? out[a] : out[b]; break;
        case OP_FLOOR: out[k] = floor_divide(out[a], b); break;
        case OP_CEIL: out[k] = -floor_divide(-out[a], b); break;
        case OP_MOD: out[k] = out[a] - floor_divide(out[a], out[b]) * out[b]; break;
        case OP_POWER: out[k] = power(out[a], out[b]); break;
        case OP_IF: out[k] = out[a] ? out[b] : out[step[3]]; break;
        case OP_AND: out[k] = out[a] && out[b]; break;
        case OP_OR: out[k] = out[a] || out[b]; break;
        case OP_NOT: out[k] = !out[a]; break;
        case OP_EQUAL: out[k] = out[a] == out[b]; break;
        case OP_NOT_EQUAL: out[k] = out[a] != out[b]; break;
        case OP_LESS: out[k] = out[a] < out[b]; break;
        case OP_LESS_EQUAL: out[k] = out[a] <= out[b]; break;
        default: { /* OP_LOOKUP */
            int64_t row[2] = {a, lookup_key(p, a, column)};
            int64_t known = found->values->slot[slot_of(found->values, row)];
            if (known < 0)
                return k;
            out[k] = found->value[known];
        }
        }
    }
    return -1;
}

void run_code_columns(int64_t count, int64_t variables, const int64_t *columns, int64_t steps, const int64_t *step,
               int64_t wanted, const int64_t *which, int64_t *scratch, int64_t *out)
{
    int64_t *column = scratch + steps;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t v = 0; v < variables; v++)
            column[v] = columns[v * count + i];
        run_code(steps, step, column, NULL, NULL, scratch);
        for (int64_t k = 0; k < wanted; k++)
            out[k * count + i] = scratch[which[k]];
    }
}

/* ---------------------------------------------------------------------- one state */

/* What one thread works with: places in its part of the caller's scratch. U updates, W words of a key. */
typedef struct {
    int64_t *column;      /* (variables) */
    int64_t *guards;      /* values of the guards' steps */
    int64_t *steps;       /* values of a command's steps */
    int64_t *stamp;       /* (commands) the state for which a command's updates were last computed */
    int64_t *possible;    /* (U) */
    int64_t *outside;     /* (U) assignment that leaves its range, or -1 */
    int64_t *beyond;      /* (U) the value that it would assign */
    int64_t *delta;       /* (U, W) change of the key */
    int64_t *enabled;     /* (commands) enabled commands of an action, by module */
    int64_t *enabled_ptr; /* (parts + 1) */
    int64_t *at;          /* (parts) which of them is taken */
    int64_t *turn;        /* (parts) which update of a command is taken */
    int64_t *pick;        /* (parts + 1) the action and the commands taken together, padded with -1 */
    int64_t *target;      /* (W) */
    int64_t *choice, *transition, *state_end; /* its buffer */
    int64_t *report;
    int64_t choices, transitions; /* in the buffer */
} thread_state;

int64_t explore_scratch(const program *p)
{
    int64_t updates = p->update_ptr[p->commands];
    return p->variables + p->code_ptr[p->commands + 1] + 2 * p->commands + updates * (3 + p->words) + 4 * p->parts + 2 +
           p->words;
}

static int64_t *take(int64_t **block, int64_t size)
{
    int64_t *taken = *block;
    *block += size;
    return taken;
}

static thread_state at_work(const program *p, const buffers *b, int64_t chunk)
{
    int64_t updates = p->update_ptr[p->commands], *block = b->scratch + chunk * explore_scratch(p);
    thread_state t;
    t.column = take(&block, p->variables);
    t.guards = take(&block, p->code_ptr[1]);
    t.steps = take(&block, p->code_ptr[p->commands + 1] - p->code_ptr[1]);
    t.stamp = take(&block, p->commands);
    t.possible = take(&block, updates);
    t.outside = take(&block, updates);
    t.beyond = take(&block, updates);
    t.delta = take(&block, updates * p->words);
    t.enabled = take(&block, p->commands);
    t.enabled_ptr = take(&block, p->parts + 1);
    t.at = take(&block, p->parts);
    t.turn = take(&block, p->parts);
    t.pick = take(&block, p->parts + 1);
    t.target = take(&block, p->words);
    t.choice = b->choice + chunk * b->choices * (p->parts + 3);
    t.transition = b->transition + chunk * b->transitions * (p->words + 2);
    t.state_end = b->state_end + chunk * b->states;
    t.report = b->report + chunk * 5;
    t.choices = t.transitions = 0;
    return t;
}

static int64_t needs_value(const program *p, thread_state *t, const int64_t *step)
{
    t->report[2] = step[1];
    t->report[3] = lookup_key(p, step[1], t->column);
    return EXPLORE_NEEDS_VALUE;
}

/* Possibility, change of the key and range violations of every update of a command. */
static int64_t run_updates(const program *p, const store *found, int64_t command, thread_state *t)
{
    const int64_t *code = p->step + 4 * p->code_ptr[command + 1];
    int64_t missing = run_code(p->code_ptr[command + 2] - p->code_ptr[command + 1], code, t->column, p, found, t->steps);
    if (missing >= 0)
        return needs_value(p, t, code + 4 * missing);
    for (int64_t u = p->update_ptr[command]; u < p->update_ptr[command + 1]; u++) {
        t->possible[u] = p->chance_ptr[u] == p->chance_ptr[u + 1];
        for (int64_t i = p->chance_ptr[u]; i < p->chance_ptr[u + 1]; i++)
            t->possible[u] |= t->steps[p->chance[i]] != 0;
        t->outside[u] = -1;
        memset(t->delta + u * p->words, 0, (size_t)p->words * sizeof *t->delta);
        for (int64_t i = p->assign_ptr[u]; i < p->assign_ptr[u + 1]; i++) {
            int64_t v = p->assign[2 * i], value = t->steps[p->assign[2 * i + 1]], place = value - p->var_low[v];
            if (place >= 0 && place < p->var_size[v])
                t->delta[u * p->words + p->var_word[v]] += (value - t->column[v]) * ((int64_t)1 << p->var_shift[v]);
            else if (t->outside[u] < 0) {
                t->outside[u] = i;
                t->beyond[u] = value;
            }
        }
    }
    return EXPLORE_DONE;
}

/* Writes a transition to the key in t->target. */
static int64_t add_transition(const program *p, const store *found, const buffers *b, int64_t branch, thread_state *t)
{
    if (t->transitions == b->transitions)
        return EXPLORE_FULL;
    int64_t *row = t->transition + t->transitions++ * (p->words + 2);
    int64_t known = found->states->slot[slot_of(found->states, t->target)];
    row[0] = known < 0 ? UNKNOWN : known;
    row[1] = branch;
    memcpy(row + 2, t->target, (size_t)p->words * sizeof *row);
    return EXPLORE_DONE;
}

/* Closes a choice whose transitions have been written: the combination in t->pick, or DEADLOCK. */
static int64_t add_choice(const program *p, const buffers *b, int64_t combination, thread_state *t)
{
    if (t->choices == b->choices)
        return EXPLORE_FULL;
    int64_t *row = t->choice + t->choices++ * (p->parts + 3);
    row[0] = t->transitions;
    row[1] = combination;
    memcpy(row + 2, t->pick, (size_t)(p->parts + 1) * sizeof *row);
    return EXPLORE_DONE;
}

/* All transitions of the commands in t->pick: every choice of one update each, the last command's fastest. */
static int64_t add_outcomes(const program *p, const store *found, const buffers *b, int64_t state, int64_t size,
                            thread_state *t)
{
    const int64_t *command = t->pick + 1, *key = found->states->row + state * p->words;
    for (int64_t k = 0; k < size; k++)
        t->turn[k] = p->update_ptr[command[k]];
    for (int64_t branch = 0, k = 0; k >= 0; branch++) {
        bool possible = true;
        for (k = 0; k < size; k++)
            possible = possible && t->possible[t->turn[k]];
        if (possible) {
            memcpy(t->target, key, (size_t)p->words * sizeof *key);
            for (k = 0; k < size; k++) {
                int64_t u = t->turn[k];
                if (t->outside[u] >= 0) {
                    t->report[2] = command[k];
                    t->report[3] = t->outside[u];
                    t->report[4] = t->beyond[u];
                    return EXPLORE_OUTSIDE;
                }
                for (int64_t w = 0; w < p->words; w++)
                    t->target[w] += t->delta[u * p->words + w];
            }
            int64_t status = add_transition(p, found, b, branch, t);
            if (status != EXPLORE_DONE)
                return status;
        }
        for (k = size - 1; k >= 0 && ++t->turn[k] == p->update_ptr[command[k] + 1]; k--)
            t->turn[k] = p->update_ptr[command[k]];
    }
    return EXPLORE_DONE;
}

/* Enabled commands of an action by module; how many modules take part, 0 if one of them has none enabled. */
static int64_t gather(const program *p, int64_t action, thread_state *t)
{
    int64_t size = 0, end = 0;
    t->enabled_ptr[0] = 0;
    for (int64_t module = p->action_ptr[action]; module < p->action_ptr[action + 1]; module++) {
        for (int64_t i = p->member_ptr[module]; i < p->member_ptr[module + 1]; i++)
            if (t->guards[p->guard[p->member[i]]])
                t->enabled[end++] = p->member[i];
        if (end == t->enabled_ptr[size])
            return 0;
        t->enabled_ptr[++size] = end;
    }
    return size;
}

/* All choices of an action: one enabled command of every module that takes part, the last module's fastest. */
static int64_t add_choices(const program *p, const store *found, const buffers *b, int64_t state, int64_t action,
                           thread_state *t)
{
    int64_t size = gather(p, action, t), status;
    for (int64_t i = 0; i < (size ? t->enabled_ptr[size] : 0); i++)
        if (t->stamp[t->enabled[i]] != state) {
            if ((status = run_updates(p, found, t->enabled[i], t)) != EXPLORE_DONE)
                return status;
            t->stamp[t->enabled[i]] = state;
        }
    for (int64_t k = 0; k < p->parts; k++) {
        t->at[k] = k < size ? t->enabled_ptr[k] : 0;
        t->pick[k + 1] = k < size ? t->enabled[t->at[k]] : -1;
    }
    t->pick[0] = action;
    for (int64_t k = size ? 0 : -1; k >= 0;) {
        int64_t known = found->combinations->slot[slot_of(found->combinations, t->pick)];
        if ((status = add_outcomes(p, found, b, state, size, t)) != EXPLORE_DONE ||
            (status = add_choice(p, b, known < 0 ? UNKNOWN : known, t)) != EXPLORE_DONE)
            return status;
        for (k = size - 1; k >= 0; k--) {
            bool more = ++t->at[k] < t->enabled_ptr[k + 1];
            if (!more)
                t->at[k] = t->enabled_ptr[k];
            t->pick[k + 1] = t->enabled[t->at[k]];
            if (more)
                break;
        }
    }
    return EXPLORE_DONE;
}

static int64_t expand(const program *p, const store *found, const buffers *b, int64_t state, thread_state *t)
{
    const int64_t *key = found->states->row + state * p->words;
    int64_t before = t->choices, status;
    for (int64_t v = 0; v < p->variables; v++)
        t->column[v] = ((key[p->var_word[v]] >> p->var_shift[v]) & p->var_mask[v]) + p->var_low[v];
    int64_t missing = run_code(p->code_ptr[1], p->step, t->column, p, found, t->guards);
    if (missing >= 0)
        return needs_value(p, t, p->step + 4 * missing);
    for (int64_t action = 0; action < p->actions; action++)
        if ((status = add_choices(p, found, b, state, action, t)) != EXPLORE_DONE)
            return status;
    if (t->choices > before)
        return EXPLORE_DONE;
    memcpy(t->target, key, (size_t)p->words * sizeof *key); /* nothing is enabled: stay */
    status = add_transition(p, found, b, 0, t);
    return status == EXPLORE_DONE ? add_choice(p, b, DEADLOCK, t) : status;
}

/* ---------------------------------------------------------------------- rounds */

typedef struct {
    const program *p;
    const store *found;
    const buffers *b;
    int64_t first, end, size; /* states of the round, and of one chunk of it */
} exploration_round;

/* Expands the states of a chunk; report: how many, and why it stopped. */
static void expand_chunk(void *context, int64_t chunk, int64_t next_chunk)
{
    const exploration_round *r = context;
    int64_t first = r->first + chunk * r->size, end = first + r->size < r->end ? first + r->size : r->end;
    thread_state t = at_work(r->p, r->b, chunk);
    (void)next_chunk;
    for (int64_t c = 0; c < r->p->commands; c++)
        t.stamp[c] = -1;
    t.report[0] = EXPLORE_DONE;
    t.report[1] = 0;
    for (int64_t state = first; state < end; state++) {
        if ((t.report[0] = expand(r->p, r->found, r->b, state, &t)) != EXPLORE_DONE)
            return;
        t.state_end[t.report[1]++] = t.choices;
    }
}

/* Numbers what is new in a chunk. */
static void merge_chunk(const exploration_round *r, int64_t chunk)
{
    const program *p = r->p;
    const store *found = r->found;
    thread_state t = at_work(p, r->b, chunk);
    int64_t *counts = found->counts, choice = 0, transition = 0;
    for (int64_t k = 0; k < t.report[1]; k++, counts[COUNT_NEXT]++)
        for (; choice < t.state_end[k]; choice++, counts[COUNT_CHOICES]++) {
            const int64_t *row = t.choice + choice * (p->parts + 3);
            int64_t combination = row[1] == UNKNOWN ? insert_row(found->combinations, row + 2) : row[1];
            for (; transition < row[0]; transition++, counts[COUNT_TRANSITIONS]++) {
                const int64_t *to = t.transition + transition * (p->words + 2);
                int64_t known = *found->states->count;
                int64_t successor = to[0] == UNKNOWN ? insert_row(found->states, to + 2) : to[0];
                if (successor == known)
                    found->level[successor] = found->level[counts[COUNT_NEXT]] + 1;
                found->successor[counts[COUNT_TRANSITIONS]] = (int32_t)successor;
                found->branch[counts[COUNT_TRANSITIONS]] = to[1];
            }
            found->choice_state[counts[COUNT_CHOICES]] = (int32_t)counts[COUNT_NEXT];
            found->choice_combination[counts[COUNT_CHOICES]] = (int32_t)combination;
            found->choice_end[counts[COUNT_CHOICES]] = counts[COUNT_TRANSITIONS];
        }
}

static bool has_room(const store *found, int64_t choices, int64_t transitions)
{
    return found->choice_room - found->counts[COUNT_CHOICES] >= choices &&
           found->transition_room - found->counts[COUNT_TRANSITIONS] >= transitions &&
           found->combinations->room - *found->combinations->count >= choices &&
           found->states->room - *found->states->count >= transitions;
}

int64_t explore(const program *p, const store *found, const buffers *b, int64_t max_states, int64_t pause)
{
    int64_t stop = found->counts[COUNT_NEXT] + pause;
    for (;;) {
        int64_t first = found->counts[COUNT_NEXT], left = *found->states->count - first;
        if (left == 0)
            return EXPLORE_DONE;
        if (first >= stop || *found->states->count > max_states)
            return EXPLORE_PAUSED;
        int64_t chunks = left / STATES_PER_THREAD + 1 < b->chunks ? left / STATES_PER_THREAD + 1 : b->chunks;
        if (!has_room(found, chunks * b->choices, chunks * b->transitions)) {
            b->report[1] = chunks;
            return EXPLORE_FULL;
        }
        int64_t size = (left + chunks - 1) / chunks < b->states ? (left + chunks - 1) / chunks : b->states;
        exploration_round r = {p, found, b, first, first + left, size};
        parallel_for(chunks, 1, chunks, expand_chunk, &r);
        for (int64_t chunk = 0; chunk < chunks; chunk++) {
            int64_t *report = b->report + 5 * chunk;
            merge_chunk(&r, chunk);
            if (report[0] == EXPLORE_FULL && report[1] > 0)
                break; /* the rest comes in the next round */
            if (report[0] != EXPLORE_DONE) {
                memmove(b->report, report, 5 * sizeof *report);
                return report[0] == EXPLORE_FULL ? EXPLORE_SLAB_TOO_SMALL : b->report[0];
            }
        }
    }
}
