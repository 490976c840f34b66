//! Lists: members between commas outside of quoted strings (RFC 9110, 5.6.1 and 5.6.4), and their parameters.

use crate::syntax::trim;

/// Returns the position of the first `separator` outside of a quoted string, or the end if there is none. A
/// quote that is not closed reaches to the end.
#[inline]
pub(crate) fn find_outside_quotes(bytes: &[u8], separator: u8) -> usize {
    match memchr::memchr2(separator, b'"', bytes) {
        None => bytes.len(),
        Some(at) if bytes[at] == separator => at,
        Some(at) => behind_quotes(bytes, at, |byte| byte == separator),
    }
}

/// Returns the position of the first of two separators outside of a quoted string.
pub(crate) fn find_either_outside_quotes(bytes: &[u8], separators: &[u8; 2]) -> usize {
    match memchr::memchr3(separators[0], separators[1], b'"', bytes) {
        None => bytes.len(),
        Some(at) if bytes[at] != b'"' => at,
        Some(at) => behind_quotes(bytes, at, |byte| separators.contains(&byte)),
    }
}

/// Does what [`find_outside_quotes`] does, from the quote at `at` on.
fn behind_quotes(bytes: &[u8], mut at: usize, separates: impl Fn(u8) -> bool) -> usize {
    let mut quoted = false;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => quoted = !quoted,
            b'\\' if quoted => at += 1,
            _ if !quoted && separates(byte) => return at,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// Iterator over the members of a list, trimmed. An empty value has one empty member, and empty members are
/// returned.
///
/// ```
/// use manylane_http::List;
/// let members: Vec<_> = List::new(b"gzip;q=1, \"a,b\" ,,br").collect();
/// assert_eq!(members, [&b"gzip;q=1"[..], b"\"a,b\"", b"", b"br"]);
/// ```
#[derive(Clone, Debug)]
pub struct List<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> List<'a> {
    /// Returns the members of `value` between commas.
    #[inline]
    pub fn new(value: &'a [u8]) -> Self {
        Self { rest: Some(value), separator: b',' }
    }

    /// Returns the members between other separators: semicolons for parameters.
    #[inline]
    pub fn separated_by(value: &'a [u8], separator: u8) -> Self {
        Self { rest: Some(value), separator }
    }
}

impl<'a> Iterator for List<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let end = find_outside_quotes(rest, self.separator);
        self.rest = rest.get(end + 1..);
        Some(trim(&rest[..end]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(value: &[u8]) -> Vec<String> {
        List::new(value).map(|member| member.escape_ascii().to_string()).collect()
    }

    #[test]
    fn members_are_cut_at_commas_outside_of_quotes() {
        assert_eq!(members(b""), [""]);
        assert_eq!(members(b"a"), ["a"]);
        assert_eq!(members(b" a\t,b ,"), ["a", "b", ""]);
        assert_eq!(members(br#""a,\",b",c"#), [r#"\"a,\\\",b\""#, "c"]);
        assert_eq!(members(br#"a,"b,c"#), ["a", r#"\"b,c"#]);
        assert_eq!(members(br#"a\,b"#), [r"a\\", "b"]);
    }
}
