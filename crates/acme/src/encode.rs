//! Encodes bytes as base64url and as PEM.

use manylane_tls::{decode_base64, encode_base64};
use zeroize::Zeroizing;

/// Number of characters in a line of PEM.
const LINE: usize = 64;

/// Encodes as base64url without padding (RFC 7515, 2).
pub(crate) fn base64url(bytes: &[u8]) -> String {
    encode_base64(bytes).trim_end_matches('=').replace('+', "-").replace('/', "_")
}

/// Decodes base64url without padding, which may be a key. `None` if it is malformed.
pub(crate) fn from_base64url(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut padded = Zeroizing::new(Vec::with_capacity(text.len() + 3));
    for byte in text {
        padded.push(match byte {
            b'-' => b'+',
            b'_' => b'/',
            byte if byte.is_ascii_alphanumeric() => *byte,
            _ => return None,
        });
    }
    padded.resize(text.len().next_multiple_of(4), b'=');
    if padded.is_empty() { Some(padded) } else { decode_base64(&padded) }
}

/// Encodes a section of PEM. The buffers clear themselves, since `der` may be a private key.
pub(crate) fn pem(label: &str, der: &[u8]) -> Zeroizing<String> {
    let encoded = Zeroizing::new(encode_base64(der));
    // The capacity suffices for the whole section: a string that grows leaves uncleared copies behind.
    let mut text = Zeroizing::new(String::with_capacity(encoded.len() / LINE + encoded.len() + 128));
    text.extend(["-----BEGIN ", label, "-----\n"]);
    for line in encoded.as_bytes().chunks(LINE) {
        text.extend(line.iter().map(|byte| char::from(*byte)));
        text.push('\n');
    }
    text.extend(["-----END ", label, "-----\n"]);
    text
}
