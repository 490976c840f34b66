//! Decides whether a cache between the client and the proxy may store a response with the cookie that the
//! response sets, and send both to other clients: `option checkcache`, and `nocache` of `cookie`.

use manylane_http::{Head, Known, List, Method};

/// Statuses of responses that caches store by default.
const KEPT: [u16; 11] = [200, 203, 204, 206, 300, 301, 404, 405, 410, 414, 501];

/// Returns true if the response sets a cookie and a cache may store both.
pub(super) fn gives_cookie_away(method: Method, response: &Head) -> bool {
    response.values(Known::SET_COOKIE).next().is_some() && lasts(response) && may_be_kept(method, response)
}

/// Returns true if the response has a lifetime or a validator. Without one, a cache does not keep a response
/// long enough for it to matter (RFC 9111, 3 and 4.2).
fn lasts(response: &Head) -> bool {
    let names: [&[u8]; 3] = [b"expires", b"etag", b"last-modified"];
    let for_a_time =
        |word: &[u8]| (begins(word, "max-age=") || begins(word, "s-maxage=")) && !word.ends_with(b"age=0");
    names.into_iter().any(|name| response.values(name).next().is_some())
        || response.values(&b"cache-control"[..]).flat_map(List::new).any(for_a_time)
}

fn begins(word: &[u8], known: &str) -> bool {
    word.get(..known.len()).is_some_and(|word| word.eq_ignore_ascii_case(known.as_bytes()))
}

/// Returns true if a cache may store a response to this method, even for a time that the cache guesses (RFC
/// 9111, 4.2.2).
pub(super) fn may_be_kept(method: Method, response: &Head) -> bool {
    let safe = matches!(method, Method::Get | Method::Head | Method::Options | Method::Trace);
    let mut kept = safe && KEPT.contains(&response.status());
    for word in response.values(&b"cache-control"[..]).flat_map(List::new) {
        let is = |known: &str| word.eq_ignore_ascii_case(known.as_bytes());
        if is("max-age=0") {
            return false; // this wins over all other directives
        } else if is("public") {
            kept = true;
        } else if ["private", "no-cache", "no-store", "s-maxage=0"].into_iter().any(is)
            || begins(word, "no-cache=\"")
        {
            kept = false;
        }
    }
    kept && !response.values(&b"pragma"[..]).any(|value| value.eq_ignore_ascii_case(b"no-cache"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_http::Version;

    fn gives_away(method: Method, status: u16, fields: &[(&str, &str)]) -> bool {
        let mut head = Head::response(Version::HTTP_11, status, None).unwrap();
        for (name, value) in fields {
            head.add_field(name.as_bytes(), value.as_bytes()).unwrap();
        }
        gives_cookie_away(method, &head)
    }

    #[test]
    fn a_cookie_is_given_away_where_a_cache_may_keep_it() {
        let (cookie, tag) = (("set-cookie", "a=b"), ("etag", "x"));
        assert!(gives_away(Method::Get, 200, &[cookie, tag]));
        assert!(gives_away(Method::Get, 200, &[cookie, ("expires", "Thu, 01 Jan 2099 00:00:00 GMT")]));
        assert!(!gives_away(Method::Get, 200, &[cookie]));
        assert!(!gives_away(Method::Get, 200, &[tag]));
        assert!(!gives_away(Method::Get, 302, &[cookie, tag]));
        assert!(!gives_away(Method::Post, 200, &[cookie, tag]));
        assert!(!gives_away(
            Method::Get,
            200,
            &[cookie, tag, ("pragma", "No-Cache"), ("cache-control", "public")]
        ));
        for (control, given) in [
            ("public", true),
            ("max-age=60", true),
            ("private", false),
            ("max-age=60, PRIVATE", false),
            ("no-store", false),
            ("no-cache", false),
            ("max-age=0", false),
            ("max-age=0, public", false),
            ("public, private", false),
            ("s-maxage=0", false),
            ("no-cache=\"set-cookie\"", false),
            ("no-cache=\"set-cookie,x\"", false),
            ("no-cache=\"x\"", false),
            ("no-cache=\"x\", public", true),
        ] {
            assert_eq!(
                gives_away(Method::Get, 200, &[cookie, tag, ("cache-control", control)]),
                given,
                "{control}"
            );
        }
        assert!(gives_away(Method::Get, 200, &[cookie, ("cache-control", "s-maxage=5")]));
        assert!(gives_away(Method::Post, 302, &[cookie, tag, ("cache-control", "public")]));
    }
}
