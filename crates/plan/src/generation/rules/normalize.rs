//! `normalize-uri`: each normalizer rewrites a part of a request's target, after section 6 of RFC 3986.

use manylane_expr::Writer;

/// Part that is normalized, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the words of the rules
pub enum Normalizer {
    FragmentEncode,
    FragmentStrip,
    PathMergeSlashes,
    PathStripDot,
    /// With `full`, leading `..` segments are removed, too.
    PathStripDotdot {
        full: bool,
    },
    /// With `strict`, a percent sign without two digits is an error.
    PercentDecodeUnreserved {
        strict: bool,
    },
    /// With `strict`, a percent sign without two digits is an error.
    PercentToUppercase {
        strict: bool,
    },
    QuerySortByName,
}

/// Most parameters of a query that are sorted; a longer query stays as it is.
const MOST_PARAMETERS: usize = 256;

/// Reason why there is no new target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTarget {
    /// The target violates `strict`.
    Broken,
    /// The new target does not fit.
    Full,
}

impl Normalizer {
    /// Writes the normal form of `pathq`: the path, and the query with its question mark.
    pub fn write(self, pathq: &[u8], out: &mut Writer<'_>) -> Result<(), NoTarget> {
        let end = pathq.iter().position(|&byte| byte == b'?').unwrap_or(pathq.len());
        let (path, query) = pathq.split_at(end);
        match self {
            Self::FragmentEncode => {
                for piece in pathq.split_inclusive(|&byte| byte == b'#') {
                    match piece.strip_suffix(b"#") {
                        Some(before) => put(out, &[before, b"%23"])?,
                        None => put(out, &[piece])?,
                    }
                }
                Ok(())
            }
            Self::FragmentStrip => put(out, &[pathq.split(|&byte| byte == b'#').next().unwrap_or_default()]),
            Self::PathMergeSlashes => {
                let mut before = 0;
                for &byte in path {
                    if byte != b'/' || before != b'/' {
                        put(out, &[&[byte]])?;
                    }
                    before = byte;
                }
                put(out, &[query])
            }
            Self::PathStripDot => {
                strip_dot(path, out)?;
                put(out, &[query])
            }
            Self::PathStripDotdot { full } => {
                strip_dotdot(path, full, out)?;
                put(out, &[query])
            }
            Self::PercentDecodeUnreserved { strict } => percent(pathq, strict, out, |byte, code, out| {
                if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                    put(out, &[&[byte]])
                } else {
                    put(out, &[code])
                }
            }),
            Self::PercentToUppercase { strict } => percent(pathq, strict, out, |_, code, out| {
                put(out, &[&[code[0], code[1].to_ascii_uppercase(), code[2].to_ascii_uppercase()]])
            }),
            Self::QuerySortByName => {
                put(out, &[path])?;
                sort(query, out)
            }
        }
    }
}

fn put(out: &mut Writer<'_>, parts: &[&[u8]]) -> Result<(), NoTarget> {
    parts.iter().try_for_each(|part| out.put(part)).ok_or(NoTarget::Full)
}

/// Replaces `/./`, and `/.` at the end, by `/`.
fn strip_dot(path: &[u8], out: &mut Writer<'_>) -> Result<(), NoTarget> {
    let mut segments = path.split(|&byte| byte == b'/').peekable();
    let mut first = true;
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        if segment == b"." && !first {
            if last {
                put(out, &[b"/"])?;
            }
            continue;
        }
        if !first {
            put(out, &[b"/"])?;
        }
        put(out, &[segment])?;
        first = false;
    }
    Ok(())
}

/// Removes each segment `..` together with the segment before it.
fn strip_dotdot(path: &[u8], full: bool, out: &mut Writer<'_>) -> Result<(), NoTarget> {
    // From the end: each `..` removes the next segment that is not `..`.
    const MOST: usize = 512;
    let mut kept: [&[u8]; MOST] = [b""; MOST];
    let mut count = 0;
    let mut skip = 0;
    let Some(rest) = path.strip_prefix(b"/") else { return put(out, &[path]) };
    let last_is_up = rest == b".." || rest.ends_with(b"/..");
    let segments = rest.rsplit(|&byte| byte == b'/');
    for segment in segments {
        if segment == b".." {
            skip += 1;
        } else if skip > 0 {
            skip -= 1;
        } else {
            *kept.get_mut(count).ok_or(NoTarget::Full)? = segment;
            count += 1;
        }
    }
    if !full {
        for _ in 0..skip {
            put(out, &[b"/.."])?;
        }
    }
    for segment in kept[..count].iter().rev() {
        put(out, &[b"/", segment])?;
    }
    // A path that ended with `..` ends with a slash.
    if last_is_up || out.is_empty() {
        put(out, &[b"/"])?;
    }
    Ok(())
}

/// Calls `code` with each percent sign and its two digits, and the byte that they encode.
fn percent(
    text: &[u8],
    strict: bool,
    out: &mut Writer<'_>,
    code: impl Fn(u8, &[u8; 3], &mut Writer<'_>) -> Result<(), NoTarget>,
) -> Result<(), NoTarget> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let mut rest = text;
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte != b'%' {
            put(out, &[&[*byte]])?;
            continue;
        }
        match tail {
            [high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                rest = tail;
                let byte = digit(*high).unwrap_or(0) << 4 | digit(*low).unwrap_or(0);
                code(byte, &[b'%', *high, *low], out)?;
            }
            _ if strict => return Err(NoTarget::Broken),
            _ => put(out, &[b"%"])?,
        }
    }
    Ok(())
}

