//! What is built, and which of it is in use: said by `-v` and `-vv`, and asked for by conditions of the configuration.

use crate::arguments::Arguments;
use manylane_config::cond::Build;
use manylane_io::{Choice, Kind};

/// What `feature()`, `enabled()` and `version_atleast()` are answered with.
pub(crate) const BUILD: Build = Build {
    features: &["EPOLL", "LINUX_SPLICE", "LINUX_TPROXY", "NS", "RT", "TFO", "THREAD"],
    enabled: &["EPOLL", "SPLICE", "GETADDRINFO", "REUSEPORT", "FAST-FORWARD"],
    ..Build::bare()
};

/// The same without what the command line and the environment switch off.
pub(crate) fn in_use(arguments: &Arguments) -> Build {
    let no_epoll = arguments.no_epoll
        || matches!(Choice::from_environment(), Ok(Choice::Only(kind)) if kind != Kind::Epoll);
    [(no_epoll, "EPOLL"), (arguments.no_reuse_port, "REUSEPORT"), (arguments.no_splice, "SPLICE")]
        .into_iter()
        .filter(|(off, _)| *off)
        .fold(BUILD, |build, (_, name)| build.without(name))
}

/// `-v`
pub(crate) fn short() -> String {
    format!(
        "Manylane version {}\nSpeaks the configuration language of HAProxy {}.\n",
        env!("CARGO_PKG_VERSION"),
        BUILD.version
    )
}

/// `-vv`
pub(crate) fn long(arguments: &Arguments) -> String {
    let enabled: Vec<&str> = in_use(arguments).enabled().collect();
    format!(
        "{}\nBuilt features : {}\nEnabled at run time : {}\nDrivers : epoll, io_uring (MANYLANE_DRIVER)\n",
        short(),
        BUILD.features.join(" "),
        enabled.join(" ")
    )
}
