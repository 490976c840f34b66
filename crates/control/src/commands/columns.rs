//! The columns of `show stat`, in HAProxy's order. Columns without a counter here are empty.

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
            &[$(Field { number: Column::$variant as u32, name: $name, tags: $tags, help: $help }),*];
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
    Ereq "ereq" "MCP" "invalid requests";
    Econ "econ" "MCP" "connections that could not be made";
    Eresp "eresp" "MCP" "invalid responses";
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
    Reuse "reuse" "MCP" "requests on reused connections";
    CacheLookups "cache_lookups" "MCP" "lookups in the cache (0)";
    CacheHits "cache_hits" "MCP" "hits in the cache (0)";
    SrvIcur "srv_icur" "MGP" "idle connections to the server";
    SrcIlim "src_ilim" "CLP" "idle connections at most";
    QtimeMax "qtime_max" "MMP" "longest time in the queue";
    CtimeMax "ctime_max" "MMP" "longest time until connected";
    RtimeMax "rtime_max" "MMP" "longest time until the response";
    TtimeMax "ttime_max" "MMP" "longest time in all";
    Eint "eint" "MCP" "errors inside";
    IdleConnCur "idle_conn_cur" "MGP" "idle connections to the server";
    SafeConnCur "safe_conn_cur" "MGP" "idle connections for any client's first request (0: see \
        idle_conn_cur)";
    UsedConnCur "used_conn_cur" "MGP" "connections in use";
    NeedConnEst "need_conn_est" "MGP" "connections that are usually needed at once";
    Uweight "uweight" "MaP" "weight as set";
    AggServerStatus "agg_server_status" "MGP" "for exporters (0)";
    AggServerCheckStatus "agg_server_check_status" "MGP" "for exporters (0)";
    AggCheckStatus "agg_check_status" "MGP" "for exporters (0)";
    Srid "srid" "MCP" "0 for a server of the file: how often its number was another one's";
    SessOther "sess_other" "MCP" "sessions other than of HTTP";
    H1sess "h1sess" "MCP" "sessions of HTTP/1";
    H2sess "h2sess" "MCP" "sessions of HTTP/2";
    H3sess "h3sess" "MCP" "sessions of HTTP/3 (0)";
    ReqOther "req_other" "MCP" "requests other than of HTTP (0)";
    H1req "h1req" "MCP" "requests of HTTP/1";
    H2req "h2req" "MCP" "requests of HTTP/2";
    H3req "h3req" "MCP" "requests of HTTP/3 (0)";
    Proto "proto" "SGP" "protocol of a listener";
    // In tables, a column `-` stands here, before the columns of protocols.
    SslSess "ssl_sess" "MCP" "Handshakes of TLS that succeeded";
    SslReusedSess "ssl_reused_sess" "MCP" "Of these, those that resumed a session";
    SslFailedHandshake "ssl_failed_handshake" "MCP" "Handshakes of TLS that failed";
    SslOcspStaple "ssl_ocsp_staple" "MCP" "OCSP responses that were sent along (0)";
    SslFailedOcspStaple "ssl_failed_ocsp_staple" "MCP" "OCSP responses that could not be sent along (0)";
    H3Data "h3_data" "MCP" "HTTP/3 DATA frames received (0: there is no HTTP/3 here)";
    H3Headers "h3_headers" "MCP" "HTTP/3 HEADERS frames received (0: there is no HTTP/3 here)";
    H3CancelPush "h3_cancel_push" "MCP" "HTTP/3 CANCEL_PUSH frames received (0: there is no HTTP/3 here)";
    H3PushPromise "h3_push_promise" "MCP" "HTTP/3 PUSH_PROMISE frames received (0: there is no HTTP/3 here)";
    H3MaxPushId "h3_max_push_id" "MCP" "HTTP/3 MAX_PUSH_ID frames received (0: there is no HTTP/3 here)";
    H3Goaway "h3_goaway" "MCP" "HTTP/3 GOAWAY frames received (0: there is no HTTP/3 here)";
    H3Settings "h3_settings" "MCP" "HTTP/3 SETTINGS frames received (0: there is no HTTP/3 here)";
    H3NoError "h3_no_error" "MCP" "HTTP/3 errors H3_NO_ERROR received (0)";
    H3GeneralProtocolError "h3_general_protocol_error" "MCP" "HTTP/3 errors H3_GENERAL_PROTOCOL_ERROR \
        received (0)";
    H3InternalError "h3_internal_error" "MCP" "HTTP/3 errors H3_INTERNAL_ERROR received (0)";
    H3StreamCreationError "h3_stream_creation_error" "MCP" "HTTP/3 errors H3_STREAM_CREATION_ERROR received \
        (0)";
    H3ClosedCriticalStream "h3_closed_critical_stream" "MCP" "HTTP/3 errors H3_CLOSED_CRITICAL_STREAM \
        received (0)";
    H3FrameUnexpected "h3_frame_unexpected" "MCP" "HTTP/3 errors H3_FRAME_UNEXPECTED received (0)";
    H3FrameError "h3_frame_error" "MCP" "HTTP/3 errors H3_FRAME_ERROR received (0)";
    H3ExcessiveLoad "h3_excessive_load" "MCP" "HTTP/3 errors H3_EXCESSIVE_LOAD received (0)";
    H3IdError "h3_id_error" "MCP" "HTTP/3 errors H3_ID_ERROR received (0)";
    H3SettingsError "h3_settings_error" "MCP" "HTTP/3 errors H3_SETTINGS_ERROR received (0)";
    H3MissingSettings "h3_missing_settings" "MCP" "HTTP/3 errors H3_MISSING_SETTINGS received (0)";
    H3RequestRejected "h3_request_rejected" "MCP" "HTTP/3 errors H3_REQUEST_REJECTED received (0)";
    H3RequestCancelled "h3_request_cancelled" "MCP" "HTTP/3 errors H3_REQUEST_CANCELLED received (0)";
    H3RequestIncomplete "h3_request_incomplete" "MCP" "HTTP/3 errors H3_REQUEST_INCOMPLETE received (0)";
    H3MessageError "h3_message_error" "MCP" "HTTP/3 errors H3_MESSAGE_ERROR received (0)";
    H3ConnectError "h3_connect_error" "MCP" "HTTP/3 errors H3_CONNECT_ERROR received (0)";
    H3VersionFallback "h3_version_fallback" "MCP" "HTTP/3 errors H3_VERSION_FALLBACK received (0)";
    PackDecompressionFailed "pack_decompression_failed" "MCP" "errors of QPACK decompression received (0; \
        HAProxy spells it so)";
    QpackEncoderStreamError "qpack_encoder_stream_error" "MCP" "errors of QPACK encoder streams received (0)";
    QpackDecoderStreamError "qpack_decoder_stream_error" "MCP" "errors of QPACK decoder streams received (0)";
    QuicRxbufFull "quic_rxbuf_full" "MCP" "QUIC: datagrams that found no buffer (0: there is no QUIC here)";
    QuicDroppedPkt "quic_dropped_pkt" "MCP" "QUIC: packets that were thrown away (0)";
    QuicDroppedPktBufoverrun "quic_dropped_pkt_bufoverrun" "MCP" "QUIC: packets that were thrown away for \
        want of a buffer (0)";
    QuicDroppedParsingPkt "quic_dropped_parsing_pkt" "MCP" "QUIC: packets that could not be read (0)";
    QuicSocketFull "quic_socket_full" "MCP" "QUIC: datagrams that the socket could not take at once (0)";
    QuicSendtoErr "quic_sendto_err" "MCP" "QUIC: datagrams that could not be sent (0)";
    QuicSendtoErrUnknwn "quic_sendto_err_unknwn" "MCP" "QUIC: datagrams that could not be sent for other \
        reasons (0)";
    QuicSentPkt "quic_sent_pkt" "MCP" "QUIC: packets sent (0)";
    QuicLostPkt "quic_lost_pkt" "MCP" "QUIC: packets sent and lost (0)";
    QuicTooShortDgram "quic_too_short_dgram" "MCP" "QUIC: first datagrams that were too short (0)";
    QuicRetrySent "quic_retry_sent" "MCP" "QUIC: Retry packets sent (0)";
    QuicRetryValidated "quic_retry_validated" "MCP" "QUIC: tokens of Retry packets that were good (0)";
    QuicRetryError "quic_retry_error" "MCP" "QUIC: tokens of Retry packets that were bad (0)";
    QuicHalfOpenConn "quic_half_open_conn" "MGP" "QUIC: connections within their handshake (0)";
    QuicHdshkFail "quic_hdshk_fail" "MCP" "QUIC: handshakes that failed (0)";
    QuicStlessRstSent "quic_stless_rst_sent" "MCP" "QUIC: stateless resets sent (0)";
    QuicConnMigrationDone "quic_conn_migration_done" "MCP" "QUIC: connections that changed their address (0)";
    QuicTranspErrNoError "quic_transp_err_no_error" "MCP" "QUIC: transport errors NO received (0)";
    QuicTranspErrInternalError "quic_transp_err_internal_error" "MCP" "QUIC: transport errors INTERNAL \
        received (0)";
    QuicTranspErrConnectionRefused "quic_transp_err_connection_refused" "MCP" "QUIC: transport errors \
        CONNECTION_REFUSED received (0)";
    QuicTranspErrFlowControlError "quic_transp_err_flow_control_error" "MCP" "QUIC: transport errors \
        FLOW_CONTROL received (0)";
    QuicTranspErrStreamLimitError "quic_transp_err_stream_limit_error" "MCP" "QUIC: transport errors \
        STREAM_LIMIT received (0)";
    QuicTranspErrStreamStateError "quic_transp_err_stream_state_error" "MCP" "QUIC: transport errors \
        STREAM_STATE received (0)";
    QuicTranspErrFinalSizeError "quic_transp_err_final_size_error" "MCP" "QUIC: transport errors FINAL_SIZE \
        received (0)";
    QuicTranspErrFrameEncodingError "quic_transp_err_frame_encoding_error" "MCP" "QUIC: transport errors \
        FRAME_ENCODING received (0)";
    QuicTranspErrTransportParameterError "quic_transp_err_transport_parameter_error" "MCP" "QUIC: transport \
        errors TRANSPORT_PARAMETER received (0)";
    QuicTranspErrConnectionIdLimit "quic_transp_err_connection_id_limit" "MCP" "QUIC: transport errors \
        CONNECTION_ID_LIMIT received (0)";
    QuicTranspErrProtocolViolationError "quic_transp_err_protocol_violation_error" "MCP" "QUIC: transport \
        errors PROTOCOL_VIOLATION received (0)";
    QuicTranspErrInvalidToken "quic_transp_err_invalid_token" "MCP" "QUIC: transport errors INVALID_TOKEN \
        received (0)";
    QuicTranspErrApplicationError "quic_transp_err_application_error" "MCP" "QUIC: transport errors \
        APPLICATION received (0)";
    QuicTranspErrCryptoBufferExceeded "quic_transp_err_crypto_buffer_exceeded" "MCP" "QUIC: transport errors \
        CRYPTO_BUFFER_EXCEEDED received (0)";
    QuicTranspErrKeyUpdateError "quic_transp_err_key_update_error" "MCP" "QUIC: transport errors KEY_UPDATE \
        received (0)";
    QuicTranspErrAeadLimitReached "quic_transp_err_aead_limit_reached" "MCP" "QUIC: transport errors \
        AEAD_LIMIT_REACHED received (0)";
    QuicTranspErrNoViablePath "quic_transp_err_no_viable_path" "MCP" "QUIC: transport errors NO_VIABLE_PATH \
        received (0)";
    QuicTranspErrCryptoError "quic_transp_err_crypto_error" "MCP" "QUIC: transport errors CRYPTO received \
        (0)";
    QuicTranspErrUnknownError "quic_transp_err_unknown_error" "MCP" "QUIC: transport errors UNKNOWN received \
        (0)";
    QuicDataBlocked "quic_data_blocked" "MCP" "QUIC: DATA_BLOCKED frames received (0)";
    QuicStreamDataBlocked "quic_stream_data_blocked" "MCP" "QUIC: STREAM_DATA_BLOCKED frames received (0)";
    QuicStreamsBlockedBidi "quic_streams_blocked_bidi" "MCP" "QUIC: STREAMS_BLOCKED_BIDI frames received (0)";
    QuicStreamsBlockedUni "quic_streams_blocked_uni" "MCP" "QUIC: STREAMS_BLOCKED_UNI frames received (0)";
    H2HeadersRcvd "h2_headers_rcvd" "MCP" "HTTP/2 HEADERS frames received";
    H2DataRcvd "h2_data_rcvd" "MCP" "HTTP/2 DATA frames received";
    H2SettingsRcvd "h2_settings_rcvd" "MCP" "HTTP/2 SETTINGS frames received, acknowledgements too";
    H2RstStreamRcvd "h2_rst_stream_rcvd" "MCP" "HTTP/2 RST_STREAM frames received";
    H2GoawayRcvd "h2_goaway_rcvd" "MCP" "HTTP/2 GOAWAY frames received";
    H2DetectedConnProtocolErrors "h2_detected_conn_protocol_errors" "MCP" "HTTP/2 connections with errors";
    H2DetectedStrmProtocolErrors "h2_detected_strm_protocol_errors" "MCP" "HTTP/2 streams with errors";
    H2RstStreamResp "h2_rst_stream_resp" "MCP" "HTTP/2 RST_STREAM frames sent for that";
    H2GoawayResp "h2_goaway_resp" "MCP" "HTTP/2 GOAWAY frames sent for that";
    H2OpenConnections "h2_open_connections" "MGP" "HTTP/2 connections";
    H2BackendOpenStreams "h2_backend_open_streams" "MGP" "HTTP/2 streams";
    H2TotalConnections "h2_total_connections" "MCP" "HTTP/2 connections since the start";
    H2BackendTotalStreams "h2_backend_total_streams" "MCP" "HTTP/2 streams since the start";
    H1OpenConnections "h1_open_connections" "MGP" "HTTP/1 connections; to servers, those with streams and \
        those that lie idle for all";
    H1OpenStreams "h1_open_streams" "MGP" "HTTP/1 streams";
    H1TotalConnections "h1_total_connections" "MCP" "HTTP/1 connections since the start; to servers, those \
        that were tried to make";
    H1TotalStreams "h1_total_streams" "MCP" "HTTP/1 streams since the start";
    H1BytesIn "h1_bytes_in" "MCP" "bytes received over HTTP/1, as they came";
    H1BytesOut "h1_bytes_out" "MCP" "bytes sent over HTTP/1";
    H1SplicedBytesIn "h1_spliced_bytes_in" "MCP" "of the bytes received, those that were spliced";
    H1SplicedBytesOut "h1_spliced_bytes_out" "MCP" "of the bytes sent, those that were spliced";
}

/// Index of the first protocol column; in tables, a column `-` stands before it.
const PROTOCOLS: usize = Column::SslSess as usize;

/// The header line of tables.
pub(crate) fn header() -> String {
    let names = |columns: &[Field]| columns.iter().map(|column| column.name).collect::<Vec<_>>().join(",");
    let (general, protocols) = COLUMNS.split_at(PROTOCOLS);
    format!("# {},-,{},", names(general), names(protocols))
}

/// True if the column `-` stands before column `index`.
pub(crate) fn begins_protocols(index: usize) -> bool {
    index == PROTOCOLS
}
