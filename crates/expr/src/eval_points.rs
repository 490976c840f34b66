//! Where an expression stands, and where a fetch has something to give.

use std::ops::BitOr;

/// A set of moments of a connection's or message's life at which expressions are evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EvalPoints(u32);

impl BitOr for EvalPoints {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

macro_rules! places {
    ($($(#[$doc:meta])* $name:ident = $bit:expr, $text:expr;)*) => {
        impl EvalPoints {
            $($(#[$doc])* pub const $name: Self = Self(1 << $bit);)*

            /// The single places and their names, in order.
            pub const ALL: &'static [(Self, &'static str)] = &[$((Self::$name, $text)),*];
        }
    };
}

places! {
    /// `tcp-request connection`
    CONNECTION = 0, "tcp-request connection";
    /// `tcp-request session`
    SESSION = 1, "tcp-request session";
    /// `tcp-request content` of a frontend
    FRONT_CONTENT = 2, "tcp-request content of a frontend";
    /// `http-request` of a frontend
    FRONT_REQUEST = 3, "http-request of a frontend";
    /// `http-request` of a frontend that waits for the body
    FRONT_REQUEST_BODY = 4, "http-request of a frontend with its body";
    /// `use_backend`
    USE_BACKEND = 5, "use_backend";
    /// `tcp-request content` of a backend
    BACK_CONTENT = 6, "tcp-request content of a backend";
    /// `http-request` of a backend
    BACK_REQUEST = 7, "http-request of a backend";
    /// `http-request` of a backend that waits for the body
    BACK_REQUEST_BODY = 8, "http-request of a backend with its body";
    /// `use-server`, `balance`, `stick match`
    USE_SERVER = 9, "use-server, balance or stick";
    /// `source` of a server and other settings of a connection to a server
    CONNECT = 10, "connecting to a server";
    /// `tcp-response content` of a backend
    BACK_RESPONSE_CONTENT = 11, "tcp-response content of a backend";
    /// `http-response` of a backend
    BACK_RESPONSE = 12, "http-response of a backend";
    /// `http-response` of a backend that waits for the body
    BACK_RESPONSE_BODY = 13, "http-response of a backend with its body";
    /// `stick store-response`
    STORE = 14, "stick store-response";
    /// `tcp-response content` of a frontend
    FRONT_RESPONSE_CONTENT = 15, "tcp-response content of a frontend";
    /// `http-response` of a frontend
    FRONT_RESPONSE = 16, "http-response of a frontend";
    /// `http-response` of a frontend that waits for the body
    FRONT_RESPONSE_BODY = 17, "http-response of a frontend with its body";
    /// `log-format`
    LOG = 18, "logs";
    /// `tcp-check` and `http-check`
    CHECK = 19, "health checks";
    /// While the configuration is read
    CONFIGURATION = 20, "the configuration's own settings";
    /// Commands at run time
    COMMAND = 21, "commands at run time";
}

impl EvalPoints {
    /// Nowhere.
    pub const NONE: Self = Self(0);
    /// Everywhere.
    pub const EVERYWHERE: Self = Self::range(0, 21);
    /// `http-request` of a proxy that may be a frontend or a backend.
    pub const HTTP_REQUEST: Self = Self(Self::FRONT_REQUEST.0 | Self::BACK_REQUEST.0);
    /// `http-response` and `http-after-response`.
    pub const HTTP_RESPONSE: Self = Self(Self::FRONT_RESPONSE.0 | Self::BACK_RESPONSE.0);

    /// All but the configuration's own settings: what runs in a process that serves.
    pub(crate) const RUNNING: Self = Self(Self::EVERYWHERE.0 & !Self::CONFIGURATION.0);
    /// While there is a connection, or a check in place of it.
    pub(crate) const LINK: Self = Self::range(0, 19);
    /// While there is a client's connection.
    pub(crate) const CLIENT: Self = Self::range(0, 18);
    /// While there is a client's connection with finished handshakes.
    pub(crate) const HANDSHAKEN: Self = Self::range(1, 18);
    /// While the request's bytes are kept.
    pub(crate) const REQUEST: Self = Self::range(2, 10);
    /// While bytes of either message are kept.
    pub(crate) const MESSAGE: Self = Self(Self::range(2, 17).0 | Self::CHECK.0);
    /// While there is a stream, with what is remembered of its request.
    pub(crate) const STREAM: Self = Self::range(2, 18);
    /// When a backend was chosen.
    pub(crate) const BACKEND: Self = Self::range(6, 19);
    /// When a server is chosen, until the end.
    pub(crate) const AT_SERVER: Self = Self::range(9, 18);
    /// When a server was chosen.
    pub(crate) const SERVER: Self = Self::range(10, 19);
    /// When a server has answered, until the end.
    pub(crate) const ANSWERED: Self = Self::range(11, 19);
    /// While the response's bytes are kept.
    pub(crate) const RESPONSE: Self = Self(Self::range(11, 17).0 | Self::CHECK.0);

    const fn range(first: u32, last: u32) -> Self {
        Self(((1 << (last + 1)) - 1) & !((1 << first) - 1))
    }

    /// All places of either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether they have a place in common.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The places as a sentence's part.
    pub fn names(self) -> String {
        let names: Vec<&str> =
            Self::ALL.iter().filter(|(place, _)| self.meets(*place)).map(|(_, name)| *name).collect();
        names.join(", ")
    }
}

/// Which message a fetch without side of its own looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the server.
    Request,
    /// From the server to the client.
    Response,
}
