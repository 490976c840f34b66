//! Benchmark results: `bench/results/*.toml` and `bench/evidence.json`, and the pages and plots generated
//! from them.

mod evidence;
mod plot;

use crate::finding::{Finding, Position};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use toml_edit::{DocumentMut, Item, Table};

const FOLDER: &str = "bench/results";
const PAGE: &str = "bench/results.md";
const HEAD: &str = "\
# What was measured

<!-- Made of bench/results/*.toml by `cargo xtask page`: change those. -->

Each table says how it was made. How to read them, and how to measure, is told in [README.md](README.md); \
what was
tried for these figures, and what is next, in [tried](tried).
";

/// The path and text of a generated file.
type Made = (PathBuf, String);

/// Writes the page and the plots.
pub(crate) fn write(root: &Path) -> Result<bool, String> {
    for (path, text) in make(root)? {
        fs::write(&path, text).map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
    }
    Ok(true)
}

/// Adds a finding for each generated file that does not match the data.
pub(crate) fn check(root: &Path, findings: &mut Vec<Finding>) -> Result<(), String> {
    for (path, text) in make(root)? {
        if fs::read_to_string(&path).unwrap_or_default() != text {
            let message = "it is not what the figures in bench say: run `cargo xtask page`".to_owned();
            findings.push(Finding::new(root, &path, Position::START, message));
        }
    }
    Ok(())
}

fn make(root: &Path) -> Result<Vec<Made>, String> {
    let mut page = HEAD.to_owned();
    let mut made = Vec::new();
    let folder = root.join(FOLDER);
    if !folder.exists() {
        return Ok(made); // a workspace of the tests
    }
    for file in crate::sources::texts(&folder, &["toml"]) {
        let of = |problem: String| format!("{}: {problem}", file.display());
        let text = fs::read_to_string(&file).map_err(|e| of(e.to_string()))?;
        let data: DocumentMut = text.parse().map_err(|e| of(format!("{e}")))?;
        let _ = write!(page, "\n## {}\n", string(&data, "title").map_err(of)?);
        paragraph(&mut page, &data);
        let tables = data.get("table").and_then(Item::as_array_of_tables);
        for table in tables.into_iter().flatten() {
            let _ = write!(page, "\n### {}\n", string(table, "title").map_err(of)?);
            paragraph(&mut page, table);
            let columns = words(table, "columns").map_err(of)?;
            let rows = rows(table, columns.len()).map_err(of)?;
            if let Some(wanted) = table.get("plot").and_then(Item::as_table) {
                let name = string(wanted, "file").map_err(of)?;
                let title = string(wanted, "title").map_err(of)?;
                let svg = plot::bars(wanted, title, &columns, &rows).map_err(of)?;
                made.push((folder.join(name), svg));
                let _ = write!(page, "\n![{title}](results/{name})\n");
            }
            let _ = write!(page, "\n| {} |\n|{}\n", columns.join(" | "), "---|".repeat(columns.len()));
            for row in rows {
                let _ = writeln!(page, "| {} |", row.join(" | "));
            }
        }
    }
    made.push((root.join(PAGE), crate::documents::wrapped(&page)));
    made.extend(evidence::page(root)?);
    Ok(made)
}

fn paragraph(page: &mut String, table: &Table) {
    if let Ok(text) = string(table, "text") {
        let _ = write!(page, "\n{}\n", text.trim());
    }
}

fn string<'a>(table: &'a Table, key: &str) -> Result<&'a str, String> {
    table.get(key).and_then(Item::as_str).ok_or_else(|| format!("expected a text `{key}`"))
}

fn words<'a>(table: &'a Table, key: &str) -> Result<Vec<&'a str>, String> {
    let array = table.get(key).and_then(Item::as_array);
    let words: Option<Vec<&str>> =
        array.and_then(|array| array.iter().map(toml_edit::Value::as_str).collect());
    words.ok_or_else(|| format!("expected a list of texts `{key}`"))
}

fn rows(table: &Table, columns: usize) -> Result<Vec<Vec<&str>>, String> {
    let array = table.get("rows").and_then(Item::as_array).ok_or("expected a list `rows`")?;
    let mut rows = Vec::new();
    for value in array {
        let cells: Option<Vec<&str>> =
            value.as_array().and_then(|cells| cells.iter().map(toml_edit::Value::as_str).collect());
        let cells = cells.filter(|cells| cells.len() == columns);
        let Some(cells) = cells else {
            return Err(format!("expected {columns} texts in row {} of a table", rows.len() + 1));
        };
        rows.push(cells);
    }
    Ok(rows)
}
