//! Commands on one server.

use super::Call;
use crate::level::Severity;
use manylane_balance::{Admin, Index, MAX_WEIGHT};
use manylane_check::HealthState;
use manylane_plan::Cause;
use manylane_plan::generation::{Backend, Change, Server};
use manylane_runtime::NotRenamed;
use manylane_sched::BlockingPool;
use manylane_sync::Arc;
use std::fmt::Write;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::OnceLock;

/// True if `word` is the name, or `#` and the id.
pub(super) fn names(word: &str, name: &str, id: u32) -> bool {
    word == name || word.strip_prefix('#').is_some_and(|number| number.parse() == Ok(id))
}

/// The index of the backend with this name or number (`#1`).
pub(super) fn backend_named(backends: &[Arc<Backend>], word: &str) -> Option<usize> {
    backends.iter().position(|own| names(word, &own.name, own.id))
}

/// Finds the server that the word at `at` names as `backend/server`, by names or by numbers (`#1`). If there
/// is none, replies with an error and returns `None`.
pub(super) fn find<'g>(call: &mut Call<'g, '_>, at: usize) -> Option<(&'g Backend, &'g Server, Index)> {
    let Some((backend, server)) = call.word(at).split_once('/').filter(|(_, server)| !server.is_empty())
    else {
        call.error("Require 'backend/server'.");
        return None;
    };
    let backends = &call.generation.backends;
    let Some(backend) = backend_named(backends, backend).map(|at| &backends[at]) else {
        call.error("No such backend.");
        return None;
    };
    let found = backend.listed().find(|own| names(server, &own.name, own.id));
    let index = found.and_then(|server| backend.balancer.servers().index(server.index));
    let (Some(server), Some(index)) = (found, index) else {
        call.error("No such server.");
        return None;
    };
    Some((backend, server, index))
}

pub(super) fn get_weight(call: &mut Call<'_, '_>) {
    let Some((backend, server, index)) = find(call, 0) else { return };
    let weight = backend.balancer.servers()[index].state().weight();
    let _ = writeln!(call.reply, "{weight} (initial {})", server.weight); // an answer without a severity mark
}

pub(super) fn set_weight(call: &mut Call<'_, '_>) {
    if let Some(found) = find(call, 0) {
        weigh(call, found, 1);
    }
}

/// Sets the weight from the word at `at`: a number, or a percentage of the configured weight.
fn weigh(call: &mut Call<'_, '_>, (backend, server, index): (&Backend, &Server, Index), at: usize) {
    let word = call.word(at);
    if word.is_empty() {
        return call.error("Require <weight> or <weight%>.");
    }
    let Some((number, rest)) = number(word) else {
        return call.error("Empty weight string empty or preceded by garbage");
    };
    let weight = match (number, rest) {
        (..0, "%") => return call.error("Relative weight must be positive."),
        (percents, "%") => (i64::from(server.weight) * percents / 100).min(MAX_WEIGHT.into()) as u16,
        (0.., "") if number <= MAX_WEIGHT.into() => number as u16,
        (0.., _) if number <= MAX_WEIGHT.into() => return call.error("Trailing garbage in weight string"),
        _ => return call.error("Absolute weight can only be between 0 and 256 inclusive."),
    };
    let Some(local) = call.local() else { return };
    if manylane_lanes::set_weight(&local, backend, index, weight).is_err() {
        call.error("Backend is using a static LB algorithm and only accepts weights '0%' and '100%'.");
    }
}

/// The number that `word` begins with, and the rest of the word. Too large numbers are clamped.
fn number(word: &str) -> Option<(i64, &str)> {
    const LARGE: i64 = 1_000_000;
    let digits = word.strip_prefix(['+', '-']).unwrap_or(word);
    let count = digits.bytes().take_while(u8::is_ascii_digit).count();
    if count == 0 {
        return None;
    }
    let number = digits[..count].parse().map_or(LARGE, |number: i64| number.min(LARGE));
    Some((if word.starts_with('-') { -number } else { number }, &digits[count..]))
}

