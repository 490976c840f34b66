//! Lists of fields through an encoder and a decoder, with any kind of indexing and any changes of the table
//! size.
#![no_main]

use libfuzzer_sys::fuzz_target;
use manylane_h2::hpack::{Decoder, Encoder, Indexing};

/// Reads a string with a length prefix.
fn string<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (&len, rest) = bytes.split_first()?;
    let (string, rest) = rest.split_at(usize::from(len).min(rest.len()));
    *bytes = rest;
    Some(string)
}

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::new(4096));
    let (mut out, mut strings, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
    encoder.begin(&mut out);
    while let Some((&act, behind)) = rest.split_first() {
        rest = behind;
        if act >= 0xc0 {
            // The block ends; the table size may change before the next one.
            let mut found = Vec::new();
            decoder
                .decode(&out, &mut strings, |line| {
                    found.push((line.name.to_vec(), line.value.to_vec(), line.never_indexed))
                })
                .expect("an encoder's block");
            assert_eq!(found, wanted);
            out.clear();
            wanted.clear();
            if act < 0xf0 {
                encoder.set_limit(usize::from(act & 0x3f) * 80);
                encoder.set_limit(usize::from(behind.first().copied().unwrap_or(0)) * 16);
            }
            encoder.begin(&mut out);
            continue;
        }
        let indexing = [Indexing::Incremental, Indexing::Without, Indexing::Never][usize::from(act % 3)];
        let (Some(name), Some(value)) = (string(&mut rest), string(&mut rest)) else { return };
        encoder.field(name, value, indexing, &mut out);
        wanted.push((name.to_vec(), value.to_vec(), indexing == Indexing::Never));
    }
});
