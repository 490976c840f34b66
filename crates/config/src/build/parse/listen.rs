//! `bind` and `stats socket` lines.

use super::{Builder, Line, address, options};
use crate::table::{BindOptions, KeywordContext};
use crate::tree::Bind;
use manylane_net::Rules;
use manylane_net::address::LONGEST_BOUND_PATH;

pub(crate) fn bind(b: &mut Builder<'_>, line: &Line<'_>) {
    if !b.has_room_for_bind(line.pos()) {
        return;
    }
    let bind = bind_line(b, line);
    b.proxy().binds.push(bind);
}

/// `dgram-bind`
pub(crate) fn dgram_bind(b: &mut Builder<'_>, line: &Line<'_>) {
    if !b.has_room_for_bind(line.pos()) {
        return;
    }
    let bind = bind_line_by(b, line, &Rules::DGRAM_BIND, BindOptions::default());
    b.log_forward().dgram_binds.push(bind);
}

/// Parses the addresses and options of a line. Wrong addresses are reported and left out.
pub(crate) fn bind_line(b: &mut Builder<'_>, line: &Line<'_>) -> Bind {
    bind_line_with(b, line, BindOptions::default())
}

/// As [`bind_line`], with options that those of the line take the place of.
pub(crate) fn bind_line_with(b: &mut Builder<'_>, line: &Line<'_>, base: BindOptions) -> Bind {
    let rules = Rules { statement: line.keyword.name, longest_path: LONGEST_BOUND_PATH, ..Rules::BIND };
    bind_line_by(b, line, &rules, base)
}

fn bind_line_by(b: &mut Builder<'_>, line: &Line<'_>, rules: &Rules, base: BindOptions) -> Bind {
    let list = &line.words[0];
    let mut option_words = &line.words[1..];
    let mut addresses = Vec::new();
    let mut start = 0;
    let mut parts = Some(list.bytes());
    if let [port, rest @ ..] = option_words
        && !list.bytes().contains(&b':')
        && !port.bytes().is_empty()
        && port.bytes().iter().all(u8::is_ascii_digit)
    {
        let (name, host, port_text) = (line.keyword.name, list.shown(), port.shown());
        let message = format!(
            "'{name}' expects address and port as one word, found two; did you mean '{host}:{port_text}'?"
        );
        b.found.alert(port.pos(), message);
        (parts, option_words) = (None, rest);
    }
    for part in parts.into_iter().flat_map(|list| list.split(|byte| *byte == b',')) {
        let word = list.slice(start..start + part.len());
        start += part.len() + 1;
        if part.is_empty() {
            let message = format!(
                "'{}' expects an address on both sides of each comma, found '{}'",
                line.keyword.name,
                list.shown()
            );
            b.found.alert(word.pos(), message);
            continue;
        }
        addresses.extend(address(b, line.keyword.name, &word, rules));
    }
    b.bind = base;
    options(b, KeywordContext::BindOption, option_words);
    let options = std::mem::take(&mut b.bind);
    Bind { addresses, options, pos: line.pos() }
}

/// Parses access rights in octal.
pub(crate) fn octal(b: &mut Builder<'_>, line: &Line<'_>, index: usize) -> Option<u32> {
    let word = line.words.get(index)?;
    let digits = word.text().filter(|text| text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit()));
    let mode = digits.and_then(|text| u32::from_str_radix(text, 8).ok()).filter(|mode| *mode <= 0o7777);
    if mode.is_none() {
        let message =
            format!("'{}' expects a mode in octal such as 660, found '{}'", line.keyword.name, word.shown());
        b.found.alert(word.pos(), message);
    }
    mode
}
