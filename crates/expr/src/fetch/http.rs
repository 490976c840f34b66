//! Samples from messages: start lines, fields, cookies, parameters, credentials.

use super::{Fetch, Row, row};
use crate::args::{ArgKind::*, Args};
use crate::cast::parse_int;
use crate::convert::encode;
use crate::env::Env;
use crate::error::Error;
use crate::eval_points::{Direction, EvalPoints};
use crate::hash;
use crate::names::UserlistId;
use crate::sample::{Absent, FetchResult, Sample, Type, Value, found};
use crate::scratch::Scratch;
use manylane_http::{Head, Known, List, Name};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::ControlFlow;

/// Side of a fetch. `None` means the message whose rules run.
type Side = Option<Direction>;

const REQ: Side = Some(Direction::Request);
const RES: Side = Some(Direction::Response);

#[derive(Debug)]
pub(crate) enum Http {
    Method,
    Path,
    PathQuery,
    Query {
        mark: bool,
    },
    Url,
    UrlIp,
    UrlPort,
    Base {
        query: bool,
    },
    Hash {
        url: bool,
        source: bool,
    },
    Version(Direction),
    Status,
    ServerStatus,
    Field {
        side: Side,
        name: Option<Name>,
        whole: bool,
        at: Option<i64>,
        form: Form,
    },
    FieldCount {
        side: Side,
        name: Option<Name>,
        whole: bool,
    },
    FieldNames {
        side: Side,
        delimiter: Box<[u8]>,
    },
    FieldBlock {
        side: Side,
        binary: bool,
    },
    Cookie {
        side: Side,
        name: Option<Box<[u8]>>,
        form: Form,
    },
    CookieNames {
        side: Direction,
        delimiter: Box<[u8]>,
    },
    CookieCount {
        side: Side,
        name: Option<Box<[u8]>>,
    },
    Param {
        name: Option<Box<[u8]>>,
        delimiter: u8,
        any_case: bool,
        form: Form,
    },
    BodyParam {
        name: Option<Box<[u8]>>,
        any_case: bool,
    },
    AuthType,
    AuthUser,
    AuthPassword,
    AuthBearer(Option<Name>),
    Auth {
        list: UserlistId,
    },
    /// The user, if the list has these credentials.
    AuthUserOf {
        list: UserlistId,
    },
    /// The groups of that user.
    AuthGroups {
        list: UserlistId,
    },
}

/// Type of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Ip,
    Number,
}

impl Form {
    fn of(self, text: &[u8]) -> FetchResult<'_> {
        match self {
            Self::Text => found(Value::Str(text)),
            Self::Number => found(Value::Int(parse_int(text))),
            Self::Ip => field_ip(text).map_or(Err(Absent::Never), |ip| found(ip.into())),
        }
    }
}

/// An address in a header field: IPv4 optionally with a port, or IPv6 optionally in brackets.
fn field_ip(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Ok(ip) = inner.unwrap_or(text).parse() {
        return Some(IpAddr::V6(ip));
    }
    let host = match text.split_once(':') {
        Some((host, port)) => {
            let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| port.parse::<u16>().ok()).flatten()?;
            host
        }
        None => text,
    };
    decimal_ipv4(host).map(IpAddr::V4)
}

/// Parses an IPv4 address whose numbers may begin with zeros. They are decimal nevertheless, as in HAProxy.
fn decimal_ipv4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next().filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()))?;
        *octet = part.parse().ok()?;
    }
    parts.next().is_none().then(|| octets.into())
}

fn made(http: Http) -> Result<Fetch, Error> {
    Ok(Fetch::Http(http))
}

/// The name of a field, if it is given.
fn field_name(args: &Args<'_, '_>) -> Result<Option<Name>, Error> {
    let Some(text) = args.given(0) else { return Ok(None) };
    let bad = || args.expected(0, "the name of a header field");
    Name::new(text).map(Some).ok_or_else(bad)
}

fn field(args: &Args<'_, '_>, side: Side, whole: bool, form: Form) -> Result<Fetch, Error> {
    let name = field_name(args)?;
    // 0 selects the last one, as does a missing number.
    let at = args.int(1)?.filter(|at| *at != 0);
    made(Http::Field { side, name, whole, at, form })
}

fn field_count(args: &Args<'_, '_>, side: Side, whole: bool) -> Result<Fetch, Error> {
    made(Http::FieldCount { side, name: field_name(args)?, whole })
}

