//! `wait`: waits for a time, or until a server can be removed.

use super::{Call, server};
use crate::level::{Level, Severity};
use crate::reply::Reply;
use crate::serve::Control;
use crate::session::Settings;
use manylane_config::value::Unit;
use manylane_sched::{Here, Time};
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

/// A wait that has begun.
#[derive(Debug)]
pub(crate) struct Wait {
    until: Time,
    /// Names of the backend and of its server that is to be removed.
    server: Option<[Box<str>; 2]>,
}

/// `wait <delay> [srv-removable <backend>/<server>]`; older versions call it `srv-unused`.
pub(super) fn wait(call: &mut Call<'_, '_>) {
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
    let server = match call.word(1) {
        "" => None,
        // The answer reveals what `del server` would say.
        "srv-unused" | "srv-removable" if call.settings.level < Level::Admin => {
            return call.error("Permission denied");
        }
        "srv-unused" | "srv-removable" if call.word(2).is_empty() => {
            return call.error("Missing server name (<backend>/<server>).");
        }
        "srv-unused" | "srv-removable" => match server::find(call, 2) {
            Some((backend, server, _)) => Some([(*backend.name).into(), (*server.name).into()]),
            None => return,
        },
        _ => return call.error("'wait' expects 'srv-removable <backend>/<server>' as its condition."),
    };
    call.settings.wait = Some(Wait { until: call.here.now() + delay, server });
}

impl Wait {
    /// Waits, and writes the answer. The generation may be replaced meanwhile. If the client leaves, the
    /// session ends: what follows on the line is for a later time.
    pub(crate) async fn run(
        self,
        control: &Control,
        settings: &mut Settings,
        reply: &mut Reply<'_>,
        here: Here,
    ) {
        let (severity, text) = loop {
            let state = self
                .server
                .as_ref()
                .map(|[backend, server]| control.generation().removable(backend, server).map(drop));
            let left = self.until.since(here.now());
            let interval = match state {
                Some(Ok(())) => break (Severity::Info, "Done."),
                Some(Err(stays)) if !stays.for_now => break (Severity::Error, stays.why),
                Some(Err(_)) if left.is_zero() => break (Severity::Error, "Wait delay expired."),
                Some(Err(_)) => CHECK_INTERVAL,
                None if left.is_zero() => break (Severity::Info, "Done."),
                None => CLIENT_CHECK_INTERVAL,
            };
            if reply.client_is_gone() {
                settings.over = true;
                return;
            }
            here.sleep(left.min(interval)).await;
        };
        settings.message(reply, severity, text);
    }
}
