//! Addresses in configuration files: an accepted address reads back as it is written, and error positions lie
//! within the text. The first byte selects the statement.
#![no_main]

use manylane_net::{Address, Rules};

const RULES: [Rules; 6] =
    [Rules::BIND, Rules::DGRAM_BIND, Rules::SERVER, Rules::SOURCE, Rules::LOG, Rules::NAMESERVER];

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&choice, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let rules = &RULES[usize::from(choice) % RULES.len()];
    match Address::parse(text, rules) {
        Ok(address) => {
            let written = address.to_string();
            assert_eq!(Address::parse(&written, rules).as_ref(), Ok(&address), "{written}");
        }
        Err(error) => {
            assert!(text.get(error.span()).is_some(), "{:?}", error.span());
            assert!(!error.to_string().contains(char::is_control));
        }
    }
});