fn cookie(args: &Args<'_, '_>, side: Side, form: Form) -> Result<Fetch, Error> {
    made(Http::Cookie { side, name: args.given(0).map(Into::into), form })
}

fn cookie_count(args: &Args<'_, '_>, side: Side) -> Result<Fetch, Error> {
    made(Http::CookieCount { side, name: args.given(0).map(Into::into) })
}

fn names(args: &Args<'_, '_>, side: Side) -> Result<Fetch, Error> {
    made(Http::FieldNames { side, delimiter: args.given(0).unwrap_or(b",").into() })
}

fn cookie_names(args: &Args<'_, '_>, side: Direction) -> Result<Fetch, Error> {
    made(Http::CookieNames { side, delimiter: args.given(0).unwrap_or(b",").into() })
}

fn query(args: &Args<'_, '_>) -> Result<Fetch, Error> {
    match args.given(0) {
        None => made(Http::Query { mark: false }),
        Some(b"with_qm") => made(Http::Query { mark: true }),
        Some(_) => Err(args.expected(0, "with_qm")),
    }
}

fn any_case(args: &Args<'_, '_>, index: usize) -> Result<bool, Error> {
    match args.given(index) {
        None => Ok(false),
        Some(b"i") => Ok(true),
        Some(_) => Err(args.expected(index, "the flag i")),
    }
}

fn param(args: &Args<'_, '_>, form: Form) -> Result<Fetch, Error> {
    let delimiter = match args.given(1) {
        None => b'?',
        Some([byte]) => *byte,
        Some(_) => return Err(args.expected(1, "one character")),
    };
    made(Http::Param { name: args.given(0).map(Into::into), delimiter, any_case: any_case(args, 2)?, form })
}

/// Rows of fetches for fields or cookies.
macro_rules! rows {
    ($($name:literal, $args:expr, $out:ident, $points:ident, $help:literal, $make:expr;)*) => {
        &[$(row($name, $args, 0, Type::$out, EvalPoints::$points, $help, $make)),*]
    };
}

const NAME: &[crate::args::ArgKind] = &[Str];
const NAME_AT: &[crate::args::ArgKind] = &[Str, Int];
const PARAM: &[crate::args::ArgKind] = &[Str, Str, Str];

