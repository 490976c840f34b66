//! `wait`: nothing is done for a time, or until something has come.

use super::{Call, server};
use crate::level::Level;
use manylane_config::value::Unit;
use std::time::Duration;

/// Longest delay: a client that is gone meanwhile keeps its place as long.
const LONGEST: Duration = Duration::from_secs(3600);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// `wait <delay> [srv-removable <backend>/<server>]`; `srv-unused` is its name in older versions.
pub(super) async fn wait(call: &mut Call<'_, '_>) {
    let delay = match manylane_config::value::time(call.word(0).as_bytes(), Unit::Ms) {
        Ok(delay) if delay <= LONGEST && !call.words.is_empty() => delay,
        _ => {
            return call.error(
                "'wait' expects a delay, up to 1h, in milliseconds or with a unit, and perhaps \
                'srv-removable <backend>/<server>' behind it.",
            );
        }
    };
    let here = call.here;
    let (backend, server) = match call.word(1) {
        "" => return here.sleep(delay).await,
        // It tells what `del server` would say.
        "srv-unused" | "srv-removable" if call.settings.level < Level::Admin => {
            return call.error("Permission denied");
        }
        "srv-unused" | "srv-removable" => match server::find(call, 2) {
            Some((backend, server, _)) => (&*backend.name, &*server.name),
            None => return,
        },
        _ => return call.error("'wait' knows one condition, 'srv-removable <backend>/<server>'."),
    };
    let until = here.now() + delay;
    loop {
        // What serves may be replaced meanwhile.
        match call.control.generation().removable(backend, server) {
            Ok(_) => return call.info("Done."),
            Err(stays) if !stays.for_now => return call.error(stays.why),
            Err(_) => {}
        }
        let left = until.since(here.now());
        if left.is_zero() {
            return call.error("Wait delay expired.");
        }
        here.sleep(left.min(LOOK)).await;
    }
}
