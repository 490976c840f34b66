//! Answers that rules make: `return`, `deny` with an answer of its own, `redirect`.

use super::{Action, Reader, Redirect, RedirectKind, Refuse, Reply};
use manylane_config::lex::Word;
use manylane_config::table::Ruleset;
use manylane_config::tree;
use manylane_expr::{Places, Use};

impl Reader<'_, '_, '_> {
    /// `[status code] [content-type type] [string text|lf-string format] [hdr name format]...`
    pub(super) fn reply(&mut self, rule: &tree::Rule, arguments: &[Word], place: Places) -> Option<Action> {
        let deny = rule.action == "deny";
        let usual = match (deny, rule.list) {
            (false, _) => 200,
            (true, Ruleset::HttpResponse) => 502,
            (true, _) => 403,
        };
        let mut reply = Reply { status: usual, content_type: Box::default(), body: None, fields: Vec::new() };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let Some(value) = words.next() else {
                self.refuse.found.alert(word.pos(), format!("'{}' expects a value", word.shown()));
                return None;
            };
            match word.bytes() {
                b"status" | b"deny_status" => {
                    let status = value.text().and_then(|text| text.parse().ok()).filter(|s| (200..=599).contains(s));
                    let Some(status) = status else {
                        self.refuse.found.alert(value.pos(), "a status is a number from 200 to 599");
                        return None;
                    };
                    reply.status = status;
                }
                b"content-type" => reply.content_type = value.bytes().into(),
                b"string" => {
                    let escaped = String::from_utf8_lossy(value.bytes()).replace('%', "%%");
                    let plain = Word::plain(escaped.into_bytes(), value.pos());
                    reply.body = Some(self.format(&plain, Use::Text, place)?);
                }
                b"lf-string" => reply.body = Some(self.format(value, Use::Text, place)?),
                b"hdr" => {
                    let Some(format) = words.next() else {
                        self.refuse.found.alert(word.pos(), "'hdr' expects a name and a format");
                        return None;
                    };
                    reply.fields.push((value.bytes().into(), self.format(format, Use::Header, place)?));
                }
                _ => {
                    let keyword = format!("{} {} {}", rule.list.name(), rule.action, word.shown());
                    self.refuse.keyword(word.pos(), &keyword, "it is not built yet");
                    return None;
                }
            }
        }
        if deny && reply.body.is_none() && reply.fields.is_empty() {
            return Some(Action::Deny(reply.status));
        }
        Some(Action::Reply(Box::new(reply)))
    }

    pub(super) fn redirect(&mut self, rule: &tree::Rule, arguments: &[Word], place: Places) -> Option<Action> {
        let mut kind = None;
        let (mut code, mut drop_query, mut append_slash, mut ignore_empty) = (302, false, false, false);
        let mut cookie: Option<Box<[u8]>> = None;
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = |refuse: &mut Refuse<'_>| {
                let next = words.next();
                if next.is_none() {
                    refuse.found.alert(word.pos(), format!("'{}' expects a value", word.shown()));
                }
                next
            };
            match word.bytes() {
                b"location" | b"prefix" | b"scheme" => {
                    let how = match word.bytes() {
                        b"location" => RedirectKind::Location,
                        b"prefix" => RedirectKind::Prefix,
                        _ => RedirectKind::Scheme,
                    };
                    let target = value(self.refuse)?;
                    kind = Some((how, self.format(target, Use::Header, place)?));
                }
                b"code" => {
                    let word = value(self.refuse)?;
                    match word.text() {
                        Some(text @ ("301" | "302" | "303" | "307" | "308")) => code = text.parse().unwrap_or(302),
                        _ => {
                            self.refuse.found.alert(word.pos(), "'code' expects 301, 302, 303, 307 or 308");
                            return None;
                        }
                    }
                }
                b"drop-query" => drop_query = true,
                b"append-slash" => append_slash = true,
                b"ignore-empty" => ignore_empty = true,
                b"set-cookie" => {
                    let value = value(self.refuse)?;
                    cookie = Some([value.bytes(), b"; path=/;"].concat().into());
                }
                b"clear-cookie" => {
                    let value = value(self.refuse)?;
                    cookie = Some([value.bytes(), b"; path=/; Max-Age=0;"].concat().into());
                }
                _ => {
                    let keyword = format!("redirect {}", word.shown());
                    self.refuse.keyword(word.pos(), &keyword, "it is not built yet");
                    return None;
                }
            }
        }
        let Some((kind, target)) = kind else {
            self.refuse.found.alert(rule.pos, "'redirect' expects 'location', 'prefix' or 'scheme' and its target");
            return None;
        };
        let redirect = Redirect { kind, target, code, drop_query, append_slash, ignore_empty, cookie };
        Some(Action::Redirect(Box::new(redirect)))
    }
}
