//! `wait`: waits for a time, or until a server can be removed.

use super::{Call, server};
use crate::level::Level;
use manylane_config::value::Unit;
use std::time::Duration;

const HELP: &str = "\
'wait {-h | <delay>} [srv-removable <backend>/<server>]' waits for so long.
  <delay>        in milliseconds, unless us, ms, s, m, h or d follows
  srv-removable  only until the server, in maintenance, can be removed; an error if it cannot by then
";

/// Time between two checks of the server, and of the client: one that is gone gives its permit back. That of
/// a TCP client is noticed only if it resets the connection.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Time between two checks of the client if no server is checked.
const CLIENT_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// `wait <delay> [srv-removable <backend>/<server>]`; older versions call it `srv-unused`.
pub(super) async fn wait(call: &mut Call<'_, '_>) {
    if call.words.iter().take(2).any(|word| word == "-h") {
        return call.reply.put(HELP);
    }
    let delay = match manylane_config::value::time(call.word(0).as_bytes(), Unit::Ms) {
        Ok(delay) if !call.words.is_empty() => delay,
        _ => {
            return call.error(if call.word(0).is_empty() {
                "Expects a duration in milliseconds."
            } else {
                "Invalid duration: expected milliseconds, or a time with a unit, up to 24 days."
            });
        }
    };
    let here = call.here;
    let until = here.now() + delay;
    let (backend, server) = match call.word(1) {
        "" => loop {
            let left = until.since(here.now());
            if left.is_zero() {
                return call.info("Done.");
            }
            if call.reply.client_is_gone() {
                return give_up(call);
            }
            here.sleep(left.min(CLIENT_CHECK_INTERVAL)).await;
        },
        // The answer reveals what `del server` would say.
        "srv-unused" | "srv-removable" if call.settings.level < Level::Admin => {
            return call.error("Permission denied");
        }
        "srv-unused" | "srv-removable" if call.word(2).is_empty() => {
            return call.error("Missing server name (<backend>/<server>).");
        }
        "srv-unused" | "srv-removable" => match server::find(call, 2) {
            Some((backend, server, _)) => (&*backend.name, &*server.name),
            None => return,
        },
        _ => return call.error("'wait' expects 'srv-removable <backend>/<server>' as its condition."),
    };
    loop {
        // The generation may be replaced meanwhile.
        match call.control.generation().removable(backend, server) {
            Ok(_) => return call.info("Done."),
            Err(stays) if !stays.for_now => return call.error(stays.why),
            Err(_) => {}
        }
        let left = until.since(here.now());
        if call.reply.client_is_gone() {
            return give_up(call);
        }
        if left.is_zero() {
            return call.error("Wait delay expired.");
        }
        here.sleep(left.min(CHECK_INTERVAL)).await;
    }
}

/// Ends the session with its client: what follows on the line is for a later time.
fn give_up(call: &mut Call<'_, '_>) {
    call.settings.over = true;
}