/// Sets a server's administrative state, through the lane's own state of the generation.
fn administer(call: &mut Call<'_, '_>, backend: &Backend, index: Index, admin: Admin) {
    let Some(local) = call.local() else { return };
    manylane_lanes::administer(&local, backend, index, admin);
}

pub(super) fn enable(call: &mut Call<'_, '_>, on: bool) {
    let Some((backend, _, index)) = find(call, 0) else { return };
    administer(call, backend, index, if on { Admin::Ready } else { Admin::Maintenance });
}

/// `enable health`, `disable health`
pub(super) fn enable_health(call: &mut Call<'_, '_>, on: bool) {
    let Some((_, server, _)) = find(call, 0) else { return };
    match &server.check {
        Some(check) => {
            check.board.disable(!on);
            check.notify.notify_one();
        }
        None if on => call.error("Health check was not configured on this server, cannot enable."),
        None => {}
    }
}

/// `set maxconn server`
pub(super) async fn set_maxconn(call: &mut Call<'_, '_>) {
    let most = call.word(1);
    let Some((backend, server, index)) = find(call, 0) else { return };
    if most.is_empty() {
        return call.error("Require <maxconn>.");
    }
    let Ok(most) = most.parse() else { return call.error("maxconn string empty or preceded by garbage") };
    let Some(local) = call.local() else { return };
    if !manylane_lanes::set_maxconn(&local, backend, index, most) && most > 0 {
        // The server's streams are not counted before it has a limit, so the generation must change.
        let change = Change::Limit(backend.name.clone(), server.name.clone(), most);
        if let Err(text) = (call.control.process().change)(change).await {
            call.error(&text);
        }
    }
}

/// `shutdown sessions server`
pub(super) fn shutdown_sessions(call: &mut Call<'_, '_>) {
    let Some((backend, _, index)) = find(call, 0) else { return };
    let Some(local) = call.local() else { return };
    manylane_lanes::end_streams(&local, backend.number_of(index), Cause::Killed);
}

/// `enable agent`, `disable agent`
pub(super) fn enable_agent(call: &mut Call<'_, '_>, on: bool) {
    let Some((_, server, _)) = find(call, 0) else { return };
    match &server.agent {
        Some(agent) => {
            agent.board.disable(!on);
            agent.notify.notify_one();
        }
        None if on => call.error("Agent was not configured on this server, cannot enable."),
        None => {}
    }
}

/// `set server <bk>/<srv> agent ...`
fn set_agent(call: &mut Call<'_, '_>, (backend, server, index): (&Backend, &Server, Index)) {
    if server.agent.as_ref().is_none_or(|agent| agent.board.read().disabled) {
        return call.error("agent checks are not enabled on this server.");
    }
    let running = match call.word(2) {
        "up" => HealthState::Up,
        "down" => HealthState::Down,
        _ => return call.error("'set server <srv> agent' expects 'up' or 'down'."),
    };
    let Some(local) = call.local() else { return };
    manylane_lanes::answer(&local, backend, index, running);
}

/// The first address of a host's name by the system's resolver, which may take seconds, or an error's text.
async fn resolved(name: &str) -> Result<IpAddr, String> {
    // Its own threads: others must not wait for a name server that does not answer.
    static POOL: OnceLock<BlockingPool> = OnceLock::new();
    let pool = POOL.get_or_init(|| BlockingPool::named("lookups", 2, 16));
    let invalid = format!("invalid addr '{name}'");
    let name = name.to_owned();
    let look_up = move || Some((&*name, 0).to_socket_addrs().ok()?.next()?.ip());
    match pool.run(look_up) {
        Ok(looking) => looking.await.ok_or(invalid),
        Err(refused) => Err(format!("{invalid}: {refused}")),
    }
}

