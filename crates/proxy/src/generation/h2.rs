//! `tune.h2.*`: what is allowed to peers that speak HTTP/2.

use manylane_config::table::Tune;
use manylane_config::tree::Set;
use manylane_h1::Limits;
use manylane_mux::h2::{Config, DEFAULT_WINDOW};

/// What all streams of a connection may have sent before it goes on, unless the file says otherwise: 25
/// streams that nobody reads hold back no other.
const RXBUF: u32 = 1600 << 10;

/// Streams at a time, unless the file says otherwise.
const STREAMS: u32 = 100;

/// Bytes of a frame at least, and at most, that a side can be told to send (RFC 9113, 6.5.2).
const MIN_FRAME: u32 = 16_384;
const MAX_FRAME: u32 = 16_777_215;

/// Settings of HTTP/2, of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct H2Settings {
    /// To clients.
    pub front: Config,
    /// To servers.
    pub back: Config,
    /// `tune.h2.fe.max-total-streams`: streams after which a client is to make another connection.
    pub most_streams: Option<u64>,
    /// `tune.h2.log-errors`
    pub logged: LoggedErrors,
    /// `tune.glitches.kill.cpu-usage`: the processor load, in percent, from which glitches end connections.
    pub kill_at_load: u64,
}

/// Which errors of clients are logged where no request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LoggedErrors {
    /// None.
    None,
    /// Those that end the connection.
    Connection,
    /// And those that end a stream before it has a request.
    #[default]
    Stream,
}

impl H2Settings {
    /// To a client of a proxy whose requests may have these heads.
    pub fn of_client(&self, limits: &Limits) -> Config {
        Config { head: limits.head, room: limits.room, fields: limits.fields, ..self.front }
    }

    /// To a server of a proxy whose responses may have these heads.
    pub fn of_server(&self, limits: &Limits) -> Config {
        Config { head: limits.head, room: limits.room, fields: limits.fields, ..self.back }
    }

    /// As the file says, which also says how large a buffer is.
    pub(super) fn of(tune: &Tune, bufsize: usize) -> Self {
        // 0 is as if it were not there.
        let given = |set: Option<Set<u64>>| {
            set.and_then(|set| u32::try_from(set.value).ok()).filter(|number| *number > 0)
        };
        let all = Config {
            stream_window: given(tune.h2_window).unwrap_or(DEFAULT_WINDOW),
            connection_window: RXBUF,
            max_streams: given(tune.h2_streams).unwrap_or(STREAMS),
            ..Config::default()
        };
        let all = Config {
            table: given(tune.h2_header_table).unwrap_or(all.table),
            max_frame: given(tune.h2_max_frame).unwrap_or_else(|| {
                u32::try_from(bufsize).map_or(MAX_FRAME, |n| n.clamp(MIN_FRAME, MAX_FRAME))
            }),
            ..all
        };
        let front = Config {
            stream_window: given(tune.h2_fe_window).unwrap_or(all.stream_window),
            connection_window: given(tune.h2_fe_rxbuf).unwrap_or(all.connection_window),
            max_streams: given(tune.h2_fe_streams).unwrap_or(all.max_streams),
            glitches: given(tune.h2_fe_glitches).unwrap_or(0),
            frames_at_once: given(tune.h2_fe_frames_at_once).unwrap_or(0),
            resets_at_once: given(tune.h2_fe_resets_at_once).unwrap_or(0),
            ..all
        };
        let back = Config {
            stream_window: given(tune.h2_be_window).unwrap_or(all.stream_window),
            connection_window: given(tune.h2_be_rxbuf).unwrap_or(all.connection_window),
            max_streams: given(tune.h2_be_streams).unwrap_or(all.max_streams),
            glitches: given(tune.h2_be_glitches).unwrap_or(0),
            frames_at_once: given(tune.h2_be_frames_at_once).unwrap_or(0),
            ..all
        };
        Self {
            front,
            back,
            most_streams: given(tune.h2_fe_total_streams).map(u64::from),
            logged: match tune.h2_log_errors.as_ref().map(|set| set.value) {
                Some("none") => LoggedErrors::None,
                Some("connection") => LoggedErrors::Connection,
                _ => LoggedErrors::Stream,
            },
            kill_at_load: tune.glitches_kill_cpu.map_or(0, |set| set.value),
        }
    }
}
