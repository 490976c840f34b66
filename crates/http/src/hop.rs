//! Fields that are a matter between two neighbours and no other (RFC 9110, 7.6.1).

use crate::name::Known;

/// Those that no intermediary passes on as they are.
pub const HOP_BY_HOP: &[Known] = &[
    Known::CONNECTION,
    Known::KEEP_ALIVE,
    Known::PROXY_CONNECTION,
    Known::TE,
    Known::TRANSFER_ENCODING,
    Known::UPGRADE,
];

/// Whether a field is one of them; versions from 2 on must not have it (RFC 9113, 8.2.2).
pub fn is_hop_by_hop(known: Known) -> bool {
    HOP_BY_HOP.contains(&known)
}
