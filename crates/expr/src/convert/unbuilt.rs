//! Converters of HAProxy that are not built. Using one is an error that shows the reason.
//!
//! Each name has one row: remove it here when another file gets a row for it.

use super::{Make, Row};
use crate::sample::Type;

const LATER: &[&str] = &[
    "aes_cbc_dec",
    "aes_cbc_enc",
    "jwt_decrypt_cert",
    "jwt_decrypt_jwk",
    "jwt_decrypt_secret",
    "jwt_verify_cert",
];

const DEVICES: &[&str] = &["51d.single", "da-csv-conv"];

/// Names, and the reason for refusing them.
const GROUPS: &[(&[&str], &str)] = &[
    (LATER, "HAProxy 3.2 does not have it either"),
    (DEVICES, "device detection needs a product of another company"),
];

pub(super) fn rows() -> impl Iterator<Item = Row> {
    GROUPS.iter().flat_map(|(names, reason)| {
        names.iter().map(|name| Row {
            name,
            args: &[],
            required: 0,
            takes: Type::Any,
            gives: Type::Any,
            help: "not built yet",
            make: Make::Refused(reason),
        })
    })
}
