//! The cookie at the start of a Remote Desktop Protocol connection (MS-RDPBCGR, 2.2.1.1): a line of text
//! after the TPKT and X.224 headers.

/// Size of the headers in bytes: four and seven.
const HEADERS: usize = 11;
const LABEL: &[u8] = b"Cookie:";

/// Result of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read<'a> {
    /// The value of the cookie.
    Cookie(&'a [u8]),
    /// There is none; more bytes do not help.
    None,
    /// The end of the cookie may follow.
    Short,
}

/// Finds the cookie with this name, ignoring case; an empty name matches any.
pub(crate) fn cookie<'a>(bytes: &'a [u8], name: &[u8]) -> Read<'a> {
    let Some(text) = bytes.get(HEADERS..) else { return Read::Short };
    let Some((label, rest)) = text.split_at_checked(LABEL.len()) else { return Read::Short };
    if !label.eq_ignore_ascii_case(LABEL) {
        return Read::None;
    }
    let rest = &rest[rest.iter().take_while(|byte| **byte == b' ').count()..];
    let end = rest.iter().position(|byte| *byte == b'\r');
    let line = &rest[..end.unwrap_or(rest.len())];
    let equals = if name.is_empty() {
        line.iter().position(|byte| matches!(byte, b'=' | b'\n'))
    } else {
        Some(name.len())
    };
    let Some((own, value)) = equals.and_then(|at| line.split_at_checked(at)) else {
        return if end.is_none() { Read::Short } else { Read::None };
    };
    let named = name.is_empty() || own.eq_ignore_ascii_case(name);
    match (value.split_first(), end.map(|end| rest.get(end + 1))) {
        (Some((b'=', value)), Some(Some(b'\n'))) if named => Read::Cookie(value),
        (Some((b'=', _)), Some(None) | None) if named => Read::Short,
        (None, None) => Read::Short,
        _ => Read::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(line: &str) -> Vec<u8> {
        [&b"\x03\0\0\x2f\x2a\xe0\0\0\0\0\0"[..], line.as_bytes()].concat()
    }

    #[test]
    fn a_cookie_is_found_by_its_name_or_as_the_only_one() {
        let bytes = connection("Cookie: mstshash=joe=1\r\nmore");
        for name in ["", "mstshash", "MSTSHash"] {
            assert_eq!(cookie(&bytes, name.as_bytes()), Read::Cookie(b"joe=1"), "{name}");
        }
        for name in ["mstshas", "mstshashx", "msts", "mstshash=joe=1xxxxx"] {
            assert_eq!(cookie(&bytes, name.as_bytes()), Read::None, "{name}");
        }
        assert_eq!(cookie(&connection("cOOKIE:a=\r\n"), b"a"), Read::Cookie(b""));
    }

    #[test]
    fn what_may_still_become_a_cookie_is_short_at_every_byte_and_nothing_else_is() {
        let bytes = connection("Cookie: mstshash=joe\r\n");
        for length in 0..bytes.len() {
            for name in ["", "mstshash"] {
                assert_eq!(cookie(&bytes[..length], name.as_bytes()), Read::Short, "{length} {name}");
            }
        }
        for line in
            ["Kookie: a=b\r\n", "Cookie: ab\r\n", "Cookie: a=b\rx", "Cookie: \na=b\r\n", "GET / HTTP/1.1\r\n"]
        {
            assert_eq!(cookie(&connection(line), b""), Read::None, "{line:?}");
        }
    }
}
