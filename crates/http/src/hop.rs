//! Hop-by-hop fields (RFC 9110, 7.6.1).

use crate::name::Known;

/// Most fields that `Connection` of a message may name: [`Head`](crate::Head) searches all its fields for
/// each of them. Real messages name one or two.
pub const MAX_OPTIONS: usize = 64;

/// Returns whether a protocol of `Upgrade` or of an extended CONNECT is HTTP/2. It is not offered to servers:
/// rules would not see the requests within.
pub fn is_http2(protocol: &[u8]) -> bool {
    protocol.eq_ignore_ascii_case(b"h2c") || protocol.eq_ignore_ascii_case(b"h2")
}

/// Returns whether an option of `Connection` may be the name of a field.
pub(crate) fn names_a_field(option: &[u8]) -> bool {
    let known: [&[u8]; 3] = [b"close", b"keep-alive", b"upgrade"];
    !option.is_empty() && !known.iter().any(|known| option.eq_ignore_ascii_case(known))
}

/// Returns whether a field is removed even if `Connection` does not name it. `Connection`, `TE`,
/// `Transfer-Encoding` and `Upgrade` are for one hop, too, but the proxy writes each anew for the next.
pub(crate) fn is_of_one_hop(known: Known) -> bool {
    matches!(known, Known::KEEP_ALIVE | Known::PROXY_CONNECTION | Known::HTTP2_SETTINGS)
}

/// Returns whether a field stays even if `Connection` names it. Without such a field a message would end
/// elsewhere, be for another host, lose its credentials, be cached for the wrong clients, or hide that it may
/// be a copy (RFC 8470, 5.1). A sender that names one errs or attacks.
pub(crate) fn stays_though_named(known: Known, name: &[u8]) -> bool {
    matches!(
        known,
        Known::HOST
            | Known::CONNECTION
            | Known::CONTENT_LENGTH
            | Known::TRANSFER_ENCODING
            | Known::UPGRADE
            | Known::TE
            | Known::EXPECT
            | Known::AUTHORIZATION
            | Known::PROXY_AUTHORIZATION
            | Known::COOKIE
            | Known::SET_COOKIE
            | Known::CACHE_CONTROL
            | Known::VARY
            | Known::CONTENT_TYPE
            | Known::CONTENT_ENCODING
            | Known::CONTENT_RANGE
            | Known::SEC_WEBSOCKET_KEY
            | Known::SEC_WEBSOCKET_ACCEPT
    ) || known == Known::OTHER && name.eq_ignore_ascii_case(b"Early-Data")
}
