//! Settings that rules of several lists make.

use super::captures::makes_slots;
use super::{
    AddressPart, NumberSource, Packets, Reader, SetBandwidth, Setting, SharedKey, TimeSource, TimeoutOf,
    ValueSource,
};
use manylane_config::lex::Word;
use manylane_config::table::Ruleset;
use manylane_config::tree::{self, LEVELS, SharedLimit};
use manylane_config::value;
use manylane_expr::{EvalPoints, Expression, SetConditions, Use, VariableId};
use manylane_logs::Level;

impl Reader<'_, '_, '_> {
    /// Compiles a setting. Returns `None` if the action is no setting, and `Some(None)` after an error was
    /// reported.
    pub(super) fn setting(&mut self, rule: &tree::Rule, points: EvalPoints) -> Option<Option<Setting>> {
        let (name, arguments) = rule.words.split_first()?;
        let set = match (rule.action, arguments) {
            ("set-var(" | "set-var-fmt(", _) => self
                .set_var(rule, name, arguments, points)
                .map(|(id, made, when)| Setting::Var(id, made, when)),
            ("unset-var(", []) => self.variable(rule, name).map(|(id, _)| Setting::UnsetVar(id)),
            ("set-src" | "set-src-port" | "set-dst" | "set-dst-port", [_, ..]) => {
                self.expression(arguments, points).map(|made| Setting::Address(addressed(rule.action), made))
            }
            ("disable-l7-retry", []) => Some(Setting::DisableRepetition),
            ("set-log-level", [level]) => self.level(rule, level).map(Setting::LogLevel),
            ("set-timeout", [of, time @ ..]) if !time.is_empty() => self.set_timeout(rule, of, time, points),
            ("set-priority-class", [_, ..]) => self.expression(arguments, points).map(Setting::PriorityClass),
            ("set-priority-offset", [_, ..]) => {
                self.expression(arguments, points).map(Setting::PriorityOffset)
            }
            ("set-retries", [_, ..]) if !self.back => {
                self.wrong(rule, rule.pos, "expects a backend, found a frontend; move the rule to a backend")
            }
            ("set-retries", [number]) if value::integer(number.bytes(), 0, i64::from(i32::MAX)).is_ok() => {
                let fixed = Word::plain([b"int(", number.bytes(), b")"].concat(), number.pos());
                self.expression(&[fixed], points).map(Setting::Retries)
            }
            ("set-retries", [_, ..]) => self.expression(arguments, points).map(Setting::Retries),
            ("set-nice", [number]) => match value::integer(number.bytes(), -1024, 1024) {
                Ok(nice) => Some(Setting::Nice(nice as i16)),
                Err(_) => self.expected(rule, number, "a number from -1024 to 1024"),
            },
            // `tcp-response content` runs when the connection to the server exists already.
            ("set-bc-mark" | "set-bc-tos", [_, ..]) if rule.list != Ruleset::TcpResponseContent => {
                self.packets(rule, arguments, points)
            }
            ("set-fc-mark" | "set-mark" | "set-fc-tos" | "set-tos", [_, ..]) => {
                self.packets(rule, arguments, points)
            }
            ("set-bc-mark" | "set-bc-tos", []) => self.arguments(rule, None),
            ("set-bandwidth-limit", [filter, options @ ..]) => {
                self.bandwidth(rule, filter, options, points).map(Setting::Bandwidth)
            }
            ("track-sc", [_, ..]) => {
                self.track(rule, name, arguments, points).map(|made| Setting::Track(Box::new(made)))
            }
            ("sc-inc-gpc0(" | "sc-inc-gpc1(" | "sc-inc-gpc(", [])
            | ("sc-add-gpc(" | "sc-set-gpt0(" | "sc-set-gpt(", [_, ..]) => self
                .general(rule, name, arguments, points)
                .map(|made| Setting::GeneralCounter(Box::new(made))),
            ("capture", [sample @ .., how, number]) if !sample.is_empty() => {
                self.capture(rule, sample, how, number, points)
            }
            (
                "unset-var("
                | "set-src"
                | "set-src-port"
                | "set-dst"
                | "set-dst-port"
                | "disable-l7-retry"
                | "set-log-level"
                | "set-timeout"
                | "set-priority-class"
                | "set-priority-offset"
                | "set-retries"
                | "set-nice"
                | "set-fc-mark"
                | "set-mark"
                | "set-fc-tos"
                | "set-tos"
                | "set-bandwidth-limit"
                | "track-sc"
                | "sc-inc-gpc0("
                | "sc-inc-gpc1("
                | "sc-inc-gpc("
                | "sc-add-gpc("
                | "sc-set-gpt0("
                | "sc-set-gpt("
                | "capture",
                _,
            ) => self.arguments(rule, None),
            _ => return None,
        };
        Some(set)
    }

    /// Compiles words as one expression. Blanks may follow commas between converters.
    pub(super) fn expression(&mut self, words: &[Word], points: EvalPoints) -> Option<Expression> {
        let first = words.first()?;
        let whole = Word::join(words, first.pos());
        match Expression::compile(whole.bytes(), points, self.compiler) {
            Ok(expression) => Some(expression),
            Err(error) => {
                self.refuse.found.alert(whole.pos_at(error.at), format!("expression : {error}"));
                None
            }
        }
    }

    /// Reads a mark or TOS: a number, also hexadecimal with `0x`, or an expression.
    fn packets(&mut self, rule: &tree::Rule, words: &[Word], points: EvalPoints) -> Option<Setting> {
        let what = match rule.action {
            "set-bc-mark" => Packets::ServerMark,
            "set-bc-tos" => Packets::ServerTos,
            "set-fc-tos" | "set-tos" => Packets::ClientTos,
            _ => Packets::ClientMark,
        };
        let figure = match words {
            [word] if word.bytes().first().is_some_and(u8::is_ascii_digit) => {
                let number = word.text().and_then(|text| match text.strip_prefix("0x") {
                    Some(digits) => u32::from_str_radix(digits, 16).ok(),
                    None => text.parse().ok(),
                });
                match number.filter(|number| *number <= what.most()) {
                    Some(number) => NumberSource::Fixed(number),
                    None => {
                        let range =
                            format!("a number from 0 to {}, also in hexadecimal as 0x7f", what.most());
                        return self.expected(rule, word, &range);
                    }
                }
            }
            words => NumberSource::Of(self.expression(words, points)?),
        };
        Some(Setting::Packets(what, figure))
    }

    /// `set-bandwidth-limit <filter> [limit <size>|<expression>] [period <time>|<expression>]`
    fn bandwidth(
        &mut self,
        rule: &tree::Rule,
        filter: &Word,
        options: &[Word],
        points: EvalPoints,
    ) -> Option<Box<SetBandwidth>> {
        if self.compiler.in_defaults {
            return self.wrong(rule, rule.pos, "expects a proxy of its own, found a 'defaults' section");
        }
        let Some(found) = self.filters.limit(filter.bytes()) else {
            if self.proxy.settings.is_refused("filter") {
                return None;
            }
            let what = "the name of a 'filter bwlim-in' or 'filter bwlim-out' line of the same proxy";
            return self.expected(rule, filter, what);
        };
        let shared = match &found.shared {
            None => None,
            Some(_) if !options.is_empty() => {
                let what = format!(
                    "expects nothing behind '{}', a filter whose limit streams share",
                    filter.shown()
                );
                return self.wrong(rule, options[0].pos(), &what);
            }
            Some(SharedLimit { key, table }) => {
                let what = format!("'{} set-bandwidth-limit' : 'key' of the filter", rule.list.name());
                let (key, table) = self.table_key(&what, key, table.as_ref(), rule.pos, points)?;
                Some(SharedKey { table, key })
            }
        };
        let mut made = Box::new(SetBandwidth {
            filter: found.id,
            sender: found.sender,
            usual: found.usual,
            limit: None,
            period: None,
            shared,
        });
        let mut rest = options;
        while let [name, after @ ..] = rest {
            let is_limit = *name == *"limit";
            if !is_limit && *name != *"period" {
                return self.expected(rule, name, "limit or period");
            }
            // An expression may have blanks after commas; it ends at the next option.
            let end = after.iter().skip(1).position(|word| *word == *"limit" || *word == *"period");
            let (value, next) = after.split_at(end.map_or(after.len(), |end| end + 1));
            match value {
                [] => return self.arguments(rule, None),
                [word] if is_limit && word.bytes().first().is_some_and(u8::is_ascii_digit) => {
                    match value::size(word.bytes(), 0, u64::from(u32::MAX)) {
                        // The maximum is u32::MAX.
                        Ok(size) => made.limit = Some(NumberSource::Fixed(size as u32)),
                        Err(error) => {
                            let what = format!("expects a size behind 'limit': {}", error.message);
                            return self.wrong(rule, word.pos_at(error.at), &what);
                        }
                    }
                }
                words if is_limit => made.limit = Some(NumberSource::Of(self.expression(words, points)?)),
                words => made.period = Some(self.time(words, points)?),
            }
            rest = next;
        }
        Some(made)
    }

    fn level(&mut self, rule: &tree::Rule, word: &Word) -> Option<Option<Level>> {
        if *word == *"silent" {
            return Some(None);
        }
        match LEVELS.iter().position(|level| *word == **level) {
            Some(number) => Some(Some(Level::new(number as u8))),
            None => self.expected(rule, word, &format!("one of {}, silent", LEVELS.join(", "))),
        }
    }

    fn capture(
        &mut self,
        rule: &tree::Rule,
        sample: &[Word],
        how: &Word,
        number: &Word,
        points: EvalPoints,
    ) -> Option<Setting> {
        let expression = self.expression(sample, points)?;
        self.check_delay(rule, &expression);
        // `tcp-request content` does not accept 'id'.
        let there = match rule.list {
            Ruleset::HttpRequest => self.slots.captures.request.len(),
            _ => self.slots.captures.response.len(),
        };
        let slot = match (how.bytes(), value::integer(number.bytes(), 0, i64::from(u16::MAX))) {
            (b"id", Ok(slot))
                if self.front && rule.list != Ruleset::TcpRequestContent && slot as usize >= there =>
            {
                if self.proxy.settings.is_refused("declare capture") {
                    return None;
                }
                let slots = match there.checked_sub(1) {
                    None => "no slot is declared; add one with 'declare capture'".to_owned(),
                    Some(last) => format!("the highest id is {last}"),
                };
                let message = format!("expects the id of a slot, found {slot}: {slots}");
                return self.wrong(rule, number.pos(), &message);
            }
            (b"id", Ok(slot)) if rule.list != Ruleset::TcpRequestContent => slot as usize,
            (b"len", Ok(1..)) if makes_slots(rule.list) => match self.slots.of_rules.get(&rule.pos) {
                Some(_) if !self.front => {
                    return self.wrong(
                        rule,
                        how.pos(),
                        "expects id <slot> outside of frontends, found 'len'",
                    );
                }
                Some(slot) => *slot,
                None => {
                    return self.wrong(
                        rule,
                        how.pos(),
                        "expects id <slot> in a 'defaults' section, found 'len'",
                    );
                }
            },
            (b"len", _) if makes_slots(rule.list) => {
                return self.expected(rule, number, "a number from 1 to 65535 behind 'len'");
            }
            _ if rule.list == Ruleset::TcpRequestContent => {
                return self.expected(rule, how, "len <length> behind the expression");
            }
            _ => return self.expected(rule, how, "id <slot> behind the expression"),
        };
        Some(Setting::Capture(expression, slot))
    }

    fn set_timeout(
        &mut self,
        rule: &tree::Rule,
        of: &Word,
        time: &[Word],
        points: EvalPoints,
    ) -> Option<Setting> {
        let of = match of.bytes() {
            b"client" => TimeoutOf::Client,
            b"connect" => TimeoutOf::Connect,
            b"queue" => TimeoutOf::Queue,
            b"server" => TimeoutOf::Server,
            b"tarpit" => TimeoutOf::Tarpit,
            b"tunnel" => TimeoutOf::Tunnel,
            _ => return self.expected(rule, of, "client, connect, queue, server, tarpit or tunnel"),
        };
        if !matches!(of, TimeoutOf::Client | TimeoutOf::Tarpit) && !self.back {
            return self.wrong(
                rule,
                rule.pos,
                "expects a backend, found a frontend, which has no such timeout",
            );
        }
        match self.time(time, points)? {
            TimeSource::Fixed(none) if none.is_zero() => {
                self.wrong(rule, rule.pos, "expects a time above 0, found 0")
            }
            time => Some(Setting::Timeout(of, time)),
        }
    }

    /// Reads the variable and the conditions of `set-var(name,condition...)`.
    fn variable(&mut self, rule: &tree::Rule, head: &Word) -> Option<(VariableId, SetConditions)> {
        let open = rule.action.len();
        let Some(inside) = head.bytes().get(open..).and_then(|rest| rest.strip_suffix(b")")) else {
            return self.expected(rule, head, "a variable in parentheses");
        };
        let mut parts = inside.split(|&byte| byte == b',');
        let id = match self.compiler.variables.resolve(parts.next().unwrap_or_default()) {
            Ok(id) => id,
            Err(error) => {
                self.refuse.found.alert(head.pos_at(open + error.at), error.to_string());
                return None;
            }
        };
        let mut when = SetConditions::ALWAYS;
        for part in parts {
            when = match when.with(part) {
                Ok(when) => when,
                Err(why) => {
                    self.refuse.found.alert(head.pos(), why);
                    return None;
                }
            };
        }
        Some((id, when))
    }

    /// `set-var(name) expression`, `set-var-fmt(name) format`
    fn set_var(
        &mut self,
        rule: &tree::Rule,
        head: &Word,
        arguments: &[Word],
        points: EvalPoints,
    ) -> Option<(VariableId, ValueSource, SetConditions)> {
        let (id, when) = self.variable(rule, head)?;
        let made = match (rule.action, arguments) {
            ("set-var-fmt(", [format]) => ValueSource::Format(self.format(format, Use::Text, points)?),
            ("set-var(", [_, ..]) => ValueSource::Of(self.expression(arguments, points)?),
            _ => return self.arguments(rule, None),
        };
        Some((id, made, when))
    }
}

fn addressed(action: &str) -> AddressPart {
    match action {
        "set-src" => AddressPart::Source,
        "set-src-port" => AddressPart::SourcePort,
        "set-dst" => AddressPart::Destination,
        _ => AddressPart::DestinationPort,
    }
}
