//! Which fetches and converters the program refuses, by mode and place, and why.

use manylane_config::tree::Mode;
use manylane_expr::{Missing, SampleSource};

/// For rules and conditions of a proxy.
pub(super) fn in_rules(mode: Mode) -> Missing {
    match mode {
        Mode::Http => |name, source| match source {
            // Rules run while the message is there.
            SampleSource::Data => None,
            SampleSource::Message if name == "req.body_param" => None,
            _ => anywhere(name, source),
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

fn in_tcp_rules(name: &str, source: SampleSource) -> Option<&'static str> {
    match source {
        // These read the bytes received so far.
        SampleSource::Message | SampleSource::Data => None,
        _ => in_tcp(name, source),
    }
}

fn in_tcp(name: &str, source: SampleSource) -> Option<&'static str> {
    match source {
        SampleSource::Message | SampleSource::Data if name != "wait_end" => {
            Some("log lines in TCP mode cannot use the bytes of the connection")
        }
        // Content rules of TCP mode may capture.
        SampleSource::Connection if name == "capture.req.hdr" || name == "capture.res.hdr" => None,
        SampleSource::Connection if name.starts_with("capture.") => Some("there is no request in TCP mode"),
        SampleSource::Alias if OF_HTTP.contains(&name) => Some("it is reserved for HTTP mode"),
        _ => anywhere(name, source),
    }
}

/// Aliases that HAProxy has in HTTP mode only.
const OF_HTTP: &[&str] =
    &["CC", "CS", "HM", "HP", "HPO", "HQ", "HU", "HV", "Ta", "Ti", "Tq", "TR", "Tr", "r", "tr", "trg", "trl"];

/// Decides what the functions above do not: no message is at hand, and `debug` has no output.
fn anywhere(name: &str, source: SampleSource) -> Option<&'static str> {
    match source {
        SampleSource::Data => match name {
            "wait_end" | "req.proto_http" | "req_proto_http" => None,
            _ => Some("messages are gone when lines are logged"),
        },
        SampleSource::Converter if name == "debug" => Some("its output has no destination in this program"),
        SampleSource::Fixed
        | SampleSource::Connection
        | SampleSource::Number
        | SampleSource::Message
        | SampleSource::Converter
        | SampleSource::Alias => None,
    }
}
