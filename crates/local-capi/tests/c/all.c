/* Calls every function of the header once correctly and, if possible, once incorrectly. Exits with 0 if all results are right. */
#include "manylane_local.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: %s (errno %d: %s)\n", __FILE__, __LINE__, #what, errno, strerror(errno)); \
            exit(1); \
        } \
    } while (0)
#define FAILS(call, number) CHECK((errno = 0, (call) == -1) && errno == (number))

static void *serve(void *argument)
{
    int listener = *(int *)argument, connection;
    char buf[64];
    ssize_t n;

    CHECK((connection = ml_accept(listener)) >= ML_FIRST_FD);
    while ((n = ml_recv(connection, buf, sizeof buf, 0)) > 0)
        CHECK(ml_send(connection, buf, (size_t)n, 0) == n);
    CHECK(n == 0);
    CHECK(ml_close(connection) == 0);
    return NULL;
}

static void pairs(int type)
{
    int fds[2], dup;
    char buf[16];

    CHECK(ml_socketpair(type, fds) == 0);
    CHECK(fds[0] >= ML_FIRST_FD && fds[1] > fds[0]);
    CHECK(ml_send(fds[0], "hello", 5, 0) == 5);
    CHECK(ml_recv(fds[1], buf, sizeof buf, 0) == 5 && memcmp(buf, "hello", 5) == 0);
    FAILS(ml_recv(fds[1], buf, sizeof buf, ML_DONTWAIT), EAGAIN);
    FAILS(ml_recv(fds[1], buf, sizeof buf, 0x2), EOPNOTSUPP); /* MSG_PEEK */
    FAILS(ml_send(fds[1], NULL, 5, 0), EFAULT);
    CHECK((dup = ml_dup(fds[0])) > fds[1]);
    CHECK(ml_close(fds[0]) == 0);
    FAILS(ml_dup(fds[0]), EBADF);
    FAILS(ml_close(fds[0]), EBADF);
    FAILS(ml_send(fds[0], "x", 1, 0), EBADF);
    CHECK(ml_send(dup, "dup", 3, 0) == 3);
    CHECK(ml_shutdown(dup, ML_SHUT_WR) == 0);
    FAILS(ml_shutdown(dup, 9), EINVAL);
    FAILS(ml_send(dup, "x", 1, 0), EPIPE);
    CHECK(ml_recv(fds[1], buf, sizeof buf, 0) == 3);
    CHECK(ml_close(dup) == 0 && ml_close(fds[1]) == 0);
}

static void connections(void)
{
    int listener, client, other;
    pthread_t server;
    char buf[16];
    size_t len = sizeof buf;
    struct ml_ucred cred;

    CHECK((listener = ml_socket(ML_STREAM)) >= 0);
    FAILS(ml_listen(listener, 1), EINVAL);
    CHECK(ml_bind(listener, "name", 4) == 0);
    CHECK(ml_listen(listener, 1) == 0);
    CHECK(pthread_create(&server, NULL, serve, &listener) == 0);
    CHECK((client = ml_socket(ML_STREAM)) >= 0);
    FAILS(ml_connect(client, "nobody", 6), ECONNREFUSED);
    FAILS(ml_connect(client, "", 0), EINVAL);
    FAILS(ml_getpeername(client, buf, &len), ENOTCONN);
    FAILS(ml_getpeercred(client, &cred), ENOTCONN);
    CHECK(ml_connect(client, "name", 4) == 0);
    FAILS(ml_connect(client, "name", 4), EISCONN);
    CHECK(ml_getpeername(client, buf, &len) == 0 && len == 4 && memcmp(buf, "name", 4) == 0);
    len = sizeof buf;
    FAILS(ml_getpeername(client, NULL, &len), EFAULT);
    FAILS(ml_getsockname(client, NULL, &len), EFAULT);
    FAILS(ml_getsockname(client, buf, NULL), EFAULT);
    FAILS(ml_getsockname(STDERR_FILENO, buf, &len), EBADF); /* one of the system's */
    CHECK(ml_getsockname(client, buf, &len) == 0 && len == 0);
    FAILS(ml_getpeercred(client, NULL), EFAULT);
    CHECK(ml_getpeercred(client, &cred) == 0 && cred.pid == (unsigned)getpid() && cred.uid == geteuid());
    CHECK(ml_send(client, "echo", 4, 0) == 4);
    CHECK(ml_recv(client, buf, sizeof buf, 0) == 4 && memcmp(buf, "echo", 4) == 0);
    CHECK(ml_shutdown(client, ML_SHUT_WR) == 0);
    CHECK(ml_recv(client, buf, sizeof buf, 0) == 0);
    CHECK(pthread_join(server, NULL) == 0);
    CHECK((other = ml_socket(ML_STREAM | ML_NONBLOCK)) >= 0);
    FAILS(ml_bind(other, "name", 4), EADDRINUSE);
    CHECK(ml_bind(other, "other", 5) == 0 && ml_listen(other, -1) == 0); /* as many as can be */
    FAILS(ml_accept(other), EAGAIN);
    for (int i = 0; i < 2; i++) {
        CHECK(ml_close(client) == 0 && (client = ml_socket(ML_STREAM)) >= 0);
        CHECK(ml_connect(client, "other", 5) == 0);
    }
    CHECK(ml_close(other) == 0 && ml_close(client) == 0 && ml_close(listener) == 0);
}

