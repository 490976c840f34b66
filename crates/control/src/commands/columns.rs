//! The columns of `show stat`, at HAProxy's places. Those that are not counted here are empty.

use super::values::Field;

macro_rules! columns {
    ($($variant:ident $name:literal $tags:literal $help:literal;)*) => {
        /// A column. Some are never filled.
        #[allow(dead_code)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Column {
            $($variant),*
        }

        pub(crate) static COLUMNS: &[Field] =
            &[$(Field { place: Column::$variant as u32, name: $name, tags: $tags, help: $help }),*];
    };
}

columns! {
    Pxname "pxname" "KNS" "name of the proxy";
    Svname "svname" "KNS" "FRONTEND, BACKEND, or the name of the server";
    Qcur "qcur" "MGP" "requests that wait";
    Qmax "qmax" "MMP" "most that waited at once";
    Scur "scur" "MGP" "streams";
    Smax "smax" "MMP" "most at once, as the sum of the lanes' own peaks";
    Slim "slim" "CLP" "streams or connections at most";
    Stot "stot" "MCP" "streams since the start; of a server, each try is one";
    Bin "bin" "MCP" "bytes of requests";
    Bout "bout" "MCP" "bytes of responses";
    Dreq "dreq" "MCP" "requests that rules refused";
    Dresp "dresp" "MCP" "responses that rules refused";
    Ereq "ereq" "MCP" "requests that were no good";
    Econ "econ" "MCP" "connections that could not be made";
    Eresp "eresp" "MCP" "responses that were no good";
    Wretr "wretr" "MCP" "connections that were tried again";
    Wredis "wredis" "MCP" "streams that went to another server";
    Status "status" "SGP" "OPEN, UP, DOWN, NOLB, MAINT, DRAIN, no check";
    Weight "weight" "MaP" "weight in effect";
    Act "act" "SGP" "servers that are active and usable";
    Bck "bck" "SGP" "backups that are usable";
    Chkfail "chkfail" "MCP" "failed checks that moved its health";
    Chkdown "chkdown" "MCP" "times that it went down";
    Lastchg "lastchg" "MAP" "seconds since it went up or down";
    Downtime "downtime" "MCP" "seconds it was down";
    Qlimit "qlimit" "CGS" "requests that may wait for the server";
    Pid "pid" "KGP" "number of the process (1)";
    Iid "iid" "KGS" "number of the proxy";
    Sid "sid" "KGS" "number of the server";
    Throttle "throttle" "MaP" "percent of its weight that it has, while it begins slowly";
    Lbtot "lbtot" "MCP" "streams that balancing gave it";
    Tracked "tracked" "CNS" "the server that it tracks";
    Type "type" "CGS" "0 frontend, 1 backend, 2 server";
    Rate "rate" "MRP" "begun in the last second";
    RateLim "rate_lim" "CLP" "sessions a second that the file allows";
    RateMax "rate_max" "MMP" "most begun in a second";
    CheckStatus "check_status" "MOP" "what the last check came to; behind * while one is under way";
    CheckCode "check_code" "MOP" "status code of the last check";
    CheckDuration "check_duration" "MDP" "milliseconds that the last check took";
    Hrsp1xx "hrsp_1xx" "MCP" "responses 1xx";
    Hrsp2xx "hrsp_2xx" "MCP" "responses 2xx";
    Hrsp3xx "hrsp_3xx" "MCP" "responses 3xx";
    Hrsp4xx "hrsp_4xx" "MCP" "responses 4xx";
    Hrsp5xx "hrsp_5xx" "MCP" "responses 5xx";
    HrspOther "hrsp_other" "MCP" "other responses";
    Hanafail "hanafail" "MCP" "times that its traffic had too many errors in a row";
    ReqRate "req_rate" "MRP" "HTTP requests in the last second";
    ReqRateMax "req_rate_max" "MMP" "most HTTP requests in a second";
    ReqTot "req_tot" "MCP" "HTTP requests";
    CliAbrt "cli_abrt" "MCP" "streams whose client left before their end";
    SrvAbrt "srv_abrt" "MCP" "streams whose server left before their end";
    CompIn "comp_in" "MCP" "bytes that came to the compressor (0)";
    CompOut "comp_out" "MCP" "bytes that it gave (0)";
    CompByp "comp_byp" "MCP" "bytes that passed it (0)";
    CompRsp "comp_rsp" "MCP" "responses that were compressed (0)";
    Lastsess "lastsess" "MAP" "seconds since the last stream; -1: none yet";
    LastChk "last_chk" "MOP" "what the last check says beside it";
    LastAgt "last_agt" "MOP" "what the last answer of its agent says beside it";
    Qtime "qtime" "MaP" "mean milliseconds in the queue";
    Ctime "ctime" "MaP" "mean milliseconds until connected";
    Rtime "rtime" "MaP" "mean milliseconds until the response";
    Ttime "ttime" "MaP" "mean milliseconds in all";
    AgentStatus "agent_status" "MOP" "what the last question to its agent came to";
    AgentCode "agent_code" "MOP" "a code beside agent_status";
    AgentDuration "agent_duration" "MDP" "milliseconds that its agent took";
    CheckDesc "check_desc" "MOP" "check_status in words";
    AgentDesc "agent_desc" "MOP" "agent_status in words";
    CheckRise "check_rise" "CGS" "good checks that bring it up";
    CheckFall "check_fall" "CGS" "failed checks that take it down";
    CheckHealth "check_health" "CGS" "its health: up from check_rise on";
    AgentRise "agent_rise" "CGS" "good answers of its agent that bring it up";
    AgentFall "agent_fall" "CGS" "bad ones that take it down";
    AgentHealth "agent_health" "CGS" "its health by its agent";
    Addr "addr" "CGS" "address and port";
    Cookie "cookie" "CNS" "value of the cookie";
    Mode "mode" "CGS" "tcp or http";
    Algo "algo" "CGS" "balancing algorithm";
    ConnRate "conn_rate" "MRP" "connections in the last second";
    ConnRateMax "conn_rate_max" "MMP" "most connections in a second";
    ConnTot "conn_tot" "MCP" "connections of clients";
    Intercepted "intercepted" "MCP" "requests that the proxy answered itself";
    Dcon "dcon" "MCP" "connections that rules refused";
    Dses "dses" "MCP" "sessions that rules refused";
    Wrew "wrew" "MCP" "edits of heads that could not be done";
    Connect "connect" "MCP" "new connections to servers that were tried to make";
    Reuse "reuse" "MCP" "requests on connections that were there";
    CacheLookups "cache_lookups" "MCP" "looks into the cache (0)";
    CacheHits "cache_hits" "MCP" "finds there (0)";
    SrvIcur "srv_icur" "MGP" "idle connections to the server";
    SrcIlim "src_ilim" "CLP" "idle connections at most";
    QtimeMax "qtime_max" "MMP" "longest time in the queue";
    CtimeMax "ctime_max" "MMP" "longest time until connected";
    RtimeMax "rtime_max" "MMP" "longest time until the response";
    TtimeMax "ttime_max" "MMP" "longest time in all";
    Eint "eint" "MCP" "errors inside";
    IdleConnCur "idle_conn_cur" "MGP" "idle connections to the server";
    SafeConnCur "safe_conn_cur" "MGP" "idle connections for any client's first request (0: see idle_conn_cur)";
    UsedConnCur "used_conn_cur" "MGP" "connections in use";
    NeedConnEst "need_conn_est" "MGP" "connections that are usually needed at once";
    Uweight "uweight" "MaP" "weight as set";
    AggServerStatus "agg_server_status" "MGP" "for exporters (0)";
    AggServerCheckStatus "agg_server_check_status" "MGP" "for exporters (0)";
    AggCheckStatus "agg_check_status" "MGP" "for exporters (0)";
    // In tables a column `-` stands here, before those of protocols.
    SslSess "ssl_sess" "MCP" "TLS sessions (0: there is no TLS here)";
    SslReusedSess "ssl_reused_sess" "MCP" "TLS sessions that were resumed (0)";
    SslFailedHandshake "ssl_failed_handshake" "MCP" "TLS handshakes that failed (0)";
    H2HeadersRcvd "h2_headers_rcvd" "MCP" "HEADERS frames received (0: there is no HTTP/2 here)";
    H2DataRcvd "h2_data_rcvd" "MCP" "DATA frames received (0: there is no HTTP/2 here)";
    H2SettingsRcvd "h2_settings_rcvd" "MCP" "SETTINGS frames received (0: there is no HTTP/2 here)";
    H2RstStreamRcvd "h2_rst_stream_rcvd" "MCP" "RST_STREAM frames received (0: there is no HTTP/2 here)";
    H2GoawayRcvd "h2_goaway_rcvd" "MCP" "GOAWAY frames received (0: there is no HTTP/2 here)";
    H2DetectedConnProtocolErrors "h2_detected_conn_protocol_errors" "MCP" "errors of HTTP/2 connections (0)";
    H2DetectedStrmProtocolErrors "h2_detected_strm_protocol_errors" "MCP" "errors of HTTP/2 streams (0)";
    H2RstStreamResp "h2_rst_stream_resp" "MCP" "RST_STREAM frames sent for errors (0)";
    H2GoawayResp "h2_goaway_resp" "MCP" "GOAWAY frames sent for errors (0)";
    H2OpenConnections "h2_open_connections" "MGP" "HTTP/2 connections (0)";
    H2BackendOpenStreams "h2_backend_open_streams" "MGP" "HTTP/2 streams (0)";
    H2TotalConnections "h2_total_connections" "MCP" "HTTP/2 connections since the start (0)";
    H2BackendTotalStreams "h2_backend_total_streams" "MCP" "HTTP/2 streams since the start (0)";
    H1OpenConnections "h1_open_connections" "MGP" "HTTP/1 connections; to servers, those with streams and those that lie idle for all";
    H1OpenStreams "h1_open_streams" "MGP" "HTTP/1 streams";
    H1TotalConnections "h1_total_connections" "MCP" "HTTP/1 connections since the start; to servers, those that were tried to make";
    H1TotalStreams "h1_total_streams" "MCP" "HTTP/1 streams since the start";
    H1BytesIn "h1_bytes_in" "MCP" "bytes received over HTTP/1, as they came";
    H1BytesOut "h1_bytes_out" "MCP" "bytes sent over HTTP/1";
    H1SplicedBytesIn "h1_spliced_bytes_in" "MCP" "of the bytes received, those that were spliced";
    H1SplicedBytesOut "h1_spliced_bytes_out" "MCP" "of the bytes sent, those that were spliced";
}

/// Where the columns of protocols begin, before which a column `-` stands in tables.
const PROTOCOLS: usize = Column::SslSess as usize;

/// The first line of tables.
pub(crate) fn header() -> String {
    let names = |columns: &[Field]| columns.iter().map(|column| column.name).collect::<Vec<_>>().join(",");
    let (general, protocols) = COLUMNS.split_at(PROTOCOLS);
    format!("# {},-,{},", names(general), names(protocols))
}

/// Whether the column `-` stands before that one.
pub(crate) fn begins_protocols(place: usize) -> bool {
    place == PROTOCOLS
}
