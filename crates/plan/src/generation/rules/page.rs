//! `stats admin` and `stats http-request`: who may see the statistics page, and change servers by it.

use super::super::stats_page::USUAL_REALM;
use super::{Action, Reader, Rule};
use manylane_config::lex::Word;
use manylane_config::tree::{self, Proxy, Statement};
use manylane_expr::{Condition, EvalPoints};

impl Reader<'_, '_, '_> {
    /// Compiles `stats admin` and `stats http-request` of a proxy.
    pub(super) fn page(&mut self, proxy: &Proxy) -> (Vec<Condition>, Vec<Rule>) {
        let points = if self.front { EvalPoints::FRONT_REQUEST } else { EvalPoints::BACK_REQUEST };
        let (mut admin, mut rules) = (Vec::new(), Vec::new());
        for statement in &proxy.settings.stats {
            let is_rule = statement.keyword == "stats http-request";
            if !is_rule && statement.keyword != "stats admin" {
                continue;
            }
            let (words, condition) = parts(statement);
            if is_rule {
                let action = self.page_action(statement, words);
                let condition = self.condition(&condition, points);
                let line = self.line(statement.pos);
                rules.extend(action.zip(condition).map(|(action, condition)| Rule {
                    condition,
                    action,
                    line,
                }));
            } else {
                // the table has checked that there is a condition
                admin.extend(self.condition(&condition, points).flatten());
            }
        }
        let of = |keyword: &str| proxy.settings.stats.iter().find(|statement| statement.keyword == keyword);
        if let (false, Some(other)) = (rules.is_empty(), of("stats auth").or_else(|| of("stats realm"))) {
            let message = "'stats auth' and 'stats realm' cannot stand beside 'stats http-request': write \
                'stats http-request auth'";
            self.refuse.found.alert(other.pos, message);
        }
        (admin, rules)
    }

    fn page_action(&mut self, statement: &Statement, words: &[Word]) -> Option<Action> {
        let mut text = words.iter().map(Word::bytes);
        let action = match (text.next(), text.next(), text.next(), text.next()) {
            (Some(b"allow"), None, ..) => Action::Accept,
            (Some(b"deny"), None, ..) => Action::Deny(403),
            (Some(b"auth"), None, ..) => Action::Auth(USUAL_REALM.into()),
            (Some(b"auth"), Some(b"realm"), Some(realm), None) => Action::Auth(realm.into()),
            _ => {
                let (pos, found) = match words.first() {
                    Some(word) => (word.pos(), format!("'{}'", Word::join(words, word.pos()).shown())),
                    None => (statement.pos, "none".to_owned()),
                };
                let message = format!(
                    "'stats http-request' expects allow, deny or auth [realm <realm>], found {found}"
                );
                self.refuse.found.alert(pos, message);
                return None;
            }
        };
        Some(action)
    }
}

/// Splits the words before `if` or `unless` from the condition.
fn parts(statement: &Statement) -> (&[Word], Option<tree::Condition>) {
    let at = statement.words.iter().position(|word| *word == *"if" || *word == *"unless");
    let Some(at) = at else { return (&statement.words, None) };
    let (words, rest) = statement.words.split_at(at);
    let condition = rest.split_first().map(|(word, rest)| tree::Condition {
        unless: *word == *"unless",
        words: rest.to_vec(),
        pos: word.pos(),
    });
    (words, condition)
}
