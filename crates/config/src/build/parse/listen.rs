//! `bind` and `stats socket` lines.

use super::{Builder, Line, address, options};
use crate::table::{BindOptions, SectionKind};
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
    let bind = bind_line_by(b, line, &Rules::DGRAM_BIND);
    b.log_forward().dgram_binds.push(bind);
}

/// Parses the addresses and options of a line. Wrong addresses are reported and left out.
pub(crate) fn bind_line(b: &mut Builder<'_>, line: &Line<'_>) -> Bind {
    let rules = Rules { statement: line.keyword.name, longest_path: LONGEST_BOUND_PATH, ..Rules::BIND };
    bind_line_by(b, line, &rules)
}

fn bind_line_by(b: &mut Builder<'_>, line: &Line<'_>, rules: &Rules) -> Bind {
    let list = &line.words[0];
    let mut addresses = Vec::new();
    let mut start = 0;
    for part in list.bytes().split(|byte| *byte == b',') {
        let word = list.slice(start..start + part.len());
        start += part.len() + 1;
        if part.is_empty() {
            let message = format!("'{}' : an address is missing in '{}'", line.keyword.name, list.shown());
            b.found.alert(word.pos(), message);
            continue;
        }
        addresses.extend(address(b, line.keyword.name, &word, rules));
    }
    b.bind = BindOptions::default();
    options(b, SectionKind::BindOption, &line.words[1..]);
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
