//! Header blocks of one connection: any bytes decode to fields or an error, the table keeps its limit, and
//! decoded fields survive an encoder.
#![no_main]

use libfuzzer_sys::fuzz_target;
use manylane_h2::hpack::{Decoder, Encoder, Indexing};

const LIMIT: usize = 300;

fuzz_target!(|bytes: &[u8]| {
    let (mut decoder, mut encoder, mut other) = (Decoder::new(LIMIT), Encoder::default(), Decoder::new(4096));
    let mut strings = Vec::new();
    for block in bytes.split(|&byte| byte == 0xfe) {
        let mut fields = Vec::new();
        let result = decoder.decode(block, &mut strings, |line| {
            fields.push((line.name.to_vec(), line.value.to_vec(), line.never_indexed));
        });
        assert!(fields.len() <= block.len() && decoder.table_size() <= LIMIT);
        let mut again = Vec::new();
        encoder.begin(&mut again);
        for (name, value, never) in &fields {
            encoder.field(
                name,
                value,
                if *never { Indexing::Never } else { Indexing::Incremental },
                &mut again,
            );
        }
        let mut found = Vec::new();
        other
            .decode(&again, &mut strings, |line| {
                found.push((line.name.to_vec(), line.value.to_vec(), line.never_indexed))
            })
            .expect("an encoder's block");
        assert_eq!(found, fields);
        if result.is_err() {
            return;
        }
    }
});
