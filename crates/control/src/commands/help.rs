//! `help`, and what is said to words that nobody knows.

use super::Call;
use super::table::{Run, TABLE};
use crate::row::Row;

/// Those whose beginning `beginning` is, or the other way around, or that have a word which begins so.
fn fits(row: &Row<Run>, beginning: &str) -> bool {
    row.words.starts_with(beginning)
        || beginning.starts_with(row.words)
        || row.words.split(' ').any(|word| word.starts_with(beginning))
}

fn list(call: &mut Call<'_, '_>, beginning: &str) {
    for row in TABLE {
        let always = matches!(row.words, "help" | "prompt" | "quit");
        if row.level <= call.settings.level && (fits(row, beginning) || always) {
            call.reply.put(&row.usage());
        }
    }
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
    // As many of the words as some command begins with.
    let known = (1..=call.words.len())
        .rev()
        .map(|count| call.words[..count].join(" "))
        .find(|beginning| TABLE.iter().any(|row| row.words.starts_with(&**beginning)));
    let text = if known.is_some() {
        "Unknown command, but maybe one of the following ones is a better match:"
    } else {
        "Unknown command: these are the ones there are:"
    };
    call.error(text);
    list(call, known.as_deref().unwrap_or(""));
}
