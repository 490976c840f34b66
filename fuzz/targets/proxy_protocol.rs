//! PROXY protocol headers: an accepted header reads back the same after writing, and each proper prefix of it
//! asks for more.
#![no_main]

use manylane_net::proxy_protocol::{HeaderContents, Parsed, Version, emit_v1, emit_v2, kind, parse};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(Parsed::Complete { header, length }) = parse(data) else { return };
    assert!(length <= data.len());
    assert!(
        matches!(parse(&data[..length / 2]), Ok(Parsed::Incomplete { at_least }) if at_least > length / 2)
    );
    let mut again = Vec::new();
    let checksum = header.tlvs.value_of(kind::CRC32C).is_some();
    let tlvs: Vec<_> = header.tlvs.filter(|tlv| tlv.kind != kind::CRC32C).collect();
    match header.version {
        Version::V1 => emit_v1(header.ends.as_ref(), &mut again),
        Version::V2 => {
            // The checksum is written at the end, wherever it was before.
            emit_v2(&HeaderContents { ends: header.ends, tlvs: &tlvs, checksum }, &mut again)
                .expect("what was read can be written");
        }
    }
    let Ok(Parsed::Complete { header: read, .. }) = parse(&again) else { panic!("{again:?}") };
    assert_eq!(read.ends, header.ends);
    assert_eq!(read.tlvs.filter(|tlv| tlv.kind != kind::CRC32C).collect::<Vec<_>>(), tlvs);
});
