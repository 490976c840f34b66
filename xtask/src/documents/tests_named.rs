//! Checks that each test that SECURITY.md names exists: only its tests show that a row is true.

use crate::finding::{Finding, Position};
use crate::sources::texts;
use std::path::Path;

const PAGE: &str = "SECURITY.md";

/// A test is named behind its file, `tests/FILE.rs`, or behind its crate, which is the word before its code
/// span: h1 `the_begin_of_its_name`.
pub(super) fn check(root: &Path, findings: &mut Vec<Finding>) -> Result<(), String> {
    let page = root.join(PAGE);
    if !page.exists() {
        return Ok(()); // a workspace of the tests
    }
    let text = super::read(&page)?;
    let (mut offset, mut prose, mut source) = (0, "", None);
    for (number, part) in text.split('`').enumerate() {
        let begin = offset;
        offset += part.len() + 1;
        if number % 2 == 0 {
            prose = part;
            if prose.contains("\n- ") {
                source = None; // the next row
            }
            continue;
        }
        let mut find =
            |message| findings.push(Finding::new(root, &page, Position::at(&text, begin), message));
        if part.starts_with("tests/") && Path::new(part).extension().is_some() {
            source = Some(part.to_owned());
            if !root.join(part).is_file() {
                find(format!("there is no file `{part}`: correct its name"));
            }
        } else if is_test(part) {
            let word = prose.split_whitespace().next_back().unwrap_or_default();
            if !word.is_empty() && root.join("crates").join(word).is_dir() {
                source = Some(format!("crates/{word}"));
            }
            let Some(source) = &source else {
                find(format!("the row names no file and no crate of `{part}`: name it before the test"));
                continue;
            };
            let wanted = format!("fn {part}");
            let has = |text: String| text.lines().any(|line| line.trim_start().starts_with(&wanted));
            if !texts(&root.join(source), &["rs"]).any(|file| super::read(&file).is_ok_and(has)) {
                find(format!("{source} has no test `{part}…`: correct it, or write one"));
            }
        }
    }
    Ok(())
}

/// True if a code span is the name of a test, not a keyword or a constant.
fn is_test(span: &str) -> bool {
    span.contains('_') && span.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}
