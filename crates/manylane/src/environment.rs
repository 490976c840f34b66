//! Environment variables that the program itself defines: for lines of the configuration, for `env()`, and
//! for `show env`.

use crate::arguments::Arguments;
use crate::version::BUILD;
use manylane_config::lex::Environment;
use manylane_config::source::Sources;
use manylane_config::tree::Config;
use manylane_net::Address;
use manylane_net::address::{Host, Location};
use manylane_plan::generation::{CLF_LOG, HTTP_LOG, HTTPS_LOG, TCP_LOG};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Returns the environment of the process with the variables that files may read. Leaves out a value that is
/// too long for a variable, such as the names of thousands of files.
pub(crate) fn before(sources: &Sources, local_peer: Option<&OsStr>) -> Environment {
    let mut environment = Environment::of_process();
    let files: Vec<&[u8]> = sources.files().map(|file| sources.name(file)).collect();
    let (version, hostname) = (BUILD.version.to_string(), nix::unistd::gethostname().unwrap_or_default());
    for (name, value) in [
        ("HAPROXY_BRANCH", version.as_bytes()),
        ("HAPROXY_CFGFILES", &files.join(&b';')),
        ("HAPROXY_HTTP_CLF_LOG_FMT", CLF_LOG.as_bytes()),
        ("HAPROXY_HTTP_LOG_FMT", HTTP_LOG.as_bytes()),
        ("HAPROXY_HTTPS_LOG_FMT", HTTPS_LOG.as_bytes()),
        ("HAPROXY_LOCALPEER", hostname.as_bytes()),
        ("HAPROXY_STARTUP_VERSION", env!("CARGO_PKG_VERSION").as_bytes()),
        ("HAPROXY_TCP_LOG_FMT", TCP_LOG.as_bytes()),
    ] {
        let _ = environment.set(name.as_bytes(), value);
    }
    if let Some(name) = local_peer {
        let _ = environment.give(b"HAPROXY_LOCALPEER", name.as_bytes());
    }
    environment
}

/// Adds the variables of processes with a master: that there is one, and the version that the master was
/// started with, which stays when a worker has another version.
pub(crate) fn tell_master(environment: &mut Environment, arguments: &Arguments) {
    let (before, is_worker) = (Environment::of_process(), arguments.worker.is_some());
    if !is_worker && arguments.master.is_none() {
        return;
    }
    let _ = environment.set(b"HAPROXY_MWORKER", b"1");
    if is_worker && let Some(version) = before.get(b"HAPROXY_STARTUP_VERSION") {
        let _ = environment.set(b"HAPROXY_STARTUP_VERSION", version);
    }
}

/// Sets `HAPROXY_CLI`, once the files are read: the addresses of the run-time interface, for `env()`.
pub(crate) fn tell_sockets(config: &mut Config) {
    let prefix = config.global.unix_bind.as_ref().and_then(|set| set.value.prefix.as_ref());
    let prefix = prefix.map(|word| String::from_utf8_lossy(word.bytes()).into_owned()).unwrap_or_default();
    let lines = config.global.stats_sockets.iter().flat_map(|line| &line.addresses);
    let all: String = lines.map(|address| format!("{};", shown(&address.value, &prefix))).collect();
    if let Some(all) = all.strip_suffix(';') {
        let _ = config.environment.set(b"HAPROXY_CLI", all.as_bytes());
    }
}

/// Returns an address with the prefix of its kind.
fn shown(address: &Address, unix_prefix: &str) -> String {
    match &address.location {
        Location::Ip { host: Host::V4(ip), port } => format!("ipv4@{ip}{port}"),
        Location::Ip { host: Host::V6(ip), port } => format!("ipv6@[{ip}]{port}"),
        Location::Unix(path) => format!("unix@{unix_prefix}{path}"),
        _ => address.to_string(),
    }
}
