//! Finds the known word nearest to a mistyped one.

/// Returns the first word of `known` at the smallest distance from `typed`, if that is at most two edits. An
/// edit adds, omits or replaces a character, or exchanges two neighbours (Damerau's distance in its
/// restricted form). Case is ignored.
pub(super) fn nearest<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// Longer words are no typing mistakes, and the table stays small.
    const LONGEST: usize = 16;
    let typed: Vec<u8> = typed.bytes().take(LONGEST + 1).map(|c| c.to_ascii_lowercase()).collect();
    if typed.len() > LONGEST {
        return None;
    }
    let distances = known.map(|word| (distance(&typed, word.as_bytes()), word));
    // A word that is wrong throughout is no typing mistake either.
    let (best, word) = distances.min_by_key(|(distance, _)| *distance)?;
    (best <= 2 && best < typed.len().max(2)).then_some(word)
}

fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut rows = [vec![0; b.len() + 1], (0..=b.len()).collect::<Vec<_>>(), vec![0; b.len() + 1]];
    for (i, x) in a.iter().enumerate() {
        let [before_last, last, row] = &mut rows;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let mut least = (last[j] + usize::from(x != y)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                least = least.min(before_last[j - 1] + 1);
            }
            row[j + 1] = least;
        }
        rows.rotate_left(1);
    }
    rows[1][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_additions_omissions_replacements_and_exchanges() {
        for (a, b, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("tpc", "tcp", 1),
            ("ipv", "ipv4", 1),
            ("udp9", "udp4", 1),
        ] {
            assert_eq!(distance(a.as_bytes(), b.as_bytes()), expected, "{a:?} {b:?}");
        }
    }

    #[test]
    fn what_resembles_nothing_has_no_nearest_word() {
        let known = || ["fd", "tcp", "unix"].into_iter();
        assert_eq!(nearest("UNIX", known()), Some("unix"));
        assert_eq!(nearest("unxi", known()), Some("unix"));
        assert_eq!(nearest("website", known()), None);
        assert_eq!(nearest("x", known()), None);
        assert_eq!(nearest("", known()), None);
        assert_eq!(nearest(&"tcp".repeat(1000), known()), None);
    }
}
