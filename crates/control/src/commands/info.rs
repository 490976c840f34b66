//! `show info`.

use super::Call;
use super::values::{Field, Form, Value};
use crate::activity;
use crate::process::ProcessInfo;
use manylane_io::Kind;
use manylane_plan::Generation;
use manylane_plan::generation::FrontendGateState;
use manylane_sched::Time;
use manylane_sync::atomic::Ordering;
use std::fmt::Write;

macro_rules! fields {
    ($($number:literal $name:literal $tags:literal $help:literal;)*) => {
        &[$(Field { number: $number, name: $name, tags: $tags, help: $help }),*]
    };
}

/// HAProxy's fields at HAProxy's numbers, then fields of this program.
pub(crate) static FIELDS: &[Field] = fields! {
    0 "Name" "POS" "Product name";
    1 "Version" "POS" "Product version";
    2 "Release_date" "POS" "Date of this version";
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
    20 "MaxSslConns" "MMP" "TLS connections at most, with clients and servers (0: no limit)";
    21 "CurrSslConns" "MGP" "TLS connections with clients and servers";
    22 "CumSslConns" "MCP" "TLS connections with clients and servers since the start";
    23 "Maxpipes" "CLP" "Pipes for splicing at most (0: no limit)";
    24 "PipesUsed" "MGP" "Pipes that splices hold";
    25 "PipesFree" "MGP" "Pipes that are kept for the next";
    26 "ConnRate" "MRP" "Connections of clients in the last second";
    27 "ConnRateLimit" "CLP" "Connections a second that are taken (0: no limit)";
    28 "MaxConnRate" "MMP" "The most connections of clients in a second";
    29 "SessRate" "MRP" "The same as ConnRate";
    30 "SessRateLimit" "CLP" "Sessions a second that are taken (0: no limit)";
    31 "MaxSessRate" "MRP" "The same as MaxConnRate";
    32 "SslRate" "MRP" "TLS connections of clients in the last second";
    33 "SslRateLimit" "CLP" "TLS connections of clients a second that are taken (0: no limit)";
    34 "MaxSslRate" "MMP" "The most TLS connections of clients in a second";
    35 "SslFrontendKeyRate" "MGP" "New TLS keys with clients in the last second";
    36 "SslFrontendMaxKeyRate" "MMP" "The most in a second";
    37 "SslFrontendSessionReuse_pct" "MGP" "Percent of TLS connections of clients without a new key";
    38 "SslBackendKeyRate" "MRP" "New TLS keys with servers in the last second";
    39 "SslBackendMaxKeyRate" "MMP" "The most in a second";
    40 "SslCacheLookups" "MCP" "Lookups in the cache of TLS sessions";
    41 "SslCacheMisses" "MCP" "Of these, those that found no session";
    42 "CompressBpsIn" "MRP" "Bytes to the compressor in the last second (0: nothing is compressed here)";
    43 "CompressBpsOut" "MRP" "Bytes that it gave (0)";
    44 "CompressBpsRateLim" "CLP" "Bytes that it may give in a second (0: no limit)";
    47 "Tasks" "MGP" "Tasks of all lanes";
    48 "Run_queue" "MGP" "Tasks that wait for their turn";
    49 "Idle_pct" "MaP" "Percent of the last second that the lanes slept, on average";
    50 "node" "COS" "Name of the node";
    51 "description" "COS" "'description' of the section 'global'";
    52 "Stopping" "MGP" "1 once the soft stop has begun";
    53 "Jobs" "MGP" "Listeners, connections of clients, and clients of the run-time interface";
    54 "Unstoppable Jobs" "MGP" "Of these, those that no soft stop waits for";
    55 "Listeners" "MGP" "Listeners";
    56 "ActivePeers" "MGP" "Peers that are connected, or being connected to";
    57 "ConnectedPeers" "MGP" "Of these, those that are connected";
    58 "DroppedLogs" "MGP" "Log lines that were lost";
    59 "BusyPolling" "MGP" "1 where lanes look for work instead of sleeping";
    60 "FailedResolutions" "MGP" "Names that could not be resolved, since the start";
    61 "TotalBytesOut" "MGP" "Bytes to clients since the start";
    62 "TotalSplicedBytesOut" "MGP" "Bytes through pipes, uncopied, since the start";
    63 "BytesOutRate" "MRP" "Bytes to clients in the last second";
    64 "DebugCommandsIssued" "MGP" "Streams that 'debug dev panic' has ended, since the start";
    65 "CumRecvLogs" "MCP" "Log messages received to be forwarded";
    66 "Build info" "POS" "The version again";
    67 "Memmax_bytes" "CLP" "Bytes that the process may use (-m; 0: no limit)";
    68 "PoolAlloc_bytes" "MGP" "Bytes that pools took from the allocator";
    69 "PoolUsed_bytes" "MGP" "Of these, those in use";
    70 "Start_time_sec" "MDP" "When it started, in seconds since 1970";
    71 "Tainted" "SGP" "0x8 once an experimental command was given";
    72 "TotalWarnings" "MCP" "Warnings about the configuration";
    73 "MaxconnReached" "MCP" "Times that a connection took the last slot of maxconn";
    74 "BootTime_ms" "MDP" "Milliseconds from the start until it served";
    75 "Niced_tasks" "MGP" "Tasks that wait for their turn with a nice value (0: not counted apart)";
    76 "CurrStreams" "MGP" "Streams";
    77 "CumStreams" "MGP" "Streams since the start";
    78 "BlockedTrafficWarnings" "MGP" "Times that a lane was found stuck";
    999 "Driver" "POS" "How lanes reach their sockets: epoll or io_uring";
    1000 "RegexGivenUp" "MCP" "Regular expressions with look-around that were given up, because they went \
        back too often";
};