pub(super) const ROWS: &[Row] = rows! {
    "base", &[], Str, REQUEST, "the Host field and the path", |_| made(Http::Base { query: false });
    "base32", &[], Int, REQUEST, "a 32-bit hash of 'base'", |_| made(Http::Hash { url: false,
        source: false });
    "base32+src", &[], Bin, REQUEST, "a 32-bit hash of 'base', then the client's address",
        |_| made(Http::Hash { url: false, source: true });
    "baseq", &[], Str, REQUEST, "the Host field, the path and the \
        query", |_| made(Http::Base { query: true });
    "cook", NAME, Str, REQUEST, "a cookie of the request", |a| cookie(a, REQ, Form::Text);
    "cook_cnt", NAME, Int, REQUEST, "how often the request has the cookie", |a| cookie_count(a, REQ);
    "cook_val", NAME, Int, REQUEST, "a cookie of the request as a number", |a| cookie(a, REQ, Form::Number);
    "cookie", NAME, Str, MESSAGE, "a cookie of the message whose rules are \
        run", |a| cookie(a, None, Form::Text);
    "hdr", NAME_AT, Str, MESSAGE, "a member of a header field of the message whose rules are run",
        |a| field(a, None, false, Form::Text);
    "hdr_cnt", NAME, Int, REQUEST, "how many members the request's header field \
        has", |a| field_count(a, REQ, false);
    "hdr_ip", NAME_AT, Addr, REQUEST, "a member of a request header field as an address",
        |a| field(a, REQ, false, Form::Ip);
    "hdr_val", NAME_AT, Int, REQUEST, "a member of a request header field as a number",
        |a| field(a, REQ, false, Form::Number);
    "http_auth", &[Userlist], Bool, REQUEST, "whether the user list knows the credentials of the request",
        |a| made(Http::Auth { list: a.userlist(0)? });
    "http_auth_bearer", NAME, Str, REQUEST, "the token of 'Authorization: Bearer', or of the named field",
        |a| made(Http::AuthBearer(field_name(a)?));
    "http_auth_group", &[Userlist], Str, REQUEST, "the user whose credentials the user list knows; an ACL \
        compares the user's groups",
        |a| made(Http::AuthUserOf { list: a.userlist(0)? });
    "http_auth_groups", &[Userlist], Str, REQUEST, "each group of the user whose credentials the user list \
        knows",
        |a| made(Http::AuthGroups { list: a.userlist(0)? });
    "http_auth_pass", &[], Str, REQUEST, "the password of 'Authorization: \
        Basic'", |_| made(Http::AuthPassword);
    "http_auth_type", &[], Str, REQUEST, "the scheme of the field Authorization", |_| made(Http::AuthType);
    "http_auth_user", &[], Str, REQUEST, "the user of 'Authorization: Basic'", |_| made(Http::AuthUser);
    "method", &[], Method, STREAM, "the request's method", |_| made(Http::Method);
    "path", &[], Str, REQUEST, "the request's path without its query", |_| made(Http::Path);
    "pathq", &[], Str, REQUEST, "the request's path with its query", |_| made(Http::PathQuery);
    "query", NAME, Str, REQUEST, "what follows the question mark, with it where 'with_qm' says so",
        |a| query(a);
    "req.body_param", PARAM, Bin, REQUEST, "a parameter of a form in the request's body",
        |a| made(Http::BodyParam { name: a.given(0).map(Into::into), any_case: any_case(a, 1)? });
    "req.cook", NAME, Str, REQUEST, "a cookie of the request", |a| cookie(a, REQ, Form::Text);
    "req.cook_cnt", NAME, Int, REQUEST, "how often the request has the cookie", |a| cookie_count(a, REQ);
    "req.cook_names", NAME, Str, REQUEST, "the names of the request's cookies", |a| cookie_names(a,
        Direction::Request);
    "req.cook_val", NAME, Int, REQUEST, "a cookie of the request as a \
        number", |a| cookie(a, REQ, Form::Number);
    "req.fhdr", NAME_AT, Str, REQUEST, "the whole value of a request header field",
        |a| field(a, REQ, true, Form::Text);
    "req.fhdr_cnt", NAME, Int, REQUEST, "how often the request has the header \
        field", |a| field_count(a, REQ, true);
    "req.hdr", NAME_AT, Str, REQUEST, "a member of a request header \
        field", |a| field(a, REQ, false, Form::Text);
    "req.hdr_cnt", NAME, Int, REQUEST, "how many members the request's header field has",
        |a| field_count(a, REQ, false);
    "req.hdr_ip", NAME_AT, Addr, REQUEST, "a member of a request header field as an address",
        |a| field(a, REQ, false, Form::Ip);
    "req.hdr_names", NAME, Str, REQUEST, "the names of the request's header fields", |a| names(a, REQ);
    "req.hdr_val", NAME_AT, Int, REQUEST, "a member of a request header field as a number",
        |a| field(a, REQ, false, Form::Number);
    "req.hdrs", &[], Bin, REQUEST, "the request's header fields as HTTP/1 writes them",
        |_| made(Http::FieldBlock { side: REQ, binary: false });
    "req.hdrs_bin", &[], Bin, REQUEST, "the request's header fields as lengths and bytes",
        |_| made(Http::FieldBlock { side: REQ, binary: true });
    "req.ver", &[], Str, REQUEST, "the request's version, such as \
        1.1", |_| made(Http::Version(Direction::Request));
    "req_ver", &[], Str, REQUEST, "the request's version, such as \
        1.1", |_| made(Http::Version(Direction::Request));
    "res.cook", NAME, Str, RESPONSE, "a cookie that the response sets", |a| cookie(a, RES, Form::Text);
    "res.cook_cnt", NAME, Int, RESPONSE, "how often the response sets the cookie", |a| cookie_count(a, RES);
    "res.cook_names", NAME, Str, RESPONSE, "the names of the cookies that the response sets",
        |a| cookie_names(a, Direction::Response);
    "res.cook_val", NAME, Int, RESPONSE, "a cookie that the response sets, as a number",
        |a| cookie(a, RES, Form::Number);
    "res.fhdr", NAME_AT, Str, RESPONSE, "the whole value of a response header field",
        |a| field(a, RES, true, Form::Text);
    "res.fhdr_cnt", NAME, Int, RESPONSE, "how often the response has the header field",
        |a| field_count(a, RES, true);
    "res.hdr", NAME_AT, Str, RESPONSE, "a member of a response header \
        field", |a| field(a, RES, false, Form::Text);
    "res.hdr_cnt", NAME, Int, RESPONSE, "how many members the response's header field has",
        |a| field_count(a, RES, false);
    "res.hdr_ip", NAME_AT, Addr, RESPONSE, "a member of a response header field as an address",
        |a| field(a, RES, false, Form::Ip);
    "res.hdr_names", NAME, Str, RESPONSE, "the names of the response's header fields", |a| names(a, RES);
    "res.hdr_val", NAME_AT, Int, RESPONSE, "a member of a response header field as a number",
        |a| field(a, RES, false, Form::Number);
    "res.hdrs", &[], Bin, RESPONSE, "the response's header fields as HTTP/1 writes them",
        |_| made(Http::FieldBlock { side: RES, binary: false });
    "res.hdrs_bin", &[], Bin, RESPONSE, "the response's header fields as lengths and bytes",
        |_| made(Http::FieldBlock { side: RES, binary: true });
    "res.ver", &[], Str, RESPONSE, "the response's version, such as 1.1",
        |_| made(Http::Version(Direction::Response));
    "resp_ver", &[], Str, RESPONSE, "the response's version, such as 1.1",
        |_| made(Http::Version(Direction::Response));
    "scook", NAME, Str, RESPONSE, "a cookie that the response sets", |a| cookie(a, RES, Form::Text);
    "scook_cnt", NAME, Int, RESPONSE, "how often the response sets the cookie", |a| cookie_count(a, RES);
    "scook_val", NAME, Int, RESPONSE, "a cookie that the response sets, as a number",
        |a| cookie(a, RES, Form::Number);
    "server_status", &[], Int, ANSWERED, "the status that the server sent, before rules changed it; 0 if it \
        sent none", |_| made(Http::ServerStatus);
    "shdr", NAME_AT, Str, RESPONSE, "a member of a response header \
        field", |a| field(a, RES, false, Form::Text);
    "shdr_cnt", NAME, Int, RESPONSE, "how many members the response's header field has",
        |a| field_count(a, RES, false);
    "shdr_ip", NAME_AT, Addr, RESPONSE, "a member of a response header field as an address",
        |a| field(a, RES, false, Form::Ip);
    "shdr_val", NAME_AT, Int, RESPONSE, "a member of a response header field as a number",
        |a| field(a, RES, false, Form::Number);
    "status", &[], Int, ANSWERED, "the response's status", |_| made(Http::Status);
    "txn.status", &[], Int, ANSWERED, "the response's status", |_| made(Http::Status);
    "url", &[], Str, REQUEST, "the request's target as it stands in the message", |_| made(Http::Url);
    "url32", &[], Int, REQUEST, "a 32-bit hash of the Host field and the target",
        |_| made(Http::Hash { url: true, source: false });
    "url32+src", &[], Bin, REQUEST, "a 32-bit hash of the Host field and the target, then the client's \
        address",
        |_| made(Http::Hash { url: true, source: true });
    "url_ip", &[], Ipv4, REQUEST, "the address in a target of absolute form", |_| made(Http::UrlIp);
    "url_param", PARAM, Str, REQUEST, "a parameter of the query", |a| param(a, Form::Text);
    "url_port", &[], Int, REQUEST, "the port in a target of absolute form whose host is an IPv4 address",
        |_| made(Http::UrlPort);
    "urlp", PARAM, Str, REQUEST, "a parameter of the query", |a| param(a, Form::Text);
    "urlp_val", PARAM, Int, REQUEST, "a parameter of the query as a number", |a| param(a, Form::Number);
};

