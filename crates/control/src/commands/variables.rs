//! Variables of the process: `get var`, `set var`.

use super::Call;
use manylane_expr::Type;
use std::fmt::Write;

/// `get var`
pub(super) fn get(call: &mut Call<'_, '_>) {
    let name = call.word(0);
    if name.is_empty() {
        return call.error("Missing process-wide variable identifier.");
    }
    let Some(local) = call.local() else { return };
    match local.process_variable(name.as_bytes()) {
        None => call.error("Variable not found."),
        Some((kind, value)) => {
            let kind = if kind == Type::Int { "sint".to_owned() } else { kind.to_string() }; // HAProxy's name
            let _ = write!(call.reply, "{name}: type={kind} value=<{}>", String::from_utf8_lossy(&value));
        }
    }
}

/// `set var <name> [expr|fmt] <text>`
pub(super) fn set(call: &mut Call<'_, '_>) {
    crate::activity::experiments();
    let (name, words) = match call.words {
        [] => return call.error("Missing process-wide variable identifier."),
        [_] => return call.error("Missing either 'expr', 'fmt' or expression."),
        [name, words @ ..] => (name.clone(), words),
    };
    if !name.starts_with("proc.") {
        let text = format!("'set var': cannot set variable '{name}', only scope 'proc' is permitted here.");
        return call.error(&text);
    }
    let (is_format, words) = match words {
        [kind, rest @ ..] if kind == "fmt" && !rest.is_empty() => (true, rest),
        [kind, rest @ ..] if kind == "expr" && !rest.is_empty() => (false, rest),
        words => (false, words),
    };
    let text = words.join(" ");
    let Some(local) = call.local() else { return };
    if let Err(sentence) = local.set_process_variable(name.as_bytes(), text.as_bytes(), is_format) {
        call.error(&sentence);
    }
}
