//! The task that sends one outbox's batches, each in as few calls as there can be.

use crate::outbox::{Batch, Outbox};
use crate::target::{Target, Way};
use manylane_buf::{Chain, Cluster, MAX_CLUSTER};
use manylane_io::{Datagrams, Io, Stream, tcp_socket};
use manylane_sched::{BlockingPool, Class, Here, TaskKind};
use manylane_sync::{Arc, Mutex};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, socket_with};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

static SENDER: TaskKind = TaskKind::new("log sender");

/// How long a target that could not be reached is left alone. Lines wait meanwhile, as far as there is room.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// Starts the task that sends an outbox's batches until that is closed and empty. Servers of streams have a kind of their own: what it takes to connect, and to
/// wait for no longer than is allowed, is no part of the others' tasks. Whether there was room for it.
pub(crate) fn start(outbox: &Rc<Outbox>, here: Here, io: &Io, pool: &Arc<BlockingPool>) -> bool {
    let (outbox, io) = (outbox.clone(), io.clone());
    let started = match outbox.target.way {
        Way::Tcp(_) | Way::UnixStream(_) => here.spawn(&SENDER, Class::Normal, to_server(outbox, here, io)),
        _ => here.spawn(&SENDER, Class::Normal, to_others(outbox, io, pool.clone())),
    };
    started.is_ok()
}

async fn to_others(outbox: Rc<Outbox>, io: Io, pool: Arc<BlockingPool>) {
    let mut datagrams = None;
    while let Some(mut batch) = outbox.next().await {
        let sent = match &outbox.target.way {
            Way::Datagrams(address) => {
                let open = || socket(address.address_family(), SocketType::DGRAM);
                send_datagrams(&mut datagrams, open, Some(address), &batch, &io).await
            }
            Way::Connected(fd) => {
                let open = || fd.try_clone().map_err(|_| Errno::MFILE);
                send_datagrams(&mut datagrams, open, None, &batch, &io).await
            }
            Way::File(file) => write(file, &mut batch, &pool).await,
            Way::Ring(ring) => Some(ring.put(&batch)),
            Way::Tcp(_) | Way::UnixStream(_) => None, // they are `to_server`'s
        };
        let lines = batch.ends.len();
        outbox.done(batch, lines - sent.unwrap_or(0));
    }
}

async fn to_server(outbox: Rc<Outbox>, here: Here, io: Io) {
    let mut stream = None;
    while let Some(batch) = outbox.next().await {
        let sent = send_to_server(&mut stream, &outbox.target, &batch, here, &io).await;
        let lines = batch.ends.len();
        outbox.done(batch, lines - sent.unwrap_or(0));
        if sent.is_none() && stream.take().is_none() && !outbox.is_closed() {
            here.sleep(RETRY).await;
        }
    }
    if let Some(stream) = stream {
        // What the kernel has not taken is lost with the connection: there is no answer to wait for.
        let _ = stream.close().await;
    }
}

/// Longer than anybody waits.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(366 * 86_400);

fn socket(family: AddressFamily, kind: SocketType) -> Result<OwnedFd, Errno> {
    socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

/// A socket for the server of a stream, and its address.
pub(crate) fn server(way: &Way) -> Option<(OwnedFd, SocketAddrAny)> {
    match way {
        Way::Tcp(address) => Some((tcp_socket(address).ok()?, (*address).into())),
        Way::UnixStream(address) => {
            Some((socket(AddressFamily::UNIX, SocketType::STREAM).ok()?, address.clone().into()))
        }
        _ => None,
    }
}

/// As [`send_datagrams`]; `None`: there is no connection, or it is of no more use.
async fn send_to_server(
    stream: &mut Option<Stream>,
    target: &Target,
    batch: &Batch,
    here: Here,
    io: &Io,
) -> Option<usize> {
    let patience = &target.patience;
    if stream.is_none() {
        let time = patience.connect.unwrap_or(FOR_EVER);
        let (fd, address) = server(&target.way)?;
        *stream = here.timeout(time, io.connect(fd, address)).await.ok()?.ok();
    }
    here.timeout(patience.server.unwrap_or(FOR_EVER), send_stream(stream.as_ref()?, batch))
        .await
        .ok()
        .flatten()
}

/// Lines that were sent; none when the target cannot be reached. One that is too long for its way is left out alone.
async fn send_datagrams(
    socket: &mut Option<Datagrams>,
    open: impl FnOnce() -> Result<OwnedFd, Errno>,
    to: Option<&SocketAddrAny>,
    batch: &Batch,
    io: &Io,
) -> Option<usize> {
    if socket.is_none() {
        *socket = io.datagrams(open().ok()?).ok();
    }
    let socket = socket.as_ref()?;
    let (mut sent, mut from) = (0, 0);
    while from < batch.ends.len() {
        match socket.send_pieces((&batch.bytes, &batch.ends, from), to).await {
            Ok(some) => (sent, from) = (sent + some, from + some),
            Err(error) if error.errno() == Some(Errno::MSGSIZE) => from += 1,
            // Nobody is there: the rest would meet the same.
            Err(_) => return Some(sent),
        }
    }
    Some(sent)
}

/// As above; `None`: the connection is of no more use.
async fn send_stream(stream: &Stream, batch: &Batch) -> Option<usize> {
    let mut chain = Chain::new();
    for part in batch.bytes.chunks(MAX_CLUSTER) {
        chain.push_back(Cluster::with(part).ok()?.into_segment()).ok()?;
    }
    stream.send(&mut chain).await.ok()?;
    Some(batch.ends.len())
}

/// As above. The lane goes on meanwhile: a thread that may block writes.
async fn write(file: &Arc<Mutex<File>>, batch: &mut Batch, pool: &BlockingPool) -> Option<usize> {
    let file = file.clone();
    let bytes = std::mem::take(&mut batch.bytes);
    let job = pool.run(move || {
        let written = file.lock().write_all(&bytes);
        (bytes, written.is_ok())
    });
    let (bytes, written) = job.ok()?.await;
    batch.bytes = bytes;
    written.then_some(batch.ends.len())
}
