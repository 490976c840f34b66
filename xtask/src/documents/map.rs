//! The map of ARCHITECTURE.md: it has the rooms that are built, in their order, with their right to `unsafe`.

use crate::finding::{Finding, Position};
use crate::rooms::{ROOMS, UnsafeCode};
use std::path::Path;

const PAGE: &str = "ARCHITECTURE.md";

pub(super) fn check(root: &Path, findings: &mut Vec<Finding>) -> Result<(), String> {
    let page = root.join(PAGE);
    if !page.exists() {
        return Ok(()); // a workspace of a test
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
    let mut rows =
        text.lines().enumerate().filter(|(_, line)| line.starts_with("| `") && line.contains("/` |"));
    for wanted in built {
        let (number, row) = rows.next().unwrap_or((0, "no row"));
        if !row.starts_with(&wanted) {
            let message = format!("the map has `{row}` where rooms.rs has `{wanted}`: make them the same");
            let position = Position { line: number + 1, column: 1 };
            findings.push(Finding::new(root, &page, position, message));
            return Ok(());
        }
    }
    Ok(())
}
