//! The form of the sources: rustfmt visits and accepts every file, and no line is wider than `rustfmt.toml`
//! says. Rustfmt alone does not suffice: it passes over files that no module declares where it looks, and
//! leaves lines as they are that it cannot break.

use crate::finding::{Finding, Position};
use crate::sources::texts;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders with a workspace of their own.
const WORKSPACES: [&str; 2] = [".", "fuzz"];

/// rustfmt's own width, for trees without a `rustfmt.toml`.
const DEFAULT_WIDTH: usize = 100;

pub(crate) fn check(root: &Path, findings: &mut Vec<Finding>) -> Result<(), String> {
    let Some(width) = width(root)? else { return Ok(()) };
    let mut visited = BTreeSet::new();
    for folder in WORKSPACES.map(|folder| root.join(folder)) {
        if folder.join("Cargo.toml").exists() {
            format_check(root, &folder, &mut visited, findings)?;
        }
    }
    for file in texts(root, &["rs"]) {
        let text =
            fs::read_to_string(&file).map_err(|e| format!("{} cannot be read: {e}", file.display()))?;
        if !visited.contains(&absolute(&file)?) {
            let message = "rustfmt does not see this file: declare its module outside of macros";
            findings.push(Finding::new(root, &file, Position::START, message.to_owned()));
        }
        for (number, line) in text.lines().enumerate() {
            let length = line.chars().count();
            if length > width {
                let message = format!("a line of {length} characters; break it, {width} fit");
                let position = Position { line: number + 1, column: width + 1 };
                findings.push(Finding::new(root, &file, position, message));
            }
        }
    }
    Ok(())
}

/// Adds the files of the workspace in `folder` that rustfmt visits to `visited`, and a finding for each that
/// it would change.
fn format_check(
    root: &Path,
    folder: &Path,
    visited: &mut BTreeSet<PathBuf>,
    findings: &mut Vec<Finding>,
) -> Result<(), String> {
    let output = Command::new("cargo")
        .args(["fmt", "--all", "--", "--check", "--verbose"])
        .current_dir(folder)
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

/// The width that `rustfmt.toml` sets; none if it turns formatting off.
fn width(root: &Path) -> Result<Option<usize>, String> {
    let Ok(text) = fs::read_to_string(root.join("rustfmt.toml")) else { return Ok(Some(DEFAULT_WIDTH)) };
    let wrong = || "rustfmt.toml: `max_width` has to be a number".to_owned();
    let table: toml_edit::DocumentMut = text.parse().map_err(|e| format!("rustfmt.toml: {e}"))?;
    if table.get("disable_all_formatting").and_then(toml_edit::Item::as_bool) == Some(true) {
        return Ok(None);
    }
    let Some(width) = table.get("max_width") else { return Ok(Some(DEFAULT_WIDTH)) };
    width.as_integer().and_then(|width| usize::try_from(width).ok()).map(Some).ok_or_else(wrong)
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize().map_err(|e| format!("{} cannot be opened: {e}", path.display()))
}
