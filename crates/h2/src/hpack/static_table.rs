//! The static table (RFC 7541, appendix A), with an index of its names.

/// The entries, beginning with index 1.
// rustfmt would give each pair a line of its own.
#[rustfmt::skip]
static ENTRIES: [(&str, &str); LEN] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""),
    ("cache-control", ""), ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""),
    ("content-length", ""), ("content-location", ""), ("content-range", ""), ("content-type", ""),
    ("cookie", ""), ("date", ""), ("etag", ""), ("expect", ""), ("expires", ""), ("from", ""), ("host", ""),
    ("if-match", ""), ("if-modified-since", ""), ("if-none-match", ""), ("if-range", ""),
    ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""), ("location", ""), ("max-forwards", ""),
    ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""), ("referer", ""), ("refresh", ""),
    ("retry-after", ""), ("server", ""), ("set-cookie", ""), ("strict-transport-security", ""),
    ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""), ("www-authenticate", ""),
];

/// Number of entries in the static table.
pub(crate) const LEN: usize = 61;

const SLOTS: usize = 128;

/// Returns the slot where the search for a name begins. The name is not empty.
const fn slot(name: &[u8]) -> usize {
    let mixed = name.len() * 7
        + name[0] as usize * 3
        + name[name.len() / 2] as usize * 5
        + name[name.len() - 1] as usize;
    mixed % SLOTS
}

/// Index of each name's first entry, by [`slot`]; a name whose slot is taken is in the next free one.
static FIRST: [u8; SLOTS] = {
    let mut first = [0; SLOTS];
    let mut n = 0;
    while n < LEN {
        let name = ENTRIES[n].0.as_bytes();
        let repeated = n > 0 && same(name, ENTRIES[n - 1].0.as_bytes());
        if !repeated {
            let mut at = slot(name);
            while first[at] != 0 {
                at = (at + 1) % SLOTS;
            }
            first[at] = n as u8 + 1;
        }
        n += 1;
    }
    first
};

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut n = 0;
    while n < a.len() {
        if a[n] != b[n] {
            return false;
        }
        n += 1;
    }
    true
}

/// Returns the entry with this index, which counts from 1.
#[inline]
pub(crate) fn get(index: usize) -> Option<(&'static [u8], &'static [u8])> {
    let (name, value) = ENTRIES.get(index.wrapping_sub(1))?;
    Some((name.as_bytes(), value.as_bytes()))
}

/// Returns the index of the first entry with this name, and of the entry that has the value, too; 0 if there
/// is none.
#[inline]
pub(crate) fn find(name: &[u8], value: &[u8]) -> (usize, usize) {
    if name.is_empty() {
        return (0, 0);
    }
    let mut at = slot(name);
    loop {
        let index = usize::from(FIRST[at]);
        let Some((entry, _)) = get(index) else { return (0, 0) };
        if entry == name {
            let whole =
                (index..=LEN).map_while(|n| get(n).filter(|(entry, _)| *entry == name).map(|e| (n, e.1)));
            let found = whole.into_iter().find(|(_, known)| *known == value).map_or(0, |(n, _)| n);
            return (index, found);
        }
        at = (at + 1) % SLOTS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_found_by_name_and_value() {
        for n in 1..=LEN {
            let (name, value) = get(n).expect("there are so many");
            let (by_name, whole) = find(name, value);
            assert_eq!(whole, n);
            assert!(by_name <= n && get(by_name).expect("found").0 == name);
            assert_eq!(find(name, b"no such value"), (by_name, 0));
        }
        assert_eq!((get(0), get(LEN + 1)), (None, None));
        assert_eq!(find(b"x-unknown", b""), (0, 0));
        assert_eq!(find(b"", b""), (0, 0));
    }

    #[test]
    fn some_numbers_of_the_appendix() {
        for (n, name, value) in [
            (1, ":authority", ""),
            (16, "accept-encoding", "gzip, deflate"),
            (32, "cookie", ""),
            (61, "www-authenticate", ""),
        ] {
            assert_eq!(get(n), Some((name.as_bytes(), value.as_bytes())));
        }
    }
}
