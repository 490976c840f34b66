//! The form of the sources: rustfmt visits and accepts every file. `cargo fmt --check` alone does not
//! suffice, since rustfmt passes over files that no module declares where it looks.

use crate::finding::{Finding, Position};
use crate::sources::texts;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders with a workspace of their own.
const WORKSPACES: [&str; 2] = [".", "fuzz"];

pub(crate) fn check(root: &Path, findings: &mut Vec<Finding>) -> Result<(), String> {
    if is_off(root)? {
        return Ok(());
    }
    let mut visited = BTreeSet::new();
    for folder in WORKSPACES.map(|folder| root.join(folder)) {
        if folder.join("Cargo.toml").exists() {
            format_check(root, &folder, &mut visited, findings)?;
        }
    }
    for file in texts(root, &["rs"]) {
        if !visited.contains(&absolute(&file)?) {
            let message = "rustfmt does not see this file: declare its module outside of macros";
            findings.push(Finding::new(root, &file, Position::START, message.to_owned()));
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

/// Whether `rustfmt.toml` turns formatting off.
fn is_off(root: &Path) -> Result<bool, String> {
    let Ok(text) = fs::read_to_string(root.join("rustfmt.toml")) else { return Ok(false) };
    let table: toml_edit::DocumentMut = text.parse().map_err(|e| format!("rustfmt.toml: {e}"))?;
    Ok(table.get("disable_all_formatting").and_then(toml_edit::Item::as_bool) == Some(true))
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize().map_err(|e| format!("{} cannot be opened: {e}", path.display()))
}
