//! `filter` lines.

use super::{Builder, Line};
use crate::diag::Severity;
use crate::lex::Word;
use crate::table::unbuilt;
use crate::tree::{BandwidthLimit, Filter, SharedLimit, TraceFilter};
use crate::value::{self, Unit, ValueError};
use std::time::Duration;

/// Filters that are built.
const FILTERS: [&str; 3] = ["bwlim-in", "bwlim-out", "trace"];

/// Options of `bwlim-in` and `bwlim-out`. The first two are for limits per stream, the next three for limits
/// that streams share through a stick table.
const LIMIT_OPTIONS: [&str; 6] = ["default-limit", "default-period", "limit", "key", "table", "min-size"];

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

/// Parses the value of an option, or reports an error.
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
            let message = format!("'{what} cannot be '{}': {}", word.shown(), error.message);
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
    let wrong = |b: &mut Builder<'_>, pos, what: &str| {
        b.found.alert(pos, format!("'filter {kind}' {what}"));
    };
    let (mut limit, mut period, mut min_size) = (None, None, 0);
    let (mut shared_limit, mut key, mut table) = (None, Vec::new(), None);
    let mut kinds = [None; 2]; // position of the first option of each kind
    let mut index = 2;
    while let Some(word) = line.words.get(index) {
        let is_shared = matches!(word.bytes(), b"limit" | b"key" | b"table");
        if is_shared || matches!(word.bytes(), b"default-limit" | b"default-period") {
            kinds[usize::from(is_shared)].get_or_insert(word);
        }
        match word.bytes() {
            b"default-limit" => limit = Some(option(b, line, index, size(1))?),
            b"default-period" => {
                let time = option(b, line, index, |bytes| value::time(bytes, Unit::Ms))?;
                if time < Duration::from_millis(1) {
                    let word = &line.words[index + 1];
                    let what = format!(": 'default-period' expects at least 1ms, found '{}'", word.shown());
                    wrong(b, word.pos(), &what);
                    return None;
                }
                period = Some(time);
            }
            b"limit" => shared_limit = Some(option(b, line, index, size(1))?),
            b"key" => {
                // The expression may have several words, for converters.
                let rest = &line.words[index + 1..];
                let end = rest.iter().position(|word| LIMIT_OPTIONS.iter().any(|name| *word == **name));
                key = rest[..end.unwrap_or(rest.len())].to_vec();
                if key.is_empty() {
                    wrong(b, word.pos(), ": 'key' expects an expression, found none");
                    return None;
                }
                index += key.len() + 1;
                continue;
            }
            b"table" => {
                option(b, line, index, |_| Ok(()))?;
                table = line.words.get(index + 1).cloned();
            }
            b"min-size" => min_size = option(b, line, index, size(0))?,
            name => {
                let message = manylane_expr::none_of(&format!("filter {kind}"), LIMIT_OPTIONS, name);
                b.found.alert(word.pos(), message);
                return None;
            }
        }
        index += 2;
    }
    if let [Some(own), Some(shared)] = kinds {
        let what = format!(
            ": '{}' is for a limit that streams share, '{}' for one of each stream; use one kind",
            shared.shown(),
            own.shown()
        );
        wrong(b, shared.pos().max(own.pos()), &what);
        return None;
    }
    let is_shared = kinds[1].is_some();
    let given = if is_shared {
        [("limit", shared_limit.is_some()), ("key", !key.is_empty())]
    } else {
        [("default-limit", limit.is_some()), ("default-period", period.is_some())]
    };
    if let Some((missing, _)) = given.into_iter().find(|(_, is_given)| !is_given) {
        wrong(b, line.end(), &format!("expects '{missing}', found none"));
        return None;
    }
    // `size` has checked the ranges.
    let limit = u32::try_from(shared_limit.or(limit)?).ok()?;
    let min_size = u32::try_from(min_size).ok()?;
    Some(BandwidthLimit {
        name: name.clone(),
        incoming,
        limit,
        period: period.unwrap_or_default(),
        shared: is_shared.then_some(SharedLimit { key, table }),
        min_size,
        pos: line.pos(),
    })
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
