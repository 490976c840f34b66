//! Translates between upgrades of HTTP/1 and extended CONNECT of HTTP/2 (RFC 8441), where the two ends speak
//! different versions.
//!
//! Inside the proxy both are an upgrade: a GET with `Upgrade` and `Connection`, accepted by 101. Only HTTP/1
//! has a key for WebSocket (RFC 6455, 4.1). The proxy makes the key for an end of HTTP/2, and verifies the
//! server's answer to it.

use super::exchange::Exchange;
use super::stream::Stream;
use super::tries::{Failed, no_memory};
use crate::flow::protocol;
use manylane_h1::{Body, Request, Response};
use manylane_http::{EditError, Head, Known};
use manylane_plan::Cause;
use sha1::{Digest, Sha1};
use std::hash::{BuildHasher, RandomState};

/// Text that is appended to a key before it is hashed (RFC 6455, 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Key of a client's handshake: sixteen bytes in base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key([u8; 24]);

impl Key {
    fn of(head: &Head) -> Option<Self> {
        head.value(Known::SEC_WEBSOCKET_KEY)?.try_into().ok().map(Self)
    }

    /// Returns a key that cannot be guessed.
    fn random() -> Self {
        let state = RandomState::new();
        let [one, two] = [0_u8, 1].map(|half| state.hash_one(half).to_le_bytes());
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&one);
        bytes[8..].copy_from_slice(&two);
        let mut key = [0; 24];
        base64(&bytes, &mut key);
        Self(key)
    }

    /// Returns the `Sec-WebSocket-Accept` of a server that accepts.
    fn accept(&self) -> [u8; 28] {
        let mut accept = [0; 28];
        base64(&Sha1::new().chain_update(self.0).chain_update(GUID).finalize(), &mut accept);
        accept
    }
}

/// Writes `bytes` in base64 into `text`, which has the right length.
fn base64(bytes: &[u8], text: &mut [u8]) {
    for (three, four) in bytes.chunks(3).zip(text.chunks_mut(4)) {
        let bits =
            three.iter().fold(0_u32, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - three.len()));
        for (n, digit) in four.iter_mut().enumerate() {
            let known = n <= three.len();
            *digit = if known { DIGITS[(bits >> (18 - 6 * n) & 63) as usize] } else { b'=' };
        }
    }
}

/// Returns true if a request offers WebSocket, perhaps among other protocols.
pub(super) fn is_websocket(request: &Request) -> bool {
    request.connection.upgrade
        && request.head.list_values(Known::UPGRADE).any(|name| name.eq_ignore_ascii_case(b"websocket"))
}

/// Turns a request that came as extended CONNECT into an upgrade.
pub(super) fn as_upgrade(head: &mut Head, protocol: &[u8]) -> Result<(), EditError> {
    head.add_field(Known::UPGRADE, protocol)?;
    head.add_field(Known::CONNECTION, b"upgrade")
}

/// Turns a 101 into the response that a client of HTTP/2 gets.
pub(super) fn as_connected(head: &mut Head) -> Result<(), EditError> {
    head.remove_fields(Known::SEC_WEBSOCKET_ACCEPT);
    head.set_status(200, None)
}

impl Stream<'_> {
    /// Adds a WebSocket key to the request if the server needs one, and removes it if the server does not.
    pub(super) fn set_websocket_key(
        &self,
        request: &mut Request,
        server_is_h2: bool,
    ) -> Result<(), EditError> {
        if !is_websocket(request) {
            return Ok(());
        }
        let head = &mut request.head;
        let key = self.websocket.get().or_else(|| Key::of(head)).unwrap_or_else(Key::random);
        self.websocket.set(Some(key));
        if server_is_h2 {
            head.remove_fields(Known::SEC_WEBSOCKET_KEY);
            Ok(())
        } else if head.value(Known::SEC_WEBSOCKET_KEY) == Some(&key.0) {
            Ok(())
        } else {
            head.set_field(Known::SEC_WEBSOCKET_KEY, &key.0)
        }
    }
}

#[allow(clippy::result_large_err)] // in a box, a rule's response would be an allocation
impl Exchange<'_> {
    /// Turns the response to an upgrade into one of HTTP/1, and verifies what the client cannot verify. To a
    /// client of HTTP/2 any 2xx means success.
    pub(super) fn settle_upgrade(&self, response: &mut Response) -> Result<(), Failed> {
        let key = self.stream.websocket.get();
        let to_h2 = self.stream.client.end.h2().is_some();
        let agrees = response.body == Body::Tunnel;
        let head = &mut response.head;
        if self.server.h2().is_some() {
            if !agrees {
                return if to_h2 && matches!(head.status(), 200..=299) {
                    Err(Failed::Answer(502, self.failed(Cause::Refused)))
                } else {
                    Ok(())
                };
            }
            let protocol = protocol(&self.request.head).unwrap_or_default();
            let made = head
                .set_status(101, None)
                .and_then(|()| head.set_field(Known::CONNECTION, b"upgrade"))
                .and_then(|()| head.set_field(Known::UPGRADE, protocol))
                .and_then(|()| match key {
                    Some(key) => head.set_field(Known::SEC_WEBSOCKET_ACCEPT, &key.accept()),
                    None => Ok(()),
                });
            response.connection.upgrade = true;
            return made.map_err(|_| no_memory());
        }
        let is_right = match key {
            Some(key) if agrees => head.value(Known::SEC_WEBSOCKET_ACCEPT) == Some(&key.accept()),
            _ => agrees || !matches!(head.status(), 200..=299),
        };
        if to_h2 && !is_right { Err(Failed::Answer(502, self.failed(Cause::Refused))) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_answered_as_the_rfc_has_it() {
        let key = Key(*b"dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(&key.accept(), b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn keys_are_sixteen_bytes_and_differ() {
        let keys = [Key::random(), Key::random()];
        assert_ne!(keys[0], keys[1]);
        for Key(text) in keys {
            assert!(text.ends_with(b"==") && text[..22].iter().all(|digit| DIGITS.contains(digit)));
        }
    }
}
