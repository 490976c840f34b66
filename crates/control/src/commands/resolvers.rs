//! `show resolvers`

use super::Call;
use manylane_plan::generation::Resolvers;
use manylane_resolve::Counters;
use std::fmt::Write;

pub(super) fn show(call: &mut Call<'_, '_>) {
    let word = call.word(0);
    let all = &call.generation.resolvers;
    let wanted: Vec<_> = all.iter().filter(|section| word.is_empty() || *section.name == *word).collect();
    if wanted.is_empty() {
        if !word.is_empty() {
            call.error("Can't find that resolvers section");
        }
        return;
    }
    for section in wanted {
        let _ = writeln!(call.reply, "Resolvers section {}", section.name);
        for (server, counters) in section.servers.iter().zip(section.counters()) {
            let _ = writeln!(call.reply, " nameserver {}:", server.name);
            for (name, count) in counts(counters) {
                let name = format!("{name}:");
                let _ = writeln!(call.reply, "  {name:<13}{count}");
            }
        }
    }
}

/// A name server's counters with their names in `show resolvers`.
fn counts(counters: Counters) -> [(&'static str, u64); 15] {
    let Counters {
        sent,
        snd_error,
        valid,
        update,
        cname,
        cname_error,
        any_err,
        nx,
        timeout,
        refused,
        other,
        invalid,
        too_big,
        truncated,
        outdated,
    } = counters;
    [
        ("sent", sent),
        ("snd_error", snd_error),
        ("valid", valid),
        ("update", update),
        ("cname", cname),
        ("cname_error", cname_error),
        ("any_err", any_err),
        ("nx", nx),
        ("timeout", timeout),
        ("refused", refused),
        ("other", other),
        ("invalid", invalid),
        ("too_big", too_big),
        ("truncated", truncated),
        ("outdated", outdated),
    ]
}

/// The counters of a section's name servers: each server's name, and values in the order of [`names`].
pub(crate) fn counted(section: &Resolvers) -> impl Iterator<Item = (&str, [u64; 15])> {
    let numbers = |counters| counts(counters).map(|(_, count)| count);
    section
        .servers
        .iter()
        .zip(section.counters())
        .map(move |(server, counters)| (&*server.name, numbers(counters)))
}

/// The counters' names in tables; one differs from that in `show resolvers`.
pub(crate) fn names() -> [&'static str; 15] {
    counts(Counters::default()).map(|(name, _)| if name == "snd_error" { "send_error" } else { name })
}

/// `show stat domain resolvers`: a line for each name server.
pub(super) fn table(call: &mut Call<'_, '_>) {
    if let Some(word) = call.words.get(2) {
        return call.error(&format!("'show stat domain resolvers' expects no argument, found '{word}'."));
    }
    let _ = writeln!(call.reply, "# id,pid,{},", names().join(","));
    for section in &call.generation.resolvers {
        for (server, counts) in counted(section) {
            let counts = counts.map(|count| count.to_string());
            let _ = writeln!(call.reply, "{server},{},{},", section.name, counts.join(","));
        }
    }
}
