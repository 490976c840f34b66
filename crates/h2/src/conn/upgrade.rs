//! Connections that upgrade from HTTP/1 (RFC 7540, 3.2).

use super::streams::Side;
use super::{Connection, Role};
use crate::error::{Problem, SendError};
use crate::frame::settings::MAX_SETTINGS;
use crate::limits::Config;
use crate::stream_id::StreamId;
use manylane_buf::Chain;
use manylane_http::{Head, Known, Method};
use std::time::Duration;

/// Response that a server sends before it speaks HTTP/2.
const SWITCHING: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n";

/// Largest size of the settings, in bytes.
const MOST: usize = MAX_SETTINGS * 6;

impl Connection {
    /// Creates the server's end of a connection whose first request came in HTTP/1 with `Upgrade: h2c`. The
    /// output begins with the response 101. The request is stream 1, and is complete: it has no body, or the
    /// caller has read all of it. The client's preface follows.
    ///
    /// Returns `None` if the request does not ask for the upgrade as the RFC requires: the caller handles it
    /// as HTTP/1.
    ///
    /// # Errors
    /// [`SendError::NoMemory`]
    pub fn upgraded(
        config: Config,
        now: Duration,
        request: &Head,
    ) -> Result<Option<(Self, StreamId)>, SendError> {
        let mut bytes = [0; MOST];
        let Some(settings) = requested_settings(request, &mut bytes) else { return Ok(None) };
        let mut payload = Chain::new();
        payload.append(settings).map_err(|_| SendError::NoMemory)?;
        let mut connection = Self::begin(Role::Server, config, now);
        connection.put(SWITCHING).map_err(|_| SendError::NoMemory)?;
        connection.announce().map_err(|_| SendError::NoMemory)?;
        match connection.apply(&payload) {
            Ok(()) => {}
            Err(Problem::NoMemory) => return Err(SendError::NoMemory),
            Err(_) => return Ok(None),
        }
        let id = StreamId::new(1);
        let mut stream = connection.new_stream(Side::Done, Side::Head);
        stream.head_request = request.method_kind() == Method::Head;
        connection.streams.insert(id, stream).map_err(|_| SendError::NoMemory)?;
        (connection.last_peer, connection.open) = (id, 1);
        Ok(Some((connection, id)))
    }
}

/// Returns the settings of a request that asks for HTTP/2: those of its only `HTTP2-Settings`, which
/// `Connection` must name.
fn requested_settings<'b>(request: &Head, bytes: &'b mut [u8; MOST]) -> Option<&'b [u8]> {
    let has = |field, member: &[u8]| request.list_values(field).any(|own| own.eq_ignore_ascii_case(member));
    let named = |name| has(Known::CONNECTION, name);
    let asks = has(Known::UPGRADE, b"h2c") && named(b"upgrade") && named(b"http2-settings");
    if !asks || request.count(Known::HTTP2_SETTINGS) != 1 {
        return None;
    }
    let len = base64url(request.value(Known::HTTP2_SETTINGS)?, bytes)?;
    len.is_multiple_of(6).then_some(&bytes[..len])
}

/// Decodes base64url without padding (RFC 4648, 5) into `out`, and returns the number of bytes. Returns
/// `None` if the text is not valid or `out` is too small.
fn base64url(text: &[u8], out: &mut [u8]) -> Option<usize> {
    let (mut bits, mut held, mut len) = (0u32, 0, 0);
    for &byte in text {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(value)) & 0x3fff;
        held += 6;
        if held >= 8 {
            held -= 8;
            *out.get_mut(len)? = (bits >> held) as u8;
            len += 1;
        }
    }
    // Unused bits of the last letter must be zero, and fewer than a letter's six.
    (held < 6 && bits & ((1 << held) - 1) == 0).then_some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_become_bytes() {
        let decoded = |text: &[u8]| {
            let mut out = [0; 6];
            base64url(text, &mut out).map(|len| out[..len].to_vec())
        };
        assert_eq!(decoded(b""), Some(vec![]));
        assert_eq!(decoded(b"AAMAAABk"), Some(vec![0, 3, 0, 0, 0, 100]));
        assert_eq!(decoded(b"-_8"), Some(vec![0xfb, 0xff]));
        for wrong in [&b"A"[..], b"AB", b"AAMAAABkA", b"AAMAAABkAA", b"AA==", b"+/8", b"A A"] {
            assert_eq!(decoded(wrong), None, "{}", wrong.escape_ascii());
        }
    }
}
