//! Cookies (RFC 6265) of a request, and the one that a `Set-Cookie` sets. They are parsed leniently, as
//! servers do. Their positions are kept, so that a cookie can be changed in place.

use crate::list::find_either_outside_quotes;
use crate::syntax::trim;
use std::ops::Range;

/// A cookie in a field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cookie<'a> {
    /// Name.
    pub name: &'a [u8],
    /// Value, with its quotes if there are any; empty without an equals sign.
    pub value: &'a [u8],
    /// Range from the name to the end of the value, in bytes of the field's value.
    pub at: Range<usize>,
    /// Range of the value, in bytes of the field's value.
    pub value_at: Range<usize>,
}

impl Cookie<'_> {
    /// Returns whether the cookie has an equals sign; HAProxy ignores cookies without one.
    pub fn is_pair(&self) -> bool {
        self.value_at.start > self.at.start + self.name.len()
    }
}

/// Iterator over the cookies of one `Cookie` field: `name=value` between semicolons, or between commas, as
/// some clients write and HAProxy reads them. A name may be empty; empty parts are skipped.
#[derive(Clone, Debug)]
pub struct Cookies<'a> {
    value: &'a [u8],
    at: usize,
}

impl<'a> Cookies<'a> {
    /// Returns the cookies in a field's value.
    ///
    /// ```
    /// use manylane_http::Cookies;
    /// let mut cookies = Cookies::new(b"a=1; SRV=s2;b=\"x;y\"");
    /// let second = cookies.nth(1).expect("there are three");
    /// assert_eq!((second.name, second.value, second.value_at), (&b"SRV"[..], &b"s2"[..], 9..11));
    /// ```
    pub fn new(value: &'a [u8]) -> Self {
        Self { value, at: 0 }
    }
}

impl<'a> Iterator for Cookies<'a> {
    type Item = Cookie<'a>;

    fn next(&mut self) -> Option<Cookie<'a>> {
        while self.at < self.value.len() {
            let start = self.at;
            let len = find_either_outside_quotes(&self.value[start..], b";,");
            self.at = start + len + 1;
            if let Some(cookie) = cookie(self.value, start..start + len) {
                return Some(cookie);
            }
        }
        None
    }
}

fn cookie(value: &[u8], part: Range<usize>) -> Option<Cookie<'_>> {
    let within = |piece: &[u8]| {
        let start = piece.as_ptr().addr() - value.as_ptr().addr();
        start..start + piece.len()
    };
    let part = trim(&value[part]);
    let equals = memchr::memchr(b'=', part);
    let (name, cookie_value) = match equals {
        Some(equals) => (trim(&part[..equals]), trim(&part[equals + 1..])),
        None => (part, &part[part.len()..]),
    };
    (equals.is_some() || !name.is_empty()).then(|| Cookie {
        name,
        value: cookie_value,
        at: within(part),
        value_at: within(cookie_value),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(value: &str) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        Cookies::new(value.as_bytes())
            .map(|cookie| {
                assert_eq!(&value.as_bytes()[cookie.value_at.clone()], cookie.value);
                assert!(value.as_bytes()[cookie.at.clone()].starts_with(cookie.name));
                (text(cookie.name), text(cookie.value))
            })
            .collect()
    }

    #[test]
    fn cookies_are_cut_at_semicolons_and_commas() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(all(""), []);
        assert_eq!(all("a=b"), [pair("a", "b")]);
        assert_eq!(
            all(" a = b ;; c=d=e;f; =x;"),
            [pair("a", "b"), pair("c", "d=e"), pair("f", ""), pair("", "x")]
        );
        assert_eq!(all("a=1, b=2"), [pair("a", "1"), pair("b", "2")]);
        assert_eq!(all(",a=1 ,b=\"2,3\";c"), [pair("a", "1"), pair("b", "\"2,3\""), pair("c", "")]);
        assert_eq!(all("a=\"b;c\"; d=\"e"), [pair("a", "\"b;c\""), pair("d", "\"e")]);
    }
}
