/*
 * A test case in the form of the will-it-scale suite: a description, and a function that never returns and counts its iterations. It is
 * written for the system's sockets and says nothing of ours: see posix_names.h.
 */
#include <assert.h>
#include <sys/socket.h>
#include <unistd.h>

char *testcase_description = "a byte written to one end of a pair and read from the other";

void testcase(unsigned long long *iterations, unsigned long nr)
{
    char byte = (char)nr;
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        assert(0);
    for (;;) {
        if (write(ends[0], &byte, 1) != 1 || read(ends[1], &byte, 1) != 1)
            assert(0);
        (*iterations)++;
    }
}
