//! `help`, and the answer to unknown commands.

use super::Call;
use super::table::TABLE;
use crate::row::Row;

fn list(call: &mut Call<'_, '_>, beginning: &str) {
    let level = call.settings.level;
    let lines = Row::help(TABLE.iter().filter(|row| row.level <= level), beginning);
    call.reply.put(&lines);
}

pub(super) fn help(call: &mut Call<'_, '_>) {
    call.reply.put("The following commands are valid at this level:\n");
    let beginning = call.words.join(" ");
    list(call, &beginning);
}

pub(super) fn unknown(call: &mut Call<'_, '_>) {
    if call.words.starts_with(&["set".into(), "timeout".into()]) {
        return call.error("'set timeout' only supports 'cli'.");
    }
    // As many leading words as some command begins with.
    let known = (1..=call.words.len())
        .rev()
        .map(|count| call.words[..count].join(" "))
        .find(|beginning| TABLE.iter().any(|row| row.words.starts_with(&**beginning)));
    let first = call.words.first().map(String::as_str).unwrap_or_default();
    let rest = if known.is_some() {
        "but maybe one of the following ones is a better match:"
    } else {
        "these are the commands:"
    };
    call.error(&format!("Unknown command: '{first}', {rest}"));
    list(call, known.as_deref().unwrap_or(""));
}
