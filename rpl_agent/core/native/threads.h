/* Loops on several processors. */
#ifndef RPL_THREADS_H
#define RPL_THREADS_H

#include <stdint.h>

/* Calls body(context, begin, end) for parts of [0, count) of length `grain` (the last may be shorter), in at most `threads`
 * threads. Which thread takes which part depends on chance: a body may only write what belongs to its part. */
void parallel_for(int64_t count, int64_t grain, int64_t threads, void (*body)(void *, int64_t, int64_t), void *context);

/* The length of parts by which each of `threads` threads gets one. */
static inline int64_t share_of(int64_t count, int64_t threads)
{
    return count > threads ? (count + threads - 1) / threads : 1;
}

#endif
