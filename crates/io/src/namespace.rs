//! Sockets in other network namespaces (`network_namespaces(7)`): a socket belongs to the namespace that its
//! thread was in when it was made.

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::os::fd::{AsFd, OwnedFd};

/// Where `ip-netns(8)` keeps the names.
pub const NAMESPACES: &str = "/var/run/netns";

/// A network namespace that has a name.
#[derive(Debug)]
pub struct Namespace {
    there: OwnedFd,
}

impl Namespace {
    /// The namespace that `ip netns add name` made.
    ///
    /// # Errors
    /// The system's: `ENOENT` when there is none of the name. A name that is no plain file name is `EINVAL`.
    pub fn named(name: &str) -> Result<Self, Errno> {
        if name.is_empty() || name.contains(['/', '\0']) || matches!(name, "." | "..") {
            return Err(Errno::INVAL);
        }
        Self::at(&format!("{NAMESPACES}/{name}"))
    }

    /// The namespace at a path, such as `/proc/1/ns/net`.
    ///
    /// # Errors
    /// The system's.
    pub fn at(path: &str) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Self { there: openat(CWD, path, flags, Mode::empty())? })
    }

    /// Calls `make`, which should do no more than make a socket, with the calling thread in this namespace.
    ///
    /// Cost: three system calls that take locks of the kernel.
    ///
    /// # Errors
    /// The system's: `EPERM` without the privilege; or what `make` says.
    ///
    /// # Aborts
    /// If the thread cannot go back, which needs no more than what brought it here: whatever it did then
    /// would be in the wrong network.
    pub fn within<T>(&self, make: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        let here = Self::at("/proc/thread-self/ns/net")?;
        let network = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(self.there.as_fd(), network)?;
        /// Goes back, whatever `make` does.
        struct Back(OwnedFd);
        impl Drop for Back {
            fn drop(&mut self) {
                if let Err(errno) =
                    move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))
                {
                    eprintln!("a thread cannot go back to its network namespace: {errno}");
                    std::process::abort();
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
