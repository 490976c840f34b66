//! Documents: width of lines, length of paragraphs and pages, links that lead somewhere, numbers of
//! requirements, the map of rooms, and no counts of tests.

mod counts;
mod links;
mod map;
mod paragraphs;
mod requirements;
mod wrap;

use crate::finding::{Finding, Position};
use crate::sources::texts;
use paragraphs::Paragraph;
use std::fs;
use std::path::Path;

/// Columns of a line: what two windows side by side show.
const WIDTH: usize = 110;

/// Lines of a paragraph. A longer one is a list, a table or a page of its own.
const PARAGRAPH: usize = 6;

/// Pages that somebody reads as a whole: how many lines they have at most. Their tables keep to the width,
/// too.
const PAGES: [(&str, usize); 2] = [("README.md", 100), ("ARCHITECTURE.md", 300)];

/// Pages that are made from data; whoever makes them wraps them.
const GENERATED: [&str; 3] = ["docs/configuration.md", "docs/unbuilt.md", "bench/results.md"];

/// Adds what is wrong with the workspace's Markdown files.
pub(crate) fn check(root: &Path, findings: &mut Vec<Finding>) -> Result<(), String> {
    let mut pages = links::Pages::default();
    for file in texts(root, &["md"]) {
        let text = read(&file)?;
        let name = file.strip_prefix(root).unwrap_or(&file);
        let mut find = |line: usize, column: usize, message: String| {
            findings.push(Finding::new(root, &file, Position { line: line + 1, column }, message));
        };
        for (offset, count) in counts::of(&text) {
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
    requirements::check(root, findings)
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

/// Wraps every paragraph that has too wide a line or too many of them, and says which files that changed. A
/// paragraph that is too long then is cut between two sentences.
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

/// The text of a page that is made, wrapped as `wrap` does.
pub(crate) fn wrapped(text: &str) -> String {
    wrap::wrapped(text)
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|e| format!("{} cannot be read: {e}", file.display()))
}
