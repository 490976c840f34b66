//! Points at which expressions are evaluated, and at which fetches have values.

use std::ops::BitOr;

/// Most points that a message names.
const MAX_NAMED: usize = 3;

/// A set of points of a connection or a message at which expressions are evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EvalPoints(u32);

impl BitOr for EvalPoints {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

macro_rules! points {
    ($($(#[$doc:meta])* $name:ident = $bit:expr, $text:expr;)*) => {
        impl EvalPoints {
            $($(#[$doc])* pub const $name: Self = Self(1 << $bit);)*

            /// All single points with their names, in order.
            pub const ALL: &'static [(Self, &'static str)] = &[$((Self::$name, $text)),*];
        }
    };
}

points! {
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
    /// While the configuration is read.
    CONFIGURATION = 20, "the configuration's own settings";
    /// Commands at run time.
    COMMAND = 21, "commands at run time";
}

impl EvalPoints {
    /// No point.
    pub const NONE: Self = Self(0);
    /// All points.
    pub const EVERYWHERE: Self = Self::range(0, 21);
    /// `http-request` of frontends and backends.
    pub const HTTP_REQUEST: Self = Self(Self::FRONT_REQUEST.0 | Self::BACK_REQUEST.0);
    /// `http-response` and `http-after-response`.
    pub const HTTP_RESPONSE: Self = Self(Self::FRONT_RESPONSE.0 | Self::BACK_RESPONSE.0);

    /// All points in a serving process: not those of the configuration.
    pub(crate) const RUNNING: Self = Self(Self::EVERYWHERE.0 & !Self::CONFIGURATION.0);
    /// While there is a connection to a client, or of a health check.
    pub(crate) const LINK: Self = Self::range(0, 19);
    /// While there is a connection to a client.
    pub(crate) const CLIENT: Self = Self::range(0, 18);
    /// While there is a client connection whose handshakes are finished.
    pub(crate) const HANDSHAKEN: Self = Self::range(1, 18);
    /// While the bytes of the request are buffered.
    pub(crate) const REQUEST: Self = Self::range(2, 10);
    /// While bytes of a request or a response are buffered.
    pub(crate) const MESSAGE: Self = Self(Self::range(2, 17).0 | Self::CHECK.0);
    /// While there is a stream with data about its request.
    pub(crate) const STREAM: Self = Self::range(2, 18);
    /// After a backend was selected.
    pub(crate) const BACKEND: Self = Self::range(6, 19);
    /// From the selection of a server to the end of the stream.
    pub(crate) const AT_SERVER: Self = Self::range(9, 18);
    /// After a server was selected.
    pub(crate) const SERVER: Self = Self::range(10, 19);
    /// After the server has responded.
    pub(crate) const ANSWERED: Self = Self::range(11, 19);
    /// While the bytes of the response are buffered.
    pub(crate) const RESPONSE: Self = Self(Self::range(11, 17).0 | Self::CHECK.0);

    const fn range(first: u32, last: u32) -> Self {
        Self(((1 << (last + 1)) - 1) & !((1 << first) - 1))
    }

    /// The union of two sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if the sets have a point in common.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Names of the points for a sentence, the first [`MAX_NAMED`] only.
    pub fn some_names(self) -> String {
        let names = self.list();
        let others = names.len().saturating_sub(MAX_NAMED);
        let some = names[..names.len() - others].join(", ");
        match others {
            0 => some,
            1 => format!("{some} and 1 more point"),
            others => format!("{some} and {others} more points"),
        }
    }

    /// Names of all points, with commas.
    pub fn names(self) -> String {
        self.list().join(", ")
    }

    fn list(self) -> Vec<&'static str> {
        Self::ALL.iter().filter(|(points, _)| self.meets(*points)).map(|(_, name)| *name).collect()
    }
}

/// Direction of a message. Fetches without a direction of their own use that of [`Env`](crate::Env).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the server.
    Request,
    /// From the server to the client.
    Response,
}