/// Sorts the parameters of `query`, which begins with its question mark, by name.
fn sort(query: &[u8], out: &mut Writer<'_>) -> Result<(), NoTarget> {
    let Some(parameters) = query.strip_prefix(b"?") else { return Ok(()) };
    let parameters = parameters.strip_suffix(b"&").unwrap_or(parameters); // nothing follows the last `&`
    let mut all: [&[u8]; MOST_PARAMETERS] = [b""; MOST_PARAMETERS];
    let mut count = 0;
    for parameter in parameters.split(|&byte| byte == b'&') {
        let Some(slot) = all.get_mut(count) else { return put(out, &[query]) };
        *slot = parameter;
        count += 1;
    }
    let name = |parameter: &'_ [u8]| -> usize {
        parameter.iter().position(|&byte| byte == b'=').unwrap_or(parameter.len())
    };
    // Insertion sort: the parameters are few, and equal names keep their order.
    for at in 1..count {
        let mut to = at;
        while to > 0 {
            let (left, right) = (all[to - 1], all[to]);
            if left[..name(left)] <= right[..name(right)] {
                break;
            }
            all.swap(to - 1, to);
            to -= 1;
        }
    }
    for (index, parameter) in all[..count].iter().enumerate() {
        put(out, &[if index == 0 { b"?" } else { b"&" }, parameter])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(how: Normalizer, pathq: &str) -> Result<String, NoTarget> {
        let mut bytes = [0; 256];
        let mut out = Writer::new(&mut bytes);
        how.write(pathq.as_bytes(), &mut out)?;
        Ok(String::from_utf8(out.written().to_vec()).unwrap())
    }

    /// The examples of HAProxy's manual.
    #[test]
    fn targets_become_what_the_manual_says() {
        use Normalizer::*;
        let dotdot = PathStripDotdot { full: false };
        let full = PathStripDotdot { full: true };
        let decode = PercentDecodeUnreserved { strict: false };
        for (how, from, to) in [
            (FragmentEncode, "/#foo", "/%23foo"),
            (FragmentStrip, "/#foo", "/"),
            (PathStripDot, "/.", "/"),
            (PathStripDot, "/./bar/", "/bar/"),
            (PathStripDot, "/a/./a", "/a/a"),
            (PathStripDot, "/a/.", "/a/"),
            (PathStripDot, "/.well-known/", "/.well-known/"),
            (dotdot, "/foo/../", "/"),
            (dotdot, "/foo/../bar/", "/bar/"),
            (dotdot, "/foo/bar/../", "/foo/"),
            (dotdot, "/foo/bar/..", "/foo/"),
            (dotdot, "/foo/..", "/"),
            (dotdot, "/../bar/", "/../bar/"),
            (dotdot, "/bar/../../", "/../"),
            (dotdot, "/..", "/../"),
            (dotdot, "/bar/../..", "/../"),
            (dotdot, "/foo//../", "/foo/"),
            (dotdot, "/foo/%2E%2E/", "/foo/%2E%2E/"),
            (dotdot, "/a/../b?c=/../d", "/b?c=/../d"),
            (full, "/../bar/", "/bar/"),
            (full, "/bar/../../", "/"),
            (full, "/..", "/"),
            (PathMergeSlashes, "//", "/"),
            (PathMergeSlashes, "/foo//bar?a//b", "/foo/bar?a//b"),
            (decode, "/%61dmin", "/admin"),
            (decode, "/foo%3Fbar=baz", "/foo%3Fbar=baz"),
            (decode, "/%%36%36", "/%66"),
            (decode, "/%ZZ", "/%ZZ"),
            (decode, "/%", "/%"),
            (PercentToUppercase { strict: false }, "/%6f", "/%6F"),
            (PercentToUppercase { strict: false }, "/%zz", "/%zz"),
            (QuerySortByName, "/?c=3&a=1&b=2", "/?a=1&b=2&c=3"),
            (QuerySortByName, "/?aaa=3&a=1&aa=2", "/?a=1&aa=2&aaa=3"),
            (QuerySortByName, "/?a=3&b=4&a=1&b=5&a=2", "/?a=3&a=1&a=2&b=4&b=5"),
            (QuerySortByName, "/x", "/x"),
            (QuerySortByName, "/?&", "/?"),
            (QuerySortByName, "/?b&a&", "/?a&b"),
            (QuerySortByName, "/?&b&a", "/?&a&b"),
        ] {
            assert_eq!(normal(how, from).as_deref(), Ok(to), "{how:?} {from}");
        }
    }

    #[test]
    fn strict_refuses_broken_codes() {
        for how in [
            Normalizer::PercentDecodeUnreserved { strict: true },
            Normalizer::PercentToUppercase { strict: true },
        ] {
            for from in ["/%%36%36", "/%ZZ", "/%", "/%4"] {
                assert_eq!(normal(how, from), Err(NoTarget::Broken), "{how:?} {from}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_no_target() {
        let mut bytes = [0; 4];
        let mut out = Writer::new(&mut bytes);
        assert_eq!(Normalizer::PathMergeSlashes.write(b"/12345", &mut out), Err(NoTarget::Full));
        assert_eq!(normal(Normalizer::PathStripDotdot { full: true }, &"/".repeat(600)), Err(NoTarget::Full));
    }
}
