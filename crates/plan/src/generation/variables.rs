//! `set-var` and `set-var-fmt` of `global`: process variables that are set once, before anything is served.

use super::refuse::Refuse;
use super::rules::ValueSource;
use super::{Expressions, Generation};
use manylane_config::lex::Word;
use manylane_config::tree::Statement;
use manylane_expr::{
    ClientInfo, Compiler, Env, EvalPoints, Expression, Format, Host, Lane, Names, Number, ProcessVariables,
    ProxyId, ProxySide, References, Scope, Scopes, ServerId, ServerInfo, StreamInfo, Use, UserlistId, Value,
    VariableId, VariableNames, Zone,
};
use manylane_sync::{LockClass, Mutex, Reader};
use std::ffi::{OsStr, OsString};
use std::net::IpAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Reads the variables and their values in the order of the configuration.
pub(super) fn read(
    statements: &[Statement],
    compiler: &mut Compiler<'_>,
    refuse: &mut Refuse<'_>,
) -> Vec<(VariableId, ValueSource)> {
    statements.iter().filter_map(|statement| one(statement, compiler, refuse)).collect()
}

fn one(
    statement: &Statement,
    compiler: &mut Compiler<'_>,
    refuse: &mut Refuse<'_>,
) -> Option<(VariableId, ValueSource)> {
    let Statement { keyword, words, pos: _ } = statement;
    // the table of keywords checked the number of words
    let [name, value @ ..] = &words[..] else { return None };
    let first = value.first()?;
    let id = match compiler.variables.resolve(name.bytes()) {
        Ok(id) if id.scope == Scope::Process => id,
        Ok(_) => {
            let message = format!(
                "'{keyword}' expects a variable of the process such as proc.name, found '{}'",
                name.shown()
            );
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
        Expression::compile(whole.bytes(), EvalPoints::CONFIGURATION, compiler).map(ValueSource::Of)
    } else if let [_, more, ..] = value {
        refuse.found.alert(
            more.pos(),
            format!("'{keyword}' expects one format, found '{}' behind it: quote its blanks", more.shown()),
        );
        return None;
    } else {
        Format::compile(whole.bytes(), Use::Text, EvalPoints::CONFIGURATION, compiler)
            .map(ValueSource::Format)
    };
    match made {
        Ok(made) => Some((id, made)),
        Err(error) => {
            refuse.found.alert(whole.pos_at(error.at), format!("'{keyword}' : {error}"));
            None
        }
    }
}

/// Sets the variables in order; each may read earlier ones. A variable without a value stays unset.
pub(super) fn set(made: &[(VariableId, ValueSource)], variables: &ProcessVariables, zone: &Zone) {
    if made.is_empty() {
        return;
    }
    set_with(made, variables, zone, &Reader::new());
}

fn set_with(made: &[(VariableId, ValueSource)], variables: &ProcessVariables, zone: &Zone, reader: &Reader) {
    let (client, server, stream) = (ClientInfo::default(), ServerInfo::default(), StreamInfo::default());
    let env = Env {
        variables: Scopes { process: Some(variables), ..Scopes::default() },
        ..Env::without_stream(crate::clock::now, zone, (&client, &server, &stream), reader, &NoHost)
    };
    let mut lane = Lane::new();
    for (id, made) in made {
        let mut scratch = lane.scratch();
        let value = match made {
            ValueSource::Of(expression) => {
                expression.eval(&env, &mut scratch).ok().map(|sample| sample.value)
            }
            ValueSource::Format(format) => format.eval(&env, &mut scratch).map(Value::Str),
        };
        variables.set(*id, value);
    }
}

/// Most process variables that commands, such as those of scripts, may make in addition to the variables of
/// the configuration.
pub(super) const MOST_COMMANDED: usize = 256;

static COMMANDED: LockClass = LockClass::new("names of variables that commands made", LockClass::LEAF);

/// Names of process variables, including those that commands have made. No rule reads the names, so only
/// commands wait for the lock.
#[derive(Debug)]
pub struct ProcessVariableNames {
    names: Mutex<VariableNames>,
    most: usize,
}

impl ProcessVariableNames {
    /// Returns the names for a generation whose expressions have `names`.
    pub(super) fn new(names: VariableNames) -> Self {
        Self { most: names.count(Scope::Process) + MOST_COMMANDED, names: Mutex::new(&COMMANDED, names) }
    }

    /// Returns the variable with this name, if there is one.
    pub fn get(&self, name: &[u8]) -> Option<VariableId> {
        self.names.lock().get(name)
    }

    fn get_or_make(&self, name: &[u8]) -> Result<VariableId, String> {
        let mut names = self.names.lock();
        if names.get(name).is_none() && names.count(Scope::Process) == self.most {
            return Err(format!(
                "commands have already made {MOST_COMMANDED} variables, the maximum; use one of them"
            ));
        }
        names.resolve(name).map_err(|error| error.to_string())
    }
}

/// Keeps the process variables of the generation before, except those whose lines in `global` have changed.
pub(super) fn inherit(own: &mut Expressions, before: &Expressions, written: [&[Statement]; 2]) {
    for (name, _) in made(before) {
        let _ = own.commanded.get_or_make(&name); // there is room for as many as before
    }
    let names = own.commanded.names.lock().clone();
    let older = before.commanded.names.lock().clone();
    let shared = names.iter().filter_map(|(name, id)| {
        let same = id.scope == Scope::Process && lines_of(name, written[0]).eq(lines_of(name, written[1]));
        Some((id, older.get(name).filter(|_| same)?))
    });
    own.process.follow(&before.process, shared);
}

/// Copies the variables that commands made in `before` after this generation had taken over its state.
pub fn inherit_late(own: &Expressions, before: &Expressions, reader: &Reader) {
    for (name, id) in made(before) {
        if own.commanded.get(&name).is_none()
            && let Ok(new) = own.commanded.get_or_make(&name)
        {
            own.process.set(new, before.process.get(id, reader));
        }
    }
}

/// Returns the variables that commands have made.
fn made(of: &Expressions) -> Vec<(Vec<u8>, VariableId)> {
    let names = of.commanded.names.lock();
    names
        .iter()
        .filter(|(name, _)| of.names.get(name).is_none())
        .map(|(name, id)| (name.to_vec(), id))
        .collect()
}

/// Returns the lines of the configuration about a variable.
fn lines_of<'a>(
    name: &'a [u8],
    statements: &'a [Statement],
) -> impl Iterator<Item = (&'static str, Vec<&'a [u8]>)> {
    let own = statements
        .iter()
        .filter(move |statement| statement.words.first().is_some_and(|word| word.bytes() == name));
    own.map(|statement| (statement.keyword, statement.words.iter().map(Word::bytes).collect()))
}

