//! Changes of heads that the proxy makes without rules: address fields, and cookies that bind clients to
//! servers.

use super::cacheable::may_be_kept;
use manylane_balance::Index;
use manylane_config::tree::CookieMode;
use manylane_h1::Persist;
use manylane_http::{Cookies, EditError, Head, Known, Method, Version};
use manylane_plan::generation::{AddressField, Backend, Cookie, Frontend, Server};
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

/// Adds the fields of `option forwardfor` and `option originalto`, which the frontend and the backend may
/// both set.
pub(super) fn addresses(
    head: &mut Head,
    frontend: &Frontend,
    backend: &Backend,
    source: Option<SocketAddr>,
    destination: impl FnOnce() -> Option<SocketAddr>,
) -> Result<(), EditError> {
    let (back, front) = (&backend.http, &frontend.http);
    let source = || source.map(|address| address.ip());
    address(head, [back.forwarded_for.as_ref(), front.forwarded_for.as_ref()], source)?;
    let destination = || destination().map(|address| address.ip());
    address(head, [back.original_to.as_ref(), front.original_to.as_ref()], destination)
}

/// Tells a client of HTTP/1.0 that its connection stays open: by default the client would close it.
pub(super) fn keep_alive(head: &mut Head, version: Version, persist: Persist) -> Result<(), EditError> {
    let said = |head: &Head| {
        head.list_values(Known::CONNECTION).any(|word| word.eq_ignore_ascii_case(b"keep-alive"))
    };
    if version >= Version::HTTP_11 || persist != Persist::KeepAlive || said(head) {
        return Ok(());
    }
    head.add_field(Known::CONNECTION, b"keep-alive")
}

/// Adds an address field if every section that has the option allows it. Each section can exclude networks;
/// `if-none` counts only if every section with the option has it. `fields` starts with the section whose
/// field name is used.
fn address(
    head: &mut Head,
    fields: [Option<&AddressField>; 2],
    address: impl FnOnce() -> Option<IpAddr>,
) -> Result<(), EditError> {
    let both = || fields.into_iter().flatten();
    let Some(AddressField { name, .. }) = both().next() else { return Ok(()) };
    let Some(address) = address() else { return Ok(()) };
    let applies = both().all(|field| field.tells(address));
    if !applies || both().all(|field| field.if_none) && head.has(&**name) {
        return Ok(());
    }
    let mut text = Text { bytes: [0; 48], len: 0 };
    let _ = write!(text, "{address}"); // any address fits
    head.add_field(&**name, text.bytes())
}

/// Buffer that keeps up to 1,024 bytes on the stack.
struct Bytes {
    few: [u8; 1024],
    len: usize,
    /// All of the bytes, once they exceed `few`.
    many: Vec<u8>,
}

impl Bytes {
    fn new() -> Self {
        Self { few: [0; 1024], len: 0, many: Vec::new() }
    }

    fn put(&mut self, bytes: &[u8]) {
        if self.many.is_empty() {
            if let Some(room) = self.few.get_mut(self.len..self.len + bytes.len()) {
                room.copy_from_slice(bytes);
                self.len += bytes.len();
                return;
            }
            self.many.extend_from_slice(&self.few[..self.len]);
        }
        self.many.extend_from_slice(bytes);
    }

    fn as_slice(&self) -> &[u8] {
        if self.many.is_empty() { &self.few[..self.len] } else { &self.many }
    }
}

/// Buffer for a short text, without an allocation.
struct Text {
    bytes: [u8; 48],
    len: usize,
}

