//! Checks that `unsafe` stands in permitted rooms only, and gives its reason.

use super::Check;
use crate::rooms::{ROOMS, UnsafeCode};
use proc_macro2::Span;
use syn::{Attribute, Meta, Safety, Signature, Token, punctuated::Punctuated};

impl Check<'_> {
    /// Checks a block, an implementation, or another use that needs a reason.
    pub(super) fn unsafe_use(&mut self, span: Span) {
        if self.unsafe_permitted(span) && !self.argued(span) {
            let message = "this `unsafe` gives no reason; write a `// SAFETY:` comment above it that names \
                the invariant";
            self.find(span, message.to_owned());
        }
    }

    /// Checks a function or trait. Its reason stands at callers or implementations; clippy asks for a `#
    /// Safety` section.
    pub(super) fn unsafe_permitted(&mut self, span: Span) -> bool {
        let permitted = self.unsafe_code == UnsafeCode::Allowed;
        if !permitted {
            self.find(
                span,
                format!(
                    "`unsafe` stands here, but is allowed in {} only; find a safe way, or move it",
                    allowed()
                ),
            );
        }
        permitted
    }

    pub(super) fn unsafe_signature(&mut self, signature: &Signature) {
        if let Safety::Unsafe(token) = signature.safety {
            self.unsafe_permitted(token.span);
        }
    }

    /// `#[allow(unsafe_code)]` and `#[unsafe(..)]`.
    pub(super) fn attribute_unsafe(&mut self, attribute: &Attribute) {
        let Meta::List(list) = &attribute.meta else { return };
        if list.path.is_ident("unsafe") {
            return self.unsafe_use(attribute.pound_token.span);
        }
        if !["allow", "expect", "warn"].iter().any(|level| list.path.is_ident(level)) {
            return;
        }
        let Ok(lints) = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated) else { return };
        if !lints.iter().any(|lint| lint.path().is_ident("unsafe_code")) {
            return;
        }
        let span = attribute.pound_token.span;
        if self.unsafe_code == UnsafeCode::Refused {
            self.find(
                span,
                format!(
                    "`unsafe_code` is let through here, but is allowed in {} only; remove this",
                    allowed()
                ),
            );
        } else if !lints.iter().any(|lint| lint.path().is_ident("reason")) && !self.commented(span) {
            self.find(
                span,
                "`unsafe_code` is let through without a reason; say it in a comment behind this".to_owned(),
            );
        }
    }

    /// True if the line of `span`, or the line above, has a comment.
    fn commented(&self, span: Span) -> bool {
        let line = span.start().line - 1;
        self.lines[line].contains("//") || (line > 0 && self.lines[line - 1].trim_start().starts_with("//"))
    }

    /// True if a safety comment stands before `span`: on its line, or above its statement.
    fn argued(&self, span: Span) -> bool {
        const ARGUMENT: &str = "SAFETY:";
        let start = span.start();
        let here: String = self.lines[start.line - 1].chars().take(start.column).collect();
        if here.contains(ARGUMENT) {
            return true;
        }
        for line in self.lines[..start.line - 1].iter().rev() {
            let line = line.trim();
            if line.starts_with("//") || line.starts_with("/*") || line.starts_with('*') {
                if line.contains(ARGUMENT) {
                    return true;
                }
                continue;
            }
            let code = line.split(" //").next().unwrap_or_default().trim_end();
            // Another statement ends here, or the enclosing block begins.
            if code.is_empty() || code.ends_with([';', '{', '}']) {
                return false;
            }
        }
        false
    }
}

fn allowed() -> String {
    let names: Vec<_> =
        ROOMS.iter().filter(|r| r.unsafe_code == UnsafeCode::Allowed).map(|r| r.name).collect();
    names.join(", ")
}
