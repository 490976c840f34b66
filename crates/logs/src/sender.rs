//! The task that sends the batches of an outbox, each in as few calls as possible.

use crate::datagrams::Link;
use crate::descriptor::{Descriptor, Written};
use crate::outbox::{Batch, Outbox};
use crate::stream_server::{FOR_EVER, connect, has_closed};
use crate::target::{Delivery, Target};
use crate::tls::LaneTls;
use manylane_buf::{Chain, Cluster, MAX_CLUSTER};
use manylane_io::Io;
use manylane_net::Connection;
use manylane_sched::{BlockingPool, Class, Here, TaskKind};
use manylane_sync::{Arc, Mutex};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

static SENDER: TaskKind = TaskKind::new("log sender");

/// Time before an unreachable target is tried again. Lines wait meanwhile, as far as there is room.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// Time to send the waiting lines of a target whose generation was replaced. Then they are lost; otherwise
/// each reload would leave a task, a batch and a descriptor behind at a target that does not read.
const FAREWELL: Duration = Duration::from_secs(5);

/// Shortest and longest sleep between two tries to write to a full pipe. It starts again with the shortest
/// after a try that wrote something.
const NAPS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));

/// Starts the task that sends an outbox's batches until it is closed and empty. Returns false if there is no
/// room for a task. Servers of streams have a task type of their own, so that the other tasks do not contain
/// the state of connecting and of timeouts.
pub(crate) fn start(
    outbox: &Rc<Outbox>,
    here: Here,
    io: &Io,
    pool: &Arc<BlockingPool>,
    tls: Option<&LaneTls>,
) -> bool {
    let (own, outbox, io, pool) = (outbox.clone(), outbox.clone(), io.clone(), pool.clone());
    let started = match outbox.target.delivery {
        Delivery::Tcp(_) | Delivery::UnixStream(_) => {
            let tls = tls.cloned();
            let sending = move || to_server(outbox, here, io, tls);
            here.spawn(&SENDER, Class::Normal, until_farewell(own, here, sending))
        }
        _ => {
            let sending = move || to_others(outbox, here, io, pool);
            here.spawn(&SENDER, Class::Normal, until_farewell(own, here, sending))
        }
    };
    started.is_ok()
}

/// Runs the sender, but no longer than [`FAREWELL`] after the outbox is closed. The future is created here,
/// since a future passed as an argument would occupy a second place in the task.
async fn until_farewell<F: Future<Output = ()>>(outbox: Rc<Outbox>, here: Here, sending: impl FnOnce() -> F) {
    let mut sending = pin!(sending());
    let mut late = pin!(async {
        outbox.closed().await;
        here.sleep(FAREWELL).await;
    });
    let all = poll_fn(|context| match sending.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(true),
        Poll::Pending => late.as_mut().poll(context).map(|()| false),
    });
    if !all.await {
        outbox.give_up();
    }
}

async fn to_others(outbox: Rc<Outbox>, here: Here, io: Io, pool: Arc<BlockingPool>) {
    let mut link = Link::default();
    while let Some(mut batch) = outbox.next().await {
        match &outbox.target.delivery {
            Delivery::Datagrams(address) => link.send_to(address, &batch, &outbox, here, &io).await,
            Delivery::Connected(fd) => link.send(fd, &batch, &outbox, &io).await,
            Delivery::Descriptor(descriptor) => batch = write(descriptor, batch, &outbox, here, &pool).await,
            Delivery::Ring(ring) => outbox.sent(ring.put(&batch)),
            // The first two are `to_server`'s, and lines of a group are put into another outbox.
            Delivery::Tcp(_) | Delivery::UnixStream(_) | Delivery::Group(_) => {}
        }
        outbox.done(batch);
    }
}

async fn to_server(outbox: Rc<Outbox>, here: Here, io: Io, tls: Option<LaneTls>) {
    let mut stream = None;
    while let Some(batch) = outbox.next().await {
        let sent = send_to_server(&mut stream, &outbox.target, &batch, here, &io, tls.as_ref()).await;
        outbox.sent(sent.unwrap_or(0));
        outbox.done(batch);
        if sent.is_none() && stream.take().is_none() && !outbox.is_closed() {
            here.sleep(RETRY).await;
        }
    }
    if let Some(stream) = stream {
        // Lines that the kernel has not sent are lost with the connection, since there are no
        // acknowledgements.
        let _ = has_closed(&stream).await;
        let _ = stream.close().await;
    }
}

/// Sends a batch and returns the number of lines. `None`: there is no connection, or it has failed.
async fn send_to_server(
    stream: &mut Option<Connection>,
    target: &Target,
    batch: &Batch,
    here: Here,
    io: &Io,
    tls: Option<&LaneTls>,
) -> Option<usize> {
    let timeouts = &target.timeouts;
    if let Some(open) = stream
        && has_closed(open).await
    {
        *stream = None;
    }
    if stream.is_none() {
        *stream = connect(&target.delivery, target.tls.as_deref(), tls, timeouts.connect, here, io).await;
    }
    here.timeout(timeouts.server.unwrap_or(FOR_EVER), send_stream(stream.as_ref()?, batch))
        .await
        .ok()
        .flatten()
}

/// Sends a batch on an open connection. `None`: the connection has failed.
async fn send_stream(stream: &Connection, batch: &Batch) -> Option<usize> {
    let mut chain = Chain::new();
    for part in batch.bytes.chunks(MAX_CLUSTER) {
        chain.push_back(Cluster::with(part).ok()?.into_segment()).ok()?;
    }
    stream.send(&mut chain).await.ok()?;
    Some(batch.ends.len())
}

/// Writes a batch on the blocking pool and returns it. A write that would block gives its thread back and is
/// tried again later, since the pool's threads are few.
async fn write(
    descriptor: &Arc<Mutex<Descriptor>>,
    batch: Batch,
    outbox: &Outbox,
    here: Here,
    pool: &BlockingPool,
) -> Batch {
    let (mut batch, mut from, mut nap) = (batch, 0, NAPS.0);
    loop {
        let own = descriptor.clone();
        let job = pool.run(move || {
            let written = own.lock().write(&batch, from);
            (batch, written)
        });
        let Ok(job) = job else { return Batch::default() };
        let (back, written) = job.await;
        batch = back;
        let Ok(Written { lines, is_full }) = written else { return batch };
        outbox.sent(lines);
        from += lines;
        if !is_full {
            return batch;
        }
        nap = if lines > 0 { NAPS.0 } else { (nap * 2).min(NAPS.1) };
        here.sleep(nap).await;
    }
}