impl Text {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.len + text.len();
        let room = self.bytes.get_mut(self.len..end).ok_or(std::fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// Content of a request's persistence cookie.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PersistCookie {
    /// The server that the cookie names, usable or not.
    pub(super) server: Option<Index>,
    /// The request has the cookie.
    pub(super) there: bool,
    /// Set if the cookie is ignored because of its age. The letter is for the log: `E` for idle too long, `O`
    /// for too old.
    pub(super) late: Option<u8>,
    /// When the cookie was sent, in seconds since 1970; 0 if it has no such date.
    sent: i64,
    /// When the client's first cookie was sent, in seconds since 1970; 0 if it has no such date.
    first: i64,
}

/// Number of seconds that a cookie's date may lie in the future. A cookie dated later is ignored: no clock is
/// that wrong.
const A_DAY: i64 = 86_400;

/// Digits of a date in a cookie, as in base64.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes a date: the time in units of four seconds, rounded up, as five digits.
fn date(seconds: i64) -> [u8; 5] {
    let fours = (seconds + 3) >> 2;
    std::array::from_fn(|n| DIGITS[(fours >> (6 * (4 - n)) & 63) as usize])
}

/// Decodes a date into seconds; 0 if the text is not a date.
fn dated(text: &[u8]) -> i64 {
    let Some(digits) = text.get(..5) else { return 0 };
    let fours = digits.iter().try_fold(0, |fours: i64, digit| {
        let digit = DIGITS.iter().position(|known| known == digit)?;
        Some(fours << 6 | digit as i64)
    });
    fours.unwrap_or(0) << 2
}

impl PersistCookie {
    /// Reads the dates behind the first bar of a cookie and judges its age at `now`.
    fn dated(&mut self, dates: &[u8], cookie: &Cookie, now: i64) {
        let mut dates = dates.split(|&byte| byte == b'|');
        let mut date = || dates.next().map_or(0, dated);
        (self.sent, self.first) = (date(), date());
        let over = |date: i64, most: Option<i64>| {
            date > 0 && most.is_some_and(|most| now - date > most || date - now > A_DAY)
        };
        self.late = match () {
            () if over(self.first, cookie.most_life) => Some(b'O'),
            () if over(self.sent, cookie.most_idle) => Some(b'E'),
            () => return,
        };
        (self.sent, self.first) = (0, 0);
    }

