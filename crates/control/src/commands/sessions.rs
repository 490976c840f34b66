//! `show sess` and `shutdown session`: the streams at work, and ending one of them.
//!
//! The command asks one lane after another for a slice of its streams, and writes each slice before it asks
//! for the next. So it holds one slice at a time, and delays a lane only for as long as a slice takes.
//! Streams that begin after the command are left out, so the dump ends however many begin meanwhile. The
//! command's time tells them apart, so nothing is written to streams (R-G3).

use super::Call;
use super::errors::date;
use crate::reply::ReplyError;
use manylane_config::value::Unit;
use manylane_expr::Timestamp;
use manylane_net::Endpoint;
use manylane_plan::Cause;
use manylane_proxy::{Cursor, StreamReport, end_stream, panic_stream, slice};
use manylane_sched::Time;
use manylane_sync::LaneId;
use manylane_sync::atomic::{AtomicU64, Ordering};
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

/// The streams to show.
enum StreamSelection {
    All,
    /// The stream with this number.
    Number(u64),
    /// Streams that began at least this long ago.
    Older(Duration),
    /// Streams of a frontend; the next ones, of a backend or a server.
    Frontend(String),
    Backend(String),
    Server(String, String),
}

impl StreamSelection {
    fn has(&self, report: &StreamReport, now: Time) -> bool {
        let backend = || report.backend.map(|index| &report.generation.backends[index]);
        match self {
            Self::All => true,
            Self::Number(number) => report.number == *number,
            Self::Older(age) => now.since(report.begun) >= *age,
            Self::Frontend(name) => *report.generation.frontends[report.frontend].name == **name,
            Self::Backend(name) => backend().is_some_and(|backend| *backend.name == **name),
            Self::Server(name, server) => backend()
                .filter(|backend| *backend.name == **name)
                .zip(report.server)
                .is_some_and(|(backend, position)| *backend.servers[position].name == **server),
        }
    }
}

/// Parses a hexadecimal number, with or without `0x`.
fn number(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
}

/// All lanes; a lane that serves nothing has no streams.
fn lanes() -> impl Iterator<Item = LaneId> {
    manylane_sched::report().into_iter().map(|lane| lane.lane)
}

/// `show sess`
pub(super) async fn show(call: &mut Call<'_, '_>) -> Result<(), ReplyError> {
    let (word, value) = (call.word(0), call.word(1));
    let (which, in_full) = match (word, value) {
        ("", _) => (StreamSelection::All, false),
        ("all", _) => (StreamSelection::All, true),
        ("older", age) => match manylane_config::value::time(age.as_bytes(), Unit::S) {
            Ok(age) => (StreamSelection::Older(age), false),
            Err(_) => {
                call.error(if age.is_empty() {
                    "Expects a minimum age (in seconds by default)."
                } else {
                    "Invalid age."
                });
                return Ok(());
            }
        },
        ("susp", _) => {
            call.error(
                "'show sess susp' is refused: nothing tells which sessions are suspicious; use 'show \
                sess older <age>'.",
            );
            return Ok(());
        }
        ("frontend", name) if !name.is_empty() => (StreamSelection::Frontend(name.to_owned()), false),
        ("backend", name) if !name.is_empty() => (StreamSelection::Backend(name.to_owned()), false),
        ("server", name) => match name.split_once('/') {
            Some((backend, server)) => {
                (StreamSelection::Server(backend.to_owned(), server.to_owned()), false)
            }
            None => {
                call.error("'show sess server' expects <backend>/<server>.");
                return Ok(());
            }
        },
        (word, _) => match number(word) {
            Some(number) => (StreamSelection::Number(number), true),
            None => {
                call.error(&format!("Unsupported option '{word}', try 'help' for more info."));
                return Ok(());
            }
        },
    };
    // The clock is read again: the time at which this lane's round began may lie before the start of a stream
    // that another lane has started meanwhile.
    let epoch = Time::now();
    let mut found = false;
    for lane in lanes() {
        let mut from = Some(Cursor::default());
        while let Some(cursor) = from {
            let Some((report, next)) = slice(lane, cursor).await else { break };
            let now = call.here.now();
            for stream in report.iter().filter(|stream| stream.begun <= epoch && which.has(stream, now)) {
                found = true;
                match in_full {
                    true => in_full_of(call, lane, stream),
                    false => line_of(call, lane, stream),
                }
                call.reply.breathe().await?;
            }
            from = next;
        }
    }
    if let StreamSelection::Number(_) = which
        && !found
    {
        call.error("Session not found.");
    }
    Ok(())
}

