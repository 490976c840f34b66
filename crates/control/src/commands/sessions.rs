//! `show sess` and `shutdown session`: the streams at work, and ending one of them.
//!
//! The command asks one lane after another for a slice of its streams, and writes each slice before it asks
//! for the next. So it holds one slice at a time, and delays a lane only for as long as a slice takes.
//! Streams that begin after the command are left out, so the dump ends however many begin meanwhile. The
//! command's time tells them apart, so nothing is written to streams (R-G3).

use super::Call;
use super::errors::date;
use super::server::names;
use crate::reply::ReplyError;
use manylane_config::value::Unit;
use manylane_expr::Timestamp;
use manylane_lanes::{Cursor, StreamReport, end_stream, panic_stream, slice};
use manylane_net::Endpoint;
use manylane_plan::{Cause, Generation};
use manylane_sched::Time;
use manylane_sync::LaneId;
use manylane_sync::atomic::{AtomicU64, Ordering};
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

/// A condition that a stream has to meet.
#[derive(Debug, PartialEq, Eq)]
enum Condition {
    /// It has this number.
    Number(u64),
    /// It began at least this long ago.
    Older(Duration),
    /// It belongs to the frontend of this name or `#id`; the next ones, to a backend or a server.
    Frontend(String),
    Backend(String),
    Server(String, String),
}

impl Condition {
    fn holds(&self, report: &StreamReport, now: Time) -> bool {
        let backend = report.backend.map(|index| &report.generation.backends[index]);
        match self {
            Self::Number(number) => report.number == *number,
            Self::Older(age) => now.since(report.begun) >= *age,
            Self::Frontend(word) => {
                let frontend = &report.generation.frontends[report.frontend];
                names(word, &frontend.name, frontend.id)
            }
            Self::Backend(word) => backend.is_some_and(|backend| names(word, &backend.name, backend.id)),
            Self::Server(word, own) => backend
                .filter(|backend| names(word, &backend.name, backend.id))
                .zip(report.server)
                .map(|(backend, position)| &backend.servers[position])
                .is_some_and(|server| names(own, &server.name, server.id)),
        }
    }

    /// The error, if the generation does not have what the condition names.
    fn misses(&self, generation: &Generation) -> Option<&'static str> {
        let backend = |word: &str| generation.backends.iter().find(|own| names(word, &own.name, own.id));
        match self {
            Self::Number(_) => Some("Session not found."),
            Self::Older(_) => None,
            Self::Frontend(word) => {
                let mut all = generation.frontends.iter();
                (!all.any(|own| names(word, &own.name, own.id))).then_some("No such frontend.")
            }
            Self::Backend(word) => backend(word).is_none().then_some("No such backend."),
            Self::Server(word, server) => match backend(word) {
                None => Some("No such backend."),
                Some(backend) => (!backend.listed().any(|own| names(server, &own.name, own.id)))
                    .then_some("No such server."),
            },
        }
    }
}

/// Arguments of `show sess`.
#[derive(Debug, Default, PartialEq, Eq)]
struct StreamQuery {
    /// All of them must hold.
    conditions: Vec<Condition>,
    in_full: bool,
}

