//! Checks links within the repository: the file must exist and have the heading.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Anchors of the linked pages.
#[derive(Default)]
pub(super) struct Pages(BTreeMap<PathBuf, BTreeSet<String>>);

impl Pages {
    fn has(&mut self, page: &Path, anchor: &str) -> Result<bool, String> {
        if !self.0.contains_key(page) {
            self.0.insert(page.to_owned(), anchors(&super::read(page)?));
        }
        Ok(self.0.get(page).is_some_and(|anchors| anchors.contains(anchor)))
    }
}

/// Lines with broken links, counted from 0, and the message for each.
pub(super) fn check(file: &Path, text: &str, pages: &mut Pages) -> Result<Vec<(usize, String)>, String> {
    let mut wrong = Vec::new();
    for (number, line) in without_code(text) {
        for target in targets(&line) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let page = match path {
                "" => file.to_owned(),
                path => file.parent().unwrap_or(Path::new("")).join(path),
            };
            if fs::metadata(&page).is_err() {
                // A crate's page is also its documentation, where links name items.
                let is_item =
                    path.split("::").all(|part| part.chars().all(|c| c.is_alphanumeric() || c == '_'));
                if !is_item {
                    wrong.push((number, format!("`{path}` is not there: correct the link")));
                }
            } else if !anchor.is_empty()
                && page.extension().is_some_and(|e| e == "md")
                && !pages.has(&page, anchor)?
            {
                wrong.push((number, format!("no heading gives `{target}` its anchor: correct the link")));
            }
        }
    }
    Ok(wrong)
}

/// Lines outside of code blocks, with code spans blanked.
fn without_code(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        let blanked = |line: &str| {
            let pieces = line.split('`').enumerate();
            pieces.map(|(n, piece)| if n % 2 == 0 { piece } else { "x" }).collect()
        };
        (!fenced).then(|| (number, blanked(line)))
    })
}

/// The targets of a line's links: `[text](target)`, `[name]: target`, `src="target"`, `srcset="target"`.
fn targets(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (opening, closing) in [("](", ')'), ("src=\"", '"'), ("srcset=\"", '"')] {
        let pieces = line.split(opening).skip(1);
        found.extend(pieces.filter_map(|rest| rest.split_once(closing)).map(|(target, _)| target));
    }
    if let Some((_, target)) = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
        found.push(target.trim());
    }
    found
}

/// The anchors of a page, as forges build them: headings in lower case, without punctuation, with `-` for
/// spaces, and with a number for repeated ones.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        }
        for name in line.split("<a id=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            found.insert(name.to_owned());
        }
        let Some(heading) = line.strip_prefix('#').filter(|_| !fenced) else { continue };
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let slug: String = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let again = (1..).map(|n| format!("{slug}-{n}"));
        let free = std::iter::once(slug.clone()).chain(again).find(|name| !found.contains(name));
        found.extend(free);
    }
    found
}
