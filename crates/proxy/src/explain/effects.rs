//! What the action of a rule looks at, waits for, ends and sets.

use manylane_expr::{Needs, OfVariable, VariableId};
use manylane_plan::generation::{
    Action, BalanceKey, Edit, End, NumberSource, Persist, Preamble, RedirectCookie, RedirectKind, Reply,
    ReplyBody, Setting, Stick, Target, TimeSource, ValueSource,
};

/// An action as reports show it.
pub(crate) trait Effects {
    /// What it looks at, beside its condition.
    fn needs(&self, variables: OfVariable<'_>) -> Needs;

    /// How it ends the list, the request or the connection, if it does.
    fn ends(&self) -> Option<String> {
        None
    }

    /// What it waits for.
    fn waits(&self) -> Option<&'static str> {
        None
    }

    /// The variable that it sets or unsets.
    fn sets(&self) -> Option<VariableId> {
        None
    }
}

fn of_figure(figure: &NumberSource, variables: OfVariable<'_>) -> Needs {
    match figure {
        NumberSource::Fixed(_) => Needs::NONE,
        NumberSource::Of(expression) => expression.needs(variables),
    }
}

fn of_change(change: &TimeSource, variables: OfVariable<'_>) -> Needs {
    match change {
        TimeSource::Fixed(_) => Needs::NONE,
        TimeSource::Of(expression) => expression.needs(variables),
    }
}

fn of_reply(reply: &Reply, variables: OfVariable<'_>) -> Needs {
    let body = match &reply.body {
        ReplyBody::Format(format) => format.needs(variables),
        ReplyBody::None | ReplyBody::Usual | ReplyBody::Whole(_) | ReplyBody::Bytes(_) => Needs::NONE,
    };
    body | reply.fields.iter().map(|(_, format)| format.needs(variables)).collect()
}

impl Effects for Setting {
    fn needs(&self, variables: OfVariable<'_>) -> Needs {
        match self {
            Self::Var(_, ValueSource::Of(expression), _)
            | Self::Address(_, expression)
            | Self::PriorityClass(expression)
            | Self::PriorityOffset(expression)
            | Self::Retries(expression)
            | Self::Capture(expression, _) => expression.needs(variables),
            Self::Var(_, ValueSource::Format(format), _) => format.needs(variables),
            Self::Timeout(_, change) => of_change(change, variables),
            Self::Packets(_, figure) => of_figure(figure, variables),
            Self::Bandwidth(set) => {
                let shared = set.shared.as_ref().map(|shared| Needs::TABLE | shared.key.needs(variables));
                let limit = set.limit.as_ref().map(|figure| of_figure(figure, variables));
                let period = set.period.as_ref().map(|change| of_change(change, variables));
                [shared, limit, period].into_iter().flatten().collect()
            }
            Self::Track(track) => Needs::TABLE | track.key.needs(variables),
            Self::GeneralCounter(general) => Needs::TABLE | of_figure(&general.by, variables),
            Self::UnsetVar(_) | Self::DisableRepetition | Self::LogLevel(_) | Self::Nice(_) => Needs::NONE,
        }
    }
}

impl Effects for Edit {
    fn needs(&self, variables: OfVariable<'_>) -> Needs {
        match self {
            Self::SetHeader(_, format)
            | Self::AddHeader(_, format)
            | Self::SetMethod(format)
            | Self::SetPath(format)
            | Self::SetPathq(format)
            | Self::SetQuery(format)
            | Self::SetUri(format) => format.needs(variables),
            Self::ReplaceHeader(_, _, format)
            | Self::ReplaceValue(_, _, format)
            | Self::ReplaceTarget(_, _, format) => Needs::MESSAGE | format.needs(variables),
            Self::DelHeader(_) | Self::DelHeaders(_) => Needs::MESSAGE,
            Self::SetStatus(..) => Needs::NONE,
        }
    }
}

