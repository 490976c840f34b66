//! Chunked bodies: any cut gives the same data; raw chunks and re-encoded data decode to the same; a simple
//! reference reader agrees.
#![no_main]

use libfuzzer_sys::fuzz_target;
use manylane_buf::{Chain, Cluster};
use manylane_h1::{Body, BodyReader, BodyWriter, From, Leniency, Limits, Progress};

fn push(chain: &mut Chain, bytes: &[u8]) {
    if !bytes.is_empty() {
        chain.push_back(Cluster::with(bytes).expect("memory").into_segment()).expect("room");
    }
}

/// Returns the data and the rest behind the body if it is complete and valid, and whether it has trailers.
fn read(bytes: &[u8], step: usize, keep: bool, lenient: Leniency) -> Option<(Vec<u8>, Vec<u8>, bool)> {
    let limits = Limits { head: 400, fields: 10, lenient, ..Limits::default() };
    let mut reader = BodyReader::new(Body::Chunked, From::Client, limits);
    let (mut input, mut out) = (Chain::new(), Chain::new());
    let mut trailers = false;
    for piece in bytes.chunks(step) {
        push(&mut input, piece);
        if reader.is_done() {
            continue;
        }
        let progress =
            if keep { reader.read_chunks(&mut input, &mut out) } else { reader.read(&mut input, &mut out) };
        trailers |= matches!(progress.ok()?, Progress::Done(Some(_)));
    }
    reader.is_done().then(|| (out.to_vec(), input.to_vec(), trailers))
}

/// The grammar of RFC 9112, 7.1, for bodies without extensions and trailers.
fn simple(mut bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut data = Vec::new();
    loop {
        let line = bytes.windows(2).position(|two| two == b"\r\n")?;
        let digits = std::str::from_utf8(&bytes[..line]).ok()?;
        if digits.is_empty() || digits.len() > 16 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let size = usize::try_from(u64::from_str_radix(digits, 16).ok()?).ok()?;
        bytes = &bytes[line + 2..];
        let piece = bytes.get(..size)?;
        bytes = bytes.get(size..)?.strip_prefix(b"\r\n")?;
        if size == 0 {
            return Some((data, bytes));
        }
        data.extend_from_slice(piece);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let [step, relaxations, bytes @ ..] = bytes else { return };
    let (step, lenient) = (usize::from(*step) + 1, Leniency::from_bits(u16::from(*relaxations)));
    let whole = read(bytes, 16_000, false, lenient);
    let cut = read(bytes, step, false, lenient);
    assert_eq!(whole, cut);
    let kept = read(bytes, step, true, lenient);
    assert_eq!(whole.is_some(), kept.is_some());
    if let Some((data, rest)) = simple(bytes) {
        assert_eq!(whole, Some((data, rest.to_vec(), false)));
    }
    let (Some((data, rest, trailers)), Some((mut chunks, kept_rest, _))) = (whole, kept) else { return };
    assert_eq!(rest, kept_rest);
    assert!(trailers || simple(bytes).is_some() || bytes.contains(&b';') || !lenient.is_none());
    chunks.extend_from_slice(b"0\r\n\r\n");
    assert_eq!(read(&chunks, 16_000, false, Leniency::NONE), Some((data.clone(), Vec::new(), false)));

    let mut writer = BodyWriter::new(Body::Chunked);
    let mut out = Chain::new();
    for piece in data.chunks(step) {
        let mut chain = Chain::new();
        push(&mut chain, piece);
        writer.write(&mut chain, &mut out).expect("memory");
    }
    writer.end(None, &mut out).expect("memory");
    assert_eq!(simple(&out.to_vec()).map(|(data, rest)| (data, rest.to_vec())), Some((data, Vec::new())));
});