    /// Returns true if the client's cookie names the right server but its dates have to be sent again at
    /// `now`.
    fn ages(&self, cookie: &Cookie, now: i64) -> bool {
        (cookie.most_idle.is_some() || self.sent > 0) && self.sent < now
            || cookie.most_life.is_some() != (self.first > 0)
    }
}

/// Reads the persistence cookie of a request.
pub(super) fn persist_cookie(head: &Head, cookie: &Cookie, backend: &Backend, now: i64) -> PersistCookie {
    let mut persist = PersistCookie::default();
    for value in head.values(Known::COOKIE) {
        for found in Cookies::new(value) {
            let value = found.value;
            if !found.is_pair() || found.name != &*cookie.name || persist.there {
                continue;
            }
            persist.there = true;
            let named = match cookie.mode {
                // The server's name stands before the server's own value and a `~`, if they are present.
                Some(CookieMode::Prefix) => value.split(|&byte| byte == b'~').next().unwrap_or(value),
                _ => match value.iter().position(|&byte| byte == b'|') {
                    Some(bar) => {
                        persist.dated(&value[bar + 1..], cookie, now);
                        &value[..bar]
                    }
                    None => value,
                },
            };
            if persist.late.is_some() {
                continue;
            }
            persist.server = backend.balancer.servers().by_cookie(named);
        }
    }
    persist
}

/// Removes the proxy's part from the cookies that the server sees.
pub(super) fn hide(head: &mut Head, cookie: &Cookie) -> Result<(), EditError> {
    let prefix = cookie.mode == Some(CookieMode::Prefix);
    let hidden = cookie.indirect && cookie.mode == Some(CookieMode::Insert);
    if !prefix && !hidden {
        return Ok(());
    }
    let mut at = head.find(Known::COOKIE, None);
    while let Some(id) = at {
        at = head.find(Known::COOKIE, Some(id));
        let Some(field) = head.field(id) else { continue };
        let mut kept = Bytes::new();
        let mut changed = false;
        for found in Cookies::new(field.value) {
            let (before, value) = (found.at.start..found.value_at.start, found.value);
            let value = match (found.is_pair() && found.name == &*cookie.name, prefix) {
                (true, false) => {
                    changed = true;
                    continue;
                }
                (true, true) => match value.iter().position(|&byte| byte == b'~') {
                    Some(end) => {
                        changed = true;
                        &value[end + 1..]
                    }
                    None => value,
                },
                (false, _) => value,
            };
            if !kept.as_slice().is_empty() {
                kept.put(b"; ");
            }
            kept.put(&field.value[before]);
            kept.put(value);
        }
        if !changed {
            continue;
        }
        if kept.as_slice().is_empty() {
            head.remove(id);
        } else {
            head.replace_value(id, kept.as_slice())?;
        }
    }
    Ok(())
}

/// Binds the client to its server with a cookie, unless it is bound already. Returns the log's letter for the
/// server's cookie: `N` the server set none and the proxy added none, `P` passed on, `D` removed, `I`
/// inserted, `U` sent again with new dates, `R` rewritten.
///
/// `right` says that the client's cookie named this very server. A server without a cookie value deletes the
/// client's cookie, so that the client is no longer bound to its former server.
#[allow(clippy::too_many_arguments)] // the response, the cookie, and their context
pub(super) fn keep(
    head: &mut Head,
    cookie: &Cookie,
    server: &Server,
    persist: PersistCookie,
    right: bool,
    method: Method,
    ignored: bool,
    now: i64,
) -> Result<u8, EditError> {
    let by_server = head.values(Known::SET_COOKIE).any(|line| sets(line, &cookie.name));
    let inserts = cookie.mode == Some(CookieMode::Insert) && !server.stands_in;
    if ignored {
        return Ok(b'N');
    }
    let mut done = if by_server { b'P' } else { b'N' };
    if by_server && !cookie.preserve {
        if inserts || right && cookie.indirect {
            head.remove_where(|field| field.is(Known::SET_COOKIE) && sets(field.value, &cookie.name));
            done = b'D';
        } else if let (Some(value), Some(mode @ (CookieMode::Rewrite | CookieMode::Prefix))) =
            (&server.cookie, cookie.mode)
        {
            rewrite(head, cookie, value, mode == CookieMode::Prefix)?;
            done = b'R';
        }
    }
    let preserved = by_server && cookie.preserve;
    let wanted = !right || persist.ages(cookie, now);
    if !inserts || preserved || !wanted || cookie.postonly && method != Method::Post {
        return Ok(done);
    }
    let mut line = Bytes::new();
    line.put(&cookie.name);
    line.put(b"=");
    match &server.cookie {
        None => line.put(b"; Expires=Thu, 01-Jan-1970 00:00:01 GMT"),
        Some(value) => {
            line.put(value);
            if cookie.most_idle.or(cookie.most_life).is_some() {
                line.put(b"|");
                line.put(&date(now));
            }
            if cookie.most_life.is_some() {
                line.put(b"|");
                line.put(&date(if persist.first > 0 { persist.first } else { now }));
            }
        }
    }
    line.put(&cookie.attributes);
    head.add_field(Known::SET_COOKIE, line.as_slice())?;
    if cookie.nocache && may_be_kept(method, head) {
        head.add_field(Known::CACHE_CONTROL, b"private")?;
    }
    Ok(if right && server.cookie.is_some() { b'U' } else { b'I' })
}

/// Replaces the value of the server's own cookies of that name by the name of the server, or puts the name
/// before the value (`prefix`).
fn rewrite(head: &mut Head, cookie: &Cookie, name: &[u8], prefix: bool) -> Result<(), EditError> {
    let mut at = head.find(Known::SET_COOKIE, None);
    while let Some(id) = at {
        at = head.find(Known::SET_COOKIE, Some(id));
        let Some(field) = head.field(id).filter(|field| sets(field.value, &cookie.name)) else { continue };
        let line = field.value;
        let equals = line.iter().position(|&byte| byte == b'=').unwrap_or(0);
        let end = line.iter().position(|&byte| byte == b';').unwrap_or(line.len());
        let (mark, own): (&[u8], &[u8]) = if prefix { (b"~", &line[equals + 1..end]) } else { (b"", b"") };
        let mut new = Bytes::new();
        for part in [&line[..=equals], name, mark, own, &line[end..]] {
            new.put(part);
        }
        head.replace_value(id, new.as_slice())?;
    }
    Ok(())
}

/// Returns true if this `Set-Cookie` line sets the cookie `name`.
fn sets(line: &[u8], name: &[u8]) -> bool {
    let pair = line.split(|&byte| byte == b';').next().unwrap_or(line);
    pair.iter().position(|&byte| byte == b'=').is_some_and(|equals| pair[..equals].trim_ascii() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie(most_idle: Option<i64>, most_life: Option<i64>) -> Cookie {
        Cookie {
            name: b"SRV"[..].into(),
            mode: Some(CookieMode::Insert),
            indirect: false,
            nocache: false,
            postonly: false,
            preserve: false,
            most_idle,
            most_life,
            attributes: b"; path=/"[..].into(),
        }
    }

    #[test]
    fn dates_are_written_as_haproxy_does() {
        assert_eq!(&date(1_795_291_774), b"awH6g");
        assert_eq!(dated(b"awH6g"), 1_795_291_776, "to four seconds");
        assert_eq!((dated(b"awH6"), dated(b"aw-6g"), dated(b"")), (0, 0, 0));
    }

    #[test]
    fn a_cookie_counts_until_it_is_idle_or_old_for_too_long() {
        const NOW: i64 = 1_795_291_776;
        let judged = |idle: Option<i64>, life: Option<i64>, sent: i64, first: i64| {
            let mut persist = PersistCookie { there: true, ..PersistCookie::default() };
            let text = [&date(sent)[..], b"|", &date(first)].concat();
            persist.dated(&text, &cookie(idle, life), NOW);
            persist.late
        };
        assert_eq!(judged(Some(60), None, NOW - 60, NOW - 600), None);
        assert_eq!(judged(Some(60), None, NOW - 64, NOW - 64), Some(b'E'));
        assert_eq!(judged(None, Some(60), NOW - 64, NOW - 64), Some(b'O'));
        assert_eq!(judged(Some(60), Some(60), NOW - 64, NOW - 64), Some(b'O'));
        assert_eq!(judged(None, None, NOW - 64_000, NOW - 64_000), None);
        assert_eq!(judged(Some(60), None, NOW + A_DAY, NOW), None);
        assert_eq!(judged(Some(60), None, NOW + A_DAY + 4, NOW), Some(b'E'));
    }

    #[test]
    fn dates_are_sent_anew_when_they_are_over_missing_or_too_many() {
        const NOW: i64 = 1_795_291_776;
        let ages = |idle: Option<i64>, life: Option<i64>, sent: i64, first: i64| {
            PersistCookie { sent, first, ..PersistCookie::default() }.ages(&cookie(idle, life), NOW)
        };
        assert!(!ages(None, None, 0, 0));
        assert!(ages(Some(60), None, 0, 0), "it has none");
        assert!(!ages(Some(60), None, NOW, 0));
        assert!(ages(Some(60), None, NOW - 4, 0));
        assert!(ages(None, Some(60), NOW, 0));
        assert!(!ages(None, Some(60), NOW, NOW - 40));
        assert!(ages(None, None, NOW - 40, 0), "none is wanted");
        assert!(ages(Some(60), None, NOW, NOW), "the second is not wanted");
    }
}
