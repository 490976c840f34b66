//! Reports to a service manager (`-Ws`): datagrams as `sd_notify(3)` sends them.

use nix::time::{ClockId, clock_gettime};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends a report to the service manager that started the process, if one wants reports.
pub(super) fn notify(text: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let name = name.into_encoded_bytes();
    let address = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(std::path::Path::new(&String::from_utf8_lossy(&name).into_owned())),
    };
    // A service manager that does not listen needs no report.
    let _ = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address));
}

/// Reports the start of a reload, with the time that `Type=notify-reload` requires.
pub(super) fn reloading() {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |now| now.tv_sec() * 1_000_000 + now.tv_nsec() / 1000);
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={now}\nSTATUS=Reloading Configuration.\n"));
}

/// Reports that workers serve.
pub(super) fn ready(status: &str) {
    notify(&format!("READY=1\nMAINPID={}\nSTATUS={status}\n", std::process::id()));
}
