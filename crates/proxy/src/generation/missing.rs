//! What expressions would look for in vain: refused by name where the file says it.

use manylane_config::tree::Mode;
use manylane_expr::{Looks, Missing};

/// For the rules and conditions of a proxy.
pub(super) fn in_rules(mode: Mode) -> Missing {
    match mode {
        Mode::Http => |name, looks| match looks {
            // Log lines come too late for them.
            Looks::Data => None,
            Looks::Message if name == "req.body_param" => None,
            // What ends a request is not known while its rules run.
            Looks::Alias if LATE.contains(&name) => Some("it is known when the line is logged, not while rules run"),
            _ => anywhere(name, looks),
        },
        Mode::Tcp => in_tcp_rules,
    }
}

/// For log formats.
pub(super) fn in_logs(mode: Mode) -> Missing {
    match mode {
        Mode::Http => anywhere,
        Mode::Tcp => in_tcp,
    }
}

const NOT_BUILT: &str = "it is not built yet";
/// Aliases of times, bytes and ends.
const LATE: &[&str] = &[
    "B", "CC", "CS", "Ta", "Tc", "Td", "Ti", "Tq", "TR", "Tr", "Tt", "Tu", "Tw", "U", "bq", "rc", "sq", "ts", "tsc",
];

fn in_tcp_rules(name: &str, looks: Looks) -> Option<&'static str> {
    match looks {
        // Looked for in the bytes that are here.
        Looks::Message | Looks::Data => None,
        _ => in_tcp(name, looks),
    }
}

fn in_tcp(name: &str, looks: Looks) -> Option<&'static str> {
    match looks {
        Looks::Message | Looks::Data if name != "wait_end" => {
            Some("in TCP mode the bytes of connections are not looked at yet")
        }
        // Rules for contents capture, too.
        Looks::Connection if name == "capture.req.hdr" || name == "capture.res.hdr" => None,
        Looks::Connection if name.starts_with("capture.") || name == "unique-id" => Some("there is no request in TCP mode"),
        Looks::Alias if name == "ID" || name == "rt" => Some("there is no request in TCP mode"),
        _ => anywhere(name, looks),
    }
}

/// What [`Facts`](crate::rules::Facts) leaves open.
fn anywhere(name: &str, looks: Looks) -> Option<&'static str> {
    match looks {
        Looks::Number => match name {
            "dst_conn" => Some("connections of a listener are not counted yet"),
            _ => None,
        },
        Looks::Data => match name {
            "wait_end" | "req.proto_http" | "req_proto_http" => None,
            _ => Some("messages are gone when lines are logged"),
        },
        Looks::Connection => match name {
            "bc_dst" | "bc_dst_port" | "bc_src" | "bc_src_port" => {
                Some("the addresses of connections to servers are not shown to expressions yet")
            }
            // Only loopback addresses are known to be the machine's.
            "src_is_local" | "dst_is_local" | "fc_src_is_local" | "fc_dst_is_local" => Some(NOT_BUILT),
            "fc_pp_authority" | "fc_pp_unique_id" | "last_rule_file" | "last_rule_line" => Some(NOT_BUILT),
            _ => None,
        },
        Looks::Converter if name == "debug" => Some("it would go nowhere"),
        Looks::Alias => match name {
            "bi" | "bp" | "si" | "sp" => Some("the addresses of connections to servers are not logged yet"),
            "lc" => Some("lines are not numbered yet"),
            _ => None,
        },
        Looks::Fixed | Looks::Message | Looks::Converter => None,
    }
}
