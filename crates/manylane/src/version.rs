//! What is built: said by `-v` and `-vv`, and asked for by conditions of the configuration.

use manylane_config::cond::Build;

/// What `feature()`, `enabled()` and `version_atleast()` are answered with.
pub(crate) const BUILD: Build = Build {
    features: &["EPOLL", "LINUX_SPLICE", "LINUX_TPROXY", "NS", "RT", "TFO", "THREAD"],
    enabled: &["EPOLL", "SPLICE", "GETADDRINFO", "REUSEPORT", "FAST-FORWARD"],
    ..Build::bare()
};

/// `-v`
pub(crate) fn short() -> String {
    format!(
        "Manylane version {}\nSpeaks the configuration language of HAProxy {}.\n",
        env!("CARGO_PKG_VERSION"),
        BUILD.version
    )
}

/// `-vv`
pub(crate) fn long() -> String {
    format!(
        "{}\nBuilt features : {}\nEnabled at run time : {}\nDrivers : epoll, io_uring (MANYLANE_DRIVER)\n",
        short(),
        BUILD.features.join(" "),
        BUILD.enabled.join(" ")
    )
}