impl StreamQuery {
    /// Parses the words of the command. The error is a sentence.
    fn parse(words: &[String]) -> Result<Self, String> {
        let mut query = Self::default();
        let mut left = words.iter().map(String::as_str).enumerate();
        while let Some((at, word)) = left.next() {
            let mut value = |missing: &'static str| {
                left.next().map(|(_, value)| value).filter(|value| !value.is_empty()).ok_or(missing)
            };
            query.conditions.push(match word {
                "all" if at == 0 => {
                    query.in_full = true;
                    continue;
                }
                "older" => {
                    let age = value("Expects a minimum age (in seconds by default).")?;
                    let age = manylane_config::value::time(age.as_bytes(), Unit::S);
                    Condition::Older(age.map_err(|_| "Invalid age.")?)
                }
                "frontend" => Condition::Frontend(value("Missing frontend name.")?.into()),
                "backend" => Condition::Backend(value("Missing backend name.")?.into()),
                "server" => {
                    let value = value("Missing server name (<backend>/<server>).")?;
                    let parts = value.split_once('/').filter(|(_, server)| !server.is_empty());
                    let (backend, server) = parts.ok_or("Require 'backend/server'.")?;
                    Condition::Server(backend.into(), server.into())
                }
                "susp" => {
                    return Err("'show sess susp' is refused: nothing tells which sessions are \
                        suspicious; use 'show sess older <age>'."
                        .into());
                }
                "show-uri" => {
                    return Err(
                        "'show sess show-uri' is refused: what a stream shows of itself has no URI; \
                        log lines have it (%HU, %HP)."
                            .into(),
                    );
                }
                word => match number(word).filter(|_| at == 0) {
                    Some(number) => {
                        query.in_full = true;
                        Condition::Number(number)
                    }
                    None => return Err(format!("Unsupported option '{word}', try 'help' for more info.")),
                },
            });
        }
        Ok(query)
    }
}

const HELP: &str = "\
'show sess [<id> | all | help] [<condition>]*' shows the streams for which all conditions hold.
  <id>          one stream, in full
  all           each stream in full, where it has a line otherwise
  older <age>   began at least this long ago, in seconds unless a unit follows
  frontend <fe> came by this frontend
  backend <be>  goes to this backend
  server <be>/<srv>  has this server
";

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
    if call.word(0) == "help" {
        call.reply.put(HELP);
        return Ok(());
    }
    let StreamQuery { conditions, in_full } = match StreamQuery::parse(call.words) {
        Ok(query) => query,
        Err(why) => {
            call.error(&why);
            return Ok(());
        }
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
            let shown = |stream: &&StreamReport| {
                stream.begun <= epoch && conditions.iter().all(|condition| condition.holds(stream, now))
            };
            for stream in report.iter().filter(shown) {
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
    // Streams of generations that served before may have what this one does not.
    let missing = || conditions.iter().find_map(|condition| condition.misses(call.generation));
    if !found && let Some(why) = missing() {
        call.error(why);
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

    fn parsed(line: &str) -> Result<StreamQuery, String> {
        StreamQuery::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn all_conditions_are_read() {
        let query = parsed("all backend b older 1h server b/s frontend f").unwrap();
        let hour = Duration::from_secs(3600);
        let expected = [
            Condition::Backend("b".into()),
            Condition::Older(hour),
            Condition::Server("b".into(), "s".into()),
            Condition::Frontend("f".into()),
        ];
        assert_eq!((&*query.conditions, query.in_full), (&expected[..], true));
        let one = parsed("0x2a older 5").unwrap();
        let expected = [Condition::Number(42), Condition::Older(Duration::from_secs(5))];
        assert_eq!((&*one.conditions, one.in_full), (&expected[..], true));
        assert_eq!(parsed("").unwrap(), StreamQuery::default());
    }

    #[test]
    fn unknown_words_are_refused_wherever_they_stand() {
        for (line, why) in [
            ("bogus", "Unsupported option 'bogus', try 'help' for more info."),
            ("backend b bogus", "Unsupported option 'bogus', try 'help' for more info."),
            ("backend b all", "Unsupported option 'all', try 'help' for more info."),
            ("older 1h 2a", "Unsupported option '2a', try 'help' for more info."),
            ("older", "Expects a minimum age (in seconds by default)."),
            ("backend b older x", "Invalid age."),
            ("frontend", "Missing frontend name."),
            ("older 1h backend", "Missing backend name."),
            ("server", "Missing server name (<backend>/<server>)."),
            ("server b", "Require 'backend/server'."),
            ("server b/", "Require 'backend/server'."),
        ] {
            assert_eq!(parsed(line), Err(why.to_owned()), "{line}");
        }
    }

    #[test]
    fn numbers_are_hexadecimal() {
        assert_eq!(
            (number("0x2a"), number("2a"), number("-1"), number("")),
            (Some(42), Some(42), None, None)
        );
    }
}
