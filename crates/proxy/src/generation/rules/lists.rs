//! Which list a rule goes into, and what may be asked for there.

use super::{Action, Reader, Rule, Rules};
use manylane_config::table::Ruleset;
use manylane_config::tree;
use manylane_expr::EvalPoints;

impl Reader<'_, '_, '_> {
    /// `redirects`: those of the old keyword, which run after the other rules for requests.
    pub(super) fn put(
        &mut self,
        rule: &tree::Rule,
        http: bool,
        rules: &mut Rules,
        redirects: &mut Vec<Rule<Action>>,
    ) {
        self.at.set(Some(rule.pos));
        self.compiler.place = self.config.place(rule.pos);
        // The rules of a `listen` run for both of its sides.
        let (front, back) = (self.front, self.back);
        let at = |of_front: EvalPoints, of_back: EvalPoints| match (front, back) {
            (true, true) => of_front | of_back,
            (true, false) => of_front,
            _ => of_back,
        };
        match rule.list {
            Ruleset::TcpRequestConnection if self.front => {
                rules.connection.extend(self.connection(rule, EvalPoints::CONNECTION));
            }
            Ruleset::TcpRequestSession if self.front => {
                rules.session.extend(self.connection(rule, EvalPoints::SESSION));
            }
            Ruleset::TcpRequestContent => {
                let place = if self.front { EvalPoints::FRONT_CONTENT } else { EvalPoints::BACK_CONTENT };
                rules.content.extend(self.content(rule, place));
            }
            Ruleset::TcpResponseContent if self.back => {
                rules.response_content.extend(self.content(rule, EvalPoints::BACK_RESPONSE_CONTENT));
            }
            Ruleset::HttpRequest | Ruleset::Redirect if http => {
                let place = at(EvalPoints::FRONT_REQUEST, EvalPoints::BACK_REQUEST);
                let list = if rule.list == Ruleset::Redirect { redirects } else { &mut rules.request };
                list.extend(self.rule(rule, place));
            }
            Ruleset::HttpResponse if http => {
                let place = at(EvalPoints::FRONT_RESPONSE, EvalPoints::BACK_RESPONSE);
                rules.response.extend(self.rule(rule, place));
            }
            Ruleset::HttpAfterResponse if http => {
                let place = at(EvalPoints::FRONT_RESPONSE, EvalPoints::BACK_RESPONSE);
                rules.after_response.extend(self.rule(rule, place));
            }
            // Rules for messages mean nothing to bytes, of which the file's reader warns; it refuses those on
            // the wrong side.
            _ => {}
        }
    }
}
