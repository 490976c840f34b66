//! Rules that track entries of stick tables, and those that change what is tracked.

use super::context::{EvalContext, EvalPhase};
use manylane_expr::{DataType, Datum, Expression, TableId, Type, Value};
use manylane_lanes::{Countable, HeldEntry, Tracked, table_millis as millis};
use manylane_plan::generation::{GeneralCounter, NumberSource, Track, TrackCounts};
use manylane_stick::with_key;
use std::net::IpAddr;

impl EvalContext<'_> {
    /// Returns the entry of a key; creates it if needed.
    pub(super) fn hold_entry(
        &self,
        phase: EvalPhase<'_>,
        id: TableId,
        key: &Expression,
    ) -> Option<HeldEntry> {
        let tables = &self.local.tables;
        let table = tables.get(id)?;
        let now = millis(self.local.here().now());
        let hold = |key: Value<'_>| {
            with_key(table.spec(), key, |words| Some(table.get_or_make(words, now)?.into_number()))?
        };
        let number = match self.client_address(key).map(|address| (table.spec().key, address)) {
            Some((Type::Ipv4, IpAddr::V4(address))) => hold(Value::Ipv4(address)),
            Some((Type::Ipv6, IpAddr::V6(address))) => hold(Value::Ipv6(address)),
            _ => self.with(phase, |env, scratch| {
                let mut scratch = scratch.reborrow();
                hold(key.eval_as(table.spec().key, env, &mut scratch).ok()?)
            }),
        }?;
        Some(HeldEntry::new(tables.clone(), id, number))
    }

    /// Returns the client's address if that is the key: an environment for the expression would cost more
    /// than all else of the usual rule, `track-sc0 src`.
    fn client_address(&self, key: &Expression) -> Option<IpAddr> {
        let source = || self.scopes.memory.source.get().or(self.peers.source);
        key.is_client_address().then(source)?.map(|address| address.ip().to_canonical())
    }

    /// Runs `track-sc`, unless the counter tracks an entry already.
    pub(super) fn track(&self, phase: EvalPhase<'_>, track: &Track) {
        let tracks = &self.scopes.tracks;
        if tracks.find(track.counter, |_| ()).is_some() {
            return;
        }
        let Some(held) = self.hold_entry(phase, track.table, &track.key) else { return };
        let (tracked, now) = (Tracked(held), millis(self.local.here().now()));
        let response = phase.response.map(|head| head.status());
        tracks.track(track.of_session, track.counter as usize, tracked, now);
        // The events of the current message were counted before this rule.
        let codes = &self.local.generation.process;
        tracks.find(track.counter, |tracked| match track.counts {
            TrackCounts::Nothing => {}
            TrackCounts::Request => tracked.count(Countable::Request, now),
            TrackCounts::Response => {
                tracked.count(Countable::Request, now);
                let status = response.unwrap_or_default();
                if codes.error_statuses.contains(status) {
                    tracked.count(Countable::Error, now);
                }
                if codes.failure_statuses.contains(status) {
                    tracked.count(Countable::Failure, now);
                }
            }
        });
    }

    /// Runs `sc-inc-gpc`, `sc-add-gpc`, `sc-set-gpt` and their older forms.
    pub(super) fn change_general(&self, phase: EvalPhase<'_>, general: &GeneralCounter) {
        let GeneralCounter { counter, index, of_array, is_tag, by } = general;
        let tracks = &self.scopes.tracks;
        if tracks.find(*counter, |_| ()).is_none() {
            return;
        }
        let number = match by {
            NumberSource::Fixed(number) => Some(u64::from(*number)),
            NumberSource::Of(expression) => self
                .with(phase, |env, scratch| expression.eval_int(env, scratch))
                .map(|number| number.clamp(0, i64::from(u32::MAX)).cast_unsigned()),
        };
        let Some(number) = number else { return };
        let now = millis(self.local.here().now());
        tracks.find(*counter, |tracked| {
            let Some(entry) = tracked.entry() else { return };
            if !is_tag {
                if *of_array {
                    entry.count_element(*index, number, now);
                } else {
                    entry.count_general(*index, number, now);
                }
                return;
            }
            let datum = match of_array {
                true => Datum { data: DataType::Gpt, index: *index },
                false => entry.kept_as(DataType::Gpt0),
            };
            if entry.set(datum, number, now) {
                entry.touch(now);
            }
        });
    }
}
