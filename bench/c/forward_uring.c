/*
 * A minimal TCP forwarder over io_uring with raw system calls, for comparison with crates/io/examples/forward.rs.
 *
 *   forward_uring LISTEN_PORT TARGET_PORT    (both on 127.0.0.1; with 0, the kernel chooses, and the port is printed)
 *
 * Each end has a buffer, with one receive into it and one send from it in turn. A round needs one enter. Requires
 * Linux 6.1. For measurements: connections stay open until the program ends with its standard input.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ENTRIES = 256, COMPLETIONS = 4096, ROOM = 2048 };
enum { RECEIVED, SENT, ACCEPTED, INPUT }; /* the kind of a completion, in the lowest bits of its user data */

struct end {
    int fd;
    struct end *peer;
    int at, len; /* the part of the buffer that is left to send */
    char room[ROOM];
} __attribute__((aligned(64)));

static int ring;
static unsigned *sq_tail, *sq_mask, *cq_head, *cq_tail, *cq_mask, queued;
static struct io_uring_sqe *sqes;
static struct io_uring_cqe *cqes;
static unsigned long calls, waits;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void enter(unsigned wanted) {
    waits++;
    if (syscall(SYS_io_uring_enter, ring, queued, wanted, IORING_ENTER_GETEVENTS, NULL, 0) < 0) die("io_uring_enter");
    queued = 0;
}

static struct io_uring_sqe *operation(int code, int fd, const void *room, unsigned len, uint64_t number) {
    if (queued == ENTRIES) enter(0);
    struct io_uring_sqe *sqe = &sqes[*sq_tail & *sq_mask];
    *sqe = (struct io_uring_sqe){.opcode = (uint8_t)code, .fd = fd, .addr = (uintptr_t)room, .len = len, .user_data = number};
    __atomic_store_n(sq_tail, *sq_tail + 1, __ATOMIC_RELEASE);
    queued++;
    return sqe;
}

static void receive(struct end *end) { operation(IORING_OP_RECV, end->fd, end->room, ROOM, (uintptr_t)end | RECEIVED); }

/* The number is that of the end whose buffer is sent, to the peer's descriptor. */
static void transmit(struct end *end) {
    struct io_uring_sqe *sqe =
        operation(IORING_OP_SEND, end->peer->fd, end->room + end->at, (unsigned)end->len, (uintptr_t)end | SENT);
    sqe->msg_flags = MSG_NOSIGNAL;
}

static void set_up(void) {
    struct io_uring_params p = {.cq_entries = COMPLETIONS};
    p.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE;
    ring = (int)syscall(SYS_io_uring_setup, ENTRIES, &p);
    if (ring < 0) die("io_uring_setup");
    size_t sq = p.sq_off.array + p.sq_entries * sizeof(unsigned), cq = p.cq_off.cqes + p.cq_entries * sizeof *cqes;
    char *both = mmap(NULL, sq > cq ? sq : cq, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
    sqes = mmap(NULL, p.sq_entries * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
    if (both == MAP_FAILED || (void *)sqes == MAP_FAILED) die("mmap");
    sq_tail = (unsigned *)(both + p.sq_off.tail);
    sq_mask = (unsigned *)(both + p.sq_off.ring_mask);
    for (unsigned i = 0; i < p.sq_entries; i++) ((unsigned *)(both + p.sq_off.array))[i] = i;
    cq_head = (unsigned *)(both + p.cq_off.head);
    cq_tail = (unsigned *)(both + p.cq_off.tail);
    cq_mask = (unsigned *)(both + p.cq_off.ring_mask);
    cqes = (struct io_uring_cqe *)(both + p.cq_off.cqes);
}

static struct end *end_of(int fd) {
    struct end *end = aligned_alloc(64, sizeof *end);
    int one = 1;
    if (!end) die("aligned_alloc");
    end->fd = fd;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    calls++;
    return end;
}

static void accepted(int client, struct sockaddr_in *target) {
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server < 0 || connect(server, (struct sockaddr *)target, sizeof *target) < 0) die("connect");
    calls += 2;
    struct end *a = end_of(client), *b = end_of(server);
    a->peer = b;
    b->peer = a;
    receive(a);
    receive(b);
}

static struct sockaddr_in local(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: forward_uring LISTEN_PORT TARGET_PORT\n");
        return 2;
    }
    struct sockaddr_in listen_at = local(atoi(argv[1])), target = local(atoi(argv[2]));
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&listen_at, sizeof listen_at) < 0) die("bind");
    if (listen(listener, 1024) < 0) die("listen");
    socklen_t len = sizeof listen_at;
    getsockname(listener, (struct sockaddr *)&listen_at, &len);
    printf("forwarding 127.0.0.1:%d to 127.0.0.1:%d, in C\n", ntohs(listen_at.sin_port), ntohs(target.sin_port));
    fflush(stdout);

    set_up();
    char input;
    operation(IORING_OP_ACCEPT, listener, NULL, 0, ACCEPTED);
    operation(IORING_OP_READ, 0, &input, 1, INPUT);
    for (;;) {
        enter(1);
        unsigned head = *cq_head, tail = __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE);
        for (; head != tail; head++) {
            struct io_uring_cqe *cqe = &cqes[head & *cq_mask];
            struct end *end = (struct end *)(uintptr_t)(cqe->user_data & ~(uint64_t)63);
            int n = cqe->res;
            switch (cqe->user_data & 63) {
            case ACCEPTED:
                if (n >= 0) accepted(n, &target);
                operation(IORING_OP_ACCEPT, listener, NULL, 0, ACCEPTED);
                break;
            case INPUT:
                printf("calls %lu waits %lu\n", calls + waits, waits);
                return 0;
            case RECEIVED:
                if (n <= 0) {
                    shutdown(end->peer->fd, SHUT_WR);
                    break;
                }
                end->at = 0;
                end->len = n;
                transmit(end);
                break;
            case SENT:
                if (n < 0) break;
                end->at += n;
                end->len -= n;
                if (end->len > 0) transmit(end);
                else receive(end);
                break;
            }
        }
        __atomic_store_n(cq_head, head, __ATOMIC_RELEASE);
    }
}
