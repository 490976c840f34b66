//! Which fetches and converters the program refuses, by mode and place, and why.

use manylane_config::tree::Mode;
use manylane_expr::{Looks, Missing};

/// For rules and conditions of a proxy.
pub(super) fn in_rules(mode: Mode) -> Missing {
    match mode {
        Mode::Http => |name, looks| match looks {
            // Rules run while the message is there.
            Looks::Data => None,
            Looks::Message if name == "req.body_param" => None,
            _ => anywhere(name, looks),
        },
        Mode::Tcp | Mode::Log => in_tcp_rules,
    }
}

/// For log formats.
pub(super) fn in_logs(mode: Mode) -> Missing {
    match mode {
        Mode::Http => anywhere,
        Mode::Tcp | Mode::Log => in_tcp,
    }
}

fn in_tcp_rules(name: &str, looks: Looks) -> Option<&'static str> {
    match looks {
        // These read the bytes received so far.
        Looks::Message | Looks::Data => None,
        _ => in_tcp(name, looks),
    }
}

fn in_tcp(name: &str, looks: Looks) -> Option<&'static str> {
    match looks {
        Looks::Message | Looks::Data if name != "wait_end" => {
            Some("in TCP mode the bytes of connections are not looked at yet")
        }
        // Content rules of TCP mode may capture.
        Looks::Connection if name == "capture.req.hdr" || name == "capture.res.hdr" => None,
        Looks::Connection if name.starts_with("capture.") => Some("there is no request in TCP mode"),
        Looks::Alias if OF_HTTP.contains(&name) => Some("it is reserved for HTTP mode"),
        _ => anywhere(name, looks),
    }
}

/// Aliases that HAProxy has in HTTP mode only.
const OF_HTTP: &[&str] =
    &["CC", "CS", "HM", "HP", "HPO", "HQ", "HU", "HV", "Ta", "Ti", "Tq", "TR", "Tr", "r", "tr", "trg", "trl"];

/// What `rules::EvalContext` leaves open.
fn anywhere(name: &str, looks: Looks) -> Option<&'static str> {
    match looks {
        Looks::Data => match name {
            "wait_end" | "req.proto_http" | "req_proto_http" => None,
            _ => Some("messages are gone when lines are logged"),
        },
        Looks::Converter if name == "debug" => Some("it would go nowhere"),
        Looks::Fixed
        | Looks::Connection
        | Looks::Number
        | Looks::Message
        | Looks::Converter
        | Looks::Alias => None,
    }
}
