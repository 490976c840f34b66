//! Finds leftovers: panics on a path that traffic can reach, unfinished work, ignored tests.

use super::Check;
use crate::finding::{Finding, Position};
use proc_macro2::TokenStream;
use std::fs;
use std::path::Path;
use syn::{Attribute, Ident, Macro};

/// Concatenated, so that this file is not a finding.
const WORDS: [&str; 3] = [concat!("FIX", "ME"), concat!("XX", "X"), concat!("TO", "DO")];

/// Notes to self, anywhere in a text except the changelog.
pub(super) fn words(root: &Path, file: &Path, findings: &mut Vec<Finding>) -> Result<(), String> {
    if file.ends_with("CHANGELOG.md") {
        return Ok(());
    }
    let text = fs::read_to_string(file).map_err(|e| format!("{} cannot be read: {e}", file.display()))?;
    for word in WORDS {
        for (offset, _) in text.match_indices(word) {
            let part_of_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            if part_of_word(text[..offset].chars().next_back())
                || part_of_word(text[offset + word.len()..].chars().next())
            {
                continue;
            }
            let message =
                format!("a note to self ({word}); finish it, or say in plain words what holds and why");
            findings.push(Finding::new(root, file, Position::at(&text, offset), message));
        }
    }
    Ok(())
}

impl Check<'_> {
    pub(super) fn method_leftover(&mut self, method: &Ident, no_arguments: bool) {
        if method == "unwrap" && no_arguments && !self.test {
            self.find(
                method.span(),
                "`.unwrap()` outside of tests; handle the case, or write `.expect(..)` with the invariant \
                    that \
                 rules it out"
                    .to_owned(),
            );
        }
    }

    pub(super) fn macro_leftover(&mut self, call: &Macro) {
        if let Some(name) = call.path.segments.last() {
            self.unfinished(&name.ident);
        }
    }

    /// Checks a macro's name.
    pub(super) fn unfinished(&mut self, name: &Ident) {
        if name == "todo" || name == "unimplemented" {
            self.find(name.span(), format!("`{name}!` stands for work that is not done; do it"));
        }
    }

    pub(super) fn attribute_leftover(&mut self, attribute: &Attribute) {
        if let syn::Meta::List(list) = &attribute.meta
            && list.path.is_ident("cfg_attr")
        {
            return self.conditionally_ignored(list.tokens.clone());
        }
        if attribute.path().is_ident("ignore") {
            self.ignored(attribute.pound_token.span);
        }
    }

    /// `#[rustfmt::skip]`, which takes an item out of rustfmt's sight, needs a `//` comment directly above.
    pub(super) fn attribute_skip(&mut self, attribute: &Attribute) {
        let segments = &attribute.path().segments;
        if segments.first().is_none_or(|segment| segment.ident != "rustfmt") {
            return;
        }
        let span = attribute.pound_token.span;
        let line = span.start().line - 1;
        let above = if line == 0 { "" } else { self.lines[line - 1].trim_start() };
        if !above.starts_with("//") || above.starts_with("///") || above.starts_with("//!") {
            let message =
                "`#[rustfmt::skip]` without a reason; remove it, or say why in a `//` comment above";
            self.find(span, message.to_owned());
        }
    }

    fn conditionally_ignored(&mut self, tokens: TokenStream) {
        for token in tokens {
            if let proc_macro2::TokenTree::Ident(name) = token
                && name == "ignore"
            {
                self.ignored(name.span());
            }
        }
    }

    pub(super) fn ignored(&mut self, span: proc_macro2::Span) {
        let message =
            "an ignored test proves nothing; make it run, widen it by MANYLANE_LONG=1, or remove it";
        self.find(span, message.to_owned());
    }
}