fn some(text: Option<&[u8]>) -> FetchResult<'_> {
    text.map_or(Err(Absent::Never), |text| found(Value::Str(text)))
}

fn count(n: usize) -> FetchResult<'static> {
    found(Value::Int(n as i64))
}

/// Calls `visit` with each list member, or each whole value, of the fields with a name, or of all fields.
fn fields<'x, R>(
    head: &'x Head,
    name: Option<&Name>,
    whole: bool,
    mut visit: impl FnMut(&'x [u8]) -> ControlFlow<R>,
) -> ControlFlow<R> {
    match (name, whole) {
        (Some(name), true) => head.values(name).try_for_each(visit),
        (Some(name), false) => head.list_values(name).try_for_each(visit),
        (None, true) => head.fields().try_for_each(|field| visit(field.value)),
        (None, false) => {
            head.fields().try_for_each(|field| manylane_http::List::new(field.value).try_for_each(&mut visit))
        }
    }
}

/// Visits the cookies of `Cookie` fields, or the first pair of each `Set-Cookie` field.
fn cookies<'x, R>(
    head: &'x Head,
    side: Direction,
    name: Option<&[u8]>,
    mut visit: impl FnMut(&'x [u8]) -> ControlFlow<R>,
) -> ControlFlow<R> {
    let field = if side == Direction::Request { Known::COOKIE } else { Known::SET_COOKIE };
    for value in head.values(field) {
        let take = if side == Direction::Request { usize::MAX } else { 1 };
        for cookie in manylane_http::Cookies::new(value).take(take) {
            if cookie.is_pair() && name.is_none_or(|name| name == cookie.name) {
                visit(cookie.value)?;
            }
        }
    }
    ControlFlow::Continue(())
}

