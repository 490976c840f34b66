//! Puts each rule into its list, and says where its expressions run.

use super::{Reader, Rule, Rules};
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
        redirects: &mut Vec<Rule>,
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
        let (list, points) = match rule.list {
            Ruleset::TcpRequestConnection if front => (&mut rules.connection, EvalPoints::CONNECTION),
            Ruleset::TcpRequestSession if front => (&mut rules.session, EvalPoints::SESSION),
            Ruleset::TcpRequestContent if front => (&mut rules.content, EvalPoints::FRONT_CONTENT),
            Ruleset::TcpRequestContent => (&mut rules.content, EvalPoints::BACK_CONTENT),
            Ruleset::TcpResponseContent if back => {
                (&mut rules.response_content, EvalPoints::BACK_RESPONSE_CONTENT)
            }
            Ruleset::HttpRequest if http => {
                (&mut rules.request, at(EvalPoints::FRONT_REQUEST, EvalPoints::BACK_REQUEST))
            }
            Ruleset::Redirect if http => (redirects, at(EvalPoints::FRONT_REQUEST, EvalPoints::BACK_REQUEST)),
            Ruleset::HttpResponse if http => {
                (&mut rules.response, at(EvalPoints::FRONT_RESPONSE, EvalPoints::BACK_RESPONSE))
            }
            Ruleset::HttpAfterResponse if http => {
                (&mut rules.after_response, at(EvalPoints::FRONT_RESPONSE, EvalPoints::BACK_RESPONSE))
            }
            // HTTP rules do nothing in TCP mode; the file's reader warns about them and refuses rules on the
            // wrong side.
            _ => return,
        };
        list.extend(self.rule(rule, points));
    }
}
