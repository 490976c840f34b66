//! Earlier lock designs (R-A2), for the benchmark: the same sockets, buffers and copies, with the locks that
//! a send took before. They take the private locks of a pcb, so they stand here, behind a feature that only
//! the benchmark turns on.

use crate::error::Error;
use crate::locks::{self, Owned};
use crate::send::put_now;
use crate::socket::{Kind, Socket};
use manylane_sync::{LockClass, RwLock, label};

static LINK: LockClass = LockClass::new("all local sockets (before)", 5);

manylane_sync::lazy_static! {
    /// Guards all connections: shared by each send, exclusive for connect and close.
    static CONNECTIONS: RwLock<()> = RwLock::new(&LINK, ());
}

/// Sends as FreeBSD did until 2018: one reader-writer lock for all connections, shared by every send, and the
/// lock of the own pcb. For streams, and bytes that fit at once.
///
/// # Errors
/// [`Error::NotConnected`]; [`Error::WouldBlock`] if the fast path of [`Socket::send`] does not apply.
pub fn send_under_global_lock(socket: &Socket, bytes: &[u8]) -> Result<usize, Error> {
    let connections = &*CONNECTIONS;
    label(connections, "lock of all connections");
    let _all = connections.read();
    let _own = socket.pcb().state.lock();
    let peer = socket.peer().ok_or(Error::NotConnected)?;
    sent(put_now(peer, Kind::Stream, bytes), bytes)
}

/// Sends by R-A2: no global lock, but the locks of both pcbs.
///
/// # Errors
/// As [`send_under_global_lock`].
pub fn send_under_pcb_locks(socket: &Socket, bytes: &[u8]) -> Result<usize, Error> {
    let pcb = socket.pcb();
    let own = pcb.state.lock();
    let peer = pcb.conn().ok_or(Error::NotConnected)?;
    // SAFETY: rule 1: `conn` under its lock.
    let Owned::Both { own: _own, other: _other, .. } = (unsafe { locks::owned_lock_two(pcb, own, peer) })
    else {
        return Err(Error::NotConnected);
    };
    // SAFETY: locked.
    sent(put_now(unsafe { peer.as_ref() }, Kind::Stream, bytes), bytes)
}

fn sent(all: bool, bytes: &[u8]) -> Result<usize, Error> {
    if all { Ok(bytes.len()) } else { Err(Error::WouldBlock) }
}
