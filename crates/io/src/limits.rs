//! The bounds on what a peer, or a task, can make a lane do at once. (The sizes of io_uring's queues and
//! buffer rings stay with that driver.)

/// Events that one look at the kernel takes in. More stay in the kernel until the next round: 256 of them are
/// 3 KiB, and tasks for all of them take several rounds anyway
/// ([`RUNQUEUE_DEPTH`](manylane_sched::RUNQUEUE_DEPTH) is 40).
pub const EVENTS_PER_WAIT: usize = 256;

/// The most that [`Io::set_events_per_wait`](crate::Io::set_events_per_wait) can say (`tune.maxpollevents`):
/// 48 KiB of a lane's memory.
pub const MOST_EVENTS_PER_WAIT: usize = 4096;

/// Connections that a listener hands out in one round (`tune.maxaccept`, R-F5: 4 v. 64 was 336k v. 274k
/// connections/s), unless [`Io::set_accepts_per_round`](crate::Io::set_accepts_per_round) says otherwise.
pub const ACCEPTS_PER_ROUND: u32 = 4;

/// The most that it can say. Accepting is one task: as long as clients connect faster than it accepts, with
/// epoll nothing else of the lane has a turn, the watchdog's patience included, which is two seconds. So many
/// take some 20 ms.
pub const MOST_ACCEPTS_PER_ROUND: u32 = 4096;

/// Bytes of a first read, and of those that follow a short one: a request's head and most responses.
pub const SMALL_READ: usize = 2048;

/// Bytes of a read that follows a full one: the largest cluster, of which a read into a chain fills
/// [`CLUSTERS_PER_READ`].
pub const LARGE_READ: usize = manylane_buf::MAX_CLUSTER;

/// Clusters of [`LARGE_READ`] that one read into a chain fills: 64 KiB are what the sender's kernel makes of
/// a large body at once, so they arrive together, and go out together.
pub const CLUSTERS_PER_READ: usize = 4;

/// Bytes of them all.
pub const READ_AT_ONCE: usize = CLUSTERS_PER_READ * LARGE_READ;

/// Bytes from which on io_uring sends with a call of its own, at once: what is large leaves the clusters that
/// were just filled while they are in the cache, and those are filled again next. What is smaller rides along
/// with all others.
pub const SENT_AT_ONCE: usize = LARGE_READ;

/// Bytes that one socket may give in one round, with epoll and to splices. A peer that sends faster than the
/// lane reads gets its turn again in the next round, after all others. With io_uring that is so for bulk; of
/// what is small the kernel fills what its ring holds between two looks, 512 KiB for all sockets together,
/// and [`RECEIVED_AHEAD`] bounds one socket.
pub const READ_PER_ROUND: usize = 256 << 10;

/// Bytes that one socket may take in one round, for the same reason, with epoll. With io_uring bulk that the
/// socket takes at once goes by calls, as with epoll; what it does not take goes by operations of at most
/// [`SEGMENTS_PER_WRITE`] segments, one a round.
pub const WRITTEN_PER_ROUND: usize = 1 << 20;

/// Segments that io_uring receives for a task that does not ask for them, before receiving for it is stopped:
/// up to 128 KiB, since small pieces are joined. What the rings hold at that moment may come on top. With
/// epoll it is none.
pub const RECEIVED_AHEAD: usize = 64;

/// Bytes that io_uring keeps for a socket that has not taken them yet, before a task that sends has to wait:
/// what the kernel's own buffer is with epoll. So a small message costs its task no wake-up.
pub const SENT_AHEAD: usize = 16 << 10;

/// Connections that io_uring accepts for a task that does not ask for them, before accepting for it is
/// stopped. The kernel takes a burst at once, so what waits in the listener's backlog at one look may come on
/// top. With epoll it is none.
pub const ACCEPTED_AHEAD: usize = 64;

/// Segments that one `sendmsg` carries. A chain of more takes more calls. (The system's own limit is 1024.)
pub const SEGMENTS_PER_WRITE: usize = 64;

/// Datagrams that one `recvmmsg` or `sendmmsg` carries; of pieces that the kernel cuts apart, messages, each
/// of up to 64 datagrams.
pub const DATAGRAMS_PER_CALL: usize = 32;

/// Datagrams that one socket gives, or takes, in one round; for the same reason as [`READ_PER_ROUND`]. It is
/// looked at before each call.
pub const DATAGRAMS_PER_ROUND: usize = 8 * DATAGRAMS_PER_CALL;

/// Pipes that a lane keeps for splicing when nobody uses them. Each holds two descriptors, and 64 KiB of the
/// user's pipe allowance.
pub const PIPES_KEPT: usize = 64;

/// Bytes of the smallest pipe: a page.
pub const SMALLEST_PIPE: usize = 4096;

/// Bytes that one splice asks for, unless [`Io::set_pipe_size`](crate::Io::set_pipe_size) says otherwise:
/// what a pipe holds.
pub const SPLICE_AT_ONCE: usize = 64 << 10;

/// How long accepting pauses when there is no descriptor left and none of this lane is closed meanwhile:
/// others may have closed some.
pub const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);
