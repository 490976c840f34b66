//! Fetches of HAProxy that are not built. Using one is an error that shows the reason.
//!
//! Each name has one row: remove it here when another file gets a row for it.

use super::{Make, Row};
use crate::eval_points::EvalPoints;
use crate::sample::Type;

const NPN: &[&str] = &["ssl_bc_npn", "ssl_fc_npn"];

const FINISHED: &[&str] = &["ssl_bc_unique_id", "ssl_fc_unique_id"];

const EARLY_EXPORTER: &[&str] = &["ssl_bc_early_exporter_secret", "ssl_fc_early_exporter_secret"];

const VERIFIED_ROOT: &[&str] = &["ssl_c_r_dn"];

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
];

const CACHE: &[&str] = &["res.cache_hit", "res.cache_name"];

const COMPRESSION: &[&str] = &["res.comp", "res.comp_algo"];

const FASTCGI: &[&str] = &["fcgi.docroot", "fcgi.index"];

const LATER: &[&str] = &["req.bytes_in", "res.bytes_in"];

const SPOE: &[&str] = &["spoe.engine-id"];

/// Names, and the reason for refusing them.
const GROUPS: &[(&[&str], &str)] = &[
    (NPN, "NPN has given way to ALPN: use 'ssl_fc_alpn' and 'ssl_bc_alpn'"),
    (FINISHED, "the TLS library does not tell Finished messages, and TLS 1.3 has given up binding to them"),
    (EARLY_EXPORTER, "the TLS library makes no secret for exports from early data"),
    (VERIFIED_ROOT, "the TLS library does not tell by which authority a chain was verified"),
    (INTERNAL, "it shows the inside of HAProxy"),
    (CACHE, "the cache is not built yet"),
    (COMPRESSION, "compression is not built yet"),
    (FASTCGI, "FastCGI is not built"),
    (LATER, "HAProxy 3.2 does not have it either; 'bytes_in' and 'bytes_out' are there"),
    (SPOE, "SPOE is not built yet"),
];

pub(super) fn rows() -> impl Iterator<Item = Row> {
    GROUPS.iter().flat_map(|(names, reason)| {
        names.iter().map(|name| Row {
            name,
            args: &[],
            required: 0,
            out: Type::Any,
            points: EvalPoints::EVERYWHERE,
            help: "not built yet",
            make: Make::Refused(reason),
        })
    })
}