impl Effects for Action {
    fn needs(&self, variables: OfVariable<'_>) -> Needs {
        match self {
            Self::Set(setting) => setting.needs(variables),
            Self::Edit(edit) => edit.needs(variables),
            Self::Expect(_) => Needs::PROXY_HEADER,
            Self::Reply(_, reply) => of_reply(reply, variables),
            Self::Redirect(redirect) => {
                let of_request = redirect.keep_query || redirect.kind != RedirectKind::Location;
                let cookie = match &redirect.cookie {
                    Some(RedirectCookie::Format(format)) => format.needs(variables),
                    _ => Needs::NONE,
                };
                redirect.target.needs(variables) | cookie | if of_request { Needs::HEAD } else { Needs::NONE }
            }
            Self::EarlyHint(_, format) => format.needs(variables),
            Self::NormalizeUri(_) => Needs::HEAD,
            Self::Pause(change) => of_change(change, variables),
            Self::WaitForBody(..) => Needs::MESSAGE | Needs::BODY,
            Self::Resolve(lookup) => Needs::NAMES | lookup.name.needs(variables),
            Self::ChangeList { key, value, .. } => {
                key.needs(variables) | value.as_ref().map_or(Needs::NONE, |value| value.needs(variables))
            }
            Self::Accept
            | Self::Reject
            | Self::SilentDrop(_)
            | Self::Close
            | Self::SwitchMode(_)
            | Self::Deny(_)
            | Self::Metrics
            | Self::Auth(_)
            | Self::StrictMode(_)
            | Self::WaitForHandshake
            | Self::DoLog => Needs::NONE,
        }
    }

    fn ends(&self) -> Option<String> {
        Some(match self {
            Self::Accept => "ends this list: accepted".into(),
            Self::Reject => "ends the connection, without a response".into(),
            Self::SilentDrop(_) => "drops the connection, and the client is not told".into(),
            Self::Close => "ends the server's connection behind what came".into(),
            Self::SwitchMode(_) => "continues in HTTP".into(),
            Self::Deny(status) => format!("denies with {status}"),
            Self::Reply(End::Answered, reply) => format!("returns {}", reply.status),
            Self::Reply(End::Denied, reply) => format!("denies with {}", reply.status),
            Self::Reply(End::Tarpit, reply) => format!("tarpit, then {}", reply.status),
            Self::Metrics => "returns the metrics".into(),
            Self::Auth(_) => "asks for a password with 401, or 407 as a proxy".into(),
            Self::Redirect(redirect) => format!("redirects with {}", redirect.code),
            Self::NormalizeUri(_) => "answers 400 to a target that cannot be normalized".into(),
            _ => return None,
        })
    }

    fn waits(&self) -> Option<&'static str> {
        match self {
            Self::Expect(Preamble::Proxy) => Some("the header of the PROXY protocol"),
            Self::Expect(Preamble::NetScaler) => Some("the header of NetScaler"),
            Self::Pause(_) => Some("a time"),
            Self::WaitForBody(..) => Some("the body"),
            Self::WaitForHandshake => Some("the TLS handshake behind early data"),
            Self::Resolve(_) => Some("an answer of name servers"),
            Self::Reply(End::Tarpit, _) => Some("timeout tarpit"),
            _ => None,
        }
    }

    fn sets(&self) -> Option<VariableId> {
        match self {
            Self::Set(Setting::Var(id, ..) | Setting::UnsetVar(id)) => Some(*id),
            Self::Resolve(lookup) => Some(lookup.variable),
            _ => None,
        }
    }
}

impl Effects for Persist {
    fn needs(&self, _: OfVariable<'_>) -> Needs {
        Needs::NONE
    }
}

impl Effects for Stick {
    fn needs(&self, variables: OfVariable<'_>) -> Needs {
        Needs::TABLE | self.key.needs(variables)
    }
}

impl Effects for Target {
    fn needs(&self, variables: OfVariable<'_>) -> Needs {
        match self {
            Self::Fixed(_) => Needs::NONE,
            Self::Named(format) => format.needs(variables),
        }
    }

    fn ends(&self) -> Option<String> {
        Some(match self {
            Self::Fixed(_) => "goes there".into(),
            Self::Named(_) => "goes to the one of that name, if there is one".into(),
        })
    }
}

/// Returns the needs of the key that chooses a server. The needs of an expression are not included.
pub(crate) fn of_key(key: &BalanceKey) -> Needs {
    match key {
        BalanceKey::None | BalanceKey::Expression | BalanceKey::RdpCookie => Needs::NONE,
        BalanceKey::Source => Needs::SOURCE,
        BalanceKey::Uri(_) | BalanceKey::Header(..) | BalanceKey::Parameter(_, false) => Needs::HEAD,
        BalanceKey::Parameter(_, true) => Needs::HEAD | Needs::BODY,
    }
}
