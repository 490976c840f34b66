//! `show info`.

use super::Call;
use super::values::{Field, Form, Value};
use crate::process::Facts;
use manylane_proxy::Generation;
use manylane_sched::Time;
use std::fmt::Write;

macro_rules! fields {
    ($($place:literal $name:literal $tags:literal $help:literal;)*) => {
        &[$(Field { place: $place, name: $name, tags: $tags, help: $help }),*]
    };
}

/// HAProxy's fields that are known here, at HAProxy's places, and behind them those of this program.
pub(crate) static FIELDS: &[Field] = fields! {
    0 "Name" "POS" "Product name";
    1 "Version" "POS" "Product version";
    3 "Nbthread" "CGS" "Lanes";
    4 "Nbproc" "CGS" "Worker processes (1)";
    5 "Process_num" "KGP" "Number of this process (1)";
    6 "Pid" "SGP" "Number that the system gave this process";
    7 "Uptime" "MDP" "Time since the start (days, hours, minutes, seconds)";
    8 "Uptime_sec" "MDP" "Seconds since the start";
    9 "Memmax_MB" "CLP" "Megabytes that the process may use (-m; 0: no limit)";
    10 "PoolAlloc_MB" "MGP" "Megabytes that pools took from the allocator";
    11 "PoolUsed_MB" "MGP" "Of these, those in use";
    12 "PoolFailed" "MCP" "Allocations from pools that failed";
    13 "Ulimit-n" "CLP" "Descriptors that the process may open";
    14 "Maxsock" "CLP" "The same";
    15 "Maxconn" "CLP" "Connections of clients at once";
    16 "Hard_maxconn" "CLP" "The same, as set at the start";
    17 "CurrConns" "MGP" "Connections of clients";
    18 "CumConns" "MCP" "Connections of clients since the start";
    19 "CumReq" "MCP" "Requests since the start";
    26 "ConnRate" "MRP" "Connections of clients in the last second";
    27 "ConnRateLimit" "CLP" "Connections a second that are taken (0: no limit)";
    29 "SessRate" "MRP" "The same as ConnRate";
    30 "SessRateLimit" "CLP" "Sessions a second that are taken (0: no limit)";
    47 "Tasks" "MGP" "Tasks of all lanes";
    48 "Run_queue" "MGP" "Tasks that wait for their turn";
    50 "node" "COS" "Name of the node";
    51 "description" "COS" "What the file says of the process";
    55 "Listeners" "MGP" "Listeners";
    58 "DroppedLogs" "MGP" "Log lines that were lost";
    61 "TotalBytesOut" "MGP" "Bytes to clients since the start";
    68 "PoolAlloc_bytes" "MGP" "Bytes that pools took from the allocator";
    69 "PoolUsed_bytes" "MGP" "Of these, those in use";
    70 "Start_time_sec" "MDP" "When it started, in seconds since 1970";
    1000 "RegexGivenUp" "MCP" "Regular expressions with look-around that were given up, because they went back too often";
};

/// What a field says now.
pub(crate) fn value(generation: &Generation, process: &Facts, name: &str) -> Option<Value> {
    use Value::{Number32, Number64, Text};
    let up = process.started.elapsed().as_secs();
    let frontends = &generation.frontends;
    let pools = || manylane_pool::report();
    let allocated = || pools().iter().map(|pool| pool.allocated * pool.size as u64).sum::<u64>();
    let used = || pools().iter().map(|pool| pool.used * pool.size as u64).sum::<u64>();
    let tasks = |of: fn(&manylane_sched::LaneReport) -> u64| manylane_sched::report().iter().map(of).sum();
    let counted = |pick: fn(&manylane_proxy::counts::FrontendCounts) -> &manylane_stats::Tally| -> u64 {
        frontends.iter().map(|frontend| frontend.counts.read_cheap_one(pick)).sum()
    };
    Some(match name {
        "Name" => Text("Manylane".into()),
        "Version" => Text(process.version.into()),
        "Nbthread" => Number32(process.lanes as u64),
        "Nbproc" | "Process_num" => Number32(1),
        "Pid" => Number32(std::process::id().into()),
        "Uptime" => Text(format!("{}d {}h{:02}m{:02}s", up / 86_400, up / 3600 % 24, up / 60 % 60, up % 60)),
        "Uptime_sec" => Number32(up),
        "Memmax_MB" => Number32(process.megabytes.unwrap_or(0)),
        "PoolAlloc_MB" => Number32(allocated() >> 20),
        "PoolUsed_MB" => Number32(used() >> 20),
        "PoolFailed" => Number32(pools().iter().map(|pool| pool.failed).sum()),
        "Ulimit-n" | "Maxsock" => Number32(process.descriptors),
        "Maxconn" => Number32(generation.places.most()),
        "Hard_maxconn" => Number32(generation.hard_maxconn),
        "ConnRate" | "SessRate" => {
            Number32(frontends.iter().map(|frontend| frontend.counts.rate(0, Time::now())).sum())
        }
        "ConnRateLimit" => Number32(generation.connection_rate.most()),
        "SessRateLimit" => Number32(generation.session_rate.most()),
        "CurrConns" => {
            let ended = counted(|counts| &counts.connections_ended);
            Number32(counted(|counts| &counts.connections).saturating_sub(ended))
        }
        "CumConns" => Number32(counted(|counts| &counts.connections)),
        "CumReq" => Number32(counted(|counts| &counts.streams)),
        "Tasks" => Number32(tasks(|lane| lane.live)),
        "Run_queue" => Number32(tasks(manylane_sched::LaneReport::run_queue)),
        "node" => Text(generation.process.node.as_deref().unwrap_or(&generation.logs.hostname).into()),
        "description" => Text(generation.process.description.as_deref()?.into()),
        "Listeners" => {
            let bound = frontends.iter().map(|frontend| frontend.listeners.len()).sum::<usize>();
            Number32((bound + generation.process.stats_sockets.len()) as u64)
        }
        "DroppedLogs" => Number32(manylane_logs::lost_lines()),
        "TotalBytesOut" => Number64(counted(|counts| &counts.bytes_out)),
        "PoolAlloc_bytes" => Number64(allocated()),
        "PoolUsed_bytes" => Number64(used()),
        "Start_time_sec" => {
            let since = process.since.duration_since(std::time::UNIX_EPOCH);
            Number32(since.map_or(0, |time| time.as_secs()))
        }
        "RegexGivenUp" => Number32(manylane_expr::given_up()),
        _ => return None,
    })
}

pub(super) fn show(call: &mut Call<'_, '_>) {
    let words = call.words;
    let Some(form) = Form::read(call, words, &["typed", "json", "desc"]) else { return };
    let mut objects = Vec::new();
    for field in FIELDS {
        let Some(value) = value(call.generation, &call.control.process().facts, field.name) else { continue };
        if form.json {
            objects.push(serde_json::Value::Object(field.json(&value)));
            continue;
        }
        let _ = if form.typed {
            write!(call.reply, "{}.{}.1:{}", field.place, field.name, field.typed(&value))
        } else {
            write!(call.reply, "{}: {}", field.name, value.text())
        };
        if form.described {
            let _ = write!(call.reply, ":\"{}\"", field.help);
        }
        call.reply.put("\n");
    }
    if form.json {
        let _ = writeln!(call.reply, "{}", serde_json::Value::Array(objects));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_ascend() {
        assert!(FIELDS.is_sorted_by(|a, b| a.place < b.place));
    }
}
