//! The inputs of expressions apart from their arguments: for reports, and for dry runs, which lack some
//! inputs.

use std::fmt::{Display, Formatter, Result};
use std::ops::{BitOr, BitOrAssign};

/// A set of inputs of an expression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs(u32);

macro_rules! needs {
    ($($(#[$doc:meta])* $name:ident = $bit:expr, $word:literal, $sentence:literal;)*) => {
        impl Needs {
            $($(#[$doc])* pub const $name: Self = Self(1 << $bit);)*

            /// All single inputs in order, each with a word for programs and a description for people.
            pub const ALL: &'static [(Self, &'static str, &'static str)] =
                &[$((Self::$name, $word, $sentence)),*];
        }
    };
}

needs! {
    /// The message whose rules run; [`Needs::of`] replaces it by the message of a direction.
    MESSAGE = 0, "message", "the message's head";
    /// The head of the request.
    HEAD = 1, "request-head", "the request's head";
    /// The body of the request, or bytes of a TCP client.
    BODY = 2, "request-body", "the request's body, or the client's bytes";
    /// The response, or bytes of a TCP server.
    RESPONSE = 3, "response", "the server's response";
    /// The client's address.
    SOURCE = 4, "source-address", "the client's address";
    /// The address that the client connected to.
    DESTINATION = 5, "destination-address", "the address that the client connected to";
    /// The header of the PROXY protocol.
    PROXY_HEADER = 6, "proxy-header", "the header of the PROXY protocol";
    /// Whether the client's connection has TLS, and the name that it asks for.
    TLS = 7, "tls", "TLS of the client's connection";
    /// The result of the client's TLS handshake, and certificates.
    HANDSHAKE = 8, "tls-handshake", "what the TLS handshake agrees on, or a certificate";
    /// The server, or the connection to it.
    SERVER = 9, "server", "the server, or the connection to it";
    /// Entries of a stick table.
    TABLE = 10, "stick-table", "a stick table";
    /// Counters and states of the process, of a proxy or of a server.
    STATE = 11, "state", "a counter or a state of the running process";
    /// Users and their passwords.
    USERS = 12, "userlist", "a user list";
    /// An answer of name servers.
    NAMES = 13, "names", "an answer of name servers";
    /// A map.
    MAP = 14, "map", "a map";
    /// A variable.
    VARIABLE = 15, "variable", "a variable";
    /// The clock.
    CLOCK = 16, "clock", "the clock";
    /// A value that differs each time, such as a random number.
    RANDOM = 17, "random", "a random or unique value";
}

impl Needs {
    /// No input.
    pub const NONE: Self = Self(0);

    /// True if the set is empty.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The inputs that are in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The inputs that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The set with [`Needs::MESSAGE`] replaced by the message of `direction`.
    #[must_use]
    pub const fn of(self, direction: crate::Direction) -> Self {
        if self.and(Self::MESSAGE).is_none() {
            return self;
        }
        let message = match direction {
            crate::Direction::Request => Self::HEAD,
            crate::Direction::Response => Self::RESPONSE,
        };
        Self(self.without(Self::MESSAGE).0 | message.0)
    }

    /// The words for programs, in order.
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().filter(move |(one, ..)| !self.and(*one).is_none()).map(|(_, word, _)| *word)
    }
}

impl BitOr for Needs {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Needs {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl FromIterator<Self> for Needs {
    fn from_iter<I: IntoIterator<Item = Self>>(all: I) -> Self {
        all.into_iter().fold(Self::NONE, Self::bitor)
    }
}

impl Display for Needs {
    /// Writes a description of each need, separated by commas.
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let mut all = Self::ALL.iter().filter(|(one, ..)| !self.and(*one).is_none());
        if let Some((_, _, first)) = all.next() {
            f.write_str(first)?;
        }
        all.try_for_each(|(_, _, words)| write!(f, ", {words}"))
    }
}

/// Returns the needs of a variable: [`Needs::VARIABLE`], or what the caller knows about its value.
pub type OfVariable<'a> = &'a dyn Fn(crate::VariableId) -> Needs;
