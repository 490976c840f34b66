//! `help`, and what is said to words that nobody knows.

use super::{Call, TABLE};
use std::fmt::Write;

fn list(call: &mut Call<'_, '_>, beginning: &str) -> bool {
    let mut any = false;
    for row in TABLE {
        let always = matches!(row.words, "help" | "prompt" | "quit");
        let shown = row.words.starts_with(beginning) || beginning.starts_with(row.words);
        if row.level <= call.settings.level && (shown || always) {
            any |= shown;
            let usage = format!("{} {}", row.words, row.arguments);
            let _ = writeln!(call.reply, "  {:<40}: {}", usage.trim_end(), row.help);
        }
    }
    any
}

pub(super) fn help(call: &mut Call<'_, '_>) {
    call.reply.put("The following commands are valid at this level:\n");
    let beginning = call.words.join(" ");
    list(call, &beginning);
}

pub(super) fn unknown(call: &mut Call<'_, '_>) {
    let first = call.word(0).to_owned();
    let known = TABLE.iter().any(|row| row.words.split(' ').next() == Some(&*first));
    let text = if known {
        "Unknown command, but maybe one of the following ones is a better match:"
    } else {
        "Unknown command: these are the ones there are:"
    };
    call.error(text);
    list(call, if known { &first } else { "" });
}
