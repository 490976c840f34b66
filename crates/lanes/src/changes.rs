//! Changes of servers: reports each change to the balancer, to the logs and to the servers that track the
//! changed one (`generation/track.rs`), and ends streams where configured.

use super::local::Local;
use super::mail;
use super::streams::end_streams;
use manylane_balance::{Admin, Availability, Index, Operation, StaticWeight};
use manylane_check::HealthState;
use manylane_logs::{Level, Line};
use manylane_plan::Cause;
use manylane_plan::generation::{Backend, Frontend, ServerNumber, follow, operation};
use manylane_sched::Time;
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// Changes the standing of a server and carries out the consequences. The log line ends with `why`, which
/// begins with a comma or is empty.
///
/// A server that leaves maintenance is up unless its agent says otherwise; a server that tracks another has
/// the operation of the tracked one.
pub fn change(
    local: &Local,
    backend: &Backend,
    index: Index,
    why: &str,
    to: impl FnOnce(Availability) -> Availability,
) {
    // Only the successor's configuration decides about the consequences, if there is a successor with this
    // server.
    if let Some((next, backend, index)) = local.successor_with(backend, index) {
        return change(&next, &next.generation.backends[backend], index, why, to);
    }
    let server = &backend.servers[index.get()];
    let now = local.here().now();
    let tracked = || server.tracks.and_then(|number| local.generation.standing(number));
    let counts = Counts::of(backend, index);
    let (before, after) = backend.balancer.update(index, now, |standing| {
        let mut after = to(standing);
        if standing.is_in_maintenance() && !after.is_in_maintenance() {
            let agent_says =
                server.agent.as_ref().map_or(HealthState::Up, |agent| agent.board.read().health.running());
            after.operation = tracked().map_or(operation(agent_says), |tracked| tracked.operation);
        }
        after
    });
    if before == after {
        return;
    }
    if before.is_in_maintenance() != after.is_in_maintenance() {
        let number = backend.number_of(index);
        while let Some(now) = local.generation.standing(number) {
            server.paused(now.is_in_maintenance());
            if local
                .generation
                .standing(number)
                .is_some_and(|then| then.is_in_maintenance() == now.is_in_maintenance())
            {
                break; // otherwise another thread has changed it meanwhile
            }
        }
    }
    if (before.serves(), before.operation) != (after.serves(), after.operation)
        || before.is_in_maintenance() != after.is_in_maintenance()
    {
        server.past.change(after.serves(), now.since(Time::ZERO));
    }
    backend.settle_past(now);
    let number = backend.number_of(index);
    if before.serves() && !after.serves() && server.ends_streams_when_down {
        end_streams(local, number, Cause::ServerDown);
    }
    let weight = backend.balancer.servers()[index].state().weight();
    if !before.serves()
        && after.serves()
        && server.ends_backup_streams_when_up
        && !server.backup
        && weight > 0
    {
        for other in backend.listed().filter(|other| other.backup) {
            end_streams(local, ServerNumber { server: other.index, ..number }, Cause::ActiveUp);
        }
    }
    ChangeReport { local, backend, index, counts }.lines(before, after, why);
    // As in HAProxy, the last follower changes first.
    for follower in server.followers.all().into_iter().rev() {
        followed(local, follower, number);
    }
}

/// Changes a server that tracks `tracked`, which has changed.
fn followed(local: &Local, follower: ServerNumber, tracked: ServerNumber) {
    let generation = &local.generation;
    let Some((backend, server)) = generation.known(follower) else { return };
    let Some(index) = backend.balancer.servers().index(server.index) else { return };
    while let Some(standing) = generation.standing(tracked) {
        change(local, backend, index, "", |own| follow(own, standing));
        if generation.standing(tracked) == Some(standing) {
            return; // otherwise another thread has changed it meanwhile
        }
    }
}

