/* Loops on several processors: threads that live as long as the loop, because a library without globals has no pool, and
 * none survives a fork. */
#include <pthread.h>

#include "threads.h"

#define MOST_THREADS 64

typedef struct {
    pthread_mutex_t lock;
    int64_t next, count, grain;
    void (*body)(void *, int64_t, int64_t);
    void *context;
} loop;

static void *take_parts(void *argument)
{
    loop *l = argument;
    for (;;) {
        pthread_mutex_lock(&l->lock);
        int64_t begin = l->next;
        l->next += l->grain;
        pthread_mutex_unlock(&l->lock);
        if (begin >= l->count)
            return NULL;
        l->body(l->context, begin, begin + l->grain < l->count ? begin + l->grain : l->count);
    }
}

void parallel_for(int64_t count, int64_t grain, int64_t threads, void (*body)(void *, int64_t, int64_t), void *context)
{
    loop l = {PTHREAD_MUTEX_INITIALIZER, 0, count, grain, body, context};
    pthread_t helper[MOST_THREADS];
    int64_t helpers = 0, parts = (count + grain - 1) / grain;
    if (threads > parts)
        threads = parts;
    while (helpers < threads - 1 && helpers < MOST_THREADS)
        if (pthread_create(&helper[helpers], NULL, take_parts, &l) == 0)
            helpers++;
        else
            break; /* fewer threads do the same */
    take_parts(&l);
    while (helpers > 0)
        pthread_join(helper[--helpers], NULL);
    pthread_mutex_destroy(&l.lock);
}
