//! Settings that rules of all lists may make: variables, addresses, and properties of the stream.

use super::context::{EvalContext, EvalPhase};
use manylane_config::limits::MAX_TIMER_MS;
use manylane_expr::{Env, Expression, Scope, Scratch, SetConditions, Type, Value, VariableId};
use manylane_lanes::{LogLevel, Shared};
use manylane_plan::generation::{
    AddressPart, Bandwidth, Lookup, NumberSource, Packets, Question, Setting, TimeSource, ValueSource,
};
use manylane_resolve::Name;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Applies a setting. If its value cannot be computed, nothing changes.
pub(super) fn set(eval: &EvalContext<'_>, phase: EvalPhase<'_>, setting: &Setting) {
    let memory = &eval.scopes.memory;
    // Value of an expression as a number.
    let number = |expression: &Expression| eval.with(phase, |env, scratch| expression.eval_int(env, scratch));
    match setting {
        Setting::Var(id, value, when) => set_var(eval, phase, *id, value, *when),
        Setting::UnsetVar(id) => eval.with(phase, |env, _| {
            env.variables.set(*id, None);
            if id.scope == Scope::Process {
                manylane_lanes::replaced();
            }
        }),
        Setting::Address(which, expression) => set_address(eval, phase, *which, expression),
        Setting::DisableRepetition => memory.no_repetition.set(true),
        Setting::LogLevel(level) => memory.log_level.set(level.map_or(LogLevel::Silent, LogLevel::Set)),
        Setting::Timeout(of, change) => {
            let time = match change {
                TimeSource::Fixed(time) => Some(*time),
                TimeSource::Of(expression) => number(expression).and_then(millis),
            };
            if let Some(time) = time.filter(|time| !time.is_zero()) {
                memory.timeout(*of).set(Some(time));
            }
        }
        Setting::PriorityClass(expression) => {
            if let Some(n) = number(expression) {
                memory.priority_class.set(n.clamp(-2047, 2047) as i16);
            }
        }
        Setting::PriorityOffset(expression) => {
            if let Some(n) = number(expression) {
                memory.priority_offset.set(n.clamp(-524_287, 524_287) as i32);
            }
        }
        Setting::Retries(expression) => {
            if let Some(n) = number(expression) {
                memory.retries.set(Some(n.clamp(0, 100) as u32));
            }
        }
        Setting::Nice(nice) => {
            let _ = eval.local.here().set_nice(*nice); // the configuration checked the range
        }
        Setting::Packets(what, figure) => {
            let made = match figure {
                NumberSource::Fixed(n) => Some(*n),
                NumberSource::Of(expression) => number(expression).and_then(|n| u32::try_from(n).ok()),
            };
            if let Some(n) = made.filter(|n| *n <= what.most()) {
                let cell = match what {
                    Packets::ClientMark | Packets::ClientTos => &memory.client_packets,
                    Packets::ServerMark | Packets::ServerTos => &memory.server_packets,
                };
                let mut packets = cell.get();
                match what {
                    Packets::ClientMark | Packets::ServerMark => packets.mark = Some(n),
                    // not above `most`
                    Packets::ClientTos | Packets::ServerTos => packets.tos = Some(n as u8),
                }
                cell.set(packets);
            }
        }
        Setting::Track(track) => eval.track(phase, track),
        Setting::GeneralCounter(general) => eval.change_general(phase, general),
        Setting::Capture(expression, slot) => capture(eval, phase, expression, *slot),
        Setting::Bandwidth(set) if set.shared.is_some() => {
            // As in HAProxy, the first rule selects the entry that shares the limit.
            if let Some(shared) = &set.shared
                && !memory.limits.has(set.filter)
                && let Some(entry) = eval.hold_entry(phase, shared.table, &shared.key)
            {
                memory.limits.share(set.filter, set.usual, Shared::new(entry, set.sender));
            }
        }
        Setting::Bandwidth(set) => {
            let limit = match &set.limit {
                None => None,
                Some(NumberSource::Fixed(limit)) => Some(*limit),
                Some(NumberSource::Of(expression)) => {
                    number(expression).map(|n| n.clamp(0, i64::from(u32::MAX)) as u32)
                }
            };
            let period = match &set.period {
                None => None,
                Some(TimeSource::Fixed(time)) => Some(*time),
                Some(TimeSource::Of(expression)) => number(expression).and_then(millis),
            };
            // As in HAProxy, 0 means the default.
            let bandwidth = Bandwidth {
                limit: limit.filter(|limit| *limit > 0).unwrap_or(set.usual.limit),
                period: period.filter(|time| !time.is_zero()).unwrap_or(set.usual.period),
                min_size: set.usual.min_size,
            };
            memory.limits.set(set.filter, set.sender, bandwidth, eval.local.here().now());
        }
    }
}