/// The current value of a field. With `float`, times and rates have decimals.
pub(crate) fn value(
    generation: &Generation,
    process: &ProcessInfo,
    name: &str,
    float: bool,
) -> Option<Value> {
    use Value::{Float, Number32, Number64, Text};
    let (count32, gauge32) = (Value::count32, Value::gauge32);
    let elapsed = process.started.elapsed();
    let up = elapsed.as_secs();
    let rate = |rate: u64| if float { Float(rate as f64) } else { gauge32(rate) };
    let pipes = |of: fn(&manylane_io::IoReport) -> u64| manylane_io::report().iter().map(of).sum::<u64>();
    let process_stats = &generation.process_stats;
    let frontends = &generation.frontends;
    let connection_rate =
        || frontends.iter().map(|frontend| frontend.counts.rate(0, Time::now())).sum::<u64>();
    let pools = || manylane_pool::report();
    let allocated = || pools().iter().map(|pool| pool.allocated * pool.size as u64).sum::<u64>();
    let used = || manylane_pool::used_bytes() as u64;
    let tasks = |of: fn(&manylane_sched::LaneReport) -> u64| manylane_sched::report().iter().map(of).sum();
    let counted = |pick: fn(&manylane_plan::counts::FrontendCounts) -> &manylane_stats::Tally| -> u64 {
        frontends.iter().map(|frontend| frontend.counts.read_cheap_one(pick)).sum()
    };
    let clients = || process_stats.tls_clients.figures(Time::now());
    let servers = || process_stats.tls_servers.figures(Time::now());
    let tls = |pick: fn(&manylane_plan::counts::TlsCounts) -> &manylane_stats::Tally| -> u64 {
        process_stats.tls_clients.read_cheap_one(pick) + process_stats.tls_servers.read_cheap_one(pick)
    };
    let connections = || {
        let ended = counted(|counts| &counts.connections_ended);
        counted(|counts| &counts.connections).saturating_sub(ended)
    };
    let listeners = || {
        let open = |frontend: &&manylane_plan::generation::Frontend| {
            frontend.gate.state() == FrontendGateState::Open && !process_stats.is_stopping()
        };
        let bound = frontends.iter().filter(open).map(|frontend| frontend.listeners.len()).sum::<usize>();
        (bound + generation.process.stats_sockets.len()) as u64
    };
    Some(match name {
        "Name" => Text("Manylane".into()),
        "Release_date" => Text(process.released.into()),
        "Version" | "Build info" => Text(process.version.into()),
        "Nbthread" => gauge32(process.lanes as u64),
        "Driver" => Text(drivers()),
        "Nbproc" | "Process_num" => Number32(1),
        "Pid" => gauge32(std::process::id().into()),
        "Uptime" => Text(span(up)),
        "Uptime_sec" if float => Float(elapsed.as_secs_f64()),
        "Uptime_sec" => gauge32(up),
        "Memmax_MB" => gauge32(process.megabytes.unwrap_or(0)),
        "Memmax_bytes" => match process.megabytes.unwrap_or(0) << 20 {
            few if few <= u32::MAX.into() => gauge32(few),
            many => Number64(many),
        },
        "PoolAlloc_MB" => gauge32(allocated() >> 20),
        "PoolUsed_MB" => gauge32(used() >> 20),
        "PoolFailed" => count32(pools().iter().map(|pool| pool.failed).sum()),
        "Ulimit-n" | "Maxsock" => gauge32(process.descriptors),
        "Maxconn" => gauge32(generation.conn_limit.most()),
        "Hard_maxconn" => gauge32(generation.hard_maxconn),
        "ConnRate" | "SessRate" => rate(connection_rate()),
        "MaxConnRate" | "MaxSessRate" => gauge32(process_stats.most_connections(connection_rate())),
        "MaxSslConns" => gauge32(generation.tls_conn_limit.most()),
        "CurrSslConns" => {
            let ended = tls(|counts| &counts.connections_ended);
            gauge32(tls(|counts| &counts.connections).saturating_sub(ended))
        }
        "CumSslConns" => count32(tls(|counts| &counts.connections)),
        "SslRateLimit" => gauge32(generation.tls_rate.most()),
        "SslRate" => rate(clients().rates[0]),
        "MaxSslRate" => gauge32(clients().most[0]),
        "SslFrontendKeyRate" => rate(clients().rates[1]),
        "SslFrontendMaxKeyRate" => gauge32(clients().most[1]),
        "SslFrontendSessionReuse_pct" => rate(reused_percent(clients().rates)),
        "SslBackendKeyRate" => rate(servers().rates[1]),
        "SslBackendMaxKeyRate" => gauge32(servers().most[1]),
        "SslCacheLookups" => count32(manylane_tls::session_lookups().all),
        "SslCacheMisses" => count32(manylane_tls::session_lookups().misses),
        "CompressBpsIn" | "CompressBpsOut" => rate(0),
        "CompressBpsRateLim" | "Niced_tasks" => Number32(0),
        "CumRecvLogs" => count32(manylane_logs::received_messages()),
        "ActivePeers" => gauge32(super::peers::count(generation)[0]),
        "ConnectedPeers" => gauge32(super::peers::count(generation)[1]),
        "DebugCommandsIssued" => count32(super::sessions::HARMED.load(Ordering::Relaxed)),
        "Maxpipes" => gauge32(generation.process.most_pipes.unwrap_or(0) as u64),
        "PipesUsed" => gauge32(pipes(|lane| lane.pipes_used)),
        "PipesFree" => gauge32(pipes(|lane| lane.pipes_free)),
        "TotalSplicedBytesOut" => Number64(pipes(|lane| lane.spliced_out)),
        "Idle_pct" => gauge32(process_stats.idle_percent()),
        "Stopping" => gauge32(process_stats.is_stopping().into()),
        "Jobs" => gauge32(listeners() + connections() + activity::clients()),
        "Unstoppable Jobs" => gauge32(activity::unstoppable()),
        "BusyPolling" => gauge32((generation.process.busy_polling && !process_stats.is_stopping()).into()),
        "FailedResolutions" => count32(process_stats.failed_resolutions.read_cheap()),
        "BytesOutRate" => Number64(
            process_stats.bytes_rate(Time::now(), frontends.iter().map(|frontend| &*frontend.counts)),
        ),
        "Tainted" => Text(activity::taints()),
        "ConnRateLimit" => gauge32(generation.connection_rate.most()),
        "SessRateLimit" => gauge32(generation.session_rate.most()),
        "CurrConns" => gauge32(connections()),
        "CumConns" => count32(counted(|counts| &counts.connections)),
        "CumReq" => count32(counted(|counts| &counts.streams)),
        "TotalWarnings" => count32(generation.said.matches("[WARNING]").count() as u64),
        "MaxconnReached" => count32(generation.conn_limit.filled()),
        "BootTime_ms" => gauge32(process.boot.as_millis() as u64),
        "CurrStreams" => {
            let ended = counted(|counts| &counts.streams_ended);
            Number64(counted(|counts| &counts.streams).saturating_sub(ended))
        }
        "CumStreams" => Number64(counted(|counts| &counts.streams)),
        "BlockedTrafficWarnings" => count32(activity::times_stuck()),
        "Tasks" => gauge32(tasks(|lane| lane.live)),
        "Run_queue" => gauge32(tasks(manylane_sched::LaneReport::run_queue)),
        "node" => Text(generation.process.node.as_deref().unwrap_or(&generation.logs.hostname).into()),
        "description" => Text(generation.process.description.as_deref()?.into()),
        "Listeners" => gauge32(listeners()),
        "DroppedLogs" => count32(manylane_logs::lost_lines()),
        "TotalBytesOut" => Number64(counted(|counts| &counts.bytes_out)),
        "PoolAlloc_bytes" => Number64(allocated()),
        "PoolUsed_bytes" => Number64(used()),
        "Start_time_sec" => {
            let since = process.since.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            if float { Float(since.as_secs_f64()) } else { gauge32(since.as_secs()) }
        }
        "RegexGivenUp" => count32(manylane_expr::given_up()),
        _ => return None,
    })
}