/// Sets a process variable while `generation` serves; creates it if no expression names it. The error is a
/// sentence.
pub fn set_now(
    generation: &Generation,
    reader: &Reader,
    name: &[u8],
    text: &[u8],
    is_format: bool,
) -> Result<(), String> {
    let own = &generation.expressions;
    // A variable that the expression names but that does not exist has no value.
    let (mut names, mut references) = (own.commanded.names.lock().clone(), References::default());
    let mut compiler = Compiler::new(&NoHost, &mut names, &mut references);
    let made = if is_format {
        Format::compile(text, Use::Text, EvalPoints::CONFIGURATION, &mut compiler).map(ValueSource::Format)
    } else {
        Expression::compile(text, EvalPoints::CONFIGURATION, &mut compiler).map(ValueSource::Of)
    };
    let made = made.map_err(|error| error.to_string())?;
    let id = own.commanded.get_or_make(name)?;
    set_with(&[(id, made)], &own.process, &generation.zone, reader);
    Ok(())
}

/// Host without proxies, servers or user lists.
struct NoHost;

impl Names for NoHost {
    fn proxy(&self, _: &[u8], _: ProxySide) -> Option<ProxyId> {
        None
    }

    fn current(&self, _: ProxySide) -> Option<ProxyId> {
        None
    }

    fn server(&self, _: ProxyId, _: &[u8]) -> Option<ServerId> {
        None
    }

    fn userlist(&self, _: &[u8]) -> Option<UserlistId> {
        None
    }

    fn has_group(&self, _: UserlistId, _: &[u8]) -> bool {
        false
    }

    fn environment(&self, name: &[u8]) -> Option<Vec<u8>> {
        std::env::var_os(OsStr::from_bytes(name)).map(OsString::into_vec)
    }

    fn file(&self, _: &[u8]) -> std::io::Result<Vec<u8>> {
        Err(std::io::Error::other("files are read with the configuration only"))
    }
}

impl Host for NoHost {
    fn number(&self, _: Number) -> Option<i64> {
        None
    }

    fn backend(&self, _: &[u8]) -> Option<ProxyId> {
        None
    }

    fn server(&self, _: ProxyId, _: &[u8]) -> Option<ServerId> {
        None
    }

    fn authenticate(&self, _: UserlistId, _: &[u8], _: &[u8]) -> bool {
        false
    }

    fn group(&self, _: UserlistId, _: &[u8], _: usize) -> Option<&[u8]> {
        None
    }

    fn is_local(&self, _: IpAddr) -> bool {
        false
    }

    fn hostname(&self) -> &[u8] {
        b""
    }

    fn verify_error(&self, code: i64) -> Option<&'static str> {
        manylane_tls::verify_error(code)
    }

    fn debug(&self, _: &[u8], _: &[u8], _: Option<Value<'_>>) {}
}