/// Sets the weight of a server.
///
/// # Errors
/// The weights of the algorithm are fixed.
pub fn set_weight(local: &Local, backend: &Backend, index: Index, weight: u16) -> Result<(), StaticWeight> {
    backend.balancer.set_weight(index, weight, local.here().now())
}

/// Sets the `maxconn` of a server. For the return value see [`manylane_balance::Balancer::set_maxconn`].
pub fn set_maxconn(local: &Local, backend: &Backend, index: Index, most: u32) -> bool {
    backend.balancer.set_maxconn(index, most, local.here().now())
}

/// Sets the administrative state of a server for an operator.
pub fn administer(local: &Local, backend: &Backend, index: Index, own: Admin) {
    change(local, backend, index, "", |standing| Availability { own, ..standing });
}

/// Sets the health of a server for an operator, in place of its checks.
pub fn find(local: &Local, backend: &Backend, index: Index, running: HealthState) {
    backend.servers[index.get()].is_said_to_be(running);
    let operation = operation(running);
    change(local, backend, index, ", changed from CLI", |standing| match standing.is_in_maintenance() {
        true => standing, // the server is up when it leaves maintenance
        false => Availability { operation, ..standing },
    });
}

/// Sets the answer of a server's agent for an operator.
pub fn answer(local: &Local, backend: &Backend, index: Index, running: HealthState) {
    let server = &backend.servers[index.get()];
    if let Some(agent) = &server.agent {
        agent.board.set(running);
    }
    let operation = operation(running);
    change(local, backend, index, ", changed from CLI", |standing| match standing.is_in_maintenance() {
        true => standing,
        false => Availability { operation, ..standing },
    });
}

/// Numbers for log lines.
struct Counts {
    usable: (usize, usize),
    waiting: u32,
    for_any: u64,
}

impl Counts {
    fn of(backend: &Backend, index: Index) -> Self {
        let balancer = &backend.balancer;
        let count = |backup| {
            balancer
                .servers()
                .iter()
                .filter(|(_, one)| one.spec().backup == backup && one.state().is_usable())
                .count()
        };
        Self {
            usable: (count(false), count(true)),
            waiting: balancer.waiting(index),
            for_any: balancer.waiting_for_any(),
        }
    }
}

/// The report of one server's change.
struct ChangeReport<'a> {
    local: &'a Local,
    backend: &'a Backend,
    index: Index,
    /// The numbers before the change.
    counts: Counts,
}