static void datagrams(void)
{
    int a, b;
    char buf[16], from[16];
    size_t len = sizeof from;

    CHECK((a = ml_socket(ML_DGRAM)) >= 0 && (b = ml_socket(ML_DGRAM)) >= 0);
    CHECK(ml_bind(a, "a", 1) == 0 && ml_bind(b, "b", 1) == 0);
    FAILS(ml_send(a, "x", 1, 0), EDESTADDRREQ);
    CHECK(ml_sendto(a, "to b", 4, 0, "b", 1) == 4);
    FAILS(ml_recvfrom(b, buf, sizeof buf, 0, from, NULL), EFAULT); /* and nothing is lost */
    CHECK(ml_recvfrom(b, buf, sizeof buf, 0, from, &len) == 4 && len == 1 && from[0] == 'a');
    FAILS(ml_sendto(a, "x", 1, 0, NULL, 0), EDESTADDRREQ);
    CHECK(ml_connect(a, "b", 1) == 0 && ml_sendto(a, "to b", 4, 0, NULL, 0) == 4);
    CHECK(ml_recvfrom(b, buf, sizeof buf, 0, NULL, NULL) == 4);
    FAILS(ml_send(a, buf, (size_t)-1, 0), EFAULT);
    FAILS(ml_recv(b, buf, (size_t)-1, 0), EFAULT);
    CHECK(ml_close(a) == 0 && ml_close(b) == 0);
}

static void descriptors(void)
{
    int over[2], sent[2], got[2];
    char buf[16];
    size_t n = 2;

    CHECK(ml_socketpair(ML_SEQPACKET, over) == 0 && ml_socketpair(ML_STREAM, sent) == 0);
    CHECK(ml_send_fds(over[0], "fd", 2, 0, &sent[1], 1) == 2);
    CHECK(ml_close(sent[1]) == 0);
    FAILS(ml_recv_fds(over[1], buf, sizeof buf, 0, got, NULL), EFAULT);
    FAILS(ml_recv_fds(over[1], buf, sizeof buf, 0, NULL, &n), EFAULT); /* and nothing is lost */
    CHECK(ml_recv_fds(over[1], buf, sizeof buf, 0, got, &n) == 2 && n == 1);
    FAILS(ml_recv_fds(over[1], buf, sizeof buf, ML_DONTWAIT, got, &n), EAGAIN);
    CHECK(ml_send(got[0], "x", 1, 0) == 1 && ml_recv(sent[0], buf, sizeof buf, 0) == 1);
    sent[1] = 0; /* one of the system's */
    FAILS(ml_send_fds(over[0], "fd", 2, 0, &sent[1], 1), EBADF);
    CHECK(ml_close(got[0]) == 0 && ml_close(sent[0]) == 0 && ml_close(over[0]) == 0 && ml_close(over[1]) == 0);
}

static void options(void)
{
    int fds[2];
    unsigned long long value;
    char buf[4096] = {0};

    CHECK(ml_socketpair(ML_STREAM, fds) == 0);
    CHECK(ml_setsockopt(fds[1], ML_SO_RCVBUF, 100) == 0);
    CHECK(ml_getsockopt(fds[1], ML_SO_RCVBUF, &value) == 0 && value == 100);
    CHECK(ml_send(fds[0], buf, sizeof buf, ML_DONTWAIT) == 100);
    CHECK(ml_setsockopt(fds[0], ML_SO_SNDTIMEO, 1000000) == 0);
    FAILS(ml_send(fds[0], buf, 1, 0), EAGAIN);
    CHECK(ml_getsockopt(fds[0], ML_SO_SNDTIMEO, &value) == 0 && value == 1000000);
    CHECK(ml_getsockopt(fds[0], ML_SO_RCVTIMEO, &value) == 0 && value == ML_FOREVER);
    CHECK(ml_setsockopt(fds[0], ML_SO_NONBLOCK, 1) == 0);
    FAILS(ml_recv(fds[0], buf, 1, 0), EAGAIN);
    CHECK(ml_setsockopt(fds[0], ML_SO_BUSY_POLL, 1000) == 0);
    FAILS(ml_setsockopt(fds[0], ML_SO_RCVBUF, 0), EINVAL);
    FAILS(ml_setsockopt(fds[0], 99, 0), ENOPROTOOPT);
    FAILS(ml_getsockopt(fds[0], 99, &value), ENOPROTOOPT);
    FAILS(ml_getsockopt(fds[0], ML_SO_BUSY_POLL, &value), ENOPROTOOPT); /* cannot be read back */
    FAILS(ml_getsockopt(fds[0], ML_SO_RCVBUF, NULL), EFAULT);
    FAILS(ml_getsockopt(STDERR_FILENO, ML_SO_RCVBUF, &value), EBADF);
    CHECK(ml_close(fds[0]) == 0 && ml_close(fds[1]) == 0);
}

int main(void)
{
    FAILS(ml_socket(77), EPROTOTYPE);
    FAILS(ml_socketpair(ML_STREAM, NULL), EFAULT);
    FAILS(ml_close(3), EBADF);
    FAILS(ml_close(-1), EBADF);
    pairs(ML_STREAM);
    pairs(ML_DGRAM);
    pairs(ML_SEQPACKET);
    connections();
    datagrams();
    descriptors();
    options();
    return 0;
}
