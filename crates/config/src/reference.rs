//! Generates the configuration reference from the keyword table.

use crate::cond::Predicate;
use crate::table::{
    Action, Arg, Keyword, KeywordContext, Kind, Repeat, Shape, Status, Table, with_arguments,
};
use manylane_expr::{converters, fetches};
use std::fmt::Write;

/// A row as `--help` prints it.
pub(crate) fn plain(row: &Keyword) -> String {
    let mut out = format!("{}\n    {}.\n", usage(row), sentence(row.help));
    for (what, text) in details(row) {
        out += &format!("    {what}: {text}\n");
    }
    out
}

/// The keyword with its arguments.
fn usage(row: &Keyword) -> String {
    let no = if row.negatable { "[no] " } else { "" };
    with_arguments(&format!("{no}{}", row.name), &row.usage())
}

/// Breaks a usage into lines of at most `WIDTH` columns, since Markdown does not wrap code.
fn broken(usage: &str) -> Vec<String> {
    const WIDTH: usize = 100;
    let mut lines: Vec<String> = Vec::new();
    for word in usage.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Type, unit and range of an argument.
fn kind(arg: &Arg) -> Option<String> {
    Some(match arg.kind {
        Kind::Int(min, max) if max >= i64::from(i32::MAX) => {
            format!("<{}> is an integer of at least {min}", arg.name)
        }
        Kind::Int(min, max) => format!("<{}> is an integer from {min} to {max}", arg.name),
        Kind::Time(unit) => format!("<{}> is a time, in {} without a unit", arg.name, unit.suffix()),
        Kind::Interval(unit) => {
            format!("<{}> is a time above 0, in {} without a unit", arg.name, unit.suffix())
        }
        Kind::Size(min, max) => format!("<{}> is a size from {min} to {max} bytes", arg.name),
        Kind::Choice(_) | Kind::Switch | Kind::Text => return None,
    })
}

fn details(row: &Keyword) -> Vec<(&'static str, String)> {
    let mut details = Vec::new();
    let contexts: Vec<&str> = row.contexts.iter().map(|context| context.name()).collect();
    if row.family == "Bind options" || row.family == "Server options" {
        details.push(("An option of", format!("{} lines", contexts.join(", "))));
    } else if row.family != "Sections" {
        let named = if row.named_defaults_only { " (defaults only with a name)" } else { "" };
        details.push(("Sections", format!("{}{named}", contexts.join(", "))));
    }
    if let Shape::Args(args) = &row.shape {
        let kinds: Vec<String> = args.iter().filter_map(kind).collect();
        if !kinds.is_empty() {
            details.push(("Values", kinds.join("; ")));
        }
    }
    if !row.default.is_empty() {
        details.push(("Default", row.default.to_owned()));
    }
    if row.inherited() && row.contexts.iter().count() > 1 {
        details.push(("Inherited", "from the proxy's defaults".into()));
    }
    match row.repeat {
        Repeat::Replaces => {}
        Repeat::Adds => details.push(("Repeated", "each line adds to those before it".into())),
        Repeat::Refused => details.push(("Repeated", "an error".into())),
    }
    details.push((
        "Status",
        match row.status {
            Status::Built(_) | Status::Words(_) if row.limitation.is_empty() => row.status.name().into(),
            Status::Built(_) | Status::Words(_) => format!("{}, but {}", row.status.name(), row.limitation),
            Status::Idle(reason) | Status::Refused(reason) => format!("{}: {reason}", row.status.name()),
        },
    ));
    details
}

/// Makes the first letter a capital.
pub(crate) fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

/// Maximum columns of generated documents (`cargo xtask check`).
const WIDTH: usize = 110;

/// Writes `text` in lines of at most `WIDTH` columns. The first begins with `lead`; the others are indented
/// to align with its text.
fn wrap(out: &mut String, lead: &str, text: &str) {
    out.push_str(lead);
    let mut column = lead.len();
    for (number, word) in text.split_whitespace().enumerate() {
        let width = word.chars().count();
        if number > 0 && column + 1 + width > WIDTH {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', lead.len()));
            column = lead.len();
        } else if number > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
    }
    out.push('\n');
}

/// The subject of a reason that many keywords share; otherwise the reason itself.
fn subject(family: &str, why: &'static str) -> &'static str {
    const SUBJECTS: [(&str, &str); 8] = [
        ("HAProxy 3.2", "HAProxy 3.2 does not have it either"),
        ("QUIC", "HTTP/3 (QUIC) is not built yet"),
        ("Lua", "Lua is not built yet"),
        ("ompression", "compression is not built yet"),
        ("the cache", "the cache is not built yet"),
        ("SPOE", "SPOE is not built yet"),
        ("FastCGI", "FastCGI is not built"),
        ("newer versions of HAProxy", "newer versions of HAProxy do not have it either"),
    ];
    if family == "Removed from HAProxy" || why.starts_with("older name") {
        return "HAProxy has removed it; the message says what stands in its place";
    }
    SUBJECTS.iter().find(|(word, _)| why.contains(word)).map_or(why, |(_, subject)| subject)
}

/// Unbuilt names, by reason and then by kind: keywords, actions, fetches.
type Missing =
    std::collections::BTreeMap<&'static str, std::collections::BTreeMap<&'static str, Vec<String>>>;

/// Largest number of names with a common beginning that are listed one by one.
const MOST_ALIKE: usize = 3;

/// Sorts names and removes repetitions. Replaces more than [`MOST_ALIKE`] names with a common beginning by
/// one name with a star.
fn shortened(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names.dedup();
    let start = |name: &str| {
        let from = if name.starts_with("tune.") { 5 } else { 0 };
        name[from..].find(['.', '-', ' ', '_']).map(|at| name[..=from + at].to_owned())
    };
    let mut shown: Vec<String> = Vec::new();
    for name in &names {
        let like = |start: &String| names.iter().filter(|other| other.starts_with(start)).count();
        let name = match start(name) {
            Some(start) if start != "option " && like(&start) > MOST_ALIKE => format!("{start}*"),
            _ => name.clone(),
        };
        if shown.last() != Some(&name) {
            shown.push(name);
        }
    }
    shown
}

/// Writes one row for each reason.
fn list(out: &mut String, missing: Missing) {
    out.push('\n');
    for (why, kinds) in missing {
        let kinds: Vec<String> = kinds
            .into_iter()
            .map(|(kind, names)| {
                let names = shortened(names).iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
                format!("{kind}{}", names.join(", "))
            })
            .collect();
        wrap(out, "- ", &format!("{}: {}.", sentence(why.trim_end_matches('.')), kinds.join("; ")));
    }
}

/// What is not built, as Markdown: `docs/unbuilt.md`.
pub fn unbuilt() -> String {
    let mut out = String::from(UNBUILT);
    let inside = [
        KeywordContext::Acme,
        KeywordContext::Cache,
        KeywordContext::FcgiApp,
        KeywordContext::Program,
        KeywordContext::Traces,
    ];
    let of_a_section = |row: &Keyword| row.contexts.iter().all(|context| inside.contains(&context));
    let rows = || Table::get().rows().iter().filter(|row| !of_a_section(row));
    let (mut refused, mut idle) = (Missing::new(), Missing::new());
    let add = |all: &mut Missing, why: &'static str, kind: &'static str, name: &str| {
        all.entry(why).or_default().entry(kind).or_default().push(name.to_owned());
    };
    for row in rows() {
        match row.status {
            Status::Refused(why) => add(&mut refused, subject(row.family, why), "", row.name),
            Status::Idle(why) => add(&mut idle, subject(row.family, why), "", row.name),
            Status::Built(_) | Status::Words(_) => {}
        }
    }
    for action in Action::all() {
        if let Some(why) = action.refused {
            let name = action.name.trim_end_matches(['(', '.']);
            add(&mut refused, subject("", why), "actions ", name);
        }
    }
    for (kind, row) in
        fetches().map(|row| ("fetches ", row)).chain(converters().map(|row| ("converters ", row)))
    {
        if let Some(why) = row.refused {
            add(&mut refused, subject("", why), kind, row.name);
        }
    }
    out += "\n## Refused\n";
    list(&mut out, refused);
    out += "\n## Accepted without effect\n";
    list(&mut out, idle);
    out += "\n## Read, but not all of it\n\n";
    for row in rows().filter(|row| row.status.reason().is_none() && !row.limitation.is_empty()) {
        wrap(&mut out, "- ", &format!("`{}`: {}.", row.name, row.limitation));
    }
    out
}

const UNBUILT: &str = "\
# What is not built

<!-- Made from the keywords of crates/config:
`MANYLANE_BLESS=1 cargo test -p manylane-config --test table`. -->

These parts of HAProxy's language are not built, as a whole or in part, grouped by the reason. A configuration
that has a refused one is refused, with file, line, column and the reason.
[configuration.md](configuration.md) has each keyword; `manylane --help NAME` also tells of actions, fetches
and converters. What is built and differs on purpose stands in [migrating.md](migrating.md); commands of the
run-time interface that are refused stand in `help` and in [crates/control](../crates/control/README.md).

Without a keyword of their own:
- A reload leaves the options of sockets that exist as they are. Each generation counts for itself what
  algorithms by load compare.
- A process that takes over from another takes over neither files of unix sockets, which it replaces, nor
  sockets beyond the number of `shards`.
- A master does not execute itself anew: it stays of the version that was started.
- Several servers cannot change in one step, and servers that come by `add server` have no names to resolve.
- io_uring is used without direct descriptors and zero-copy sending.
";

/// The configuration reference as Markdown: `docs/configuration.md`.
pub fn markdown() -> String {
    let mut out = String::from(INTRODUCTION);
    let put = |out: &mut String, text: std::fmt::Arguments<'_>| {
        let _ = out.write_fmt(text); // writing to a String cannot fail
    };
    out += "\n## Predicates of conditions\n\n| predicate | arguments | true when |\n|---|---|---|\n";
    for (name, arity, help) in Predicate::table() {
        put(&mut out, format_args!("| `{name}` | {arity} | {help} |\n"));
    }
    let rows = Table::get().rows();
    let built = rows.iter().filter(|row| matches!(row.status, Status::Built(_) | Status::Words(_))).count();
    let idle = rows.iter().filter(|row| matches!(row.status, Status::Idle(_))).count();
    let refused = rows.len() - built - idle;
    put(
        &mut out,
        format_args!(
            "\n## Keywords\n\nOf {} entries, {built} are read, {idle} are accepted without effect and \
                {refused} are refused by name.\n",
            rows.len()
        ),
    );
    let mut families: Vec<&str> = rows.iter().map(|row| row.family).collect();
    families.dedup();
    for family in families {
        put(&mut out, format_args!("\n### {family}\n"));
        let mut rows: Vec<&Keyword> = rows.iter().filter(|row| row.family == family).collect();
        rows.sort_by_key(|row| row.name);
        let (refused, others): (Vec<&Keyword>, Vec<&Keyword>) =
            rows.into_iter().partition(|row| matches!(row.status, Status::Refused(_)));
        for row in others {
            out.push('\n');
            for line in broken(&usage(row)) {
                put(&mut out, format_args!("**`{line}`**\\\n"));
            }
            wrap(&mut out, "", &format!("{}.", sentence(row.help)));
            for (what, text) in details(row) {
                wrap(&mut out, "- ", &format!("{what}: {text}"));
            }
        }
        if refused.is_empty() {
            continue;
        }
        out += "\nRefused:\n\n| keyword | what it is | why |\n|---|---|---|\n";
        for row in refused {
            let usage = usage(row).replace('|', "\\|");
            put(
                &mut out,
                format_args!("| `{usage}` | {} | {} |\n", row.help, row.status.reason().unwrap_or_default()),
            );
        }
    }
    out
}

const INTRODUCTION: &str = "\
# Configuration reference

<!-- Made from the keywords of crates/config:
`MANYLANE_BLESS=1 cargo test -p manylane-config --test table`. -->

Manylane reads the configuration language of HAProxy 3.5 ([which versions count](migrating.md)). This page
lists every keyword of it: what is read, what is accepted without effect and why, and what is refused by name.
Nothing is ignored silently.

## Lines

- A statement is one line; words are separated by white space; an unprotected `#` begins a comment.
- `\\` protects the next character; `\\n`, `\\r`, `\\t` and `\\xNN` are the usual bytes. A backslash
  before any other character stays.
- `\"weak quotes\"` protect everything but variables and escapes, `'strong quotes'` everything.
- Variables are put in between weak quotes: `\"$NAME\"`, `\"${NAME}\"`, `\"${NAME-default}\"`, and as several
  words `\"${NAME[*]}\"`. `.FILE`, `.LINE` and `.SECTION` tell the place.
- The last line needs its line feed.
- Times: digits and `us`, `ms`, `s`, `m`, `h` or `d`; without a unit what the entry says. At most
  2147483647 ms.
- Sizes: digits and `k`, `m` or `g` for 2^10, 2^20 and 2^30.

## Conditional blocks

`.if CONDITION`, `.elif CONDITION`, `.else`, `.endif`; `.diag`, `.notice`, `.warning` and `.alert` with one
text. A condition is empty (false), an integer (0 is false), a predicate, or those combined by `!`, `&&`, `||`
and parentheses. The program's option `-cc CONDITION` answers with its exit code: 0 for true, 1 for false, 2
for an error.
";