/// `check-addr`, `check-port`, `agent-addr`, `agent-port`, `agent-send`
async fn set_check_target(call: &mut Call<'_, '_>, server: &Server, what: &str) {
    let (of, name) = match what.starts_with("agent") {
        true => (&server.agent, "agent checks"),
        false => (&server.check, "health checks"),
    };
    if what == "check-port" && call.word(2).is_empty() {
        return call.error("set server <b>/<s> check-port requires a port.");
    }
    let Some(check) = of.as_ref().filter(|check| !check.board.read().disabled) else {
        let dot = if what == "agent-send" { "." } else { "" };
        return call.error(&format!("{name} are not enabled on this server{dot}"));
    };
    let value = call.word(2);
    let port = |word: &str| match word.parse::<i64>() {
        Ok(number) => u16::try_from(number).map_err(|_| "provided port is invalid"),
        Err(_) => Err("provided port is not an integer"),
    };
    match what {
        "agent-send" if value.is_empty() => {
            call.error("'set server <srv> agent-send' expects what the agent is sent.")
        }
        "agent-send" => check.target.set(|target| target.send = Some(value.as_bytes().into())),
        "agent-port" | "check-port" => match port(value) {
            Ok(port) => check.target.set(|own_target| own_target.port = Some(port)),
            Err(why) => call.error(why),
        },
        _ => {
            let ip = match value.parse() {
                Ok(ip) => ip,
                // As by HAProxy, names of agents are resolved, those of checks are not.
                Err(_) if what == "agent-addr" => match resolved(value).await {
                    Ok(ip) => ip,
                    Err(why) => return call.error(&why),
                },
                Err(_) => return call.error(&format!("invalid addr '{value}'")),
            };
            let beside = match call.word(3) {
                "port" => match port(call.word(4)) {
                    Ok(port) => Some(port),
                    Err(why) => return call.error(why),
                },
                _ => None,
            };
            check
                .target
                .set(|own_target| (own_target.ip, own_target.port) = (Some(ip), beside.or(own_target.port)));
        }
    }
    check.notify.notify_one();
}

/// `set server <bk>/<srv> health ...`
fn set_health(call: &mut Call<'_, '_>, (backend, server, index): (&Backend, &Server, Index)) {
    if server.tracks.is_some() {
        return call.error("cannot change health on a tracking server.");
    }
    let running = match call.word(2) {
        "up" => HealthState::Up,
        "stopping" => HealthState::Stopping,
        "down" => HealthState::Down,
        _ => return call.error("'set server <srv> health' expects 'up', 'stopping', or 'down'."),
    };
    let Some(local) = call.local() else { return };
    manylane_lanes::find(&local, backend, index, running);
}

/// The author of a change, for answers.
const BY: &str = "by 'stats socket command'";

/// `set server <bk>/<srv> addr`
fn relocate(call: &mut Call<'_, '_>, (backend, server, index): (&Backend, &Server, Index)) {
    let word = call.word(2);
    if word.is_empty() {
        return call.error("set server <b>/<s> addr requires an address and optionally a port.");
    }
    let Ok(ip) = word.parse() else {
        return call.message(Severity::Warning, &format!("Invalid addr '{word}'"));
    };
    let mut port = None;
    if call.word(3) == "port" {
        let word = call.word(4);
        if word.starts_with(['+', '-']) {
            return call.error(
                "'set server <srv> addr' expects a port, found an offset; only the file can have that.",
            );
        }
        port = word.parse().ok().filter(|port: &u16| *port != 0);
        if port.is_none() {
            let problem = format!("problem converting port '{word}' to an int");
            return call.message(Severity::Warning, &problem);
        }
    }
    let Some(local) = call.local() else { return };
    let before = match manylane_runtime::relocate(&local, backend, index, ip, port) {
        Ok(before) => before,
        Err(why) => return call.error(&format!("Server '{}' keeps its address: {why}.", server.name)),
    };
    let mut changes = Vec::new();
    if before.ip != Some(ip) {
        let was = before.ip.map_or("(none)".into(), |was| was.to_string());
        changes.push(format!("IP changed from '{was}' to '{ip}'"));
    }
    if let Some(port) = port.filter(|port| before.port != Some(*port)) {
        changes.push(format!("port changed from '{}' to '{port}'", before.port.unwrap_or(0)));
    }
    let text = match &changes[..] {
        [] => "nothing changed".into(),
        some => format!("{} {BY}", some.join(", ")),
    };
    call.message(Severity::Warning, &text);
}

