//! Sockets in other network namespaces (`network_namespaces(7)`): a socket belongs to the namespace of its
//! thread at its creation.

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

/// Directory in which `ip-netns(8)` keeps the names.
const NAMESPACES: &str = "/var/run/netns";

/// A named network namespace.
#[derive(Debug)]
pub struct Namespace {
    there: OwnedFd,
}

impl Namespace {
    /// Opens the namespace that `ip netns add name` created.
    ///
    /// # Errors
    /// The system's: `ENOENT` if there is none with this name. `EINVAL` for a name that is no plain file
    /// name.
    pub fn named(name: &str) -> Result<Self, Errno> {
        if name.is_empty() || name.contains(['/', '\0']) || matches!(name, "." | "..") {
            return Err(Errno::INVAL);
        }
        Self::at(&format!("{NAMESPACES}/{name}"))
    }

    /// Opens the namespace at a path, such as `/proc/1/ns/net`.
    ///
    /// # Errors
    /// The system's.
    pub fn at(path: &str) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Self { there: openat(CWD, path, flags, Mode::empty())? })
    }

    /// Calls `make`, which should only create a socket, with the calling thread in this namespace.
    ///
    /// Cost: three system calls that take locks of the kernel.
    ///
    /// # Errors
    /// The system's: `EPERM` without the privilege; or those of `make`.
    ///
    /// # Aborts
    /// If the thread cannot return, which needs no more than entering did: all its later work would be in the
    /// wrong network.
    pub fn within<T>(&self, make: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        let here = Self::at("/proc/thread-self/ns/net")?;
        let network = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(self.there.as_fd(), network)?;
        /// Returns to the former namespace, even if `make` panics.
        struct Back(OwnedFd);
        impl Drop for Back {
            fn drop(&mut self) {
                if let Err(errno) =
                    move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))
                {
                    manylane_sched::abort_after(manylane_sched::LONGEST_WRITE, || {
                        let text = "a thread cannot go back to its network namespace";
                        let _ = writeln!(std::io::stderr(), "{text}: {errno}");
                    });
                }
            }
        }
        let _back = Back(here.there);
        make()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        for name in ["", ".", "..", "../../etc", "a/b", "a\0"] {
            assert_eq!(Namespace::named(name).unwrap_err(), Errno::INVAL, "{name:?}");
        }
        assert_eq!(Namespace::named("no-such-namespace").unwrap_err(), Errno::NOENT);
    }
}
