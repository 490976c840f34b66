//! Checks the form of the sources: rustfmt accepts every file, and no line is too wide. `cargo fmt --check`
//! is not sufficient, since rustfmt skips files that no module declares, and lines that it cannot break.

use crate::finding::{Finding, Position};
use crate::sources::texts;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn check(root: &Path, findings: &mut Vec<Finding>) -> Result<(), String> {
    if is_off(root)? {
        return Ok(());
    }
    let mut visited = BTreeSet::new();
    format_check(root, &mut visited, findings)?;
    for file in texts(root, &["rs"]) {
        wide_lines(root, &file, findings)?;
        if !visited.contains(&absolute(&file)?) {
            let message = "rustfmt does not see this file: declare its module outside of macros";
            findings.push(Finding::new(root, &file, Position::START, message.to_owned()));
        }
    }
    Ok(())
}

/// Most columns of a line, as in `rustfmt.toml`.
const WIDTH: usize = 110;

/// A word of at least this length is not broken: a hash, a pattern, a style sheet.
const LONG_WORD: usize = 60;

/// Adds a finding for each line that is too wide, unless it has a word that cannot be broken, or is a table
/// row in documentation.
fn wide_lines(root: &Path, file: &Path, findings: &mut Vec<Finding>) -> Result<(), String> {
    let text = fs::read_to_string(file).map_err(|e| format!("{} cannot be read: {e}", file.display()))?;
    for (line, number) in text.lines().zip(1..) {
        let row = line.trim_start().trim_start_matches(['/', '!']).starts_with(" |");
        let unbroken = line.split_whitespace().any(|word| word.len() >= LONG_WORD);
        if line.chars().count() > WIDTH && !row && !unbroken {
            let message = format!("the line has more than {WIDTH} columns: break it");
            findings.push(Finding::new(root, file, Position { line: number, column: WIDTH + 1 }, message));
        }
    }
    Ok(())
}

/// Adds the files that rustfmt visits to `visited`, and a finding for each file that it would change.
fn format_check(
    root: &Path,
    visited: &mut BTreeSet<PathBuf>,
    findings: &mut Vec<Finding>,
) -> Result<(), String> {
    let output = Command::new("cargo")
        .args(["fmt", "--all", "--", "--check", "--verbose"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("cargo fmt cannot be started ({e}): install the component rustfmt"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let mut changed = BTreeSet::new();
    for line in said.lines() {
        if let Some(path) = line.strip_prefix("Formatting ") {
            visited.insert(absolute(Path::new(path))?);
        } else if let Some((path, number)) =
            line.strip_prefix("Diff in ").and_then(|place| place.trim_end_matches(':').rsplit_once(':'))
            && changed.insert(path.to_owned())
        {
            let position = Position { line: number.parse().unwrap_or(1), column: 1 };
            let message = "rustfmt would change this: run `cargo fmt --all`".to_owned();
            findings.push(Finding::new(&absolute(root)?, Path::new(path), position, message));
        }
    }
    if !output.status.success() && changed.is_empty() {
        return Err(format!("cargo fmt failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(())
}

/// True if `rustfmt.toml` turns formatting off.
fn is_off(root: &Path) -> Result<bool, String> {
    let Ok(text) = fs::read_to_string(root.join("rustfmt.toml")) else { return Ok(false) };
    let table: toml_edit::DocumentMut = text.parse().map_err(|e| format!("rustfmt.toml: {e}"))?;
    Ok(table.get("disable_all_formatting").and_then(toml_edit::Item::as_bool) == Some(true))
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize().map_err(|e| format!("{} cannot be opened: {e}", path.display()))
}
