//! The key of a request: the part that `balance` names. It is found in the request's bytes without copying.
//!
//! Each function returns the bytes to hash, or `None` if the request has no such key. A request without a key
//! takes the next turn.

use std::net::IpAddr;

/// `balance source`: returns the address as a number. The words of an IPv6 address, in network order, are
/// joined by exclusive or, so that neighbours differ.
pub fn source_key(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(v4) => u32::from(v4),
        IpAddr::V6(v6) => {
            let bits = u128::from(v6);
            (0..4).fold(0, |h, n| h ^ (bits >> (32 * n)) as u32)
        }
    }
}

/// Arguments of `balance uri`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UriKey {
    /// `len`: number of bytes that count; 0 for all.
    pub len: usize,
    /// `depth`: number of path levels that count; 0 for all.
    pub depth: usize,
    /// `whole`: the query counts, too.
    pub whole: bool,
    /// `path-only`: scheme and authority do not count.
    pub path_only: bool,
}

impl UriKey {
    /// Returns the part of a request's target that counts.
    pub fn of<'a>(&self, target: &'a [u8]) -> Option<&'a [u8]> {
        let from = if self.path_only { path_start(target)? } else { 0 };
        let mut uri = &target[from..];
        if self.len > 0 {
            uri = &uri[..uri.len().min(self.len)];
        }
        let mut slashes = 0;
        let end = uri.iter().position(|&byte| {
            slashes += usize::from(byte == b'/');
            self.depth > 0 && slashes == self.depth + 1 || byte == b'?' && !self.whole
        });
        Some(&uri[..end.unwrap_or(uri.len())])
    }
}

/// Returns the start of the path in a target of origin or absolute form.
fn path_start(target: &[u8]) -> Option<usize> {
    if target.first() == Some(&b'/') {
        return Some(0);
    }
    let scheme = target.windows(3).position(|w| w == b"://")?;
    let authority = scheme + 3;
    Some(authority + target[authority..].iter().position(|&b| b == b'/')?)
}

/// `balance url_param`: returns the value of the parameter in a target's query, or in the body of a form
/// (`check_post`). A parameter without a value counts as missing.
pub fn url_param<'a>(query: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let pairs = query.split(|&b| b == b'&' || b == b';');
    let values = pairs.filter_map(|pair| pair.strip_prefix(name)?.strip_prefix(b"="));
    let value = values.into_iter().next()?;
    // A body may continue behind its first line.
    let end =
        value.iter().position(|b| b.is_ascii_whitespace() || b.is_ascii_control()).unwrap_or(value.len());
    (end > 0).then(|| &value[..end])
}

/// `balance hdr(name) use_domain_only`: returns the label before the last dot of a name, the one that its
/// owner registered.
pub fn domain_only(host: &[u8]) -> &[u8] {
    let host = &host[..host.iter().position(|&b| b == b':').unwrap_or(host.len())];
    let Some(last) = host.iter().rposition(|&b| b == b'.') else { return host };
    let start = host[..last].iter().rposition(|&b| b == b'.').map_or(0, |dot| dot + 1);
    &host[start..last]
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sources_are_numbers_in_network_order() {
        assert_eq!(source_key("127.0.0.1".parse().expect("an address")), 0x7f00_0001);
        assert_eq!(source_key("2001:db8::1".parse().expect("an address")), 0x2001_0db8 ^ 1);
    }

    #[test]
    fn uris_end_at_the_query_the_length_or_the_depth() {
        let uri = |len, depth, whole, path_only, target: &'static str| {
            let key = UriKey { len, depth, whole, path_only };
            key.of(target.as_bytes()).map(|key| std::str::from_utf8(key).expect("it was text"))
        };
        assert_eq!(uri(0, 0, false, false, "/a/b?c=d"), Some("/a/b"));
        assert_eq!(uri(0, 0, true, false, "/a/b?c=d"), Some("/a/b?c=d"));
        assert_eq!(uri(3, 0, false, false, "/a/b?c=d"), Some("/a/"));
        assert_eq!(uri(0, 1, false, false, "/a/b?c=d"), Some("/a"));
        assert_eq!(uri(0, 2, true, false, "/a/b/c?d/e"), Some("/a/b"));
        assert_eq!(uri(5, 2, false, false, "/abcdef/g/h"), Some("/abcd"));
        assert_eq!(uri(0, 0, false, true, "http://host:80/a?b"), Some("/a"));
        assert_eq!(uri(0, 0, false, false, "http://host/a?b"), Some("http://host/a"));
        assert_eq!(uri(0, 0, false, true, "*"), None);
    }

    #[test]
    fn parameters_are_found_whole_and_with_a_value() {
        let param = |query: &'static str| url_param(query.as_bytes(), b"id");
        assert_eq!(param("id=7&x=1"), Some(&b"7"[..]));
        assert_eq!(param("x=1;id=abc"), Some(&b"abc"[..]));
        assert_eq!(param("uid=1&idx=2&id="), None);
        assert_eq!(param("id"), None);
        assert_eq!(param("a=b&id=9\r\nrest"), Some(&b"9"[..]));
    }

    #[test]
    fn the_domain_is_the_label_before_the_last_dot() {
        for (host, domain) in [
            ("haproxy.1wt.eu", "1wt"),
            ("www.a.b:8080", "a"),
            ("localhost", "localhost"),
            ("a.b", "a"),
            ("", ""),
            (".", ""),
        ] {
            assert_eq!(domain_only(host.as_bytes()), domain.as_bytes(), "{host}");
        }
    }

    proptest! {
        /// No input of a peer panics.
        #[test]
        fn any_bytes_are_searched(bytes in prop::collection::vec(any::<u8>(), 0..64),
            name in prop::collection::vec(any::<u8>(), 0..4),
            len in 0usize..8, depth in 0usize..4, whole: bool, path_only: bool) {
            let _ = UriKey { len, depth, whole, path_only }.of(&bytes);
            let _ = (url_param(&bytes, &name), domain_only(&bytes));
        }
    }
}
