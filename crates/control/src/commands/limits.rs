//! Commands that change limits at run time, and commands that clear counters.

use super::{Call, server};
use manylane_plan::ConnLimit;
use manylane_plan::counts::{BackendCounts, FrontendCounts, ListenerCounts, ServerCounts};
use manylane_plan::generation::{FrontendGateState, Server};
use manylane_sched::{Class, Here, Remote, TaskKind};
use manylane_sync::Arc;

static FORGET: TaskKind = TaskKind::new("clear counters");

/// Parses a number of connections. If it is not a number, replies with an error and returns `None`.
fn count(call: &mut Call<'_, '_>, word: &str, sentence: &str) -> Option<u32> {
    let count = word.parse().ok();
    if count.is_none() {
        call.error(if word.parse::<i64>().is_ok() { "Value out of range." } else { sentence });
    }
    count
}

/// `set maxconn global`
pub(super) fn set_maxconn_global(call: &mut Call<'_, '_>) {
    let word = call.word(0);
    let Some(wanted) = count(call, word, "Expects an integer value.") else { return };
    let hard = call.generation.hard_maxconn;
    let wanted = if wanted == 0 { hard } else { u64::from(wanted) };
    if wanted > hard {
        return call.error(&format!("Value out of range: the process was started for {hard} connections."));
    }
    call.generation.conn_limit.set_most(wanted);
}

/// `set maxconn frontend`
pub(super) fn set_maxconn_frontend(call: &mut Call<'_, '_>) {
    let (name, word) = (call.word(0), call.word(1));
    let id = name.strip_prefix('#').and_then(|number| number.parse::<u32>().ok());
    let frontends = &call.generation.frontends;
    let found = frontends.iter().find(|own| id.map_or(*own.name == *name, |id| own.id == id));
    let Some(frontend) = found else {
        let wrong = if name.is_empty() { "A frontend name is expected." } else { "No such frontend." };
        return call.error(wrong);
    };
    if word.is_empty() {
        return call.error("Integer value expected.");
    }
    let Some(wanted) = count(call, word, "Integer value expected.") else { return };
    // With HAProxy, 0 admits nobody; here 0 would mean no limit.
    if wanted == 0 {
        return call.error("Integer value expected, from 1: a limit of 0 lets nobody in.");
    }
    frontend.conn_limit.set_most(wanted.into());
}

/// HAProxy's message, without the rates that are not built.
const RATES: &str = "'set rate-limit' only supports :\n   - 'connections global' to set the most \
    connections a \
    second\n   - 'sessions global' to set the most sessions a second\n   - 'ssl-sessions global' to set the \
    most connections with TLS a second";

/// `set rate-limit` for `connections global`, `sessions global` and `ssl-sessions global`
pub(super) fn set_rate_limit(call: &mut Call<'_, '_>) {
    let rate = match call.word(0) {
        "connections" => &call.generation.connection_rate,
        "sessions" => &call.generation.session_rate,
        "ssl-sessions" => &call.generation.tls_rate,
        "http-compression" => {
            return call.error("Compression is not built yet, so its rate has no limit.");
        }
        _ => return call.error(RATES),
    };
    if call.word(1) != "global" {
        return call.error(RATES);
    }
    let word = call.word(2);
    if let Some(wanted) = count(call, word, "Expects an integer value.") {
        rate.set_most(wanted);
    }
}

/// Servers to clear before the lane runs other tasks.
const AT_ONCE: usize = 64;

/// `clear counters`: clears peaks; with `all`, also every counter.
pub(super) async fn clear(call: &mut Call<'_, '_>, all: bool) {
    let (generation, here) = (call.generation, call.here);
    generation.process_stats.forget_most();
    if all {
        generation.resolvers.iter().for_each(|section| section.clear());
    }
    for frontend in &generation.frontends {
        frontend.counts.forget_most();
        if all {
            frontend.counts.clear();
            frontend.listeners.iter().for_each(|listener| listener.counts.clear());
        }
    }
    for backend in &generation.backends {
        backend.counts.forget_most();
        if all {
            backend.counts.clear();
            backend.past.set_downs(0);
        }
        for servers in backend.servers.chunks(AT_ONCE) {
            for server in servers {
                server.counts.forget_most();
                if all {
                    clear_counts(server);
                }
            }
            here.yield_now().await;
        }
    }
    forget_peaks(call, None).await;
}

