//! Samples all counters once a second: see [`manylane_plan::meter`]. The first lane of a generation does it.

use manylane_lanes::{Local, table_millis};
use manylane_sched::{Here, Time};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// Time between two samples.
const EVERY: Duration = Duration::from_secs(1);
/// Number of servers that are sampled before other tasks run.
const AT_ONCE: usize = 64;
/// Number of stick-table entries that are removed before other tasks run, under one lock: about 50 us.
const EXPIRED_AT_ONCE: usize = 256;

/// Samples until the generation stops.
pub(super) async fn keep_sampling(local: Rc<Local>) {
    let here = local.here();
    while !sleep(&local, here).await {
        let now = here.now();
        sample(&local, here, now).await;
        expire(&local, here).await;
    }
}

/// Sleeps until the next sample. Returns true if the generation stopped meanwhile.
async fn sleep(local: &Local, here: Here) -> bool {
    let mut sleep = here.sleep(EVERY);
    let mut stopping = local.stopping.waiter();
    poll_fn(|context| match stopping.poll(context) {
        Poll::Ready(()) => Poll::Ready(true),
        Poll::Pending => Pin::new(&mut sleep).poll(context).map(|()| false),
    })
    .await
}

async fn sample(local: &Local, here: Here, now: Time) {
    let (mut connections, mut bytes) = (0, 0);
    for frontend in &local.generation.frontends {
        connections += frontend.counts.sample(now);
        bytes += frontend.counts.read_cheap_one(|counts| &counts.bytes_out);
    }
    let (lanes, slept) = manylane_sched::idle(now);
    let process_stats = &local.generation.process_stats;
    process_stats.update(now, connections, bytes, lanes, slept);
    process_stats.tls_clients.sample(now);
    process_stats.tls_servers.sample(now);
    for backend in &local.generation.backends {
        backend.counts.sample(now);
        for servers in backend.servers.chunks(AT_ONCE) {
            servers.iter().for_each(|server| _ = server.counts.sample(now));
            here.yield_now().await;
        }
    }
}

/// Removes stick-table entries that have expired.
async fn expire(local: &Local, here: Here) {
    for table in local.tables.all() {
        let mut next = 0;
        while table.sweep(&mut next, table_millis(here.now()), EXPIRED_AT_ONCE) {
            here.yield_now().await;
        }
    }
}
