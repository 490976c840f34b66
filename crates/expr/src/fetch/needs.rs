//! Inputs of fetches.

use super::connection::{Connection, End, LinkFact};
use super::constant::{Constant, UuidVersion};
use super::data::DataFetch;
use super::http::Http;
use super::{Fetch, tls};
use crate::eval_points::Direction;
use crate::needs::{Needs, OfVariable};

fn message(side: Option<Direction>) -> Needs {
    side.map_or(Needs::MESSAGE, |side| Needs::MESSAGE.of(side))
}

/// The inputs of a fetch that reads bytes of a body or of a connection.
fn bytes(side: Option<Direction>) -> Needs {
    match side {
        Some(Direction::Request) => Needs::BODY,
        Some(Direction::Response) => Needs::RESPONSE,
        None => Needs::MESSAGE | Needs::BODY,
    }
}

impl Fetch {
    /// The inputs of the fetch.
    pub(crate) fn needs(&self, variables: OfVariable<'_>) -> Needs {
        match self {
            Self::Acl(all) => all.needs(variables),
            Self::Constant(constant) => match constant {
                Constant::Value(_) | Constant::Nothing | Constant::Hostname => Needs::NONE,
                Constant::Date { .. } | Constant::DateMicros => Needs::CLOCK,
                Constant::Uuid(UuidVersion::V7) => Needs::RANDOM | Needs::CLOCK,
                Constant::Rand(_) | Constant::Uuid(UuidVersion::V4) => Needs::RANDOM,
                Constant::Variable { id, .. } => variables(*id),
            },
            Self::Connection(connection) => of_connection(connection),
            Self::Course(_) | Self::Number(_) => Needs::STATE,
            Self::Http(http) => of_http(http),
            Self::Data(data) => match data {
                DataFetch::Body(side) | DataFetch::BodyLen(side) | DataFetch::BodySize(side) => {
                    bytes(Some(*side))
                }
                DataFetch::Len(side)
                | DataFetch::Payload { side, .. }
                | DataFetch::PayloadLv { side, .. } => bytes(*side),
                DataFetch::WaitEnd => Needs::NONE,
                DataFetch::IsHttp => Needs::HEAD,
                DataFetch::Distcc(_) => bytes(None),
                DataFetch::Hello(side, _) => bytes(Some(*side)),
                DataFetch::RdpCookie(_) | DataFetch::RdpCookieCount(_) => Needs::BODY,
            },
            Self::Tls(tls) => of_tls(tls),
            Self::Stick(_) => Needs::TABLE,
        }
    }
}

fn of_tls(tls: &tls::Tls) -> Needs {
    match (tls.reads_link(), tls.is_of_hello()) {
        (true, _) => Needs::SERVER,
        (false, true) => Needs::TLS,
        (false, false) => Needs::TLS | Needs::HANDSHAKE,
    }
}

fn of_connection(connection: &Connection) -> Needs {
    use Connection as C;
    match connection {
        C::Addr(end) | C::Port(end) | C::IsLocal(end) => match end {
            End::Source | End::LinkSource => Needs::SOURCE,
            End::Destination | End::LinkDestination => Needs::DESTINATION,
            End::BackSource | End::BackDestination => Needs::SERVER,
        },
        C::BackHttpMajor | C::ServerId | C::ServerName | C::BackLink(_) | C::BackTcp(_) => Needs::SERVER,
        C::ReceivedProxy | C::ProxyAuthority | C::ProxyUniqueId | C::ProxyTlv(_) => Needs::PROXY_HEADER,
        C::ListenerConnections => Needs::STATE,
        // A connection that was just accepted has no error.
        C::FrontLink(LinkFact::Error | LinkFact::ErrorName | LinkFact::ErrorSentence) => Needs::NONE,
        C::FrontLink(_) | C::FrontTcp(_) => Needs::STATE,
        C::UniqueId => Needs::RANDOM,
        C::Capture(Direction::Response, _) | C::CapturedResponseVersion => Needs::RESPONSE,
        C::Capture(Direction::Request, _) | C::CapturedMethod | C::CapturedUri | C::CapturedVersion => {
            Needs::HEAD
        }
        C::AcceptDate(_) => Needs::CLOCK,
        C::FrontHttpMajor
        | C::BackendId
        | C::BackendName
        | C::FrontendId
        | C::FrontendName
        | C::FrontendDefault
        | C::FirstRequest
        | C::LastRuleFile
        | C::LastRuleLine
        | C::ListenerId
        | C::ListenerName
        | C::PriorityClass
        | C::PriorityOffset
        | C::OfProxy(_)
        | C::OfStream(_) => Needs::NONE,
    }
}

fn of_http(http: &Http) -> Needs {
    match http {
        Http::Status | Http::ServerStatus => Needs::RESPONSE,
        Http::Version(side) | Http::CookieNames { side, .. } => message(Some(*side)),
        Http::Field { side, .. }
        | Http::FieldCount { side, .. }
        | Http::FieldNames { side, .. }
        | Http::FieldBlock { side, .. }
        | Http::Cookie { side, .. }
        | Http::CookieCount { side, .. } => message(*side),
        Http::BodyParam { .. } => Needs::HEAD | Needs::BODY,
        Http::Auth { .. } | Http::AuthUserOf { .. } | Http::AuthGroups { .. } => Needs::HEAD | Needs::USERS,
        Http::Hash { source: true, .. } => Needs::HEAD | Needs::SOURCE,
        Http::Method
        | Http::Path
        | Http::PathQuery
        | Http::Query { .. }
        | Http::Url
        | Http::UrlIp
        | Http::UrlPort
        | Http::Base { .. }
        | Http::Hash { source: false, .. }
        | Http::Param { .. }
        | Http::AuthType
        | Http::AuthUser
        | Http::AuthPassword
        | Http::AuthBearer(_) => Needs::HEAD,
    }
}
