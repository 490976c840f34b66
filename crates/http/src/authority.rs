//! Hosts with ports, as in `Host` and in targets.

/// Splits a host at its last colon, if digits or nothing follow it. User information is not removed.
///
/// ```
/// use manylane_http::split_host_port;
/// assert_eq!(split_host_port(b"a.example:80"), (&b"a.example"[..], Some(&b"80"[..])));
/// assert_eq!(split_host_port(b"[::1]"), (&b"[::1]"[..], None));
/// ```
pub fn split_host_port(host: &[u8]) -> (&[u8], Option<&[u8]>) {
    let Some(colon) = memchr::memrchr(b':', host) else { return (host, None) };
    let (name, port) = (&host[..colon], &host[colon + 1..]);
    if port.iter().all(u8::is_ascii_digit) { (name, Some(port)) } else { (host, None) }
}

/// Returns the authority without its user information.
///
/// ```
/// assert_eq!(manylane_http::without_user(b"user:secret@a.example:80"), b"a.example:80");
/// ```
pub fn without_user(authority: &[u8]) -> &[u8] {
    memchr::memrchr(b'@', authority).map_or(authority, |at| &authority[at + 1..])
}

/// Returns the host without its port, if that is empty or the default port of the scheme (RFC 3986, 6.2.3):
/// 80 for `http`, 443 for `https`.
pub fn without_default_port<'a>(scheme: &[u8], host: &'a [u8]) -> &'a [u8] {
    match split_host_port(host) {
        (name, Some(b"" | b"80")) if scheme.eq_ignore_ascii_case(b"http") => name,
        (name, Some(b"" | b"443")) if scheme.eq_ignore_ascii_case(b"https") => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_split_off_and_default_ones_dropped() {
        assert_eq!(split_host_port(b"a"), (&b"a"[..], None));
        assert_eq!(split_host_port(b"a:"), (&b"a"[..], Some(&b""[..])));
        assert_eq!(split_host_port(b"[::1]:8"), (&b"[::1]"[..], Some(&b"8"[..])));
        assert_eq!(split_host_port(b"[::1]"), (&b"[::1]"[..], None));
        assert_eq!(without_default_port(b"HTTP", b"a:80"), b"a");
        assert_eq!(without_default_port(b"http", b"a:443"), b"a:443");
        assert_eq!(without_default_port(b"https", b"[::1]:443"), b"[::1]");
    }
}