/// Returns a time in milliseconds, limited to the longest that a configuration may name, since the number may
/// come from a client.
pub(super) fn millis(n: i64) -> Option<Duration> {
    u64::try_from(n).ok().map(|n| Duration::from_millis(n.min(MAX_TIMER_MS)))
}

impl EvalContext<'_> {
    /// Returns the question of a rule for an address; `None` if the text is not a valid name and so has no
    /// address.
    pub(super) fn question(&self, phase: EvalPhase<'_>, lookup: &Lookup) -> Option<Question> {
        let name = self.with(phase, |env, scratch| {
            let mut scratch = scratch.reborrow();
            let bytes = lookup.name.eval_text(env, &mut scratch)?;
            Name::parse(std::str::from_utf8(bytes).ok()?).ok()
        })?;
        Some(Question::new(name, lookup.kind))
    }

    /// Stores the address that a rule asked for.
    pub fn learn(&self, phase: EvalPhase<'_>, variable: VariableId, address: IpAddr) {
        let value = match address {
            IpAddr::V4(address) => Value::Ipv4(address),
            IpAddr::V6(address) => Value::Ipv6(address),
        };
        self.with(phase, |env, _| {
            env.variables.set(variable, Some(value));
        });
    }
}

/// Sets a variable, if there is a value and the conditions hold.
fn set_var(
    eval: &EvalContext<'_>,
    phase: EvalPhase<'_>,
    id: VariableId,
    value: &ValueSource,
    when: SetConditions,
) {
    let work = |env: &Env<'_>, scratch: &mut Scratch<'_>| {
        let mut scratch = scratch.reborrow();
        let made = match value {
            ValueSource::Of(expression) => expression.eval(env, &mut scratch).ok().map(|sample| sample.value),
            ValueSource::Format(format) => format.eval(env, &mut scratch).map(Value::Str),
        };
        let Some(made) = made else { return };
        if when != SetConditions::ALWAYS {
            let mut scratch = scratch.reborrow();
            if !when.holds(id, env.variables.get(id, env.reader, &mut scratch), made) {
                return;
            }
        }
        env.variables.set(id, Some(made));
        if id.scope == Scope::Process {
            manylane_lanes::replaced();
        }
    };
    if let ValueSource::Format(format) = value
        && format.has_aliases()
    {
        return eval.with_course(phase, |env, scratch| work(env, scratch));
    }
    eval.with(phase, |env, scratch| work(env, scratch));
}

/// Stores a text in a capture slot, if the frontend has the slot.
fn capture(eval: &EvalContext<'_>, phase: EvalPhase<'_>, expression: &Expression, slot: usize) {
    eval.with(phase, |env, scratch| {
        let mut scratch = scratch.reborrow();
        if let (Some(captures), Some(text)) = (env.stream.captures, expression.eval_text(env, &mut scratch)) {
            captures.store(phase.direction(), slot, text);
        }
    });
}

/// Applies `set-src`, `set-dst` and those of ports: a new address keeps the port, a new port keeps the
/// address.
fn set_address(eval: &EvalContext<'_>, phase: EvalPhase<'_>, which: AddressPart, expression: &Expression) {
    let memory = &eval.scopes.memory;
    let (cell, was, port) = match which {
        AddressPart::Source => (&memory.source, eval.peers.source, false),
        AddressPart::SourcePort => (&memory.source, eval.peers.source, true),
        AddressPart::Destination => (&memory.destination, eval.peers.destination, false),
        AddressPart::DestinationPort => (&memory.destination, eval.peers.destination, true),
    };
    let was = cell.get().or(was);
    let new = eval.with(phase, |env, scratch| {
        let mut scratch = scratch.reborrow();
        if port {
            let number = expression.eval_int(env, &mut scratch)?;
            let ip = was.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |was| was.ip());
            return Some(SocketAddr::new(ip, u16::try_from(number).ok()?));
        }
        let ip = expression.eval_as(Type::Addr, env, &mut scratch).ok()?.addr()?;
        Some(SocketAddr::new(ip, was.map_or(0, |was| was.port())))
    });
    if let Some(new) = new {
        cell.set(Some(new));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_makes_a_time_longer_than_a_file_may_name() {
        assert_eq!(millis(-1), None);
        assert_eq!(millis(1_500), Some(Duration::from_millis(1_500)));
        assert_eq!(millis(i64::MAX), Some(Duration::from_millis(MAX_TIMER_MS)));
    }
}