fn clear_counts(server: &Server) {
    server.counts.clear();
    server.past.set_downs(0);
    server.check.iter().chain(&server.agent).for_each(|check| check.board.set_failed(0));
}

/// `clear counters server`: clears all counters of one server.
pub(super) async fn clear_server(call: &mut Call<'_, '_>) {
    let Some((backend, _, index)) = server::find(call, 0) else { return };
    let server = backend.servers[index.get()].clone();
    server.counts.forget_most();
    clear_counts(&server);
    forget_peaks(call, Some(server)).await;
    call.info("Server counters cleared.");
}

/// Clears the peaks of one server, or all peaks. Each lane clears its own, since only that lane may write
/// them.
async fn forget_peaks(call: &mut Call<'_, '_>, one: Option<Arc<Server>>) {
    let done = Arc::new(ConnLimit::new(1));
    for lane in manylane_sched::report() {
        done.enter().await; // wait for the previous lane
        let (generation, done_here, one) = (call.control.generation(), done.clone(), one.clone());
        let make = move |here: Here| async move {
            if let Some(server) = one {
                server.counts.if_own(ServerCounts::forget_peaks);
                done_here.leave();
                return;
            }
            for frontend in &generation.frontends {
                frontend.counts.if_own(FrontendCounts::forget_peaks);
                frontend.listeners.iter().for_each(|own| own.counts.if_own(ListenerCounts::forget_peaks));
            }
            for backend in &generation.backends {
                backend.counts.if_own(BackendCounts::forget_peaks);
                for servers in backend.servers.chunks(AT_ONCE) {
                    servers.iter().for_each(|server| server.counts.if_own(ServerCounts::forget_peaks));
                    here.yield_now().await;
                }
            }
            done_here.leave();
        };
        if Remote::new(lane.lane).spawn_with(&FORGET, Class::Bulk, make).is_err() {
            return call.error("A lane has no memory left for one more task: not all peaks are cleared.");
        }
    }
    done.enter().await;
}

/// `disable frontend`, `enable frontend`, `shutdown frontend`
pub(super) fn set_gate(call: &mut Call<'_, '_>, to: FrontendGateState) {
    let word = call.word(0);
    if word.is_empty() {
        return call.error("A frontend name is expected.");
    }
    let id = word.strip_prefix('#').and_then(|id| id.parse::<u32>().ok());
    let known = call.generation.frontends.iter().find(|own| *own.name == *word || Some(own.id) == id);
    let Some(frontend) = known else { return call.error("No such frontend.") };
    let Some(local) = call.local() else { return };
    let backend = call.generation.backend_named(&frontend.name); // the backend of the same 'listen' section
    let kind = if backend.is_some() { "proxy" } else { "frontend" };
    let before = match manylane_runtime::set_gate(frontend, to) {
        Ok(before) => before,
        Err(why) => return call.error(&format!("The frontend stays disabled: {why}.")),
    };
    match (before, to) {
        (FrontendGateState::Shut, FrontendGateState::Shut) => call.error("Frontend was already shut down."),
        (FrontendGateState::Shut, FrontendGateState::Open) => {
            call.error("Frontend was previously shut down, cannot enable.")
        }
        (FrontendGateState::Shut, FrontendGateState::Paused) => {
            call.error("Frontend was previously shut down, cannot disable.")
        }
        (FrontendGateState::Open, FrontendGateState::Open) => call.error("All sockets are already enabled."),
        (FrontendGateState::Paused, FrontendGateState::Paused) => {
            call.error("All sockets are already disabled.")
        }
        (FrontendGateState::Open, FrontendGateState::Paused) => {
            manylane_lanes::warn(&local, frontend, &format!("Paused {kind} {}.", frontend.name));
        }
        (FrontendGateState::Paused, FrontendGateState::Open) => {
            manylane_lanes::warn(&local, frontend, &format!("Resumed {kind} {}.", frontend.name));
        }
        (_, FrontendGateState::Shut) => {
            let text = manylane_lanes::stopped(Some(frontend), backend);
            manylane_lanes::warn(&local, frontend, &format!("Proxy {} {text}", frontend.name));
        }
    }
}