/// The family and the client's address, for both forms of the answer.
fn family(report: &StreamReport) -> (&'static str, String) {
    let listener = &report.generation.frontends[report.frontend].listeners[report.listener];
    match (report.source, &listener.endpoint) {
        (Some(SocketAddr::V4(address)), _) => ("tcpv4", address.to_string()),
        (Some(SocketAddr::V6(address)), _) => ("tcpv6", format!("{}:{}", address.ip(), address.port())),
        (None, Endpoint::Local(_)) => ("local", format!("local:{}", listener.id)),
        (None, _) => ("unix_stream", format!("unix:{}", listener.id)),
    }
}

/// What the stream does.
fn state(report: &StreamReport) -> &'static str {
    match (report.backend, report.server) {
        (_, Some(_)) => "server",
        (Some(_), None) => "queue",
        (None, None) => "rules",
    }
}

fn line_of(call: &mut Call<'_, '_>, lane: LaneId, report: &StreamReport) {
    let frontend = &report.generation.frontends[report.frontend];
    let backend = report.backend.map(|index| &report.generation.backends[index]);
    let server = backend.zip(report.server).map(|(backend, position)| &*backend.servers[position].name);
    let (protocol, source) = family(report);
    let _ = writeln!(
        call.reply,
        "{:#x}: proto={protocol} src={source} fe={} be={} srv={} ts={:02x} age={} state={}",
        report.number,
        frontend.name,
        backend.map_or("<NONE>", |backend| &backend.name),
        server.unwrap_or("<none>"),
        lane.index(),
        age(call.here.now().since(report.begun)),
        state(report),
    );
}

fn in_full_of(call: &mut Call<'_, '_>, lane: LaneId, report: &StreamReport) {
    let mode = super::stat::mode;
    let frontend = &report.generation.frontends[report.frontend];
    let listener = &frontend.listeners[report.listener];
    let (protocol, source) = family(report);
    let since = call.here.now().since(report.begun);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let begun = now.saturating_sub(since);
    let begun = Timestamp { seconds: begun.as_secs().cast_signed(), micros: begun.subsec_micros() };
    let begun = date(begun, &call.generation.zone);
    let (name, address) = (listener.name.as_deref().unwrap_or("?"), &listener.written);
    let _ = writeln!(
        call.reply,
        "{:#x}: [{begun}] id={} proto={protocol} source={source}",
        report.number, report.number
    );
    let _ = writeln!(
        call.reply,
        "  frontend={} (id={} mode={}), listener={name} (id={}) addr={address}",
        frontend.name,
        frontend.id,
        mode(frontend.mode),
        listener.id
    );
    let backend = report.backend.map(|index| &report.generation.backends[index]);
    let _ = match backend {
        Some(backend) => {
            writeln!(call.reply, "  backend={} (id={} mode={})", backend.name, backend.id, mode(backend.mode))
        }
        None => writeln!(call.reply, "  backend=<NONE> (id=-1 mode=-)"),
    };
    let _ = match backend.zip(report.server).map(|(backend, position)| &backend.servers[position]) {
        Some(server) => writeln!(call.reply, "  server={} (id={})", server.name, server.id),
        None => writeln!(call.reply, "  server=<none> (id=-1)"),
    };
    let _ = writeln!(call.reply, "  lane={} age={} state={}", lane.index(), age(since), state(report));
}

/// Formats an age: `5s`, `1m5s`, `2h1m`, `3d2h`.
fn age(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, _, _) => format!("{hours}h{}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

/// `shutdown session`
pub(super) async fn shutdown(call: &mut Call<'_, '_>) {
    let Some(number) = number(call.word(0)) else {
        return call.error("Session pointer expected (use 'show sess').");
    };
    for lane in lanes() {
        if end_stream(lane, number, Cause::Killed).await {
            return;
        }
    }
    call.error("No such session (use 'show sess').");
}

/// Number of streams that `debug dev panic` has ended.
pub(super) static HARMED: AtomicU64 = AtomicU64::new(0);

/// `debug dev panic`: makes a stream panic, to test how the process handles a defect.
pub(super) async fn panic(call: &mut Call<'_, '_>) {
    let Some(number) = number(call.word(0)) else {
        return call.error(
            "'debug dev panic' expects the number of a stream (use 'show sess'), which then ends \
            as by a defect.",
        );
    };
    for lane in lanes() {
        if panic_stream(lane, number).await {
            HARMED.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
    call.error("No such session (use 'show sess').");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_two_units_at_most() {
        let ages = [0, 59, 60, 3599, 3600, 86_399, 90_000].map(|seconds| age(Duration::from_secs(seconds)));
        assert_eq!(ages, ["0s", "59s", "1m0s", "59m59s", "1h0m", "23h59m", "1d1h"]);
    }

    #[test]
    fn numbers_are_hexadecimal() {
        assert_eq!(
            (number("0x2a"), number("2a"), number("-1"), number("")),
            (Some(42), Some(42), None, None)
        );
    }
}
