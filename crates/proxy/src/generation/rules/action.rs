//! Actions of `http-request`, `http-response` and `http-after-response`.

use super::{Action, Reader};
use manylane_config::lex::Word;
use manylane_config::source::Pos;
use manylane_config::table::Ruleset;
use manylane_config::tree;
use manylane_expr::{Expression, Places, Use};

impl Reader<'_, '_, '_> {
    pub(super) fn action(&mut self, rule: &tree::Rule, place: Places) -> Option<Action> {
        let tree::Rule { list, action, words, condition: _, pos } = rule;
        let [name, arguments @ ..] = &words[..] else { return None };
        let request = *list != Ruleset::HttpResponse;
        let mut wrong = |pos: Pos, message: &str| {
            let keyword = format!("{} {}", list.name(), action.trim_end_matches('('));
            self.refuse.found.alert(pos, format!("'{keyword}' {message}"));
        };
        let header = |word: &Word| -> Box<[u8]> { word.bytes().into() };
        match (*action, arguments) {
            ("allow", []) => Some(Action::Allow),
            ("deny", []) => Some(Action::Deny(if request { 403 } else { 502 })),
            ("deny" | "return", _) => self.reply(rule, arguments, place),
            ("redirect", _) => {
                // The keyword of its own has no action in front.
                let arguments = if *list == Ruleset::Redirect { &words[..] } else { arguments };
                self.redirect(rule, arguments, place)
            }
            ("set-header", [name, value]) => {
                Some(Action::SetHeader(header(name), self.format(value, Use::Header, place)?))
            }
            ("add-header", [name, value]) => {
                Some(Action::AddHeader(header(name), self.format(value, Use::Header, place)?))
            }
            ("del-header", [name]) => Some(Action::DelHeader(header(name))),
            ("set-method", [value]) => Some(Action::SetMethod(self.format(value, Use::Header, place)?)),
            ("set-path", [value]) => Some(Action::SetPath(self.format(value, Use::Header, place)?)),
            ("set-pathq", [value]) => Some(Action::SetPathq(self.format(value, Use::Header, place)?)),
            ("set-query", [value]) => Some(Action::SetQuery(self.format(value, Use::Header, place)?)),
            ("set-uri", [value]) => Some(Action::SetUri(self.format(value, Use::Header, place)?)),
            ("set-status", [code, rest @ ..]) => {
                let Some(code) = code.text().and_then(|text| text.parse().ok()).filter(|c| (200..=599).contains(c))
                else {
                    wrong(code.pos(), "expects a status from 200 to 599");
                    return None;
                };
                match rest {
                    [] => Some(Action::SetStatus(code, None)),
                    [word, reason] if *word == *"reason" => Some(Action::SetStatus(code, Some(header(reason)))),
                    [word, ..] => {
                        wrong(word.pos(), "expects 'reason' and a text behind the status");
                        None
                    }
                }
            }
            ("set-var(" | "set-var-fmt(" | "unset-var(", _) => self.variable(rule, name, arguments, place),
            ("set-header" | "add-header" | "set-method" | "set-path" | "set-pathq" | "set-query" | "set-uri", _) => {
                wrong(*pos, "has not the number of arguments that it takes");
                None
            }
            _ => self.not_built(rule),
        }
    }

    /// `set-var(name) expression`, `set-var-fmt(name) format`, `unset-var(name)`
    pub(super) fn variable(&mut self, rule: &tree::Rule, head: &Word, arguments: &[Word], place: Places) -> Option<Action> {
        let open = rule.action.len();
        let inside = head.bytes().get(open..).and_then(|rest| rest.strip_suffix(b")"));
        let Some(inside) = inside.filter(|inside| !inside.contains(&b',')) else {
            self.refuse.keyword(head.pos(), &format!("{} with conditions", head.shown()), "it is not built yet");
            return None;
        };
        let id = match self.compiler.variables.resolve(inside) {
            Ok(id) => id,
            Err(error) => {
                self.refuse.found.alert(head.pos_at(open + error.at), error.to_string());
                return None;
            }
        };
        match (rule.action, arguments) {
            ("unset-var(", []) => Some(Action::UnsetVar(id)),
            ("set-var-fmt(", [format]) => Some(Action::SetVarFmt(id, self.format(format, Use::Text, place)?)),
            ("set-var(", [first, ..]) => {
                let whole = Word::join(arguments, first.pos());
                // Converters may stand apart from the fetch; commas hold them together.
                let text: Vec<u8> = whole.bytes().to_vec();
                match Expression::compile(&text, place, self.compiler) {
                    Ok(expression) => Some(Action::SetVar(id, expression)),
                    Err(error) => {
                        self.refuse.found.alert(whole.pos_at(error.at), format!("expression : {error}"));
                        None
                    }
                }
            }
            _ => {
                self.refuse.found.alert(rule.pos, "a variable is set to one expression or format");
                None
            }
        }
    }
}
