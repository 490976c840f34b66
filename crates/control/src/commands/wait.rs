//! `wait`: nothing is done for a time, or until something has come.

use super::{Call, server};
use manylane_balance::{Admin, Index};
use manylane_config::value::Unit;
use manylane_proxy::generation::Backend;
use std::time::Duration;

/// Longest delay: a client that is gone meanwhile keeps its place as long.
const LONGEST: Duration = Duration::from_secs(3600);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// `wait <delay> [srv-unused <backend>/<server>]`
pub(super) async fn wait(call: &mut Call<'_, '_>) {
    let delay = match manylane_config::value::time(call.word(0).as_bytes(), Unit::Ms) {
        Ok(delay) if delay <= LONGEST && !call.words.is_empty() => delay,
        _ => {
            return call.error("'wait' expects a delay, up to 1h, in milliseconds or with a unit, and perhaps 'srv-unused <backend>/<server>' behind it.");
        }
    };
    let here = call.here;
    let (condition, word) = (call.word(1).to_owned(), call.word(2).to_owned());
    let (backend, index) = match &*condition {
        "" => return here.sleep(delay).await,
        "srv-unused" | "srv-removable" => match server::find(call, &word) {
            Some((backend, _, index)) => (backend, index),
            None => return,
        },
        _ => return call.error("'wait' knows one condition, 'srv-unused <backend>/<server>'."),
    };
    let until = here.now() + delay;
    loop {
        if backend.balancer.servers()[index].state().admin() != Admin::Maintenance {
            return call.error("The server is not in maintenance: it will not get rid of its traffic.");
        }
        if is_unused(backend, index) {
            return call.info("Done.");
        }
        let left = until.since(here.now());
        if left.is_zero() {
            return call.error("Wait delay expired.");
        }
        here.sleep(left.min(LOOK)).await;
    }
}

/// Whether it serves nobody and nobody waits for it.
fn is_unused(backend: &Backend, index: Index) -> bool {
    super::stat::streams_now(&backend.servers[index.get()]) == 0 && backend.balancer.waiting(index) == 0
}
