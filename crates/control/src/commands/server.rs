//! Commands on one server.

use super::Call;
use manylane_balance::{Admin, Index, MAX_WEIGHT};
use manylane_proxy::generation::{Backend, Server};

/// The server that `word` names as `backend/server`, by names or by numbers (`#1`). What is wrong is told.
fn find<'g>(call: &mut Call<'g, '_>, word: &str) -> Option<(&'g Backend, &'g Server, Index)> {
    let Some((backend, server)) = word.split_once('/') else {
        call.error("Require 'backend/server'.");
        return None;
    };
    let number = |word: &str| word.strip_prefix('#').and_then(|number| number.parse::<u32>().ok());
    let backends = &call.control.generation().backends;
    let found = match number(backend) {
        Some(id) => backends.iter().find(|own| own.id == id),
        None => backends.iter().find(|own| *own.name == *backend),
    };
    let Some(backend) = found else {
        call.error("No such backend.");
        return None;
    };
    let found = match number(server) {
        Some(id) => backend.servers.iter().find(|own| own.id == id),
        None => backend.servers.iter().find(|own| *own.name == *server),
    };
    let index = found.and_then(|server| backend.balancer.servers().index(server.index));
    let (Some(server), Some(index)) = (found, index) else {
        call.error("No such server.");
        return None;
    };
    Some((backend, server, index))
}

pub(super) fn get_weight(call: &mut Call<'_, '_>) {
    let word = call.word(0).to_owned();
    let Some((backend, server, index)) = find(call, &word) else { return };
    let weight = backend.balancer.servers()[index].state().weight();
    let text = format!("{weight} (initial {})", server.weight);
    call.info(&text);
}

pub(super) fn set_weight(call: &mut Call<'_, '_>) {
    let word = call.word(0).to_owned();
    if let Some(found) = find(call, &word) {
        weigh(call, found, 1);
    }
}

/// Sets the weight that the word at `at` says: a number, or a percentage of the configured one.
fn weigh(call: &mut Call<'_, '_>, (backend, server, index): (&Backend, &Server, Index), at: usize) {
    let word = call.word(at);
    if word.is_empty() {
        return call.error("Require <weight> or <weight%>.");
    }
    let (digits, percent) = word.strip_suffix('%').map_or((word, false), |digits| (digits, true));
    let weight = match digits.parse::<u32>() {
        Ok(percents) if percent => {
            let weight = u64::from(server.weight) * u64::from(percents) / 100;
            weight.min(MAX_WEIGHT.into()) as u16
        }
        Ok(weight) if weight <= MAX_WEIGHT.into() => weight as u16,
        Ok(_) => return call.error("Absolute weight can only be between 0 and 256 inclusive."),
        Err(_) if word.starts_with(|letter: char| letter.is_ascii_digit()) => {
            return call.error("Trailing garbage in weight string");
        }
        Err(_) => return call.error("Empty weight string empty or preceded by garbage"),
    };
    let now = call.here.now();
    if let Err(error) = backend.balancer.set_weight(index, weight, now) {
        call.error(&format!(
            "Backend is using a static LB algorithm and only accepts weights '0%' and '100%': {error}."
        ));
    }
}

pub(super) fn enable(call: &mut Call<'_, '_>, on: bool) {
    let word = call.word(0).to_owned();
    let Some((backend, _, index)) = find(call, &word) else { return };
    let admin = if on { Admin::Ready } else { Admin::Maintenance };
    backend.balancer.set_admin(index, admin, call.here.now());
}

/// `set server <bk>/<srv> state|weight ...`
pub(super) fn set_server(call: &mut Call<'_, '_>) {
    const USAGE: &str = "usage: set server <backend>/<server> state | weight; 'addr', 'agent...', 'check-...', 'fqdn', 'health' and 'ssl' are HAProxy's and not built yet";
    let word = call.word(0).to_owned();
    let Some(found @ (backend, _, index)) = find(call, &word) else { return };
    match call.word(1) {
        "weight" => weigh(call, found, 2),
        "state" => {
            let admin = match call.word(2) {
                "ready" => Admin::Ready,
                "drain" => Admin::Drain,
                "maint" => Admin::Maintenance,
                _ => return call.error("'set server <srv> state' expects 'ready', 'drain' and 'maint'."),
            };
            backend.balancer.set_admin(index, admin, call.here.now());
        }
        _ => call.error(USAGE),
    }
}