impl ChangeReport<'_> {
    fn lines(&self, before: Availability, after: Availability, why: &str) {
        let server = &self.backend.servers[self.index.get()];
        let name = if server.backup { "Backup Server" } else { "Server" };
        let subject = format!("{name} {}/{}", self.backend.name, server.name);
        let via = server.tracks.map_or(String::new(), |tracked| {
            let (backend, tracked) = self.local.generation.server(tracked);
            format!(" via {}/{}", backend.name, tracked.name)
        });
        let via = via.as_str();
        let inherited = |own: Admin, kind: Admin| if own == kind { "" } else { via };
        let (was, is) = (before.is_in_maintenance(), after.is_in_maintenance());
        let drains =
            |standing: Availability| standing.own == Admin::Drain || standing.inherited == Admin::Drain;
        let down = after.operation == Operation::Down;
        // the server got no new clients before
        let was_left = before.operation == Operation::Stopping || drains(before);
        let stays_drained = || match after.own {
            Admin::Drain => format!("{subject} remains in forced drain mode."),
            _ => format!("{subject} remains in drain mode{via}."),
        };
        match (was, is) {
            (false, true) if before.operation == Operation::Down => {
                let via = if after.unresolved { why } else { inherited(after.own, Admin::Maintenance) };
                self.say(Level::Notice, &format!("{subject} was DOWN and now enters maintenance{via}."));
            }
            (false, true) => {
                let via = if after.unresolved { why } else { inherited(after.own, Admin::Maintenance) };
                let level = if was_left { Level::Notice } else { Level::Alert };
                self.counted(level, format!("{subject} is going DOWN for maintenance{via}"), true);
            }
            // The server stays in maintenance for another reason.
            (true, true) if before.unresolved != after.unresolved => {}
            (true, true) => match (before.own == Admin::Maintenance, after.own == Admin::Maintenance) {
                (true, false) => {
                    self.say(
                        Level::Notice,
                        &format!("{subject} is leaving forced maintenance but remains in maintenance{via}."),
                    );
                }
                (_, true)
                    if before.inherited == Admin::Maintenance && after.inherited != Admin::Maintenance =>
                {
                    self.say(Level::Notice, &format!("{subject} remains in forced maintenance."));
                }
                _ => {}
            },
            (true, false) if before.unresolved => {
                let state = if down { "DOWN" } else { "UP" };
                let ready = if drains(after) { "DRAIN" } else { "READY" };
                let name = server.addr.read().name.unwrap_or_default();
                self.say(
                    Level::Notice,
                    &format!("{subject} ('{name}') is {state}/{ready} (resolves again)."),
                );
            }
            (true, false) => {
                let state = if down { "DOWN" } else { "UP" };
                let ready = if drains(after) { "DRAIN" } else { "READY" };
                let forced = if before.own == Admin::Maintenance { "forced " } else { "" };
                self.say(
                    Level::Notice,
                    &format!("{subject} is {state}/{ready} (leaving {forced}maintenance)."),
                );
                if drains(after) {
                    self.say(Level::Notice, &stays_drained());
                }
            }
            (false, false) => {
                if before.operation != after.operation {
                    let (state, level) = match after.operation {
                        Operation::Up => ("UP", Level::Notice),
                        Operation::Stopping => ("stopping", Level::Notice),
                        Operation::Down if was_left => ("DOWN", Level::Notice),
                        Operation::Down => ("DOWN", Level::Alert),
                    };
                    let line = self.counted(level, format!("{subject} is {state}{via}{why}"), down);
                    if after.operation != Operation::Stopping {
                        alert(self.local, self.backend, level, &line);
                    }
                }
                match (drains(before), drains(after)) {
                    (false, true) => {
                        let via = inherited(after.own, Admin::Drain);
                        let line = format!("{subject} enters drain state{via}");
                        let line = self.counted(Level::Notice, line, down);
                        alert(self.local, self.backend, Level::Notice, &line);
                    }
                    (true, false) => {
                        let state = if down { "DOWN" } else { "UP" };
                        let left = if before.own == Admin::Drain {
                            " (leaving forced drain)"
                        } else {
                            &*format!(" (leaving drain){via}")
                        };
                        self.say(Level::Notice, &format!("{subject} is {state}{left}."));
                    }
                    (true, true) => self.say(Level::Notice, &stays_drained()),
                    (false, false) => {}
                }
            }
        }
    }

    /// Logs a line with the numbers of usable servers and of waiting requests, and returns it.
    fn counted(&self, level: Level, mut line: String, left: bool) -> String {
        let Counts { usable: after, waiting, for_any } = Counts::of(self.backend, self.index);
        let what = if left { "left" } else { "online" };
        let _ = write!(line, ". {} active and {} backup servers {what}.", after.0, after.1);
        if after.0 == 0 && after.1 > 0 {
            line.push_str(" Running on backup.");
        }
        let _ = if left {
            let server = &self.backend.servers[self.index.get()];
            let counts = |ended: bool| {
                server
                    .counts
                    .read_cheap_one(|counts| if ended { &counts.streams_ended } else { &counts.streams })
            };
            let active = counts(false).saturating_sub(counts(true));
            write!(
                line,
                " {active} sessions active, {} requeued, {waiting} remaining in queue.",
                self.counts.waiting.saturating_sub(waiting)
            )
        } else {
            write!(
                line,
                " {} sessions requeued, {for_any} total in queue.",
                self.counts.for_any.saturating_sub(for_any)
            )
        };
        self.say(level, &line);
        if self.counts.usable != (0, 0) && after == (0, 0) {
            // HAProxy says "proxy" of a section that is a frontend, too.
            let listens =
                self.local.generation.frontends.iter().any(|frontend| frontend.id == self.backend.id);
            let what = if listens { "proxy" } else { "backend" };
            let (name, events) = (&self.backend.name, &self.backend.events);
            write(
                self.local,
                &events.targets,
                &events.tag,
                Level::Emerg,
                &format!("{what} {name} has no server available!"),
            );
            print(self.local, "ALERT", &format!("{what} '{name}' has no server available!"));
        }
        line
    }

    fn say(&self, level: Level, text: &str) {
        say(self.local, self.backend, level, text);
    }
}

