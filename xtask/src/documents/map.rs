//! Checks the map in ARCHITECTURE.md: it lists the existing rooms in their order, and whether they may use
//! `unsafe`.

use crate::finding::{Finding, Position};
use crate::rooms::{ROOMS, UnsafeCode};
use std::path::Path;

const PAGE: &str = "ARCHITECTURE.md";

pub(super) fn check(root: &Path, findings: &mut Vec<Finding>) -> Result<(), String> {
    let page = root.join(PAGE);
    if !page.exists() {
        return Ok(()); // a workspace of the tests
    }
    let text = super::read(&page)?;
    let built: Vec<String> = ROOMS
        .iter()
        .filter_map(|room| {
            let folder = [room.name.to_owned(), format!("crates/{}", room.name)]
                .into_iter()
                .find(|folder| root.join(folder).join("Cargo.toml").exists())?;
            let mark = if room.unsafe_code == UnsafeCode::Allowed { " U " } else { " " };
            Some(format!("| `{folder}/` |{mark}|"))
        })
        .collect();
    let rows: Vec<_> = text
        .lines()
        .enumerate()
        .filter(|(_, line)| line.starts_with("| `") && line.contains("/` |"))
        .collect();
    let mut find = |line: usize, message: String| {
        findings.push(Finding::new(root, &page, Position { line: line + 1, column: 1 }, message));
    };
    let mut last = 0;
    for wanted in built {
        let Some((line, _)) = rows.iter().find(|(_, row)| row.starts_with(&wanted)) else {
            find(0, format!("the map has no row `{wanted}` as rooms.rs says: add it, or correct one"));
            continue;
        };
        // No crate depends on tools, so their order does not matter.
        if wanted.starts_with("| `crates/") && *line < last {
            find(*line, format!("the row `{wanted}` stands above one that rooms.rs has above it: move it"));
        }
        last = last.max(if wanted.starts_with("| `crates/") { *line } else { 0 });
    }
    Ok(())
}
