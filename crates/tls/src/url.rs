//! URLs of the program's own HTTP requests.

/// An absolute URL without a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl {
    /// As it was written, with its fragment.
    pub url: Box<str>,
    /// A name or an address; an IPv6 address is in brackets.
    pub host: Box<str>,
    /// Its port, or the usual one of the scheme.
    pub port: u16,
    /// The path with the query, without the fragment.
    pub path: Box<str>,
}

impl HttpUrl {
    /// Parses a URL with the scheme `http` or `https`. `None` if it is malformed, or has another scheme or a
    /// user.
    pub fn parse(url: &str, scheme: &str) -> Option<Self> {
        let usual = if scheme == "https" { 443 } else { 80 };
        let visible = url.bytes().all(|byte| byte.is_ascii_graphic());
        let own = url.get(..scheme.len()).filter(|own| visible && own.eq_ignore_ascii_case(scheme))?;
        let rest = url[own.len()..].strip_prefix("://")?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let path = path.split('#').next().unwrap_or_default();
        let slash = if path.starts_with('/') { "" } else { "/" };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, if port.is_empty() { usual } else { port.parse().ok()? })
            }
            _ => (authority, usual),
        };
        if host.is_empty() || host.contains('@') {
            return None;
        }
        Some(Self { url: url.into(), host: host.into(), port, path: format!("{slash}{path}").into() })
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;

    fn parsed(url: &str, scheme: &str) -> Option<(String, u16, String)> {
        HttpUrl::parse(url, scheme).map(|own| (own.host.to_string(), own.port, own.path.to_string()))
    }

    #[test]
    fn urls_have_one_scheme() {
        let found = |host: &str, port, path: &str| Some((host.to_owned(), port, path.to_owned()));
        assert_eq!(parsed("http://a.example", "http"), found("a.example", 80, "/"));
        assert_eq!(parsed("HTTP://a.example:81/x/y?z#f", "http"), found("a.example", 81, "/x/y?z"));
        assert_eq!(parsed("http://[::1]/o", "http"), found("[::1]", 80, "/o"));
        assert_eq!(parsed("http://[::1]:82", "http"), found("[::1]", 82, "/"));
        assert_eq!(parsed("https://a/x", "https"), found("a", 443, "/x"));
        assert_eq!(parsed("http://a/", "https"), None);
        for bad in ["https://a/", "http://", "http://a:x/", "http://u@a/", "ldap://a", "http://a/\r\nb"] {
            assert_eq!(parsed(bad, "http"), None, "{bad}");
        }
    }
}
