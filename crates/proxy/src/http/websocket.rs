//! Translates between upgrades of HTTP/1 and extended CONNECT of HTTP/2 (RFC 8441), where the two ends speak
//! different versions.
//!
//! Inside the proxy both are an upgrade: a GET with `Upgrade` and `Connection`, accepted by 101. Only HTTP/1
//! has a key for WebSocket (RFC 6455, 4.1). The proxy makes the key for a client of HTTP/2, and for one of
//! HTTP/1 whose key is wrong or missing (`option accept-unsafe-violations-in-http-request`). It verifies the
//! server's answer to a key that it has made.

use super::exchange::Exchange;
use super::stream::Stream;
use super::tries::{Failed, no_memory};
use crate::flow::protocol;
use manylane_h1::{Body, Error, Problem, Relaxed, Request, Response, is_websocket_key};
use manylane_http::{EditError, Head, Known};
use manylane_plan::Cause;
use sha1::{Digest, Sha1};
use std::hash::{BuildHasher, RandomState};

/// Text that is appended to a key before it is hashed (RFC 6455, 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Key of a client's handshake: sixteen bytes in base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key([u8; 24]);

impl Key {
    fn of(head: &Head) -> Option<Self> {
        let key = head.values(Known::SEC_WEBSOCKET_KEY).find(|key| is_websocket_key(key))?;
        key.try_into().ok().map(Self)
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
}

/// The two ends of a WebSocket handshake.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handshake {
    /// The key for a server of HTTP/1.
    key: Key,
    /// `Sec-WebSocket-Accept` for the client, if the proxy made the key. It answers the key of the client,
    /// even a wrong one, since the client may compare. Without one it answers `key`: proxies before the
    /// client may want the field.
    accept: Option<[u8; 28]>,
}

impl Handshake {
    fn of(head: &Head) -> Self {
        if let Some(key) = Key::of(head) {
            return Self { key, accept: None };
        }
        let key = Key::random();
        let own = head.value(Known::SEC_WEBSOCKET_KEY).filter(|own| !own.is_empty());
        Self { key, accept: Some(accept_of(own.unwrap_or(&key.0))) }
    }
}

/// Returns the `Sec-WebSocket-Accept` of a server that accepts this key.
fn accept_of(key: &[u8]) -> [u8; 28] {
    let mut accept = [0; 28];
    base64(&Sha1::new().chain_update(key).chain_update(GUID).finalize(), &mut accept);
    accept
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
    request.connection.upgrade && names_websocket(&request.head)
}

/// Returns true if `Upgrade` has WebSocket, perhaps among other protocols.
fn names_websocket(head: &Head) -> bool {
    head.list_values(Known::UPGRADE).any(|name| name.eq_ignore_ascii_case(b"websocket"))
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
    /// Sets the one WebSocket key of the request if the server needs one, and removes it if the server does
    /// not.
    pub(super) fn set_websocket_key(
        &self,
        request: &mut Request,
        server_is_h2: bool,
    ) -> Result<(), EditError> {
        if !is_websocket(request) {
            return Ok(());
        }
        let head = &mut request.head;
        let handshake = self.websocket.get().unwrap_or_else(|| Handshake::of(head));
        self.websocket.set(Some(handshake));
        let key = handshake.key;
        if server_is_h2 {
            head.remove_fields(Known::SEC_WEBSOCKET_KEY);
            Ok(())
        } else if head.values(Known::SEC_WEBSOCKET_KEY).eq([&key.0[..]]) {
            Ok(())
        } else {
            head.set_field(Known::SEC_WEBSOCKET_KEY, &key.0)
        }
    }
}

#[allow(clippy::result_large_err)] // in a box, a rule's response would be an allocation
impl Exchange<'_> {
    /// Turns the response to an upgrade into one of HTTP/1, and verifies what the client cannot verify. To a
    /// client of HTTP/2 any 2xx means success. With `option accept-unsafe-violations-in-http-response`, a
    /// wrong `Sec-WebSocket-Accept` of a server of HTTP/1 becomes the right one, and `relaxed` says so.
    pub(super) fn settle_upgrade(
        &self,
        response: &mut Response,
        relaxed: &mut Option<Relaxed>,
    ) -> Result<(), Failed> {
        let handshake = self.stream.websocket.get();
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
                .and_then(|()| match handshake {
                    Some(Handshake { key, accept }) => {
                        let accept = accept.unwrap_or_else(|| accept_of(&key.0));
                        head.set_field(Known::SEC_WEBSOCKET_ACCEPT, &accept)
                    }
                    None => Ok(()),
                });
            response.connection.upgrade = true;
            return made.map_err(|_| no_memory());
        }
        let refused = || Failed::Answer(502, self.failed(Cause::Refused));
        // A client of HTTP/1 may offer other protocols as well, and the server may choose one of these.
        let agrees_on_it = agrees && (to_h2 || names_websocket(head));
        let Some(Handshake { key, accept }) = handshake.filter(|_| agrees_on_it) else {
            let is_right = agrees || !to_h2 || !matches!(head.status(), 200..=299);
            return if is_right { Ok(()) } else { Err(refused()) };
        };
        let relaxes = self.backend.http.response_limits.relaxed;
        if !relaxes && !to_h2 && accept.is_none() {
            return Ok(()); // the client verifies it by its own key
        }
        let right = accept_of(&key.0);
        let is_right = head.values(Known::SEC_WEBSOCKET_ACCEPT).eq([&right[..]]);
        if !is_right && !relaxes {
            return Err(refused());
        }
        if !is_right
            && relaxed.is_none()
            && let Some(received) = head.original().cloned()
        {
            let error = Error { status: 502, position: 0, problem: Problem::NoWebSocketAccept };
            *relaxed = Some(Relaxed { error, received });
        }
        head.set_field(Known::SEC_WEBSOCKET_ACCEPT, &accept.unwrap_or(right)).map_err(|_| no_memory())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_answered_as_the_rfc_has_it() {
        assert_eq!(&accept_of(b"dGhlIHNhbXBsZSBub25jZQ=="), b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
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