/// Visits the values of `name=value` pairs between `&`, `;` or `extra`. Names without `=` are skipped.
fn params<'x, R>(
    pairs: &'x [u8],
    extra: u8,
    name: Option<&[u8]>,
    any_case: bool,
    mut visit: impl FnMut(&'x [u8]) -> ControlFlow<R>,
) -> ControlFlow<R> {
    for pair in pairs.split(|byte| *byte == b'&' || *byte == b';' || *byte == extra) {
        let Some(equals) = memchr::memchr(b'=', pair) else { continue };
        let found = &pair[..equals];
        let meant =
            name.is_none_or(|name| if any_case { name.eq_ignore_ascii_case(found) } else { name == found });
        if meant {
            visit(&pair[equals + 1..])?;
        }
    }
    ControlFlow::Continue(())
}

/// The path and query of the target.
fn path_query(head: &Head) -> Option<&[u8]> {
    let (target, path) = (head.target(), head.path()?);
    let start = (path.as_ptr() as usize).checked_sub(target.as_ptr() as usize)?;
    target.get(start..)
}

/// The query of the target, with its question mark unless it is empty.
fn marked_query(head: &Head) -> Option<&[u8]> {
    let (target, query) = (head.target(), head.query()?);
    let start = (query.as_ptr() as usize).checked_sub(target.as_ptr() as usize)?;
    if query.is_empty() { Some(query) } else { target.get(start.checked_sub(1)?..start + query.len()) }
}

/// The path for fetches that put the host before it, with the query if `query`. Empty if there is none: the
/// target `*` has no path, and without a path a query does not count.
fn hashed_path(head: &Head, query: bool) -> &[u8] {
    let path = if query { path_query(head) } else { head.path() };
    path.filter(|path| path.starts_with(b"/")).unwrap_or_default()
}

/// The scheme of an `Authorization` value, and the text after it. Of several, between commas, the first
/// counts.
fn credentials<'x>(head: &'x Head, name: Option<&Name>) -> Option<(&'x [u8], &'x [u8])> {
    let value = match name {
        Some(name) => head.value(name)?,
        None => head.value(Known::AUTHORIZATION)?,
    };
    let value = List::new(value).next()?;
    let space = memchr::memchr(b' ', value)?;
    Some((&value[..space], value[space..].trim_ascii_start()))
}

/// Known schemes as the fetch returns them.
const SCHEMES: &[&[u8]] = &[b"Basic", b"Bearer"];

/// The user of the request, if the list has the credentials.
fn known<'x>(head: &'x Head, list: UserlistId, env: &Env<'x>, scratch: &mut Scratch<'x>) -> Option<&'x [u8]> {
    let (user, password) = basic(head, scratch)?;
    env.host.authenticate(list, user, password).then_some(user)
}

/// User and password of `Authorization: Basic`.
pub fn basic<'x>(head: &'x Head, scratch: &mut Scratch<'x>) -> Option<(&'x [u8], &'x [u8])> {
    let (scheme, rest) = credentials(head, None)?;
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let pair = scratch.fill(|out| encode::decode64(rest.trim_ascii_end(), encode::STANDARD, out))?;
    let colon = memchr::memchr(b':', pair)?;
    Some((&pair[..colon], &pair[colon + 1..]))
}

impl Http {
    pub(super) fn has_several(&self) -> bool {
        matches!(
            self,
            Self::AuthGroups { .. }
                | Self::Field { at: None, .. }
                | Self::Cookie { .. }
                | Self::Param { .. }
                | Self::BodyParam { .. }
        )
    }

    /// The user list whose groups the fetch returns.
    pub(crate) fn groups_of(&self) -> Option<UserlistId> {
        match self {
            Self::AuthGroups { list } => Some(*list),
            _ => None,
        }
    }

