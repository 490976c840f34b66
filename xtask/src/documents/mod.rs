//! Checks documents: width of lines, length of paragraphs and pages, links, numbers of requirements, the map
//! of rooms, counts of tests, names of tests, and commands that run them.

mod commands;
mod counts;
mod links;
mod map;
mod paragraphs;
mod requirements;
mod tests_named;
mod wrap;

use crate::finding::{Finding, Position};
use crate::sources::texts;
use paragraphs::Paragraph;
use std::fs;
use std::path::Path;

/// Columns of a line: two windows fit side by side.
const WIDTH: usize = 110;

/// Most lines of a paragraph. Make a longer one a list, a table or a page.
const PARAGRAPH: usize = 6;

/// Pages that are read as a whole, with their largest numbers of lines. The width applies to their tables,
/// too.
const PAGES: [(&str, usize); 2] = [("README.md", 100), ("ARCHITECTURE.md", 300)];

/// Generated pages; their generator wraps them.
const GENERATED: [&str; 4] =
    ["docs/configuration.md", "docs/evidence.md", "docs/unbuilt.md", "bench/results.md"];

/// The page of one run of the evidence: its counts are what the tests printed in that run.
const OF_A_RUN: &str = "docs/evidence.md";

/// Adds findings for the workspace's Markdown files.
pub(crate) fn check(root: &Path, findings: &mut Vec<Finding>) -> Result<(), String> {
    let mut pages = links::Pages::default();
    for file in texts(root, &["md"]) {
        let text = read(&file)?;
        let name = file.strip_prefix(root).unwrap_or(&file);
        let mut find = |line: usize, column: usize, message: String| {
            findings.push(Finding::new(root, &file, Position { line: line + 1, column }, message));
        };
        for (offset, count) in counts::of(&text).filter(|_| name != Path::new(OF_A_RUN)) {
            let Position { line, column } = Position::at(&text, offset);
            let count = count.split_whitespace().collect::<Vec<_>>().join(" ");
            find(line - 1, column, format!("a count of tests ({count}): leave it to what the tests print"));
        }
        let bound = PAGES.iter().find(|(page, _)| name == Path::new(page)).map(|(_, lines)| *lines);
        let count = text.lines().count();
        if let Some(most) = bound.filter(|most| count > *most) {
            find(
                most,
                1,
                format!("the page has {count} lines, of at most {most}: move what only some readers want"),
            );
        }
        let prose = paragraphs::of(&text);
        for paragraph in &prose {
            check_paragraph(paragraph, &mut find);
        }
        if bound.is_some() {
            let in_prose =
                |number: usize| prose.iter().any(|p| (p.first..p.first + p.lines.len()).contains(&number));
            for (number, line) in text.lines().enumerate() {
                if line.chars().count() > WIDTH && !in_prose(number) {
                    find(number, WIDTH + 1, too_wide("shorten its cells"));
                }
            }
        }
        for (line, message) in links::check(&file, &text, &mut pages)? {
            find(line, 1, message);
        }
    }
    map::check(root, findings)?;
    requirements::check(root, findings)?;
    commands::check(root, findings)?;
    tests_named::check(root, findings)
}

fn check_paragraph(paragraph: &Paragraph<'_>, find: &mut impl FnMut(usize, usize, String)) {
    for (number, line) in paragraph.lines.iter().enumerate() {
        let alone = wrap::words(line.get(paragraph.lead.len()..).unwrap_or_default()).len() < 2;
        if line.chars().count() > WIDTH && !alone {
            find(paragraph.first + number, WIDTH + 1, too_wide("run `cargo xtask wrap`"));
        }
    }
    if paragraph.lines.len() > PARAGRAPH {
        let message = format!(
            "a paragraph of {} lines, of at most {PARAGRAPH}: make it a list, a table or several paragraphs",
            paragraph.lines.len()
        );
        find(paragraph.first, 1, message);
    }
}

fn too_wide(remedy: &str) -> String {
    format!("the line has more than {WIDTH} columns: {remedy}")
}

/// Wraps every paragraph with too wide or too many lines, and prints the changed files. A paragraph that is
/// still too long is split between sentences.
pub(crate) fn wrap(root: &Path) -> Result<bool, String> {
    for file in texts(root, &["md"]) {
        if GENERATED.iter().any(|page| file == root.join(page)) {
            continue;
        }
        let text = read(&file)?;
        let wrapped = wrap::wrapped(&text);
        if wrapped != text {
            fs::write(&file, wrapped).map_err(|e| format!("{} cannot be written: {e}", file.display()))?;
            println!("wrapped {}", file.strip_prefix(root).unwrap_or(&file).display());
        }
    }
    Ok(true)
}

/// Wraps the text of a generated page.
pub(crate) fn wrapped(text: &str) -> String {
    wrap::wrapped(text)
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|e| format!("{} cannot be read: {e}", file.display()))
}
