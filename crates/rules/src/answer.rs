//! Responses that rules make.

use super::{EvalContext, EvalPhase};
use manylane_buf::Chain;
use manylane_http::{EditError, Head, Known, Version};
use manylane_plan::generation::{Redirect, RedirectCookie, RedirectKind, Reply, ReplyBody};
use manylane_pool::{Pool, Pooled};

manylane_sync::lazy_static! {
    static HEADS: Pool<Head> = Pool::new("own response").expect("the size is a constant below the bound");
}

/// A response that rules decided on.
pub enum Answer {
    /// The usual response with this status.
    Usual(u16),
    /// The usual response with 401 or 407, with this challenge for a password.
    Challenge(u16, Box<[u8]>),
    /// This response: its head, without fields for framing and connection, and its body.
    Own(Pooled<Head>, Chain),
    /// A complete message from a file, for this status.
    Whole(u16, Chain),
    /// The metrics that this query selects.
    Metrics(Box<[u8]>),
}

/// A head in the enum would make each `Answer` and `Verdict` as large, also of requests that go on.
fn own(head: Head, body: Chain) -> Result<Answer, EditError> {
    Ok(Answer::Own(HEADS.alloc(head).map_err(|_| EditError::NoMemory)?, body))
}

/// Returns the response of `return`, of `deny` with a response, or of `http-error`.
pub fn reply(eval: &EvalContext<'_>, phase: EvalPhase<'_>, reply: &Reply) -> Result<Answer, EditError> {
    let mut body = Chain::new();
    let append = |body: &mut Chain, bytes: &[u8]| body.append(bytes).map_err(|_| EditError::NoMemory);
    match &reply.body {
        ReplyBody::Usual => return Ok(Answer::Usual(reply.status)),
        ReplyBody::Whole(bytes) => {
            append(&mut body, bytes)?;
            return Ok(Answer::Whole(reply.status, body));
        }
        ReplyBody::None => {}
        ReplyBody::Bytes(bytes) => append(&mut body, bytes)?,
        ReplyBody::Format(format) => {
            eval.text(phase, format, |text| append(&mut body, text.ok_or(EditError::Full)?))?;
        }
    }
    let mut head = Head::response(Version::HTTP_11, reply.status, None)?;
    for (name, format) in &reply.fields {
        eval.text(phase, format, |text| match text.ok_or(EditError::Full)? {
            b"" => Ok(()), // a field with an empty value is left out
            text => head.add_field(&**name, text),
        })?;
    }
    if !body.is_empty() {
        let kind: &[u8] = if reply.content_type.is_empty() { b"text/plain" } else { &reply.content_type };
        head.add_field(Known::CONTENT_TYPE, kind)?;
    }
    own(head, body)
}

/// Returns the redirection; `None` if the target is empty and the rule ignores that.
pub(super) fn redirect(
    eval: &EvalContext<'_>,
    phase: EvalPhase<'_>,
    redirect: &Redirect,
) -> Result<Option<Answer>, EditError> {
    let head = eval.text(phase, &redirect.target, |text| {
        let target = text.unwrap_or_default();
        if redirect.ignore_empty && target.is_empty() {
            return Ok::<_, EditError>(None);
        }
        let mut head = Head::response(Version::HTTP_11, redirect.code, None)?;
        head.add_joined(Known::LOCATION, location(redirect, target, phase.request))?;
        Ok(Some(head))
    })?;
    let Some(mut head) = head else { return Ok(None) };
    match &redirect.cookie {
        None => {}
        Some(RedirectCookie::Text(text)) => head.add_field(Known::SET_COOKIE, text)?,
        Some(RedirectCookie::Format(format)) => eval.text(phase, format, |text| {
            let parts = [text.unwrap_or_default(), b"; path=/;", b"", b"", b"", b""];
            head.add_joined(Known::SET_COOKIE, parts)
        })?,
    }
    // Caches may store permanent redirections.
    if !matches!(redirect.code, 301 | 308) {
        head.add_field(Known::CACHE_CONTROL, b"no-cache")?;
    }
    own(head, Chain::new()).map(Some)
}

/// Returns the parts of a location.
fn location<'a>(redirect: &Redirect, target: &'a [u8], request: Option<&'a Head>) -> [&'a [u8]; 6] {
    let Some(request) = request else { return [target, b"", b"", b"", b"", b""] };
    let (target, separator, host): (_, &[u8], _) = match redirect.kind {
        RedirectKind::Location if redirect.keep_query => return with_query(target, request.query()),
        RedirectKind::Location => return [target, b"", b"", b"", b"", b""],
        RedirectKind::Scheme => (target, b"://", request.host().unwrap_or_default()),
        RedirectKind::Prefix if target == b"/" => (&b""[..], b"", &b""[..]),
        RedirectKind::Prefix => (target, b"", &b""[..]),
    };
    let path = request.path().unwrap_or(b"/");
    let query = request.query().filter(|_| !redirect.drop_query);
    let slash = redirect.append_slash && !path.ends_with(b"/");
    let mark: &[u8] = match (slash, query) {
        (false, None) => b"",
        (false, Some(_)) => b"?",
        (true, None) => b"/",
        (true, Some(_)) => b"/?",
    };
    [target, separator, host, path, mark, query.unwrap_or_default()]
}

/// `keep-query`: puts the query of the request behind the location's own query and before its fragment.
fn with_query<'a>(location: &'a [u8], query: Option<&'a [u8]>) -> [&'a [u8]; 6] {
    let query = query.unwrap_or_default();
    let end = location.iter().position(|&byte| byte == b'#').unwrap_or(location.len());
    let (location, fragment) = location.split_at(end);
    let mark: &[u8] = match location.iter().position(|&byte| byte == b'?') {
        _ if query.is_empty() => b"",
        None => b"?",
        Some(last) if last + 1 == location.len() => b"",
        Some(_) => b"&",
    };
    [location, mark, query, fragment, b"", b""]
}

/// Returns the response to a form of the statistics page.
pub fn see_other(location: &[u8]) -> Result<Answer, EditError> {
    let mut head = Head::response(Version::HTTP_11, 303, None)?;
    head.add_field(Known::CACHE_CONTROL, b"no-cache")?;
    head.add_field(Known::CONTENT_TYPE, b"text/plain")?;
    head.add_field(Known::LOCATION, location)?;
    own(head, Chain::new())
}

/// Returns the redirection to a server with `redir`: its prefix and the request's path and query.
pub fn to_server(prefix: &[u8], request: &Head) -> Result<Answer, EditError> {
    let (mark, query): (&[u8], _) = request.query().map_or((b"", &b""[..]), |query| (b"?", query));
    let mut head = Head::response(Version::HTTP_11, 302, None)?;
    let location = [prefix, request.path().unwrap_or(b"/"), mark, query, b"", b""];
    head.add_joined(Known::LOCATION, location)?;
    head.add_field(Known::CACHE_CONTROL, b"no-cache")?;
    own(head, Chain::new())
}

/// Returns the response of `auth`: 407 to a request that uses this as its proxy, else 401.
pub fn challenge(realm: &[u8], of_proxy: bool) -> Answer {
    let mut text = b"Basic realm=\"".to_vec();
    for &byte in realm {
        if matches!(byte, b'"' | b'\\') {
            text.push(b'\\');
        }
        text.push(byte);
    }
    text.push(b'"');
    Answer::Challenge(if of_proxy { 407 } else { 401 }, text.into())
}
