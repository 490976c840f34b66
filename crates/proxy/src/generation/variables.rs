//! `set-var` and `set-var-fmt` of `global`: variables of the process, set once before anything is served.

use super::refuse::Refuse;
use super::rules::Made;
use manylane_config::lex::Word;
use manylane_config::tree::Statement;
use manylane_expr::{
    ClientFacts, Compiler, Data, Direction, Env, Expression, Format, Host, Lane, Number, Places, ProcessVariables, ProxyId,
    Scope, Scopes, ServerFacts, ServerId, StreamFacts, Use, UserlistId, Value, VariableId, Zone,
};
use manylane_sync::Reader;
use std::net::IpAddr;

/// The variables and what they are set to, in the order of the file.
pub(super) fn read(
    statements: &[Statement],
    compiler: &mut Compiler<'_>,
    refuse: &mut Refuse<'_>,
) -> Vec<(VariableId, Made)> {
    statements.iter().filter_map(|statement| one(statement, compiler, refuse)).collect()
}

fn one(statement: &Statement, compiler: &mut Compiler<'_>, refuse: &mut Refuse<'_>) -> Option<(VariableId, Made)> {
    let Statement { keyword, words, pos: _ } = statement;
    let [name, value @ ..] = &words[..] else { return None }; // the table counts them
    let first = value.first()?;
    let id = match compiler.variables.resolve(name.bytes()) {
        Ok(id) if id.scope == Scope::Process => id,
        Ok(_) => {
            let message = format!("'{keyword}' sets variables of the process only: '{}' has to begin with 'proc.'", name.shown());
            refuse.found.alert(name.pos(), message);
            return None;
        }
        Err(error) => {
            refuse.found.alert(name.pos_at(error.at), format!("'{keyword}' : {error}"));
            return None;
        }
    };
    let whole = Word::join(value, first.pos());
    let made = if *keyword == "set-var" {
        Expression::compile(whole.bytes(), Places::CONFIGURATION, compiler).map(Made::Of)
    } else if let [_, more, ..] = value {
        refuse.found.alert(more.pos(), format!("'{keyword}' takes one format: quote it, or the blanks in it"));
        return None;
    } else {
        Format::compile(whole.bytes(), Use::Text, Places::CONFIGURATION, compiler).map(Made::Format)
    };
    match made {
        Ok(made) => Some((id, made)),
        Err(error) => {
            refuse.found.alert(whole.pos_at(error.at), format!("'{keyword}' : {error}"));
            None
        }
    }
}

/// Sets them, one after the other: each may look at those before it. What has no value stays unset.
pub(super) fn set(made: &[(VariableId, Made)], variables: &ProcessVariables, zone: &Zone) {
    if made.is_empty() {
        return;
    }
    let reader = Reader::new();
    let (client, server, stream) = (ClientFacts::default(), ServerFacts::default(), StreamFacts::default());
    let now = crate::session::now();
    let env = Env {
        now,
        zone,
        direction: Direction::Request,
        is_final: true,
        request: None,
        response: None,
        request_data: Data::default(),
        response_data: Data::default(),
        client: &client,
        server: &server,
        stream: &stream,
        log: None,
        variables: Scopes { process: Some(variables), ..Scopes::default() },
        reader: &reader,
        host: &Nobody,
    };
    let mut lane = Lane::new(now.seconds.cast_unsigned() ^ u64::from(now.micros));
    for (id, made) in made {
        let mut scratch = lane.scratch();
        let value = match made {
            Made::Of(expression) => expression.eval(&env, &mut scratch).ok().map(|sample| sample.value),
            Made::Format(format) => format.eval(&env, &mut scratch).map(Value::Str),
        };
        variables.set(*id, value);
    }
}

/// Nothing is there yet.
struct Nobody;

impl Host for Nobody {
    fn number(&self, _: Number) -> Option<i64> {
        None
    }

    fn backend(&self, _: &[u8]) -> Option<ProxyId> {
        None
    }

    fn server(&self, _: ProxyId, _: &[u8]) -> Option<ServerId> {
        None
    }

    fn authenticate(&self, _: UserlistId, _: &[u8], _: &[u8], _: Option<&[u8]>) -> bool {
        false
    }

    fn is_local(&self, _: IpAddr) -> bool {
        false
    }

    fn hostname(&self) -> &[u8] {
        b""
    }

    fn debug(&self, _: &[u8], _: &[u8], _: Option<Value<'_>>) {}
}
