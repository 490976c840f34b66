/*
 * Runs a test case in the form of the will-it-scale suite: one thread for each number of iterations that it counts, until all of them have counted as
 * many as were asked for. Arguments: threads, iterations. Prints the least iterations of a thread and ends the process, threads and all.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_THREADS 64

extern char *testcase_description;
void testcase(unsigned long long *iterations, unsigned long nr);

/* Each on lines of its own. */
static struct {
    _Alignas(128) unsigned long long done;
} counts[MAX_THREADS];

static void *run(void *number)
{
    testcase(&counts[(unsigned long)number].done, (unsigned long)number);
    return NULL; /* never */
}

int main(int argc, char **argv)
{
    unsigned long threads = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
    unsigned long long wanted = argc > 2 ? strtoull(argv[2], NULL, 10) : 100000;
    pthread_t thread;

    if (threads < 1 || threads > MAX_THREADS)
        return 2;
    for (unsigned long i = 0; i < threads; i++)
        if (pthread_create(&thread, NULL, run, (void *)i) != 0)
            return 1;
    for (unsigned long i = 0; i < threads; i++)
        while (__atomic_load_n(&counts[i].done, __ATOMIC_RELAXED) < wanted)
            sched_yield();
    printf("%s: %lu threads have each done %llu\n", testcase_description, threads, wanted);
    fflush(stdout);
    _Exit(0);
}
