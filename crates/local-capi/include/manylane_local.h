/*
 * Local domain sockets inside one process, without system calls: the C interface of manylane-local.
 *
 * The functions are those of <sys/socket.h> with the prefix ml_, and do what those do for AF_UNIX, with these differences:
 *   - A descriptor is a number of this library, from ML_FIRST_FD on. The system does not know it, so it cannot be given to read(),
 *     poll() or close().
 *   - A name is an array of 1 to ML_MAX_NAME bytes, which exists only inside the process.
 *   - Connecting to a listener whose backlog is full is refused at once, as BSD does it.
 *   - Whether calls wait is a property of the descriptor, not of the socket: ml_dup copies it, and descriptors from ml_accept and
 *     ml_recv_fds wait.
 *   - Flags: ML_DONTWAIT. All others are refused with EOPNOTSUPP. No signal is ever raised.
 *
 * All functions return -1 and set errno on failure, may be called from any thread, and may block only where their namesakes may.
 * A descriptor that is closed while another thread uses it stays usable for that call, which ends as if it were still open; if it waits,
 * it goes on waiting until it completes or its timeout ends: shut the socket down first. (A thread in ml_accept is
 * freed by a connection or its timeout only.)
 */
#ifndef MANYLANE_LOCAL_H
#define MANYLANE_LOCAL_H

#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Types of sockets; the values are those of SOCK_STREAM, SOCK_DGRAM and SOCK_SEQPACKET on Linux. */
#define ML_STREAM 1
#define ML_DGRAM 2
#define ML_SEQPACKET 5

/* Or'ed to the type: calls on the socket never wait. The value of SOCK_NONBLOCK. */
#define ML_NONBLOCK 0x800

/* For one call: do not wait. The value of MSG_DONTWAIT. */
#define ML_DONTWAIT 0x40

/* What ml_shutdown ends; the values of SHUT_RD, SHUT_WR and SHUT_RDWR. */
#define ML_SHUT_RD 0
#define ML_SHUT_WR 1
#define ML_SHUT_RDWR 2

/* Maximum number of bytes of a name. */
#define ML_MAX_NAME 107

/* The lowest descriptor: above those of the system. */
#define ML_FIRST_FD 0x40000000

/* Maximum number of open descriptors; beyond that EMFILE. */
#define ML_MAX_FDS 65536

/* Options of ml_setsockopt and ml_getsockopt. The value is an unsigned 64-bit number. */
#define ML_SO_SNDBUF 1    /* bytes that may wait at the peer */
#define ML_SO_RCVBUF 2    /* bytes that may wait here */
#define ML_SO_SNDTIMEO 3  /* nanoseconds; ML_FOREVER */
#define ML_SO_RCVTIMEO 4  /* nanoseconds; ML_FOREVER */
#define ML_SO_BUSY_POLL 5 /* nanoseconds that a blocking call looks before it sleeps; cannot be read back */
#define ML_SO_NONBLOCK 6  /* 0 or 1 */
#define ML_FOREVER (~(unsigned long long)0)

/* Credentials of the peer. */
struct ml_ucred {
    unsigned int pid;
    unsigned int uid;
    unsigned int gid;
    unsigned int lane; /* number of the thread */
};

int ml_socket(int type);
int ml_socketpair(int type, int fds[2]);
int ml_bind(int fd, const void *name, size_t len);
int ml_listen(int fd, int backlog);
int ml_accept(int fd);
int ml_connect(int fd, const void *name, size_t len);
ssize_t ml_send(int fd, const void *buf, size_t len, int flags);
ssize_t ml_recv(int fd, void *buf, size_t len, int flags);
ssize_t ml_sendto(int fd, const void *buf, size_t len, int flags, const void *name, size_t name_len);
/* *name_len: bytes of room in name; afterwards the bytes of the sender's name, 0 if it has none. Both may be NULL. */
ssize_t ml_recvfrom(int fd, void *buf, size_t len, int flags, void *name, size_t *name_len);
/* Sends len bytes (at least 1 on a stream) with n descriptors, which stay open here. */
ssize_t ml_send_fds(int fd, const void *buf, size_t len, int flags, const int *fds, size_t n);
/* *n: number of descriptors that fit into fds; afterwards the number received. Those that do not fit are closed. */
ssize_t ml_recv_fds(int fd, void *buf, size_t len, int flags, int *fds, size_t *n);
int ml_shutdown(int fd, int how);
int ml_dup(int fd);
int ml_close(int fd);
int ml_getsockname(int fd, void *name, size_t *len);
int ml_getpeername(int fd, void *name, size_t *len);
int ml_getpeercred(int fd, struct ml_ucred *cred);
int ml_setsockopt(int fd, int option, unsigned long long value);
int ml_getsockopt(int fd, int option, unsigned long long *value);

#ifdef __cplusplus
}
#endif

#endif