/// `set server <bk>/<srv> fqdn`
fn rename(call: &mut Call<'_, '_>, (backend, server, index): (&Backend, &Server, Index)) {
    let word = call.word(2);
    if word.is_empty() {
        return call.error("set server <b>/<s> fqdn requires a FQDN.");
    }
    let Some(local) = call.local() else { return };
    match manylane_runtime::rename(&local, backend, index, word) {
        Ok(was) => {
            let was = was.unwrap_or_else(|| "(null)".into());
            let text = format!("{}/{} changed its FQDN from {was} to {word} {BY}", backend.name, server.name);
            call.message(Severity::Warning, &text);
        }
        Err(NotRenamed::NoResolution) => {
            call.error("set server <b>/<s> fqdn failed because no resolution is configured.");
        }
        Err(NotRenamed::Service) => {
            call.error("set server <b>/<s> fqdn failed because SRV resolution is configured.");
        }
        Err(NotRenamed::Same) => {
            call.message(
                Severity::Warning,
                &format!(
                    "no need to change the FDQN \
                {BY}"
                ),
            ); // HAProxy's spelling
        }
        Err(NotRenamed::Wrong(why)) => {
            call.error(&format!("set server <b>/<s> fqdn failed because of '{word}': {why}."));
        }
        Err(NotRenamed::Busy) => call.error("The resolvers section is busy: try again."),
    }
}

/// `set server <bk>/<srv> health|state|weight ...`
pub(super) async fn set_server(call: &mut Call<'_, '_>) {
    const USAGE: &str = "usage: set server <backend>/<server> addr | agent | agent-addr | agent-port | \
        agent-send | check-addr | check-port | fqdn | health | state | weight; 'ssl' is \
        refused: HAProxy deprecates it; add another server with or without 'ssl'";
    let Some(found @ (backend, _, index)) = find(call, 0) else { return };
    match call.word(1) {
        "weight" => weigh(call, found, 2),
        "health" => set_health(call, found),
        "addr" => relocate(call, found),
        "fqdn" => rename(call, found),
        "agent" => set_agent(call, found),
        what @ ("agent-addr" | "agent-port" | "agent-send" | "check-addr" | "check-port") => {
            set_check_target(call, found.1, what).await;
        }
        "state" => {
            let admin = match call.word(2) {
                "ready" => Admin::Ready,
                "drain" => Admin::Drain,
                "maint" => Admin::Maintenance,
                _ => return call.error("'set server <srv> state' expects 'ready', 'drain' and 'maint'."),
            };
            administer(call, backend, index, admin);
        }
        "name" => call.error(
            "'set server <b>/<s> name' is a command of HAProxy that this program refuses: add a server with \
                the new name; HAProxy 3.2 does not have it either.",
        ),
        _ => call.error(USAGE),
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn a_number_is_read_from_the_front() {
        for (word, expected) in [
            ("5", Some((5, ""))),
            ("+5%", Some((5, "%"))),
            ("-5x", Some((-5, "x"))),
            ("-9223372036854775808", Some((-1_000_000, ""))),
            ("99999999999999999999", Some((1_000_000, ""))),
            ("", None),
            ("%", None),
            ("+-5", None),
            ("\u{e4}5", None),
        ] {
            assert_eq!(number(word), expected, "{word}");
        }
    }
}