/// Sends a line about a server by mail, if the backend has `email-alert`.
pub(crate) fn alert(local: &Local, backend: &Backend, level: Level, line: &str) {
    let report = |text: &str| {
        if let Some(local) = Local::newest() {
            log_globally(&local, Level::Warning, text);
        }
    };
    if let Some(alerts) = &backend.alerts {
        mail::alert(alerts, local.here(), level, line, report);
    }
}

/// Writes a line to the backend's log targets, and as a warning to standard error.
pub fn say(local: &Local, backend: &Backend, level: Level, text: &str) {
    tell(local, backend, level, "WARNING", text);
}

/// Writes a line to the backend's log targets, and to standard error with `severity`.
pub fn tell(local: &Local, backend: &Backend, level: Level, severity: &str, text: &str) {
    write(local, &backend.events.targets, &backend.events.tag, level, text);
    print(local, severity, text);
}

/// Writes a line to the log targets of `global`.
pub fn log_globally(local: &Local, level: Level, text: &str) {
    let logs = &local.generation.logs;
    write(local, &logs.global, &logs.tag, level, text);
}

/// Writes a line about the process to the log targets of `global`, and as a warning to standard error.
pub(crate) fn report(text: &str) {
    let Some(local) = Local::newest() else { return };
    log_globally(&local, Level::Warning, text);
    print(&local, "WARNING", text);
}

/// Returns the log text for a proxy that stops: how many connections its clients made, and how many streams
/// its servers had.
pub fn stopped(frontend: Option<&Frontend>, backend: Option<&Backend>) -> String {
    let front = frontend.map_or(0, |frontend| frontend.counts.read_cheap_one(|counts| &counts.connections));
    let back = backend.map_or(0, |backend| backend.counts.read_cheap_one(|counts| &counts.streams));
    format!("stopped (cumulated conns: FE: {front}, BE: {back}).")
}

/// Writes a line about a frontend to its log targets, and as a warning to standard error.
pub fn warn(local: &Local, frontend: &Frontend, text: &str) {
    if let Some(log) = &frontend.log {
        write(local, &log.targets, &log.tag, Level::Warning, text);
        for profile in &log.profiles {
            write(local, &profile.targets, &profile.tag, Level::Warning, text);
        }
    }
    print(local, "WARNING", text);
}

/// Writes a line in HAProxy's form to standard error, unless the process is quiet. The line takes the path of
/// log lines: the lane does not wait, and a line without room is dropped and counted.
pub(crate) fn print(local: &Local, severity: &str, text: &str) {
    if local.generation.logs.console.is_some() {
        tell_console(local, &format!("{:<11}({}) : {text}", format!("[{severity}]"), local.pid));
    }
}

/// Writes a line to standard error without a prefix.
pub fn tell_console(local: &Local, line: &str) {
    if let Some(target) = local.generation.logs.console {
        write(local, &[target], "", Level::Warning, line);
    }
}

fn write(local: &Local, targets: &[usize], tag: &str, level: Level, text: &str) {
    let line = Line {
        level,
        tag: tag.as_bytes(),
        pid: std::process::id(),
        host: local.generation.logs.host.as_bytes(),
        structured: b"",
        time: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        text: text.as_bytes(),
    };
    for &target in targets {
        local.log(target, &line);
    }
}
