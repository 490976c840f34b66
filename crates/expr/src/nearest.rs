//! Finds known words near a mistyped one.
//!
//! The distance is optimal string alignment: insertions, deletions, replacements and swaps of neighbours cost
//! one each, and no byte is edited twice. Three rows of the table are kept. The search stops when no row can
//! stay within the bound.

/// Maximum length of a word to find suggestions for, in bytes. No keyword is longer.
pub const MAX_GUESSED_BYTES: usize = 64;
/// Maximum number of edits between a word and its suggestion.
pub const MAX_EDITS: usize = 3;
/// Minimum length of a word that is completed to a longer one, in bytes.
const MIN_BEGINNING: usize = 3;

/// Maximum number of suggestions.
const MAX_PROPOSED: usize = 3;

/// The known word with the fewest edits from `word`, the first of several. Allows one edit for every three
/// bytes, at most [`MAX_EDITS`].
pub fn nearest<'a>(word: &[u8], known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    nearest_few(word, known).first().copied()
}

/// The known words with the fewest edits from `word`, at most `MAX_PROPOSED`. If none is near, those that
/// begin with `word`.
///
/// Cost: at most 64 × 64 steps per candidate. Candidates whose length differs too much are skipped.
fn nearest_few<'a>(word: &[u8], known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut best = Vec::new();
    let mut longer = Vec::new();
    if word.is_empty() || word.len() > MAX_GUESSED_BYTES {
        return best;
    }
    let mut bound = (word.len().div_ceil(3)).min(MAX_EDITS);
    for candidate in known {
        match distance(word, candidate.as_bytes(), bound) {
            // Skip words that share no byte with `word`.
            Some(edits) if edits < candidate.len() => {
                if edits < bound {
                    best.clear();
                    bound = edits;
                }
                if best.len() < MAX_PROPOSED && !best.contains(&candidate) {
                    best.push(candidate);
                }
            }
            _ if word.len() >= MIN_BEGINNING
                && longer.len() < MAX_PROPOSED
                && candidate.as_bytes().starts_with(word)
                && !longer.contains(&candidate) =>
            {
                longer.push(candidate);
            }
            _ => {}
        }
    }
    if best.is_empty() { longer } else { best }
}

/// `; did you mean 'x' or 'y'?` with the nearest known words, or an empty string.
pub fn guess<'a>(word: &[u8], known: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = nearest_few(word, known).iter().map(|word| format!("'{word}'")).collect();
    match &quoted[..] {
        [] => String::new(),
        [one] => format!("; did you mean {one}?"),
        [first @ .., last] => format!("; did you mean {} or {last}?", first.join(", ")),
    }
}

/// Number of edits from `a` to `b`, ignoring case; `None` if they exceed `bound`.
fn distance(a: &[u8], b: &[u8], bound: usize) -> Option<usize> {
    if a.len().abs_diff(b.len()) > bound || b.len() > MAX_GUESSED_BYTES {
        return None;
    }
    let mut rows = [[0; MAX_GUESSED_BYTES + 1]; 3];
    for (column, cell) in rows[0].iter_mut().enumerate() {
        *cell = column;
    }
    for i in 1..=a.len() {
        let (now, before, twice) = (i % 3, (i + 2) % 3, (i + 1) % 3);
        rows[now][0] = i;
        let mut least = i;
        for j in 1..=b.len() {
            let same = |x: usize, y: usize| a[x - 1].eq_ignore_ascii_case(&b[y - 1]);
            let mut edits = (rows[before][j] + 1)
                .min(rows[now][j - 1] + 1)
                .min(rows[before][j - 1] + usize::from(!same(i, j)));
            if i > 1 && j > 1 && same(i, j - 1) && same(i - 1, j) {
                edits = edits.min(rows[twice][j - 2] + 1);
            }
            rows[now][j] = edits;
            least = least.min(edits);
        }
        // A swap uses the row before the last one, so both rows must exceed the bound.
        if least > bound && rows[before][..=b.len()].iter().all(|&edits| edits > bound) {
            return None;
        }
    }
    Some(rows[a.len() % 3][b.len()]).filter(|&edits| edits <= bound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WORDS: [&str; 6] = ["maxconn", "mode", "monitor-uri", "httplog", "bind", "id"];

    #[test]
    fn slips_of_the_finger_are_recognised() {
        for (typed, meant) in [
            ("maxcon", "maxconn"),
            ("maxxconn", "maxconn"),
            ("amxconn", "maxconn"),
            ("httplg", "httplog"),
            ("MODE", "mode"),
            ("monitor_uri", "monitor-uri"),
            ("bnid", "bind"),
        ] {
            assert_eq!(nearest(typed.as_bytes(), WORDS), Some(meant), "{typed}");
        }
    }

    #[test]
    fn what_is_far_from_everything_is_not_guessed() {
        for typed in ["", "x", "zz", "completely-else", "\u{ff}\u{ff}"] {
            assert_eq!(nearest(typed.as_bytes(), WORDS), None, "{typed}");
        }
        assert_eq!(nearest(&[b'm'; 100_000], WORDS), None);
    }

    #[test]
    fn of_several_at_most_three_are_proposed() {
        let of =
            |word: &[u8]| guess(word, ["stick on", "set-src", "set-dst", "set-uri", "set-tos", "set-path"]);
        assert_eq!(of(b"set-sst"), "; did you mean 'set-dst'?");
        assert_eq!(of(b"set-xxx"), "; did you mean 'set-src', 'set-dst' or 'set-uri'?");
        assert_eq!(of(b"stick"), "; did you mean 'stick on'?");
        assert_eq!(of(b"nothing-like-it"), "");
    }

    /// The textbook algorithm, with the whole table and without a bound.
    fn plain(a: &[u8], b: &[u8]) -> usize {
        let mut table = vec![vec![0usize; b.len() + 1]; a.len() + 1];
        for i in 0..=a.len() {
            for j in 0..=b.len() {
                table[i][j] = if i == 0 || j == 0 {
                    i + j
                } else {
                    let same = a[i - 1] == b[j - 1];
                    let mut edits = (table[i - 1][j] + 1)
                        .min(table[i][j - 1] + 1)
                        .min(table[i - 1][j - 1] + usize::from(!same));
                    if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                        edits = edits.min(table[i - 2][j - 2] + 1);
                    }
                    edits
                };
            }
        }
        table[a.len()][b.len()]
    }

    proptest! {
        #[test]
        fn the_bounded_distance_is_the_textbook_distance(a in "[abc]{0,8}", b in "[abc]{0,8}",
            bound in 0usize..9) {
            let full = plain(a.as_bytes(), b.as_bytes());
            prop_assert_eq!(distance(a.as_bytes(), b.as_bytes(), bound), (full <= bound).then_some(full));
        }
    }
}
