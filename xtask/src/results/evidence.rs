//! `docs/evidence.md`, of what `manylane-bench evidence --json` printed.

use super::Made;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const DATA: &str = "bench/evidence.json";
const PAGE: &str = "docs/evidence.md";
/// Columns of a command, with the backslash behind it.
const WIDTH: usize = 110;
const HEAD: &str = "\
# The evidence

<!-- Made of bench/evidence.json by `cargo xtask page`: see below. -->

Each [requirement](requirements.md) with the figure of its source, ours, the command that shows it, and a
verdict. All figures are of one run of `manylane-bench evidence`, which measures anew each time. To make this
page on another machine:

```sh
make bench     # builds the bench for the real machine and for the simulator, and the program
target/release/manylane-bench evidence --quick      # under ten minutes on two cores
target/release/manylane-bench evidence --row R-A2   # one row
target/release/manylane-bench evidence --json > bench/evidence.json && cargo xtask page
```

*Simulated* figures come from the virtual multiprocessor; [how far they can be
believed](../crates/sim/VALIDATION.md). *Beside so much other work*: an operation has as much other work as
that of the row's source, so that gains can be compared. *Met*: the published gain was reached, or its sign
where that gain belongs to a machine with many cores; `bench/src/evidence/measure.rs` has each condition. *Met
in part*: what ran is met, and the rest of the row was left out of this run.
";

/// The sections, by the letter of their rows.
const SECTIONS: [(&str, &str); 7] = [
    ("A", "Local sockets inside the process"),
    ("B", "Buffers"),
    ("C", "Memory statistics"),
    ("D", "Object pools"),
    ("E", "The list for many threads"),
    ("F", "Scheduler"),
    ("G", "Proxy"),
];

/// The page, if there are figures.
pub(super) fn page(root: &Path) -> Result<Option<Made>, String> {
    let Ok(text) = fs::read_to_string(root.join(DATA)) else { return Ok(None) };
    let of = |problem: String| format!("{DATA}: {problem}");
    let data: Value = serde_json::from_str(&text).map_err(|e| of(e.to_string()))?;
    let rows = data["rows"].as_array().ok_or_else(|| of("expected a list `rows`".to_owned()))?;
    let mut page = HEAD.to_owned();
    let count = |wanted: &str| rows.iter().filter(|row| row["verdict"]["is"] == wanted).count();
    let (met, partly, missed, left) = (count("met"), count("partly"), count("missed"), count("not_measured"));
    let quick = if data["quick"] == true { ", with `--quick`" } else { "" };
    let run = |key| field(&data, key).map_err(of);
    let (machine, commit, date) = (run("machine")?, run("commit")?, run("date")?);
    let _ = write!(
        page,
        "\nThis run: {machine}{quick}, of commit {commit} on {date}. Of {} rows, {met} are met, {partly} \
         met in part, {missed} missed, {left} not measured.\n",
        rows.len()
    );
    for (letter, title) in SECTIONS {
        let _ = write!(page, "\n## {title}\n");
        for row in rows {
            let name = field(row, "row").map_err(of)?;
            if !name.starts_with(&format!("R-{letter}")) {
                continue;
            }
            let what = field(row, "what").map_err(of)?;
            let _ = write!(page, "\n### {name}: {what}\n\n");
            for (title, key) in [("The source", "seed"), ("Ours", "ours")] {
                let text = field(row, key).map_err(of)?;
                if text.matches("; ").count() > 2 {
                    let _ = writeln!(page, "- {title}:\n  - {}.", text.replace("; ", "\n  - "));
                } else if !text.is_empty() {
                    let _ = writeln!(page, "- {title}: {text}.");
                }
            }
            let _ = writeln!(page, "- Verdict: {}.", shown(&row["verdict"]));
            if let Some(why) = row["why_missed"].as_str() {
                let _ = writeln!(page, "- Why: {why}");
            }
            let commands: Vec<&str> =
                row["commands"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            if !commands.is_empty() {
                let _ =
                    write!(page, "\n```sh\n{}```\n", commands.into_iter().map(broken).collect::<String>());
            }
        }
    }
    Ok(Some((root.join(PAGE), crate::documents::wrapped(&page))))
}

fn field<'a>(value: &'a Value, key: &str) -> Result<&'a str, String> {
    value[key].as_str().ok_or_else(|| format!("expected a text `{key}`"))
}

/// A command in lines of at most [`WIDTH`] columns.
fn broken(command: &str) -> String {
    let (mut text, mut column) = (String::new(), 0);
    for word in command.split(' ') {
        if column > 0 && column + word.len() + 3 > WIDTH {
            text.push_str(" \\\n   ");
            column = 3;
        }
        if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += word.len();
    }
    text + "\n"
}

fn shown(outcome: &Value) -> String {
    match outcome["is"].as_str() {
        Some("met") => "met".to_owned(),
        Some("missed") => "**missed**".to_owned(),
        Some("partly") => format!("met in part; left out: {}", outcome["why"].as_str().unwrap_or_default()),
        _ => format!("not measured: {}", outcome["why"].as_str().unwrap_or_default()),
    }
}
