//! Conditional blocks (`.if`) and messages (`.alert` and the like).

use crate::cond::{Build, evaluate};
use crate::diag::{Diagnostics, Severity};
use crate::guess;
use crate::lex::{Environment, Word};
use crate::limits::MAX_CONDITION_DEPTH;
use crate::source::Pos;

/// Open blocks, outermost first.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    open: Vec<Block>,
    /// Open `.if` blocks beyond the maximum depth.
    refused: usize,
}

#[derive(Debug)]
struct Block {
    /// Position of the `.if`.
    pos: Pos,
    branch: Branch,
    /// True after `.else`.
    last: bool,
}

/// ```text
///            condition holds           .elif, .else
///   .if ───────────────────► Taken ──────────────────► Over
///    │                         ▲
///    └──────────────────► Waiting (.elif that holds, .else)
///      it does not
/// ```
/// A block inside of a block that is not taken starts as `Over`: none of its conditions are evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Branch {
    /// The lines are used.
    Taken,
    /// The lines are skipped; a later branch can be taken.
    Waiting,
    /// The lines are skipped, as are all later branches.
    Over,
}

const DIRECTIVES: [&str; 8] = [".alert", ".diag", ".elif", ".else", ".endif", ".if", ".notice", ".warning"];

impl Blocks {
    /// True if lines are used.
    pub(super) fn hold(&self) -> bool {
        self.refused == 0 && self.open.last().is_none_or(|block| block.branch == Branch::Taken)
    }

    /// Runs a line whose first word begins with a dot.
    pub(super) fn directive(
        &mut self,
        words: &[Word],
        environment: &Environment,
        build: &Build,
        found: &mut Diagnostics,
    ) {
        let [name, rest @ ..] = words else { return };
        let condition = |found: &mut Diagnostics| {
            let text = Word::join(rest, name.pos());
            evaluate(text.bytes(), environment, build).unwrap_or_else(|error| {
                found.alert(text.pos_at(error.at), format!("{error} in '{}'", name.shown()));
                false
            })
        };
        match name.bytes() {
            b".if" if self.refused > 0 || self.open.len() >= MAX_CONDITION_DEPTH => {
                if self.refused == 0 {
                    let message = format!(
                        "expected at most {MAX_CONDITION_DEPTH} '.if' blocks inside each other, found more"
                    );
                    found.alert(name.pos(), message);
                }
                self.refused += 1;
            }
            b".if" => {
                let branch = match self.hold() {
                    false => Branch::Over,
                    true if condition(found) => Branch::Taken,
                    true => Branch::Waiting,
                };
                self.open.push(Block { pos: name.pos(), branch, last: false });
            }
            b".elif" | b".else" | b".endif" if self.refused > 0 => {
                self.refused -= usize::from(*name == ".endif");
            }
            b".elif" => {
                let Some(block) = self.another_branch(name, found) else { return };
                block.branch = match block.branch {
                    Branch::Taken | Branch::Over => Branch::Over,
                    Branch::Waiting if condition(found) => Branch::Taken,
                    Branch::Waiting => Branch::Waiting,
                };
            }
            b".else" => {
                no_more(name, rest, found);
                let Some(block) = self.another_branch(name, found) else { return };
                block.last = true;
                block.branch = if block.branch == Branch::Waiting { Branch::Taken } else { Branch::Over };
            }
            b".endif" => {
                no_more(name, rest, found);
                if self.open.pop().is_none() {
                    found.alert(name.pos(), "'.endif' expects an '.if' above it, found none");
                }
            }
            _ if !self.hold() => {}
            b".diag" => message(Severity::Diag, name, rest, found),
            b".notice" => message(Severity::Notice, name, rest, found),
            b".warning" => message(Severity::Warning, name, rest, found),
            b".alert" => message(Severity::Alert, name, rest, found),
            unknown => {
                let guess = guess(unknown, DIRECTIVES);
                found.alert(name.pos(), format!("unknown directive '{}'{guess}", name.shown()));
            }
        }
    }

    /// The innermost block, if it can have another branch; otherwise reports an error.
    fn another_branch(&mut self, name: &Word, found: &mut Diagnostics) -> Option<&mut Block> {
        let Some(block) = self.open.last_mut() else {
            found.alert(name.pos(), format!("'{}' expects an '.if' above it, found none", name.shown()));
            return None;
        };
        if block.last {
            found.alert(
                name.pos(),
                format!("'{}' expects no '.else' above it, found one in the same '.if'", name.shown()),
            );
            return None;
        }
        Some(block)
    }

    /// Reports open blocks. Blocks cannot span files.
    pub(super) fn end_of_file(&mut self, found: &mut Diagnostics) {
        for block in self.open.drain(..) {
            found.alert(block.pos, "'.if' expects an '.endif' below it in the same file, found none");
        }
        self.refused = 0;
    }
}

fn no_more(name: &Word, rest: &[Word], found: &mut Diagnostics) {
    if let Some(extra) = rest.first() {
        found
            .alert(extra.pos(), format!("'{}' expects no argument, found '{}'", name.shown(), extra.shown()));
    }
}

fn message(severity: Severity, name: &Word, rest: &[Word], found: &mut Diagnostics) {
    if let Some(extra) = rest.get(1) {
        let shown = extra.shown();
        let text =
            format!("'{}' expects one message, found '{shown}' behind it: put it into quotes", name.shown());
        found.alert(extra.pos(), text);
        return;
    }
    let text = rest.first().map_or(String::new(), |word| word.shown().to_string());
    found.push(severity, Some(name.pos()), format!("'{text}'"));
}
