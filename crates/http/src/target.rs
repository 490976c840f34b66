//! The parts of a request's target (RFC 9110, 7.1; RFC 9112, 3.2).

use crate::method::Method;

/// Form of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `/path?query`
    Origin,
    /// `scheme://authority/path?query`
    Absolute,
    /// `host:port`, of a `CONNECT`
    Authority,
    /// `*`
    Asterisk,
    /// None of these forms.
    Unknown,
}

/// Parts of a target; `None` for parts that its form does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// Form.
    pub form: Form,
    /// Scheme, before `://`.
    pub scheme: Option<&'a [u8]>,
    /// Host and port, with user information.
    pub authority: Option<&'a [u8]>,
    /// Path, from its slash to the question mark. Empty in an absolute target without a slash.
    pub path: Option<&'a [u8]>,
    /// Query, behind the question mark.
    pub query: Option<&'a [u8]>,
}

impl<'a> Target<'a> {
    /// Splits the target of a request with `method`.
    #[inline]
    pub fn of(target: &'a [u8], method: Method) -> Self {
        let mut parts = Self { form: Form::Unknown, scheme: None, authority: None, path: None, query: None };
        if target.first() == Some(&b'/') {
            parts.form = Form::Origin;
            parts.cut(target);
        } else {
            parts.rare(target, method);
        }
        parts
    }

    #[cold]
    fn rare(&mut self, target: &'a [u8], method: Method) {
        if target == b"*" {
            self.form = Form::Asterisk;
        } else if method == Method::Connect {
            self.form = Form::Authority;
            self.authority = Some(target);
        } else if let Some((scheme, behind)) = split_scheme(target) {
            let end =
                behind.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(behind.len());
            let (authority, path) = behind.split_at(end);
            self.form = Form::Absolute;
            self.scheme = Some(scheme);
            self.authority = Some(authority);
            self.cut(path);
        }
    }

    #[inline]
    fn cut(&mut self, path: &'a [u8]) {
        match memchr::memchr(b'?', path) {
            Some(at) => (self.path, self.query) = (Some(&path[..at]), Some(&path[at + 1..])),
            None => self.path = Some(path),
        }
    }
}

/// Splits at `://`.
fn split_scheme(target: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = memchr::memchr(b':', target)?;
    let (scheme, behind) = (&target[..colon], &target[colon..]);
    let valid = scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    let behind = behind.strip_prefix(b"://")?;
    valid.then_some((scheme, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parts =
        (Form, Option<&'static str>, Option<&'static str>, Option<&'static str>, Option<&'static str>);

    fn of(target: &'static str, method: Method) -> Parts {
        let Target { form, scheme, authority, path, query } = Target::of(target.as_bytes(), method);
        let text = |part: Option<&'static [u8]>| part.map(|part| std::str::from_utf8(part).expect("text"));
        (form, text(scheme), text(authority), text(path), text(query))
    }

    #[test]
    fn targets_are_taken_apart_by_their_form() {
        let table: &[(&'static str, Method, Parts)] = &[
            ("/", Method::Get, (Form::Origin, None, None, Some("/"), None)),
            ("/a/b?c=d?e", Method::Get, (Form::Origin, None, None, Some("/a/b"), Some("c=d?e"))),
            ("/?", Method::Get, (Form::Origin, None, None, Some("/"), Some(""))),
            ("//a//", Method::Get, (Form::Origin, None, None, Some("//a//"), None)),
            ("*", Method::Options, (Form::Asterisk, None, None, None, None)),
            ("a:443", Method::Connect, (Form::Authority, None, Some("a:443"), None, None)),
            ("http://a", Method::Get, (Form::Absolute, Some("http"), Some("a"), Some(""), None)),
            ("http://a?q", Method::Get, (Form::Absolute, Some("http"), Some("a"), Some(""), Some("q"))),
            (
                "HTTP://u@a:1/p?q",
                Method::Get,
                (Form::Absolute, Some("HTTP"), Some("u@a:1"), Some("/p"), Some("q")),
            ),
            ("a:443", Method::Get, (Form::Unknown, None, None, None, None)),
            ("1http://a/", Method::Get, (Form::Unknown, None, None, None, None)),
            ("://a/", Method::Get, (Form::Unknown, None, None, None, None)),
            ("", Method::Get, (Form::Unknown, None, None, None, None)),
        ];
        for &(target, method, parts) in table {
            assert_eq!(of(target, method), parts, "{target}");
        }
    }
}
