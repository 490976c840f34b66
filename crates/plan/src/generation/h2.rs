//! `tune.h2.*`: limits of HTTP/2 connections.

use manylane_config::table::Tune;
use manylane_config::tree::Set;
use manylane_h1::Limits;
use manylane_mux::h2::{Config, DEFAULT_WINDOW};

/// Default window of a client's connection, in bytes: 25 streams that no server reads do not block others.
const RXBUF: u32 = 1600 << 10;

/// Default number of concurrent streams.
const STREAMS: u32 = 100;

/// Default number of resets of a client that are handled in one turn. A client that begins and resets streams
/// without end keeps its lane busy with them; 16 streams take about 60 us, which others hardly notice. A
/// browser that leaves a page with 100 open streams waits for 6 rounds of the lane, and for TLS handshakes
/// that wait, which are of the same class.
const RESETS_AT_ONCE: u32 = 16;

/// Largest window (RFC 9113, 6.9.1), in bytes.
const MAX_WINDOW: u32 = u32::MAX >> 1;

/// Range of SETTINGS_MAX_FRAME_SIZE (RFC 9113, 6.5.2), in bytes.
const MIN_FRAME: u32 = 16_384;
const MAX_FRAME: u32 = 16_777_215;

/// HTTP/2 settings of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct H2Settings {
    /// For connections to clients.
    pub front: Config,
    /// For connections to servers.
    pub back: Config,
    /// `tune.h2.fe.max-total-streams`: number of streams after which a connection to a client is drained.
    pub most_streams: Option<u64>,
    /// `tune.h2.log-errors`
    pub logged: LoggedErrors,
    /// `tune.glitches.kill.cpu-usage`: CPU usage in percent from which connections with too many glitches are
    /// closed.
    pub kill_at_load: u64,
}

/// Which errors of clients are logged if they belong to no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LoggedErrors {
    /// No errors.
    None,
    /// Errors that end the connection.
    Connection,
    /// Also errors that end a stream before it has a request.
    #[default]
    Stream,
}

impl H2Settings {
    /// Returns the settings for a client of a proxy with these limits of request heads.
    pub fn of_client(&self, limits: &Limits) -> Config {
        let Limits { head, room, fields, relaxed: fragments, .. } = *limits;
        Config { head, room, fields, fragments, ..self.front }
    }

    /// Returns the settings for a server of a proxy with these limits of response heads.
    pub fn of_server(&self, limits: &Limits) -> Config {
        Config { head: limits.head, room: limits.room, fields: limits.fields, ..self.back }
    }

    /// Returns the configured settings. `bufsize` is the default of the frame size.
    pub(super) fn of(tune: &Tune, bufsize: usize) -> Self {
        // 0 means the default.
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
            resets_at_once: given(tune.h2_fe_resets_at_once).unwrap_or(RESETS_AT_ONCE),
            ..all
        };
        let back = Config {
            stream_window: given(tune.h2_be_window).unwrap_or(all.stream_window),
            max_streams: given(tune.h2_be_streams).unwrap_or(all.max_streams),
            glitches: given(tune.h2_be_glitches).unwrap_or(0),
            frames_at_once: given(tune.h2_be_frames_at_once).unwrap_or(0),
            ..all
        };
        // Streams whose clients read nothing fill their own windows, whichever connection they are on. Up to
        // half of the connection's window may be consumed and not announced yet: so it has twice their sum.
        let twice = back.stream_window.saturating_mul(back.max_streams).saturating_mul(2).min(MAX_WINDOW);
        let back = Config { connection_window: given(tune.h2_be_rxbuf).unwrap_or(twice), ..back };
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

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_config::cond::Build;
    use manylane_config::lex::Environment;
    use manylane_config::load;
    use manylane_config::source::Sources;

    /// Each setting reaches its own field, of its own side.
    #[test]
    fn bounds_of_a_turn_and_thresholds_are_those_of_their_side() {
        let mut sources = Sources::new();
        let names = [
            "h2.fe.max-frames-at-once",
            "h2.fe.max-rst-at-once",
            "h2.be.max-frames-at-once",
            "h2.fe.glitches-threshold",
            "h2.be.glitches-threshold",
            "glitches.kill.cpu-usage",
        ];
        let lines = names.iter().zip(1..).map(|(name, n)| format!(" tune.{name} {n}\n"));
        sources.add("test.cfg", format!("global\n{}", lines.collect::<String>())).unwrap();
        let loaded = load(&sources, &Build::bare(), Environment::new(), false);
        assert_eq!(loaded.found.errors(), 0);
        let settings = H2Settings::of(&loaded.config.global.tune, 16_384);
        let H2Settings { front, back, kill_at_load, .. } = settings;
        assert_eq!((front.frames_at_once, front.resets_at_once, front.glitches), (1, 2, 4));
        assert_eq!((back.frames_at_once, back.resets_at_once, back.glitches), (3, 0, 5));
        assert_eq!(kill_at_load, 6);
        let H2Settings { front, back, .. } = H2Settings::of(&Tune::default(), 16_384);
        assert_eq!((front.frames_at_once, front.resets_at_once), (0, RESETS_AT_ONCE));
        assert_eq!((back.frames_at_once, back.resets_at_once), (0, 0));
    }
}
