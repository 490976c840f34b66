/*
 * One byte into one end of a pair, and out of the other, for ever: the loop that benchmark suites call unix1. Run with a number of
 * exchanges; prints nanoseconds for each.
 */
#include "manylane_local.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 1000000;
    struct timespec started, ended;
    int fds[2];
    char byte = 7;

    if (rounds < 1 || ml_socketpair(ML_STREAM, fds) != 0) {
        perror("unix1");
        return 1;
    }
    clock_gettime(CLOCK_MONOTONIC, &started);
    for (long i = 0; i < rounds; i++) {
        if (ml_send(fds[0], &byte, 1, 0) != 1 || ml_recv(fds[1], &byte, 1, 0) != 1) {
            perror("unix1");
            return 1;
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%.1f ns\n", ((double)(ended.tv_sec - started.tv_sec) * 1e9 + (double)(ended.tv_nsec - started.tv_nsec)) / (double)rounds);
    return byte == 7 ? 0 : 1;
}
