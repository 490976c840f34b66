//! Command lines of the run-time interface: words are the same again after each character was escaped.
#![no_main]

use manylane_control::parse;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some(commands) = parse(data) else { return };
    for (words, wants_payload) in commands {
        assert!(!words.is_empty() && words.len() <= 64);
        let letters = words.iter().map(|word| word.len()).sum::<usize>();
        assert!(letters <= data.len());
        let escape = |word: &String| word.chars().flat_map(|letter| ['\\', letter]).collect::<String>();
        let mut line = words.iter().map(escape).collect::<Vec<_>>().join(" ");
        if wants_payload {
            line.push_str(" <<");
        }
        assert_eq!(parse(line.as_bytes()), Some(vec![(words, wants_payload)]), "{line}");
    }
});
