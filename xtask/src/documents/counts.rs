//! Finds counts of tests in prose, which soon become wrong. The test runner shows the current number.

/// The counted nouns. A bound on one test (`256 cases a property`) is not a count of tests.
const COUNTED: [&str; 4] = ["cases", "scripts", "test cases", "tests"];

/// The offset and text of each number that stands before such a noun.
pub(super) fn of(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices(char::is_whitespace).filter_map(|(end, _)| {
        let begin = text[..end].trim_end_matches(|c: char| c.is_ascii_digit() || c == ',').len();
        let starts_word = !text[..begin].ends_with(|c: char| c.is_alphanumeric() || c == '.' || c == '=');
        let rest = text[end..].trim_start();
        let word = COUNTED.iter().find(|word| rest.starts_with(**word))?;
        let behind = &rest[word.len()..];
        let is_word = !behind.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '-');
        let is_bound = behind.trim_start().starts_with("a ") || behind.trim_start().starts_with("each");
        let length = text[end..].len() - behind.len() + (end - begin);
        (begin < end && starts_word && is_word && !is_bound).then(|| (begin, &text[begin..begin + length]))
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_of_tests_are_counts_and_bounds_on_one_are_none() {
        let found = |text| super::of(text).map(|(_, count)| count).collect::<Vec<_>>();
        assert_eq!(found("– 1,247 test cases, and 26\ncases of x"), ["1,247 test cases", "26\ncases"]);
        assert_eq!(found("256 cases a property, 20,000 cases each, 3 testsuites, R-5 x, tests"), [""; 0]);
        assert_eq!(found("of 3.2 tests; A=60 scripts; 10 scripts"), ["10 scripts"]);
    }
}
