/*
 * Gives a source file that is written for AF_UNIX this library's sockets: to be put before it with -include. It replaces the names, not what
 * they mean: a file that also reads or closes descriptors of the system has to be split first.
 */
#include "manylane_local.h"
#include <sys/socket.h>
#include <unistd.h>

#define socketpair(domain, type, protocol, fds) ((void)(domain), (void)(protocol), ml_socketpair(type, fds))
#define write(fd, buf, len) ml_send(fd, buf, len, 0)
#define read(fd, buf, len) ml_recv(fd, buf, len, 0)
#define close(fd) ml_close(fd)
