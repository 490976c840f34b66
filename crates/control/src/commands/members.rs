//! `add server`, `del server`.

use super::Call;
use manylane_plan::generation::{Change, options_of_added_servers};

/// Splits the first word into backend and server. If it is malformed, replies with an error and returns
/// `None`.
fn named(call: &mut Call<'_, '_>) -> Option<(Box<str>, Box<str>)> {
    let named =
        call.word(0).split_once('/').filter(|(backend, server)| !backend.is_empty() && !server.is_empty());
    let named = named.map(|(backend, server)| (backend.into(), server.into()));
    if named.is_none() {
        call.error("Require 'backend/server'.");
    }
    named
}

/// `add server <backend>/<server> <address> [option]*`, `add server help`
pub(super) async fn add(call: &mut Call<'_, '_>) {
    if call.word(0) == "help" {
        call.reply.put("Options of a server that 'add server' takes:\n");
        for name in options_of_added_servers() {
            call.reply.put(name);
            call.reply.put("\n");
        }
        return;
    }
    let Some((backend, server)) = named(call) else { return };
    let words = call.words.get(1..).unwrap_or_default().to_vec();
    change(call, Change::Add(backend, server, words)).await;
}

/// `del server <backend>/<server>`
pub(super) async fn delete(call: &mut Call<'_, '_>) {
    let Some((backend, server)) = named(call) else { return };
    change(call, Change::Delete(backend, server)).await;
}

async fn change(call: &mut Call<'_, '_>, change: Change) {
    match (call.control.process().change)(change).await {
        Ok(text) => call.info(&text),
        Err(text) => call.error(&text),
    }
}
