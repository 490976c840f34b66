//! Fetches of HAProxy that are not built. Using one is an error that shows the reason.
//!
//! Each name has one row: remove it here when another file gets a row for it.

use super::{Make, Row};
use crate::eval_points::EvalPoints;
use crate::sample::Type;

const TLS: &[&str] = &[
    "rep_ssl_hello_type",
    "req.ssl_ec_ext",
    "req.ssl_st_ext",
    "res.ssl_hello_type",
    "ssl_bc_client_early_traffic_secret",
    "ssl_bc_early_exporter_secret",
    "ssl_bc_npn",
    "ssl_bc_server_random",
    "ssl_bc_session_id",
    "ssl_bc_unique_id",
    "ssl_c_chain_der",
    "ssl_c_r_dn",
    "ssl_c_san",
    "ssl_fc_cipherlist_bin",
    "ssl_fc_cipherlist_hex",
    "ssl_fc_cipherlist_str",
    "ssl_fc_cipherlist_xxh",
    "ssl_fc_client_early_traffic_secret",
    "ssl_fc_early_exporter_secret",
    "ssl_fc_ecformats_bin",
    "ssl_fc_eclist_bin",
    "ssl_fc_extlist_bin",
    "ssl_fc_has_early",
    "ssl_fc_npn",
    "ssl_fc_protocol_hello_id",
    "ssl_fc_server_random",
    "ssl_fc_session_id",
    "ssl_fc_sigalgs_bin",
    "ssl_fc_supported_versions_bin",
    "ssl_fc_unique_id",
    "ssl_s_chain_der",
    "ssl_fc_early_rcvd",
];

const INTERNAL: &[&str] = &[
    "bc.debug_str",
    "bs.debug_str",
    "cpu_calls",
    "cpu_ns_avg",
    "cpu_ns_tot",
    "fc.debug_str",
    "fs.debug_str",
    "internal.htx.data",
    "internal.htx.free",
    "internal.htx.free_data",
    "internal.htx.has_eom",
    "internal.htx.nbblks",
    "internal.htx.size",
    "internal.htx.used",
    "internal.htx_blk.data",
    "internal.htx_blk.hdrname",
    "internal.htx_blk.hdrval",
    "internal.htx_blk.size",
    "internal.htx_blk.start_line",
    "internal.htx_blk.type",
    "internal.strm.is_htx",
    "last_entity",
    "lat_ns_avg",
    "lat_ns_tot",
    "term_events",
    "waiting_entity",
    "uptime",
];

const TCP_INFO: &[&str] = &[
    "bc_rtt",
    "bc_rttvar",
    "fc_fackets",
    "fc_lost",
    "fc_reordering",
    "fc_retrans",
    "fc_rtt",
    "fc_rttvar",
    "fc_sacked",
    "fc_unacked",
];

const TIMERS: &[&str] = &["req.bytes_in", "res.bytes_in"];

const OTHER: &[&str] = &[
    "distcc_body",
    "distcc_param",
    "fcgi.docroot",
    "fcgi.index",
    "quic_enabled",
    "res.cache_hit",
    "res.cache_name",
    "res.comp",
    "res.comp_algo",
    "server_status",
    "spoe.engine-id",
];

/// Names, and the reason for refusing them.
const GROUPS: &[(&[&str], &str)] = &[
    (TLS, "it is not built yet"),
    (INTERNAL, "it shows the inside of HAProxy"),
    (TCP_INFO, "the kernel's numbers of a connection are not read yet"),
    (TIMERS, "it is not built yet; log formats have %T... for times and %B, %U for bytes"),
    (OTHER, "it is not built yet"),
];

pub(super) fn rows() -> impl Iterator<Item = Row> {
    GROUPS.iter().flat_map(|(names, reason)| {
        names.iter().map(|name| Row {
            name,
            args: &[],
            required: 0,
            out: Type::Any,
            places: EvalPoints::EVERYWHERE,
            help: "not built yet",
            make: Make::Refused(reason),
        })
    })
}
