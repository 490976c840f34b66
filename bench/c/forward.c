/*
 * A minimal TCP forwarder over epoll, for comparison with crates/io/examples/forward.rs: careful handwritten C,
 * without buffers that outlive a call, and without timers, tasks or statistics.
 *
 *   forward LISTEN_PORT TARGET_PORT    (both on 127.0.0.1; with 0, the kernel chooses, and the port is printed)
 *
 * Each descriptor is registered once, edge-triggered. A read that does not fill its buffer has emptied the socket,
 * so a forwarded request and its response are two reads and two writes. The program ends with its standard input.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS = 256, ROOM = 2048 };

struct end {
    int fd;
    struct end *peer;
    char *kept; /* bytes that the peer did not take */
    size_t kept_at, kept_len;
    int closed; /* this end has closed its side */
    int dead;
};

static struct end *graveyard[4 * EVENTS];
static int buried;
static unsigned long calls;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static struct sockaddr_in local(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static void bury(struct end *end) {
    struct end *both[2] = {end, end->peer};
    if (end->dead) return;
    for (int i = 0; i < 2; i++) {
        both[i]->dead = 1;
        close(both[i]->fd);
        calls++;
        graveyard[buried++] = both[i];
    }
}

/* Sends the bytes kept for `end`; returns 0 if all were sent. */
static int flush(struct end *end) {
    while (end->kept_len > 0) {
        ssize_t n = send(end->fd, end->kept + end->kept_at, end->kept_len, MSG_NOSIGNAL);
        calls++;
        if (n < 0) return errno == EAGAIN ? 1 : -1;
        end->kept_at += (size_t)n;
        end->kept_len -= (size_t)n;
    }
    free(end->kept);
    end->kept = NULL;
    return 0;
}

/* Moves received bytes from `end` to its peer. */
static void forward(struct end *end) {
    char room[ROOM];
    struct end *peer = end->peer;
    while (!end->dead && !end->closed && peer->kept_len == 0) {
        ssize_t n = recv(end->fd, room, sizeof room, 0);
        calls++;
        if (n < 0) {
            if (errno == EAGAIN) return;
            if (errno == EINTR) continue;
            bury(end);
            return;
        }
        if (n == 0) {
            end->closed = 1;
            shutdown(peer->fd, SHUT_WR);
            calls++;
            if (peer->closed) bury(end);
            return;
        }
        ssize_t sent = send(peer->fd, room, (size_t)n, MSG_NOSIGNAL);
        calls++;
        if (sent < 0 && errno != EAGAIN) {
            bury(end);
            return;
        }
        if (sent < 0) sent = 0;
        if (sent < n) {
            peer->kept_len = (size_t)(n - sent);
            peer->kept_at = 0;
            peer->kept = malloc(peer->kept_len);
            if (!peer->kept) die("malloc");
            memcpy(peer->kept, room + sent, peer->kept_len);
        }
        if (n < ROOM) return; /* the socket is empty, and the next arrival is an edge */
    }
}

static struct end *watch(int epoll, int fd) {
    struct end *end = calloc(1, sizeof *end);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = end};
    if (!end) die("calloc");
    end->fd = fd;
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0) die("epoll_ctl");
    calls += 2;
    return end;
}

static void accept_all(int epoll, int listener, struct sockaddr_in *target) {
    for (;;) {
        int client = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        calls++;
        if (client < 0) return;
        int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        /* On this machine, so it connects immediately. */
        if (server < 0 || connect(server, (struct sockaddr *)target, sizeof *target) < 0) die("connect");
        if (fcntl(server, F_SETFL, O_NONBLOCK) < 0) die("fcntl");
        calls += 3;
        struct end *a = watch(epoll, client), *b = watch(epoll, server);
        a->peer = b;
        b->peer = a;
    }
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: forward LISTEN_PORT TARGET_PORT\n");
        return 2;
    }
    struct sockaddr_in listen_at = local(atoi(argv[1])), target = local(atoi(argv[2]));
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&listen_at, sizeof listen_at) < 0) die("bind");
    if (listen(listener, 1024) < 0) die("listen");
    socklen_t len = sizeof listen_at;
    getsockname(listener, (struct sockaddr *)&listen_at, &len);
    printf("forwarding 127.0.0.1:%d to 127.0.0.1:%d, in C\n", ntohs(listen_at.sin_port), ntohs(target.sin_port));
    fflush(stdout);

    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event on_listener = {.events = EPOLLIN | EPOLLET, .data.ptr = NULL};
    struct epoll_event on_input = {.events = EPOLLIN, .data.ptr = &on_input};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &on_listener) < 0) die("epoll_ctl");
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, 0, &on_input) < 0) die("epoll_ctl: standard input has to be a pipe");
    unsigned long waits = 0;
    for (;;) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(epoll, events, EVENTS, -1);
        waits++;
        for (int i = 0; i < n; i++) {
            struct end *end = events[i].data.ptr;
            if (!end) {
                accept_all(epoll, listener, &target);
                continue;
            }
            if ((void *)end == (void *)&on_input) {
                printf("calls %lu waits %lu\n", calls + waits, waits);
                return 0;
            }
            if (end->dead) continue;
            if (end->kept_len > 0 && events[i].events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) {
                int left = flush(end);
                if (left < 0) {
                    bury(end);
                    continue;
                }
                if (left == 0) forward(end->peer);
            }
            if (events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) forward(end);
        }
        while (buried > 0) {
            struct end *end = graveyard[--buried];
            free(end->kept);
            free(end);
        }
    }
}
