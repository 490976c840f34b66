//! Converters of HAProxy that are not built. Using one is an error that shows the reason.
//!
//! Each name has one row: remove it here when another file gets a row for it.

use super::{Make, Row};
use crate::sample::Type;

const CRYPTO: &[&str] = &[
    "aes_cbc_dec",
    "aes_cbc_enc",
    "aes_gcm_dec",
    "aes_gcm_enc",
    "jwt_decrypt_cert",
    "jwt_decrypt_jwk",
    "jwt_decrypt_secret",
    "jwt_header_query",
    "jwt_payload_query",
    "jwt_verify",
    "jwt_verify_cert",
    "x509_v_err_str",
];

const OTHER: &[&str] = &[
    "51d.single",
    "capture-req",
    "capture-res",
    "da-csv-conv",
    "language",
    "map_beg_key",
    "map_dir_key",
    "map_dom_key",
    "map_end_key",
    "map_int_key",
    "map_ip_key",
    "map_reg_key",
    "map_str_key",
    "map_sub_key",
    "srv_is_up",
    "base2",
    "date",
    "when",
];

/// Names, and the reason for refusing them.
const GROUPS: &[(&[&str], &str)] =
    &[(CRYPTO, "ciphers and signatures are not built yet"), (OTHER, "it is not built yet")];

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