    /// Visits all samples of a fetch that has several.
    pub(super) fn each(
        &self,
        env: &Env<'_>,
        scratch: &mut Scratch<'_>,
        visit: &mut dyn FnMut(Sample<'_>, &mut Scratch<'_>) -> ControlFlow<()>,
    ) -> Result<(), Absent> {
        let mut any = false;
        let mut see = |text: &[u8], form: Form, scratch: &mut Scratch<'_>| match form.of(text) {
            Ok(sample) => {
                any = true;
                visit(sample, &mut scratch.reborrow())
            }
            Err(_) => ControlFlow::Continue(()),
        };
        let _ = match self {
            Self::AuthGroups { list } => {
                let head = env.request.ok_or(Absent::Never)?;
                let mut own = scratch.reborrow();
                let user = known(head, *list, env, &mut own).ok_or(Absent::Never)?;
                let mut groups = (0..).map_while(|number| env.host.group(*list, user, number));
                groups.try_for_each(|group| see(group, Form::Text, &mut own))
            }
            Self::Field { side, name, whole, form, .. } => {
                let head = env.head(side.unwrap_or(env.direction)).ok_or(Absent::Never)?;
                fields(head, name.as_ref(), *whole, |text| see(text, *form, scratch))
            }
            Self::Cookie { side, name, form } => {
                let side = side.unwrap_or(env.direction);
                let head = env.head(side).ok_or(Absent::Never)?;
                cookies(head, side, name.as_deref(), |text| see(text, *form, scratch))
            }
            Self::Param { name, delimiter, any_case, form } => {
                let pairs = self.query_of(env, *delimiter).ok_or(Absent::Never)?;
                params(pairs, *delimiter, name.as_deref(), *any_case, |text| see(text, *form, scratch))
            }
            Self::BodyParam { name, any_case } => {
                let mut scratch = scratch.reborrow();
                let body = super::data::contiguous(env.request_data, 0, usize::MAX, &mut scratch)
                    .ok_or(Absent::Never)?;
                params(body, b'&', name.as_deref(), *any_case, |text| see(text, Form::Text, &mut scratch))
            }
            _ => ControlFlow::Continue(()),
        };
        if any { Ok(()) } else { Err(Absent::Never) }
    }

    /// The part of the target after the delimiter.
    fn query_of<'x>(&self, env: &Env<'x>, delimiter: u8) -> Option<&'x [u8]> {
        let target = env.request?.target();
        let at = memchr::memchr(delimiter, target)?;
        Some(&target[at + 1..])
    }

    pub(super) fn eval<'x>(&'x self, env: &Env<'x>, scratch: &mut Scratch<'x>) -> FetchResult<'x> {
        match self {
            Self::Method => match (env.request, env.stream.request_line) {
                (Some(head), _) => found(Value::Method(head.method())),
                (None, Some(line)) => found(Value::Method(line.method)),
                (None, None) => Err(Absent::Never),
            },
            Self::Status => match (env.response, env.stream.response_line) {
                (Some(head), _) => found(Value::Int(i64::from(head.status()))),
                (None, Some((_, status))) => found(Value::Int(i64::from(status))),
                (None, None) => Err(Absent::Never),
            },
            Self::ServerStatus => found(Value::Int(i64::from(env.stream.server_status))),
            Self::Field { side, name, whole, at, form } => {
                let head = env.head(side.unwrap_or(env.direction)).ok_or(Absent::Never)?;
                nth(*at, |visit| fields(head, name.as_ref(), *whole, visit))
                    .map_or(Err(Absent::Never), |text| form.of(text))
            }
            Self::FieldCount { side, name, whole } => {
                let head = env.head(side.unwrap_or(env.direction)).ok_or(Absent::Never)?;
                let mut n = 0;
                let _ = fields(head, name.as_ref(), *whole, |_| {
                    n += 1;
                    ControlFlow::<()>::Continue(())
                });
                count(n)
            }
            Self::FieldNames { side, delimiter } => {
                let head = env.head(side.unwrap_or(env.direction)).ok_or(Absent::Never)?;
                some(scratch.build(|out| {
                    for (index, field) in head.fields().enumerate() {
                        if index > 0 {
                            out.put(delimiter)?;
                        }
                        for byte in field.name {
                            out.push(byte.to_ascii_lowercase())?;
                        }
                    }
                    Some(())
                }))
            }
            Self::FieldBlock { side, binary } => {
                let head = env.head(side.unwrap_or(env.direction)).ok_or(Absent::Never)?;
                let block = scratch.build(|out| field_block(head, *binary, out));
                block.map_or(Err(Absent::Never), |block| found(Value::Bin(block)))
            }
            Self::Cookie { side, name, form } => {
                let side = side.unwrap_or(env.direction);
                let head = env.head(side).ok_or(Absent::Never)?;
                // Without a name, use the first cookie.
                let at = if name.is_some() { None } else { Some(1) };
                nth(at, |visit| cookies(head, side, name.as_deref(), visit))
                    .map_or(Err(Absent::Never), |text| form.of(text))
            }
            Self::CookieNames { side, delimiter } => {
                let head = env.head(*side).ok_or(Absent::Never)?;
                let field = match side {
                    Direction::Request => Known::COOKIE,
                    Direction::Response => Known::SET_COOKIE,
                };
                // Only the first pair of `Set-Cookie` is a cookie; the others are attributes.
                let each = if *side == Direction::Request { usize::MAX } else { 1 };
                let names = scratch.build(|out| {
                    // As in HAProxy, names that begin with a dollar sign are attributes.
                    let named = |cookie: &manylane_http::Cookie<'_>| {
                        cookie.is_pair() && !cookie.name.starts_with(b"$")
                    };
                    let cookies = head
                        .values(field)
                        .flat_map(|value| manylane_http::Cookies::new(value).filter(named).take(each));
                    let mut is_begun = false; // as in HAProxy, an empty name does not begin the list
                    for cookie in cookies {
                        if is_begun {
                            out.put(delimiter)?;
                        }
                        out.put(cookie.name)?;
                        is_begun |= !cookie.name.is_empty();
                    }
                    Some(())
                });
                some(names)
            }
            Self::CookieCount { side, name } => {
                let side = side.unwrap_or(env.direction);
                let head = env.head(side).ok_or(Absent::Never)?;
                let mut n = 0;
                let _ = cookies(head, side, name.as_deref(), |_| {
                    n += 1;
                    ControlFlow::<()>::Continue(())
                });
                count(n)
            }
            Self::Param { name, delimiter, any_case, form } => {
                let pairs = self.query_of(env, *delimiter).ok_or(Absent::Never)?;
                nth(Some(1), |visit| params(pairs, *delimiter, name.as_deref(), *any_case, visit))
                    .map_or(Err(Absent::Never), |text| form.of(text))
            }
            Self::BodyParam { name, any_case } => {
                let body =
                    super::data::contiguous(env.request_data, 0, usize::MAX, scratch).ok_or(Absent::Never)?;
                nth(Some(1), |visit| params(body, b'&', name.as_deref(), *any_case, visit))
                    .map_or(Err(Absent::Never), |text| found(Value::Bin(text)))
            }
            Self::Version(side) => {
                let version = env.head(*side).ok_or(Absent::Never)?.version();
                some(scratch.print(format_args!("{}.{}", version.major(), version.minor())))
            }
            request => request.eval_request(env, scratch),
        }
    }

    /// Evaluates fetches of the request only.
    fn eval_request<'x>(&'x self, env: &Env<'x>, scratch: &mut Scratch<'x>) -> FetchResult<'x> {
        let head = env.request.ok_or(Absent::Never)?;
        let host = head.value(Known::HOST).unwrap_or_default();
        match self {
            Self::Path => some(head.path()),
            Self::PathQuery => some(path_query(head)),
            Self::Query { mark: true } => some(marked_query(head)),
            Self::Query { mark: false } => some(head.query()),
            Self::Url => some(Some(head.target())),
            Self::UrlIp => match head.authority().and_then(field_ip) {
                Some(IpAddr::V4(ip)) => found(Value::Ipv4(ip)),
                _ => Err(Absent::Never),
            },
            Self::UrlPort => {
                let target = head.target_parts();
                let authority = target.authority.ok_or(Absent::Never)?;
                // As in HAProxy, only targets with an IPv4 address have a port; names are not resolved.
                let Some(IpAddr::V4(_)) = field_ip(authority) else { return Err(Absent::Never) };
                let secure = target.scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https"));
                let port = match encode::split_port(authority).1 {
                    b"" if secure => 443,
                    b"" => 80,
                    port => parse_int(port),
                };
                found(Value::Int(port))
            }
            Self::Base { query } => {
                let path = hashed_path(head, *query);
                some(scratch.build(|out| {
                    out.put(host)?;
                    out.put(path)
                }))
            }
            Self::Hash { url, source } => {
                let path = hashed_path(head, *url);
                let sum = hash::sdbm_onto(hash::sdbm(host), path);
                let value = hash::avalanche(sum);
                if !source {
                    return found(Value::Int(i64::from(value)));
                }
                let address = env.client.source.ok_or(Absent::Never)?.ip().to_canonical();
                let bytes = scratch.build(|out| {
                    out.put(&value.to_be_bytes())?;
                    match address {
                        IpAddr::V4(ip) => out.put(&ip.octets()),
                        IpAddr::V6(ip) => out.put(&ip.octets()),
                    }
                });
                bytes.map_or(Err(Absent::Never), |bytes| found(Value::Bin(bytes)))
            }
            Self::AuthType => {
                let scheme = credentials(head, None).and_then(|(scheme, _)| {
                    SCHEMES.iter().copied().find(|known| known.eq_ignore_ascii_case(scheme))
                });
                // As in HAProxy, credentials that cannot be decoded have no type.
                some(
                    scheme.filter(|scheme| {
                        *scheme != b"Basic" || basic(head, &mut scratch.reborrow()).is_some()
                    }),
                )
            }
            Self::AuthUser => some(basic(head, scratch).map(|(user, _)| user)),
            Self::AuthPassword => some(basic(head, scratch).map(|(_, password)| password)),
            Self::AuthBearer(name) => match credentials(head, name.as_ref()) {
                Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer") => some(Some(token)),
                _ => Err(Absent::Never),
            },
            Self::Auth { list } => match basic(head, scratch) {
                Some((user, password)) => found(Value::Bool(env.host.authenticate(*list, user, password))),
                None => Err(Absent::Never),
            },
            Self::AuthUserOf { list } => some(known(head, *list, env, scratch)),
            Self::AuthGroups { list } => {
                let user = known(head, *list, env, scratch).ok_or(Absent::Never)?;
                some((0..).map_while(|number| env.host.group(*list, user, number)).last())
            }
            _ => Err(Absent::Never),
        }
    }
}