/// Formats a number of seconds: `29d 23h58m03s`.
pub(super) fn span(seconds: u64) -> String {
    let minutes = seconds / 60;
    format!("{}d {}h{:02}m{:02}s", minutes / 1440, minutes / 60 % 24, minutes % 60, seconds % 60)
}

/// Returns the driver of all lanes. If they differ, `io_uring on 3 of 4 lanes, epoll on 1`.
pub(super) fn drivers() -> String {
    let lanes = manylane_io::report();
    let all = lanes.len();
    match lanes.iter().filter(|lane| lane.is_io_uring).count() {
        0 => Kind::Epoll.to_string(),
        rings if rings == all => Kind::IoUring.to_string(),
        rings => {
            format!("{} on {rings} of {all} lanes, {} on {}", Kind::IoUring, Kind::Epoll, all - rings)
        }
    }
}

/// From the connections and the new keys of the last second: the percentage of connections without a new key.
fn reused_percent([connections, keys]: [u64; 2]) -> u64 {
    if keys >= connections {
        return 0;
    }
    100 - (100 * keys + (connections - 1) / 2) / connections
}

pub(super) fn show(call: &mut Call<'_, '_>) {
    let words = call.words;
    let Some(form) = Form::read(call, words, &["typed", "json", "desc", "float"]) else { return };
    let mut objects = Vec::new();
    for field in FIELDS {
        let Some(value) = value(call.generation, &call.control.process().info, field.name, form.float) else {
            continue;
        };
        let field = &if form.float { field.of_floats() } else { *field };
        if form.json {
            objects.push(serde_json::Value::Object(field.json(&value)));
            continue;
        }
        let _ = if form.typed {
            write!(call.reply, "{}.{}.1:{}", field.number, field.name, field.typed(&value))
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
    fn what_is_no_new_key_is_a_session_from_before() {
        let all = [[0, 0], [4, 0], [4, 1], [3, 2], [4, 4], [2, 3]].map(reused_percent);
        assert_eq!(all, [0, 100, 75, 33, 0, 0]);
    }

    #[test]
    fn numbers_ascend() {
        assert!(FIELDS.is_sorted_by(|a, b| a.number < b.number));
    }
}
