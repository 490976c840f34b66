//! Hosts with ports, as in `:authority` and `Host`.

use manylane_http::split_host_port;

/// Returns whether these bytes can be a host with an optional port. Bytes that a reader might take for
/// another part of an address are refused, among them user information (RFC 9113, 8.3.1); a port need not be
/// a number.
pub(super) fn is_valid(authority: &[u8]) -> bool {
    let allowed = |&byte: &u8| {
        byte > b' ' && byte < 0x7f && !matches!(byte, b',' | b'#' | b'/' | b'?' | b'@' | b'\\' | b'[' | b']')
    };
    match authority {
        [b'[', rest @ ..] => {
            let Some(end) = rest.iter().position(|&byte| byte == b']') else { return false };
            let (address, behind) = (&rest[..end], &rest[end + 1..]);
            !address.is_empty()
                && address.iter().all(allowed)
                && (behind.is_empty() || behind[0] == b':')
                && behind.iter().all(allowed)
        }
        _ => !authority.is_empty() && authority.iter().all(allowed),
    }
}

/// Returns the default port of a scheme; empty for an unknown scheme.
fn default_port(scheme: &[u8]) -> &'static [u8] {
    if scheme.eq_ignore_ascii_case(b"http") {
        b"80"
    } else if scheme.eq_ignore_ascii_case(b"https") {
        b"443"
    } else {
        b""
    }
}

/// Returns whether `Host` and the authority agree: the names are equal; and so are the ports, where an absent
/// or empty one counts as the scheme's default.
pub(super) fn agree(authority: &[u8], host: &[u8], scheme: &[u8]) -> bool {
    let ((name, port), (host_name, host_port)) = (split_host_port(authority), split_host_port(host));
    let given = |port: &&[u8]| !port.is_empty() && *port != default_port(scheme);
    name.eq_ignore_ascii_case(host_name) && port.filter(given) == host_port.filter(given)
}

/// Returns whether `Host` and the target of a CONNECT agree: same name and port. `Host` may omit port 80 or
/// 443.
pub(super) fn agree_connect(target: &[u8], host: &[u8]) -> bool {
    let ((name, port), (host_name, host_port)) = (split_host_port(target), split_host_port(host));
    let same = match host_port {
        None | Some([]) => matches!(port, Some(b"80" | b"443")),
        host_port => port == host_port,
    };
    name.eq_ignore_ascii_case(host_name) && same
}

/// Returns whether a CONNECT can have this target: a name, and a port of digits.
pub(super) fn is_connect_target(target: &[u8]) -> bool {
    let (name, port) = split_host_port(target);
    is_valid(target) && !name.is_empty() && port.is_some_and(|port| !port.is_empty())
}

/// Returns the `Host` for the target of a CONNECT: without port 80 or 443.
pub(super) fn connect_host(target: &[u8]) -> &[u8] {
    match split_host_port(target) {
        (name, Some(b"80" | b"443")) => name,
        _ => target,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_are_hosts_with_optional_ports() {
        for good in ["a", "a.example:80", "a:", "a:b", "[::1]", "[::1]:8443", "1.2.3.4:5", "a_b%20c"] {
            assert!(is_valid(good.as_bytes()), "{good}");
        }
        for bad in [
            "", "a b", "u@a", "a/b", "a,b", "a?b", "a#b", "a\\b", "[::1", "[]", "a[b]", "[::1]x", "\u{e4}",
            "a\r\n",
        ] {
            assert!(!is_valid(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn host_agrees_with_the_authority_but_for_the_usual_port() {
        for (authority, host, scheme, same) in [
            ("a", "A", "http", true),
            ("a:80", "a", "http", true),
            ("a", "a:80", "HTTP", true),
            ("a:", "a:80", "http", true),
            ("a:443", "a", "https", true),
            ("a:443", "a", "http", false),
            ("a:1", "a:1", "http", true),
            ("a:1", "a:2", "http", false),
            ("a", "b", "http", false),
            ("[::1]:80", "[::1]", "http", true),
            ("[::1]", "[::2]", "http", false),
        ] {
            assert_eq!(
                agree(authority.as_bytes(), host.as_bytes(), scheme.as_bytes()),
                same,
                "{authority} {host}"
            );
        }
        for (target, host, same) in [
            ("a:443", "a", true),
            ("a:443", "a:", true),
            ("a:443", "a:443", true),
            ("a:8443", "a", false),
            ("a:8443", "a:8443", true),
            ("a:80", "b", false),
        ] {
            assert_eq!(agree_connect(target.as_bytes(), host.as_bytes()), same, "{target} {host}");
        }
        assert!(is_connect_target(b"a:1") && !is_connect_target(b"a") && !is_connect_target(b"a:x"));
        assert!(!is_connect_target(b":1") && !is_connect_target(b"a:"));
    }
}
