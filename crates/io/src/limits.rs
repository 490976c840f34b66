//! Bounds on the work that a peer, or a task, can cause at once. (The io_uring driver defines the sizes of
//! its queues and buffer rings.)

/// Maximum number of events of one check of the kernel. More stay in the kernel until the next round: 256 of
/// them take 3 KiB, and tasks for all of them take several rounds anyway
/// ([`RUNQUEUE_DEPTH`](manylane_sched::RUNQUEUE_DEPTH) is 40).
pub const EVENTS_PER_WAIT: usize = 256;

/// Maximum argument of [`Io::set_events_per_wait`](crate::Io::set_events_per_wait) (`tune.maxpollevents`): 48
/// KiB of a lane's memory.
pub const MOST_EVENTS_PER_WAIT: usize = 4096;

/// Default number of connections that a listener accepts in one round (`tune.maxaccept`, R-F5: 4 gave 336k
/// connections/s, 64 gave 274k); see [`Io::set_accepts_per_round`](crate::Io::set_accepts_per_round).
pub const ACCEPTS_PER_ROUND: u32 = 4;

/// Maximum argument of [`Io::set_accepts_per_round`](crate::Io::set_accepts_per_round). Accepting is one
/// task: with epoll, as long as clients connect faster than it accepts, no other task of the lane runs, and
/// the watchdog aborts after two seconds. This many connections take some 20 ms.
pub const MOST_ACCEPTS_PER_ROUND: u32 = 4096;

/// Bytes of a first read, and of a read after a short one: a request's head and most responses.
pub const SMALL_READ: usize = 2048;

/// Bytes of a read after a full one: the largest cluster; a read into a chain fills [`CLUSTERS_PER_READ`] of
/// them.
pub const LARGE_READ: usize = manylane_buf::MAX_CLUSTER;

/// Number of clusters of [`LARGE_READ`] that one read into a chain fills. The sender's kernel sends 64 KiB of
/// a large body at once, so they arrive together, and go out together.
pub const CLUSTERS_PER_READ: usize = 4;

/// Maximum number of bytes of one read into a chain.
pub const READ_AT_ONCE: usize = CLUSTERS_PER_READ * LARGE_READ;

/// Number of bytes from which on io_uring sends with a system call of its own, at once: a large send frees
/// the clusters that were just filled while they are in the cache, and the next read fills them again. A
/// smaller send is submitted together with others.
pub const SENT_AT_ONCE: usize = LARGE_READ;

/// Maximum number of bytes that one socket may deliver in one round, with epoll and for splices. A peer that
/// sends faster than the lane reads gets its next turn in the next round, after all others. With io_uring
/// this applies to bulk. For small data the kernel fills the ring's buffers between two checks, 512 KiB for
/// all sockets together, and [`RECEIVED_AHEAD`] bounds one socket.
pub const READ_PER_ROUND: usize = 256 << 10;

/// Maximum number of bytes that one socket may accept in one round, with epoll, for the reason of
/// [`READ_PER_ROUND`]. With io_uring, bulk that the socket accepts at once goes by system calls, as with
/// epoll; the rest goes by operations of at most [`SEGMENTS_PER_WRITE`] segments, one a round.
pub const WRITTEN_PER_ROUND: usize = 1 << 20;

/// Number of receives that io_uring makes ahead of a task's request before it stops receiving: up to 128 KiB.
/// What the rings hold at that moment may come in addition. Epoll receives nothing ahead.
pub const RECEIVED_AHEAD: u8 = 64;

/// Number of epoll's events for bytes while no task reads a socket, after which the driver asks for no more
/// of them until a task waits. Each costs about 0.6 us (`manylane-bench drips`); to stop and to begin again
/// costs two system calls.
pub const MAX_UNREAD_EVENTS: u8 = 32;

/// Bytes that io_uring keeps for a socket that has not accepted them yet, before a sending task has to wait.
/// With epoll the kernel's own buffer has this role. So a small message costs its task no wake-up.
pub const SENT_AHEAD: usize = 16 << 10;

/// Number of connections that io_uring accepts ahead of a task's request before it stops accepting. The
/// kernel accepts a burst at once, so the listener's whole backlog at one check may come in addition. Epoll
/// accepts nothing ahead.
pub const ACCEPTED_AHEAD: usize = 64;

/// Maximum number of segments of one `sendmsg`. A longer chain takes more calls. (The system's own limit is
/// 1024.)
pub const SEGMENTS_PER_WRITE: usize = 64;

/// Maximum number of datagrams of one `recvmmsg` or `sendmmsg`. If the kernel segments pieces, this is the
/// number of messages, each of up to 64 datagrams.
pub const DATAGRAMS_PER_CALL: usize = 32;

/// Maximum number of datagrams that one socket delivers, or accepts, in one round, for the reason of
/// [`READ_PER_ROUND`]. Checked before each call.
pub const DATAGRAMS_PER_ROUND: usize = 8 * DATAGRAMS_PER_CALL;

/// Maximum number of unused pipes that a lane keeps for splicing. Each holds two descriptors, and 64 KiB of
/// the user's pipe allowance.
pub const PIPES_KEPT: usize = 64;

/// Bytes of the smallest pipe: a page.
pub const SMALLEST_PIPE: usize = 4096;

/// Default number of bytes of one splice, and of a pipe; see [`Io::set_pipe_size`](crate::Io::set_pipe_size).
pub const SPLICE_AT_ONCE: usize = 64 << 10;

/// Time for which accepting pauses if there is no descriptor left and this lane closes none meanwhile: other
/// lanes may have closed some.
pub const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Time after which a new listener looks once for connections that no event reported. If a process that used
/// io_uring was killed, Linux empties its rings afterwards; until then (50 ms on an idle machine) they may
/// take the one event of a connection to a socket that the next process shares, as after a restart with
/// sockets of the service manager. Without the look such a connection would wait for the next one.
pub const ACCEPT_CHECK: std::time::Duration = std::time::Duration::from_millis(500);
