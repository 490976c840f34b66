//! Sends lines as datagrams.
//!
//! # Local sockets
//! A local socket is full while its owner does not read. Only a *connected* socket is woken when there is
//! room again. An unconnected one is always reported writable, so the lane would retry forever; so these are
//! connected. The path may name another socket in the meantime while the old one is still open, so a
//! connection is used no longer than [`RETRY`].

use crate::outbox::{Batch, Outbox};
use crate::sender::RETRY;
use crate::stream_server::socket;
use manylane_io::{Datagrams, Io};
use manylane_sched::{Here, Time};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketType, connect};
use std::os::fd::OwnedFd;

/// A lane's socket for a target.
#[derive(Default)]
pub(crate) struct Link {
    socket: Option<Datagrams>,
    /// When a local socket was connected.
    since: Option<Time>,
}

/// Result of sending.
enum SendOutcome {
    /// Number of further lines that are finished.
    Done(usize),
    /// The target does not exist, or there is no socket.
    Nobody,
}

impl Link {
    /// Sends a batch. If the target does not exist, the rest of the batch is lost, since it would fail the
    /// same way.
    pub(crate) async fn send_to(
        &mut self,
        address: &SocketAddrAny,
        batch: &Batch,
        outbox: &Outbox,
        here: Here,
        io: &Io,
    ) {
        if address.address_family() != AddressFamily::UNIX {
            let open = || socket(address.address_family(), SocketType::DGRAM);
            return self.send_all(open, Some(address), batch, outbox, io).await;
        }
        if self.since.is_some_and(|since| here.now().since(since) >= RETRY) {
            self.socket = None;
        }
        let mut from = 0;
        while from < batch.ends.len() {
            let fresh = self.socket.is_none();
            if fresh {
                self.socket = local(address).ok().and_then(|fd| io.datagrams(fd).ok());
                self.since = Some(here.now());
            }
            match here.timeout(RETRY, self.send_some(None, batch, from, outbox)).await {
                Ok(SendOutcome::Done(lines)) => from += lines,
                Ok(SendOutcome::Nobody) => {
                    self.socket = None;
                    if fresh {
                        return;
                    }
                }
                // The socket is full. The path may name another one by now.
                Err(_) => self.socket = None,
            }
        }
    }

    /// Sends a batch through a duplicate of a connected socket.
    pub(crate) async fn send(&mut self, fd: &OwnedFd, batch: &Batch, outbox: &Outbox, io: &Io) {
        self.send_all(|| fd.try_clone().map_err(|_| Errno::MFILE), None, batch, outbox, io).await;
    }

    async fn send_all(
        &mut self,
        open: impl FnOnce() -> Result<OwnedFd, Errno>,
        to: Option<&SocketAddrAny>,
        batch: &Batch,
        outbox: &Outbox,
        io: &Io,
    ) {
        if self.socket.is_none() {
            self.socket = open().ok().and_then(|fd| io.datagrams(fd).ok());
        }
        let mut from = 0;
        while from < batch.ends.len() {
            match self.send_some(to, batch, from, outbox).await {
                SendOutcome::Done(lines) => from += lines,
                SendOutcome::Nobody => return,
            }
        }
    }

    /// Sends lines from number `from` on. Skips a line that is too long.
    async fn send_some(
        &self,
        to: Option<&SocketAddrAny>,
        batch: &Batch,
        from: usize,
        outbox: &Outbox,
    ) -> SendOutcome {
        let Some(socket) = &self.socket else { return SendOutcome::Nobody };
        match socket.send_pieces((&batch.bytes, &batch.ends, from), to).await {
            Ok(lines) => {
                outbox.sent(lines);
                SendOutcome::Done(lines)
            }
            Err(error) if error.errno() == Some(Errno::MSGSIZE) => SendOutcome::Done(1),
            Err(_) => SendOutcome::Nobody,
        }
    }
}

/// A socket connected to a local one.
fn local(address: &SocketAddrAny) -> Result<OwnedFd, Errno> {
    let socket = socket(AddressFamily::UNIX, SocketType::DGRAM)?;
    connect(&socket, address)?;
    Ok(socket)
}
