//! HTTP/2 frames of an attacker: RFC 9113, and RFC 7541 without Huffman codes.

/// The beginning of every connection.
pub(in crate::proxy) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const DATA: u8 = 0;
pub(in crate::proxy) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

/// `SETTINGS_HEADER_TABLE_SIZE` and `SETTINGS_INITIAL_WINDOW_SIZE`.
pub(super) const TABLE_SIZE: u16 = 1;
pub(super) const INITIAL_WINDOW: u16 = 4;

/// The largest window.
pub(super) const MOST: u32 = (1 << 31) - 1;

/// `GET /` of `http://a`: three fields of the static table, and `:authority` with a value that is not
/// indexed.
pub(super) const GET: &[u8] = &[0x82, 0x86, 0x84, 0x01, 1, b'a'];

/// As [`GET`], with POST.
pub(super) const POST: &[u8] = &[0x83, 0x86, 0x84, 0x01, 1, b'a'];

/// Writes a frame.
pub(super) fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Writes settings.
pub(super) fn settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    let one = |&(name, value): &(u16, u32)| {
        let [a, b] = name.to_be_bytes();
        let [c, d, e, f] = value.to_be_bytes();
        [a, b, c, d, e, f]
    };
    frame(out, SETTINGS, 0, 0, &settings.iter().flat_map(one).collect::<Vec<_>>());
}

/// Writes an indexed field. Name and value are shorter than 127 bytes, or the value than 16,000.
pub(super) fn indexed_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(&[0x40, name.len() as u8]);
    out.extend_from_slice(name.as_bytes());
    length(out, value.len());
    out.extend_from_slice(value);
}

/// A string's length without Huffman coding: an integer with a 7-bit prefix.
fn length(out: &mut Vec<u8>, len: usize) {
    match len.checked_sub(127) {
        None => out.push(len as u8),
        Some(more) => out.extend_from_slice(&[127, more as u8 | 128, (more >> 7) as u8]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_as_the_standards_have_them() {
        let mut out = Vec::new();
        settings(&mut out, &[(INITIAL_WINDOW, 0)]);
        assert_eq!(out, [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0]);
        out.clear();
        indexed_field(&mut out, "x", &[b'y'; 300]);
        // 300 - 127 = 173 = 45 + 128
        assert_eq!(out[..6], [0x40, 1, b'x', 127, 45 | 128, 1]);
        assert_eq!(out.len(), 306);
    }
}
