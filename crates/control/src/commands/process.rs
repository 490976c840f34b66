//! Commands on the process: `reload`, and its environment and settings.

use super::Call;
use crate::reply::ReplyError;
use manylane_net::Endpoint;
use std::fmt::Write;

pub(super) async fn reload(call: &mut Call<'_, '_>) {
    match (call.control.process().reload)().await {
        Ok(text) => call.info(text.trim_end()),
        Err(text) => call.error(text.trim_end()),
    }
}

/// `show backend`
pub(super) async fn show_backends(call: &mut Call<'_, '_>) -> Result<(), ReplyError> {
    call.reply.put("# name\n");
    for backend in &call.generation.backends {
        call.reply.put(&backend.name);
        call.reply.put("\n");
        call.reply.breathe().await?;
    }
    Ok(())
}

/// `debug dev log`
pub(super) fn log(call: &mut Call<'_, '_>) {
    let text = call.words.join(" ");
    if let Some(local) = call.local() {
        local.log_globally(&text);
    }
}

/// `show cli sockets`
pub(super) fn show_sockets(call: &mut Call<'_, '_>) {
    call.reply.put("# socket lvl processes\n");
    for number in 0..call.control.sockets().len() {
        let socket = call.control.line(call.generation, number);
        let family = match &socket.listener.endpoint {
            Endpoint::Ip(address) if address.is_ipv4() => "ipv4@",
            Endpoint::Ip(_) => "ipv6@",
            Endpoint::Unix(path) if path.is_absolute() => "unix@",
            _ => "", // the address has its prefix already
        };
        let _ = writeln!(call.reply, "{family}{} {} all", socket.listener.written, socket.rights.level);
    }
}

/// `show env`
pub(super) async fn show_environment(call: &mut Call<'_, '_>) -> Result<(), ReplyError> {
    let environment = &call.generation.environment;
    if let Some(name) = call.words.first() {
        match environment.get(name.as_bytes()) {
            Some(value) => {
                let _ = writeln!(call.reply, "{name}={}", String::from_utf8_lossy(value));
            }
            None => call.error("Variable not found"),
        }
        return Ok(());
    }
    for (name, value) in environment.iter() {
        let _ = writeln!(call.reply, "{}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value));
        call.reply.breathe().await?;
    }
    Ok(())
}
