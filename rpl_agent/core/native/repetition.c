/* Repeated chance: codes of the contexts of steps, and the last outcome in each context (`core.evidence.repetition`). */
#include <math.h>

#include "core.h"

/* Of polynomials modulo 2^64; odd, hence invertible. */
#define RADIX UINT64_C(0xD1342543DE82EF95)
/* Rows are mixed differently from steps: row 3 in step 5 is not row 5 in step 3. */
#define ROWS (UINT64_C(1) << 40)
/* In place of a transition in a slot without a context. */
#define EMPTY -1
/* Places in the tally of a table. */
enum { STORED, RATE, HITS, MISSES, EARLIER, LATER };

/* The finaliser of splitmix64. */
static inline uint64_t mix(uint64_t word)
{
    word = (word + 1) * UINT64_C(0x9E3779B97F4A7C15);
    word = (word ^ (word >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    word = (word ^ (word >> 27)) * UINT64_C(0x94D049BB133111EB);
    return word ^ (word >> 31);
}

void mix_words(int64_t n, const uint64_t *words, uint64_t *out)
{
    for (int64_t k = 0; k < n; k++)
        out[k] = mix(words[k]);
}

void episode_codes(int64_t n, const int64_t *transitions, const bool *starts, uint64_t *state, uint64_t *steps,
                   uint64_t *episodes)
{
    uint64_t step = state[0], prefix = state[1], power = state[2];
    for (int64_t k = 0; k < n; k++) {
        if (starts[k]) {
            step = prefix = 0;
            power = 1;
        }
        steps[k] = mix(step);
        episodes[k] = mix(prefix + steps[k]);
        prefix += mix((uint64_t)transitions[k]) * power;
        power *= RADIX;
        step++;
    }
    state[0] = step;
    state[1] = prefix;
    state[2] = power;
}

void window_codes(int64_t n, int64_t before, int64_t width, const int64_t *transitions, uint64_t *codes)
{
    uint64_t inverse = RADIX, top = 1, sum = 0;
    for (int round = 0; round < 6; round++) /* Newton: each round doubles the number of right bits */
        inverse *= 2 - RADIX * inverse;
    for (int64_t j = 1; j < width; j++)
        top *= RADIX;
    for (int64_t i = 0; i < before + n; i++) { /* sum is of the `width` transitions before i, or of all of them */
        if (i >= before)
            codes[i - before] = mix(i >= width ? sum : (uint64_t)(i - width));
        if (i >= width)
            sum -= mix((uint64_t)transitions[i - width]);
        sum = sum * inverse + mix((uint64_t)transitions[i]) * top;
    }
}

/* The slot of a code, or an empty one; low bits are equal in codes that were selected by them. */
static int64_t slot_of(const contexts *table, uint64_t code)
{
    const uint64_t mask = (uint64_t)table->slots - 1;
    uint64_t at = (code >> 24) & mask;
    while (table->last[at] != EMPTY && table->code[at] != code)
        at = (at + 1) & mask;
    return (int64_t)at;
}

int64_t compare_contexts(const contexts *table, int64_t n, const uint64_t *codes, const int64_t *transitions,
                         int64_t place, const int32_t *row_of, const int64_t *row_ptr)
{
    int64_t *tally = table->tally;
    const uint64_t others = (uint64_t)tally[RATE] - 1;
    for (int64_t k = 0; k < n; k++) {
        const int64_t t = transitions[k], row = row_of[t], size = row_ptr[row + 1] - row_ptr[row];
        const uint64_t code = mix(codes[k] ^ mix((uint64_t)row + ROWS));
        if (size < 2 || (code & others)) /* the former is deterministic */
            continue;
        const int64_t at = slot_of(table, code), last = table->last[at];
        if (last == EMPTY) {
            if (2 * (tally[STORED] + 1) > table->slots)
                return k;
            tally[STORED]++;
            table->code[at] = code;
        } else if (row_of[last] == row) { /* codes of different rows may collide */
            table->matched[t]++;
            if (last == t) {
                tally[HITS]++;
                tally[EARLIER] = table->place[at];
                tally[LATER] = place + k;
            } else {
                tally[MISSES]++;
                table->others[0] += log((double)(size - 1));
            }
        }
        table->last[at] = t;
        table->place[at] = place + k;
    }
    return n;
}

void move_contexts(const contexts *old, const contexts *new)
{
    const uint64_t others = (uint64_t)new->tally[RATE] - 1;
    new->tally[STORED] = 0;
    for (int64_t i = 0; i < old->slots; i++) {
        if (old->last[i] == EMPTY || (old->code[i] & others))
            continue;
        const int64_t at = slot_of(new, old->code[i]);
        new->code[at] = old->code[i];
        new->last[at] = old->last[i];
        new->place[at] = old->place[i];
        new->tally[STORED]++;
    }
}
