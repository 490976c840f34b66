//! `filter`

use super::{Builder, Line};
use crate::diag::Severity;
use crate::lex::Word;
use crate::table::unbuilt;
use crate::tree::{BandwidthLimit, Filter, TraceFilter};
use crate::value::{self, Unit, ValueError};
use std::time::Duration;

/// The filters there are.
const FILTERS: [&str; 3] = ["bwlim-in", "bwlim-out", "trace"];

/// Options of `bwlim-in` and `bwlim-out`.
const LIMIT_OPTIONS: [&str; 3] = ["default-limit", "default-period", "min-size"];

/// Those that share a limit by an entry of a stick table.
const SHARED_OPTIONS: [&str; 3] = ["limit", "key", "table"];

/// Options of `trace`.
const TRACE_OPTIONS: [&str; 4] = ["name", "random-forwarding", "hexdump", "quiet"];

pub(crate) fn filter(b: &mut Builder<'_>, line: &Line<'_>) {
    let kind = &line.words[0];
    let filter = match kind.bytes() {
        b"bwlim-in" => bandwidth(b, line, true).map(Filter::Bandwidth),
        b"bwlim-out" => bandwidth(b, line, false).map(Filter::Bandwidth),
        b"trace" => trace(b, line).map(Filter::Trace),
        name => {
            let message = match unbuilt::choice("filter", name) {
                Some(why) => {
                    let shown = kind.shown();
                    format!("'filter {shown}' is a keyword of HAProxy that this program refuses: {why}")
                }
                None => manylane_expr::none_of("filter", FILTERS, name),
            };
            return b.found.alert(kind.pos(), message);
        }
    };
    b.proxy().filters.extend(filter);
}

/// What follows an option; what is wrong with it is reported.
fn option<T>(
    b: &mut Builder<'_>,
    line: &Line<'_>,
    index: usize,
    read: impl FnOnce(&[u8]) -> Result<T, ValueError>,
) -> Option<T> {
    let what = format!("filter {}' : '{}'", line.words[0].shown(), line.words[index].shown());
    let Some(word) = line.words.get(index + 1) else {
        b.found.alert(line.end(), format!("'{what} expects a value, found none"));
        return None;
    };
    match read(word.bytes()) {
        Ok(value) => Some(value),
        Err(error) => {
            let message = format!("'{what} expects another value than '{}': {}", word.shown(), error.message);
            b.found.alert(word.pos_at(error.at), message);
            None
        }
    }
}

fn bandwidth(b: &mut Builder<'_>, line: &Line<'_>, incoming: bool) -> Option<BandwidthLimit> {
    let kind = line.words[0].shown();
    let Some(name) = line.words.get(1) else {
        b.found.alert(line.end(), format!("'filter {kind}' expects a name, found none"));
        return None;
    };
    let taken =
        |filter: &&Filter| matches!(filter, Filter::Bandwidth(own) if own.name.bytes() == name.bytes());
    if b.proxy().filters.iter().find(taken).is_some() {
        let message = format!("'filter {kind}' expects a name of its own, found '{}' again", name.shown());
        b.found.alert(name.pos(), message);
        return None;
    }
    let size = |least: u64| move |bytes: &[u8]| value::size(bytes, least, u64::from(u32::MAX));
    let (mut limit, mut period, mut min_size) = (None, None, 0);
    let mut index = 2;
    while let Some(word) = line.words.get(index) {
        match word.bytes() {
            b"default-limit" => limit = Some(option(b, line, index, size(1))?),
            b"default-period" => {
                let time = option(b, line, index, |bytes| value::time(bytes, Unit::Ms))?;
                if time < Duration::from_millis(1) {
                    let message = format!("'filter {kind}' : 'default-period' expects at least 1ms");
                    b.found.alert(line.words[index + 1].pos(), message);
                    return None;
                }
                period = Some(time);
            }
            b"min-size" => min_size = option(b, line, index, size(0))?,
            name if SHARED_OPTIONS.iter().any(|shared| shared.as_bytes() == name) => {
                let message = format!(
                    "'filter {kind}' : '{}' shares a limit by a stick table, which filters do not do yet",
                    word.shown()
                );
                b.found.alert(word.pos(), message);
                return None;
            }
            name => {
                let message = manylane_expr::none_of(&format!("filter {kind}"), LIMIT_OPTIONS, name);
                b.found.alert(word.pos(), message);
                return None;
            }
        }
        index += 2;
    }
    let missing = [("default-limit", limit.is_none()), ("default-period", period.is_none())];
    let missing = missing.into_iter().find_map(|(name, is_missing)| is_missing.then_some(name));
    let (Some(limit), Some(period)) = (limit, period) else {
        let message = format!("'filter {kind}' expects '{}', found none", missing.unwrap_or_default());
        b.found.alert(line.end(), message);
        return None;
    };
    // `size` has checked the ranges.
    let (limit, min_size) = (u32::try_from(limit).ok()?, u32::try_from(min_size).ok()?);
    Some(BandwidthLimit { name: name.clone(), incoming, limit, period, min_size, pos: line.pos() })
}

fn trace(b: &mut Builder<'_>, line: &Line<'_>) -> Option<TraceFilter> {
    let mut made = TraceFilter {
        name: Word::plain("TRACE", line.pos()),
        random_forwarding: false,
        hexdump: false,
        quiet: false,
    };
    let mut index = 1;
    while let Some(word) = line.words.get(index) {
        match word.bytes() {
            b"name" => {
                option(b, line, index, |_| Ok(()))?;
                made.name = line.words[index + 1].clone();
                index += 1;
            }
            b"random-forwarding" => made.random_forwarding = true,
            b"random-parsing" => {
                let message = "'filter trace' : 'random-parsing' has no effect here: data are not parsed \
                    apart from being forwarded";
                b.found.push(Severity::Notice, Some(word.pos()), message);
            }
            b"hexdump" => made.hexdump = true,
            b"quiet" => made.quiet = true,
            name => {
                let message = manylane_expr::none_of("filter trace", TRACE_OPTIONS, name);
                b.found.alert(word.pos(), message);
                return None;
            }
        }
        index += 1;
    }
    Some(made)
}
