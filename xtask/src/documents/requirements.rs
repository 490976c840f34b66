//! Checks that each cited requirement has a line on its page.

use crate::finding::{Finding, Position};
use crate::sources::texts;
use std::fs;
use std::path::Path;

/// The page, with an item for each number: `- **R-…**: …`.
const PAGE: &str = "docs/requirements.md";

pub(super) fn check(root: &Path, findings: &mut Vec<Finding>) -> Result<(), String> {
    let page = root.join(PAGE);
    let known = fs::read_to_string(&page).unwrap_or_default(); // without the page, none is known
    for file in texts(root, &["rs", "toml", "md"]).filter(|file| *file != page) {
        let text = super::read(&file)?;
        for (offset, number) in cited(&text) {
            if !known.contains(&format!("- **{number}**: ")) {
                let message = format!("{number} has no line in {PAGE}: add it, or correct the number");
                findings.push(Finding::new(root, &file, Position::at(&text, offset), message));
            }
        }
    }
    Ok(())
}

/// The requirements cited in a text, with offsets: `R-`, a capital letter, digits.
fn cited(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices("R-").filter_map(|(offset, _)| {
        let (before, rest) = (&text[..offset], &text[offset + 2..]);
        let digits = rest.strip_prefix(|c: char| c.is_ascii_uppercase())?;
        let count = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        let part_of_word = before.ends_with(char::is_alphanumeric);
        (count > 0 && !part_of_word).then(|| (offset, &text[offset..offset + 3 + count]))
    })
}
