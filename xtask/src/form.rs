//! Checks the form of sources and scripts: rustfmt accepts them, no line is too wide. `cargo fmt --check`
//! is not sufficient, since rustfmt skips files that no module declares, and lines that it cannot break. The
//! bodies of macros in braces (`proptest!`, `macro_rules!`) are out of its sight: there only the width is
//! checked.

use crate::finding::{Finding, Position};
use crate::sources::texts;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn check(root: &Path, findings: &mut Vec<Finding>) -> Result<(), String> {
    let mut visited = BTreeSet::new();
    format_check(root, &mut visited, findings)?;
    for file in texts(root, &["rs"]) {
        wide_lines(root, &file, findings)?;
        if !visited.contains(&absolute(&file)?) {
            let message = "rustfmt does not see this file: declare its module outside of macros";
            findings.push(Finding::new(root, &file, Position::START, message.to_owned()));
        }
    }
    for file in scripts(root) {
        wide_lines(root, &file, findings)?;
    }
    Ok(())
}

/// The Makefile and the files in the folder `scripts`.
fn scripts(root: &Path) -> Vec<PathBuf> {
    let folder = fs::read_dir(root.join("scripts")).into_iter().flatten().flatten();
    let files = folder.map(|entry| entry.path()).chain([root.join("Makefile")]);
    let mut files: Vec<_> = files.filter(|file| file.is_file()).collect();
    files.sort();
    files
}

/// Most columns of a line, as in `rustfmt.toml`.
const WIDTH: usize = 110;

/// A word of at least this length is not broken: a hash, a pattern, a style sheet.
const LONG_WORD: usize = 60;

/// Adds a finding for each line that is too wide. A word that is not broken counts as one of [`LONG_WORD`]
/// columns.
fn wide_lines(root: &Path, file: &Path, findings: &mut Vec<Finding>) -> Result<(), String> {
    let text = fs::read_to_string(file).map_err(|e| format!("{} cannot be read: {e}", file.display()))?;
    for (line, number) in text.lines().zip(1..) {
        let words = line.split_whitespace().map(|word| word.chars().count());
        let unbroken: usize = words.map(|columns| columns.saturating_sub(LONG_WORD)).sum();
        if line.chars().count() - unbroken > WIDTH {
            let message = format!("the line has more than {WIDTH} columns: break it");
            findings.push(Finding::new(root, file, Position { line: number, column: WIDTH + 1 }, message));
        }
    }
    Ok(())
}

/// Makes rustfmt say which expressions it leaves as they are, because it cannot keep their comments.
const UNFORMATTED: &str = "error_on_unformatted=true,unstable_features=true";

/// Adds the files that rustfmt visits to `visited`, and a finding for each file that it would change.
fn format_check(
    root: &Path,
    visited: &mut BTreeSet<PathBuf>,
    findings: &mut Vec<Finding>,
) -> Result<(), String> {
    let output = Command::new("cargo")
        .args(["fmt", "--all", "--", "--check", "--verbose", "--color", "never", "--config", UNFORMATTED])
        .current_dir(root)
        .output()
        .map_err(|e| format!("cargo fmt cannot be started ({e}): install the component rustfmt"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let mut changed = BTreeSet::new();
    for line in said.lines() {
        if let Some(path) = line.strip_prefix("Formatting ") {
            visited.insert(absolute(Path::new(path))?);
        } else if let Some((path, number)) =
            line.strip_prefix("Diff in ").and_then(|location| location.trim_end_matches(':').rsplit_once(':'))
            && changed.insert(path.to_owned())
        {
            let position = Position { line: number.parse().unwrap_or(1), column: 1 };
            let message = "rustfmt would change this: run `cargo fmt --all`".to_owned();
            findings.push(Finding::new(&absolute(root)?, Path::new(path), position, message));
        }
    }
    let complaints = String::from_utf8_lossy(&output.stderr);
    for (path, number) in given_up(&complaints) {
        let position = Position { line: number, column: 1 };
        let message = "rustfmt gives up on this: move the comment out of the expression".to_owned();
        findings.push(Finding::new(&absolute(root)?, Path::new(path), position, message));
        changed.insert(path.to_owned());
    }
    if !output.status.success() && changed.is_empty() {
        return Err(format!("cargo fmt failed: {complaints}"));
    }
    Ok(())
}

/// Path and line of each expression that rustfmt has given up on: a line `--> path:line` follows the reason.
fn given_up(complaints: &str) -> impl Iterator<Item = (&str, usize)> {
    let mut lines = complaints.lines();
    std::iter::from_fn(move || {
        lines.find(|line| line.contains("not formatted because a comment would be lost"))?;
        let (path, number) = lines.next()?.split_once("--> ")?.1.trim_end().rsplit_once(':')?;
        Some((path, number.parse().unwrap_or(1)))
    })
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize().map_err(|e| format!("{} cannot be opened: {e}", path.display()))
}
