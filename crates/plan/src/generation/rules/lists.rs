//! Puts each rule into its list, and says where its expressions run.

use super::{Action, Reader, Rule, Rules};
use manylane_config::table::Ruleset;
use manylane_config::tree;
use manylane_expr::EvalPoints;

impl Reader<'_, '_, '_> {
    /// Compiles a rule and appends it to its list. `redirects` gets those of the keyword `redirect`, which
    /// run after `http-request` rules.
    pub(super) fn put(
        &mut self,
        rule: &tree::Rule,
        http: bool,
        rules: &mut Rules,
        redirects: &mut Vec<Rule<Action>>,
    ) {
        self.at.set(Some(rule.pos));
        self.compiler.position = self.config.file_and_line(rule.pos);
        // Rules of a `listen` must be valid on both of its sides.
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
                let points = if self.front { EvalPoints::FRONT_CONTENT } else { EvalPoints::BACK_CONTENT };
                rules.content.extend(self.content(rule, points));
            }
            Ruleset::TcpResponseContent if self.back => {
                rules.response_content.extend(self.content(rule, EvalPoints::BACK_RESPONSE_CONTENT));
            }
            Ruleset::HttpRequest | Ruleset::Redirect if http => {
                let points = at(EvalPoints::FRONT_REQUEST, EvalPoints::BACK_REQUEST);
                let list = if rule.list == Ruleset::Redirect { redirects } else { &mut rules.request };
                list.extend(self.rule(rule, points));
            }
            Ruleset::HttpResponse if http => {
                let points = at(EvalPoints::FRONT_RESPONSE, EvalPoints::BACK_RESPONSE);
                rules.response.extend(self.rule(rule, points));
            }
            Ruleset::HttpAfterResponse if http => {
                let points = at(EvalPoints::FRONT_RESPONSE, EvalPoints::BACK_RESPONSE);
                rules.after_response.extend(self.rule(rule, points));
            }
            // HTTP rules do nothing in TCP mode; the file's reader warns about them and refuses rules on the
            // wrong side.
            _ => {}
        }
    }
}
