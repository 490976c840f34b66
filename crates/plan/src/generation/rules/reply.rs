//! Replies of rules: `return`, `deny` and `tarpit` with arguments, `redirect`, and `http-error`.

use super::super::http;
use super::{Action, End, Reader, Redirect, RedirectCookie, RedirectKind, Refuse, Reply, ReplyBody};
use manylane_config::lex::Word;
use manylane_config::source::Pos;
use manylane_config::table::Ruleset;
use manylane_config::tree;
use manylane_expr::{EvalPoints, Use};

/// Arguments of `redirect`.
const REDIRECT_WORDS: [&str; 11] = [
    "location",
    "prefix",
    "scheme",
    "code",
    "drop-query",
    "keep-query",
    "append-slash",
    "ignore-empty",
    "set-cookie",
    "set-cookie-fmt",
    "clear-cookie",
];

impl Reader<'_, '_, '_> {
    /// Reads the arguments of `return`, `deny` or `tarpit`.
    pub(super) fn reply(
        &mut self,
        rule: &tree::Rule,
        arguments: &[Word],
        points: EvalPoints,
    ) -> Option<Action> {
        let (end, status) = match (rule.action, rule.list) {
            ("return", _) => (End::Answered, 200),
            ("tarpit", _) => (End::Tarpit, 500),
            (_, Ruleset::HttpResponse) => (End::Denied, 502),
            _ => (End::Denied, 403),
        };
        let keyword = format!("{} {}", rule.list.name(), rule.action);
        let mut reply = self.answer(&keyword, rule.pos, arguments, status, points)?;
        let bare = match arguments {
            [] => true,
            [word, _] => *word == *"deny_status",
            _ => false,
        };
        if end != End::Answered && bare {
            reply.body = ReplyBody::Usual;
        }
        if matches!(reply.body, ReplyBody::Usual) && !self.has_page(&keyword, reply.status, rule.pos) {
            return None;
        }
        Some(Action::Reply(end, Box::new(reply)))
    }

    /// Reads an `http-error` line.
    pub(super) fn http_error(&mut self, statement: &tree::Statement) -> Option<Reply> {
        let points = EvalPoints::HTTP_REQUEST | EvalPoints::HTTP_RESPONSE;
        let given = statement.words.iter().any(|word| *word == *"status");
        if !given {
            self.refuse.found.alert(statement.pos, "'http-error' expects status <code>, found none");
            return None;
        }
        let reply = self.answer("http-error", statement.pos, &statement.words, 0, points)?;
        self.has_page("http-error", reply.status, statement.pos).then_some(reply)
    }

    /// Returns true if the program has an error page for this status; else reports an error.
    fn has_page(&mut self, keyword: &str, status: u16, pos: Pos) -> bool {
        let has = manylane_http::has_page(status);
        if !has {
            let message = format!(
                "'{keyword}' expects a status that has an error page, found {status}; give the answer in \
                    this line, for example with 'string'"
            );
            self.refuse.found.alert(pos, message);
        }
        has
    }

    /// `[status code] [content-type type] [default-errorfiles | errorfile file | errorfiles name | file file
    /// | lf-file file | string text | lf-string format] [hdr name format]...`
    fn answer(
        &mut self,
        keyword: &str,
        pos: Pos,
        arguments: &[Word],
        status: u16,
        points: EvalPoints,
    ) -> Option<Reply> {
        let mut reply =
            Reply { status, content_type: Box::default(), body: ReplyBody::None, fields: Vec::new() };
        // The message depends on the status, which may follow.
        let mut whole: Option<(&Word, &Word)> = None;
        let mut payload: Option<&Word> = None;
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let is_payload = matches!(
                word.bytes(),
                b"default-errorfiles"
                    | b"errorfile"
                    | b"errorfiles"
                    | b"file"
                    | b"lf-file"
                    | b"string"
                    | b"lf-string"
            );
            if let Some(before) = payload.filter(|_| is_payload) {
                let message = format!(
                    "'{keyword}' expects one answer, found '{}' and '{}'",
                    before.shown(),
                    word.shown()
                );
                self.refuse.found.alert(word.pos(), message);
                return None;
            }
            if is_payload {
                payload = Some(word);
            }
            if *word == *"default-errorfiles" {
                reply.body = ReplyBody::Usual;
                continue;
            }
            let Some(value) = words.next().filter(|value| !value.bytes().is_empty()) else {
                self.refuse.found.alert(
                    word.pos(),
                    format!("'{keyword}' : '{}' expects a value, found none", word.shown()),
                );
                return None;
            };
            match word.bytes() {
                b"status" | b"deny_status" => {
                    let status =
                        value.text().and_then(|text| text.parse().ok()).filter(|s| (200..=599).contains(s));
                    let Some(status) = status else {
                        let message = format!(
                            "'{keyword}' : '{}' expects a number from 200 to 599, found '{}'",
                            word.shown(),
                            value.shown()
                        );
                        self.refuse.found.alert(value.pos(), message);
                        return None;
                    };
                    reply.status = status;
                }
                b"content-type" => reply.content_type = value.bytes().into(),
                b"string" => reply.body = ReplyBody::Bytes(value.bytes().into()),
                b"lf-string" => reply.body = ReplyBody::Format(self.format(value, Use::Text, points)?),
                b"file" => {
                    let bytes = self.refuse.files.bytes(self.refuse.path(value));
                    reply.body = ReplyBody::Bytes(bytes.map_err(|why| self.alert_of(value, &why)).ok()?);
                }
                b"lf-file" => {
                    let bytes = self.refuse.files.read(&self.refuse.path(value));
                    let bytes = bytes.map_err(|why| self.alert_of(value, &why)).ok()?;
                    let text = Word::plain(bytes, value.pos());
                    reply.body = ReplyBody::Format(self.format(&text, Use::Text, points)?);
                }
                b"errorfile" | b"errorfiles" => whole = Some((word, value)),
                b"hdr" => {
                    let Some(format) = words.next() else {
                        let message = format!("'{keyword}' : 'hdr' expects <name> <fmt>, found 1 argument");
                        self.refuse.found.alert(word.pos(), message);
                        return None;
                    };
                    let format = self.format(format, Use::Header, points)?;
                    let own = [&b"content-length"[..], b"content-type", b"transfer-encoding"];
                    if own.iter().any(|own| value.bytes().eq_ignore_ascii_case(own)) {
                        let message = format!(
                            "'hdr {}' has no effect here: the program sets this field from the answer's body",
                            value.shown()
                        );
                        self.refuse.found.warning(value.pos(), message);
                    } else {
                        reply.fields.push((value.bytes().into(), format));
                    }
                }
                _ => {
                    let message = format!(
                        "'{keyword}' expects status, content-type, default-errorfiles, errorfile, \
                            errorfiles, \
                            file, lf-file, string, lf-string or hdr, found '{}'",
                        word.shown()
                    );
                    self.refuse.found.alert(word.pos(), message);
                    return None;
                }
            }
        }
        if let Some((word, value)) = whole {
            reply.body = self.whole(word, value, reply.status, pos)?;
            reply.fields.clear(); // the message has its own
        }
        if matches!(&reply.body, ReplyBody::Bytes(bytes) if bytes.is_empty()) {
            reply.body = ReplyBody::None;
        }
        if let (ReplyBody::Bytes(_) | ReplyBody::Format(_), Some(word)) = (&reply.body, payload) {
            if matches!(reply.status, 204 | 304) {
                let message = format!(
                    "'{keyword}' expects no body with status {}, found '{}'",
                    reply.status,
                    word.shown()
                );
                self.refuse.found.alert(word.pos(), message);
                return None;
            }
            if reply.content_type.is_empty() {
                let message =
                    format!("'{keyword}' : '{}' expects a 'content-type', found none", word.shown());
                self.refuse.found.alert(word.pos(), message);
                return None;
            }
        }
        Some(reply)
    }

    /// Returns the message of an error file, or that of an `http-errors` section for the status.
    fn whole(&mut self, word: &Word, value: &Word, status: u16, pos: Pos) -> Option<ReplyBody> {
        let file = if *word == *"errorfile" {
            tree::ErrorFile { code: status, redirect: None, target: value.clone(), pos }
        } else {
            let section =
                self.config.http_errors.iter().find(|section| section.name.bytes() == value.bytes());
            let Some(section) = section else {
                let message =
                    format!("'errorfiles' expects an 'http-errors' section, found '{}'", value.shown());
                self.refuse.found.alert(value.pos(), message);
                return None;
            };
            match section.files.iter().find(|file| file.code == status) {
                Some(file) => file.clone(),
                None => return Some(ReplyBody::Usual),
            }
        };
        http::answer(&file, self.refuse).map(ReplyBody::Whole)
    }

    fn alert_of(&mut self, word: &Word, why: &std::io::Error) {
        self.refuse.found.alert(word.pos(), format!("cannot use '{}': {why}", word.shown()));
    }

    pub(super) fn redirect(
        &mut self,
        rule: &tree::Rule,
        arguments: &[Word],
        points: EvalPoints,
    ) -> Option<Action> {
        let mut kind = None;
        let (mut code, mut drop_query, mut keep_query) = (302, false, false);
        let (mut append_slash, mut ignore_empty) = (false, false);
        let mut cookie = None;
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = |refuse: &mut Refuse<'_>| {
                let next = words.next();
                if next.is_none() {
                    let message = format!("'redirect' : '{}' expects a value, found none", word.shown());
                    refuse.found.alert(word.pos(), message);
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
                    kind = Some((how, self.format(target, Use::Header, points)?));
                }
                b"code" => {
                    let word = value(self.refuse)?;
                    match word.text() {
                        Some(text @ ("301" | "302" | "303" | "307" | "308")) => {
                            code = text.parse().unwrap_or(302)
                        }
                        _ => {
                            let message =
                                format!("'code' expects 301, 302, 303, 307 or 308, found '{}'", word.shown());
                            self.refuse.found.alert(word.pos(), message);
                            return None;
                        }
                    }
                }
                b"drop-query" => drop_query = true,
                b"keep-query" => keep_query = true,
                b"append-slash" => append_slash = true,
                b"ignore-empty" => ignore_empty = true,
                b"set-cookie" => {
                    let value = value(self.refuse)?;
                    cookie = Some(RedirectCookie::Text([value.bytes(), b"; path=/;"].concat().into()));
                }
                b"set-cookie-fmt" => {
                    let value = value(self.refuse)?;
                    cookie = Some(RedirectCookie::Format(self.format(value, Use::Header, points)?));
                }
                b"clear-cookie" => {
                    let value = value(self.refuse)?;
                    let text = [value.bytes(), b"; path=/; Max-Age=0;"].concat();
                    cookie = Some(RedirectCookie::Text(text.into()));
                }
                _ => {
                    let message = manylane_expr::none_of("redirect", REDIRECT_WORDS, word.bytes());
                    self.refuse.found.alert(word.pos(), message);
                    return None;
                }
            }
        }
        let Some((kind, target)) = kind else {
            let message = "'redirect' expects location|prefix|scheme <fmt>, found none of them";
            self.refuse.found.alert(rule.pos, message);
            return None;
        };
        let redirect =
            Redirect { kind, target, code, drop_query, keep_query, append_slash, ignore_empty, cookie };
        Some(Action::Redirect(Box::new(redirect)))
    }
}
