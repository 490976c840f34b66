//! Checks that each test and each constant that SECURITY.md names exists: only its tests show that a row is
//! true, and only the constant says where its figure is.

use crate::finding::{Finding, Position};
use crate::sources::texts;
use std::path::Path;

const PAGE: &str = "SECURITY.md";

/// A test is named behind its file, `tests/FILE.rs`, or behind its crate, which is the word before its code
/// span: h1 `the_begin_of_its_name`. Constants of a row stand between *Constant:* and *The test:*, before the
/// name of their crate: `MAX_EMPTY` (h1).
pub(super) fn check(root: &Path, findings: &mut Vec<Finding>) -> Result<(), String> {
    let page = root.join(PAGE);
    if !page.exists() {
        return Ok(()); // a workspace of the tests
    }
    let text = super::read(&page)?;
    let (mut offset, mut prose, mut source) = (0, "", None);
    let (mut of_constants, mut constants) = (false, Vec::new());
    for (number, part) in text.split('`').enumerate() {
        let begin = offset;
        offset += part.len() + 1;
        let mut find =
            |at, message| findings.push(Finding::new(root, &page, Position::at(&text, at), message));
        if number % 2 == 0 {
            prose = part;
            let krate = prose.trim_start().strip_prefix('(').and_then(|rest| rest.split(')').next());
            if let Some(krate) = krate {
                for (at, name) in constants.drain(..) {
                    if !has_item(root, krate, name) {
                        find(at, format!("crates/{krate} has no constant `{name}`: correct it"));
                    }
                }
            }
            if prose.contains("\n- ") {
                (source, of_constants) = (None, false); // the next row
            }
            let labels = [prose.rfind("Constant:"), prose.rfind("The test:").or(prose.rfind("The\n  test:"))];
            if labels[0].max(labels[1]).is_some() {
                of_constants = labels[0] > labels[1];
            }
            if !of_constants {
                for (at, name) in constants.drain(..) {
                    find(at, format!("the row names no crate of `{name}`: name it in brackets behind it"));
                }
            }
            continue;
        }
        if of_constants && part.starts_with(|first: char| first.is_ascii_uppercase()) {
            constants.push((begin, part));
        } else if part.starts_with("tests/") && Path::new(part).extension().is_some() {
            source = Some(part.to_owned());
            if !root.join(part).is_file() {
                find(begin, format!("there is no file `{part}`: correct its name"));
            }
        } else if is_test(part) {
            let word = prose.split_whitespace().next_back().unwrap_or_default();
            if !word.is_empty() && root.join("crates").join(word).is_dir() {
                source = Some(format!("crates/{word}"));
            }
            let Some(source) = &source else {
                find(
                    begin,
                    format!("the row names no file and no crate of `{part}`: name it before the test"),
                );
                continue;
            };
            let wanted = format!("fn {part}");
            let has = |text: String| text.lines().any(|line| line.trim_start().starts_with(&wanted));
            if !texts(&root.join(source), &["rs"]).any(|file| super::read(&file).is_ok_and(has)) {
                find(begin, format!("{source} has no test `{part}…`: correct it, or write one"));
            }
        }
    }
    for (at, name) in constants {
        let message = format!("the row names no crate of `{name}`: name it in brackets behind it");
        findings.push(Finding::new(root, &page, Position::at(&text, at), message));
    }
    Ok(())
}

/// True if the sources of a crate define a constant, or a type, with this name.
fn has_item(root: &Path, krate: &str, name: &str) -> bool {
    let defines = |line: &str| {
        let mut words =
            line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        words.any(|word| ["const", "static", "struct"].contains(&word)) && words.next() == Some(name)
    };
    let folder = root.join("crates").join(krate).join("src");
    texts(&folder, &["rs"]).any(|file| super::read(&file).is_ok_and(|text| text.lines().any(defines)))
}

/// True if a code span is the name of a test, not a keyword or a constant.
fn is_test(span: &str) -> bool {
    span.contains('_') && span.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}
