//! `track-sc`, `sc-inc-gpc`, `sc-add-gpc` and `sc-set-gpt`.

use super::{GeneralCounter, NumberSource, Reader, Track, TrackCounts};
use manylane_config::lex::Word;
use manylane_config::table::Ruleset;
use manylane_config::tree::{self, Mode};
use manylane_config::value;
use manylane_expr::{Condition, EvalPoints, Expression, Needs};

/// Default of `tune.stick-counters`.
const COUNTERS: u64 = 3;

/// Largest index of `gpc` and `gpt`, as in HAProxy.
const MAX_INDEX: i64 = 99;

/// Returns true if an expression with these needs reads bytes that the client sends.
fn reads_contents(needs: Needs) -> bool {
    !needs.and(Needs::MESSAGE | Needs::HEAD | Needs::BODY).is_none()
}

impl Reader<'_, '_, '_> {
    /// Reads the number of a sticky counter; it is below `tune.stick-counters`.
    fn counter(&mut self, rule: &tree::Rule, word: &Word, at: usize, digits: &[u8]) -> Option<u32> {
        let counters = self.config.global.tune.stick_counters.map_or(COUNTERS, |set| set.value);
        match value::integer(digits, 0, i64::from(u32::MAX)) {
            Ok(number) if (number as u64) < counters => Some(number as u32),
            _ => {
                let message = format!(
                    "expects the number of a counter below {counters} ('tune.stick-counters'), found '{}'",
                    manylane_config::Shown(digits)
                );
                self.wrong(rule, word.pos_at(at), &message)
            }
        }
    }

    /// `track-sc<counter> <expression> [table <name>]`
    pub(super) fn track(
        &mut self,
        rule: &tree::Rule,
        name: &Word,
        arguments: &[Word],
        points: EvalPoints,
    ) -> Option<Track> {
        let prefix = rule.action.len();
        let counter = self.counter(rule, name, prefix, name.bytes().get(prefix..).unwrap_or_default())?;
        let (expression, table) = match arguments {
            [expression @ .., option, table] if *option == *"table" && !expression.is_empty() => {
                (expression, Some(table))
            }
            expression => (expression, None),
        };
        let what = format!("'{} {}'", rule.list.name(), rule.action);
        let (key, table) = self.table_key(&what, expression, table, rule.pos, points)?;
        self.check_delay(rule, &key);
        let of_session = matches!(rule.list, Ruleset::TcpRequestConnection | Ruleset::TcpRequestSession);
        let counts = match rule.list {
            Ruleset::HttpRequest => TrackCounts::Request,
            Ruleset::HttpResponse => TrackCounts::Response,
            // Content rules of a frontend run before the request, which is counted later.
            _ => TrackCounts::Nothing,
        };
        Some(Track { counter, table, key, of_session, counts })
    }

    /// Warns of a `tcp-request content` rule that reads what a client sends without waiting for it.
    pub(super) fn check_delay(&mut self, rule: &tree::Rule, expression: &Expression) {
        let waits = self.proxy.settings.inspect_request.is_some_and(|set| !set.value.is_zero());
        if reads_contents(expression.needs(&|_| Needs::NONE))
            && !waits
            && self.front
            && rule.list == Ruleset::TcpRequestContent
        {
            let message = format!(
                "'{} {}' depends on contents that may come later: set 'tcp-request inspect-delay'",
                rule.list.name(),
                rule.action
            );
            self.refuse.found.warning(rule.pos, message);
        }
    }

    /// Warns of a `tcp-request content track-sc` rule that could be a `tcp-request session` rule.
    pub(super) fn check_level(&mut self, rule: &tree::Rule, track: &Track, condition: Option<&Condition>) {
        let own = |_| Needs::NONE;
        let condition = condition.map_or(Needs::NONE, |condition| condition.needs(&own));
        if rule.list == Ruleset::TcpRequestContent
            && self.front
            && self.proxy.settings.mode() == Mode::Http
            && !reads_contents(track.key.needs(&own) | condition)
        {
            let message = "'tcp-request content track-sc' depends on no contents here: use 'tcp-request \
                           session', which tracks clients with invalid requests, too";
            self.refuse.found.warning(rule.pos, message);
        }
    }

    /// `sc-inc-gpc0(<counter>)`, `sc-add-gpc(<index>,<counter>) <number>|<expression>` and so on.
    pub(super) fn general(
        &mut self,
        rule: &tree::Rule,
        name: &Word,
        arguments: &[Word],
        points: EvalPoints,
    ) -> Option<GeneralCounter> {
        let open = rule.action.len();
        let inside = name.bytes().get(open..).and_then(|rest| rest.strip_suffix(b")"));
        let Some(inside) = inside else {
            return self.expected(rule, name, "the number of a counter in parentheses");
        };
        let has_index = matches!(rule.action, "sc-inc-gpc(" | "sc-add-gpc(" | "sc-set-gpt(");
        let (index, counter, at) = match inside.iter().position(|byte| *byte == b',') {
            Some(comma) if has_index => match value::integer(&inside[..comma], 0, MAX_INDEX) {
                Ok(index) => (index as u32, &inside[comma + 1..], open + comma + 1),
                Err(_) => {
                    let what = format!("an index from 0 to {MAX_INDEX} before the counter");
                    return self.expected(rule, name, &what);
                }
            },
            None if has_index => return self.expected(rule, name, "(<index>,<counter>)"),
            _ => (u32::from(rule.action == "sc-inc-gpc1("), inside, open),
        };
        let counter = self.counter(rule, name, at, counter)?;
        let by = match arguments {
            [] => NumberSource::Fixed(1),
            [number] if number.bytes().first().is_some_and(u8::is_ascii_digit) => {
                match value::integer(number.bytes(), 0, i64::from(u32::MAX)) {
                    Ok(number) => NumberSource::Fixed(number as u32),
                    Err(_) => return self.expected(rule, number, "a number of 32 bits"),
                }
            }
            expression => NumberSource::Of(self.expression(expression, points)?),
        };
        Some(GeneralCounter {
            counter,
            index,
            of_array: has_index,
            is_tag: rule.action.starts_with("sc-set-gpt"),
            by,
        })
    }
}