/// The item number `at` that `each` visits: from 1, or from the end if it is negative. `None` selects the
/// last.
fn nth<'x>(
    at: Option<i64>,
    each: impl Fn(&mut dyn FnMut(&'x [u8]) -> ControlFlow<&'x [u8]>) -> ControlFlow<&'x [u8]>,
) -> Option<&'x [u8]> {
    let Some(at) = at else {
        let mut last = None;
        let _ = each(&mut |text| {
            last = Some(text);
            ControlFlow::Continue(())
        });
        return last;
    };
    let mut skip = if at > 0 {
        at - 1
    } else {
        let mut all = 0;
        let _ = each(&mut |_| {
            all += 1;
            ControlFlow::Continue(())
        });
        all + at
    };
    if skip < 0 {
        return None;
    }
    let mut found = None;
    let _ = each(&mut |text| {
        if skip == 0 {
            found = Some(text);
            return ControlFlow::Break(text);
        }
        skip -= 1;
        ControlFlow::Continue(())
    });
    found
}

/// Writes all fields: in HTTP/1 syntax with a final empty line, or with the length before each name and value
/// (varints of the SPOE protocol) and two empty strings at the end.
fn field_block(head: &Head, binary: bool, out: &mut crate::scratch::Writer<'_>) -> Option<()> {
    for field in head.fields() {
        if binary {
            put_varint(field.name.len() as u64, out)?;
        }
        for byte in field.name {
            out.push(byte.to_ascii_lowercase())?;
        }
        if binary {
            put_varint(field.value.len() as u64, out)?;
        } else {
            out.put(b": ")?;
        }
        out.put(field.value)?;
        if !binary {
            out.put(b"\r\n")?;
        }
    }
    out.put(if binary { &[0, 0] } else { b"\r\n" })
}

/// Writes a varint of the SPOE protocol: one byte below 240; otherwise the lowest four bits with 0xf0, then
/// seven bits per byte.
fn put_varint(mut n: u64, out: &mut crate::scratch::Writer<'_>) -> Option<()> {
    if n < 240 {
        return out.push(n as u8);
    }
    out.push(n as u8 | 240)?;
    n = (n - 240) >> 4;
    while n >= 128 {
        out.push(n as u8 | 128)?;
        n = (n - 128) >> 7;
    }
    out.push(n as u8)
}
