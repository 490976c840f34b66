//! Applies options by system calls: each is set, or the error names it.

use crate::error::{Refused, Step};
use crate::options::{CommonOptions, ListenOptions, V6};
use manylane_io::options::{self, SignedPeers, SocketOption, set_option};
use manylane_io::socket::{AddressFamily, Shape};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A socket on which options are set.
pub(crate) struct Options<'a> {
    pub(crate) socket: BorrowedFd<'a>,
    pub(crate) family: AddressFamily,
}

pub(crate) type Applied = Result<(), Refused>;

impl Options<'_> {
    pub(crate) fn set(&self, keyword: &'static str, option: SocketOption, value: i32) -> Applied {
        set_option(self.socket, option, value).map_err(|errno| (Step::Option(keyword, option.name()), errno))
    }

    pub(crate) fn is_ip(&self) -> bool {
        self.is_v6() || self.family == AddressFamily::INET
    }

    pub(crate) fn is_v6(&self) -> bool {
        self.family == AddressFamily::INET6
    }

    /// Binds the socket to a network device.
    pub(crate) fn interface(&self, name: &str) -> Applied {
        options::bind_to_device(self.socket, name)
            .map_err(|errno| (Step::Option("interface", "SO_BINDTODEVICE"), errno))
    }

    /// Signs all segments of the socket.
    pub(crate) fn sign(&self, with: SignedPeers, key: &[u8]) -> Applied {
        options::sign(self.socket, with, key)
            .map_err(|errno| (Step::Option("tcp-md5sig", "TCP_MD5SIG"), errno))
    }

    /// Allows binding an address that this machine does not have.
    pub(crate) fn transparent(&self, keyword: &'static str) -> Applied {
        let option = if self.is_v6() { SocketOption::TransparentV6 } else { SocketOption::TransparentV4 };
        self.set(keyword, option, 1)
    }

    /// Sets the options that a listener needs before it is bound.
    pub(crate) fn before_bind(&self, shape: Shape, options: &ListenOptions) -> Applied {
        if !self.is_ip() {
            return Ok(());
        }
        if shape == Shape::Stream {
            // Old connections in TIME_WAIT do not matter. For datagrams, the option would let anybody take
            // the address.
            self.set("bind", SocketOption::ReuseAddress, 1)?;
        }
        if options.reuse_port {
            self.set("bind", SocketOption::ReusePort, 1)?;
        }
        if let Some(name) = &options.interface {
            self.interface(name)?;
        }
        if options.transparent {
            self.transparent("transparent")?;
        }
        match options.v6 {
            V6::Both if self.is_v6() => self.set("v4v6", SocketOption::V6Only, 0)?,
            V6::Only if self.is_v6() => self.set("v6only", SocketOption::V6Only, 1)?,
            _ => {}
        }
        Ok(())
    }

    /// Sets the options of a TCP listener, and those that its connections inherit.
    pub(crate) fn before_listen(&self, options: &ListenOptions) -> Applied {
        if !self.is_ip() {
            return Ok(());
        }
        if let Some(bytes) = options.mss {
            self.set("mss", SocketOption::MaxSegment, bytes.into())?;
        }
        if let Some(time) = options.defer_accept {
            self.set("defer-accept", SocketOption::DeferAccept, seconds(time))?;
        }
        if let Some(key) = &options.common.signature {
            self.sign(SignedPeers::Any { v6: self.is_v6() }, key)?;
        }
        if let Some(queue) = options.fast_open {
            self.set("tfo", SocketOption::FastOpen, i32::try_from(queue).unwrap_or(i32::MAX))?;
        }
        Ok(())
    }

    /// Sets the options that only a listening socket keeps.
    pub(crate) fn after_listen(&self, options: &ListenOptions) -> Applied {
        if !self.is_ip() {
            return Ok(());
        }
        // Both values are set: a socket that was handed over has its last owner's choice.
        match self.set("tcp-smart-accept", SocketOption::QuickAck, options.quick_ack.into()) {
            Err((_, manylane_io::Errno::NOPROTOOPT)) => Ok(()), // MPTCP has it for connections only
            set => set,
        }
    }

    /// Sets the marks of packets.
    pub(crate) fn packets(&self, options: &CommonOptions) -> Applied {
        if let Some(mark) = options.mark {
            self.set("mark", SocketOption::Mark, mark.cast_signed())?;
        }
        if let Some(tos) = options.tos.filter(|_| self.is_ip()) {
            if self.is_v6() {
                self.set("tos", SocketOption::TrafficClass, tos.into())?;
            }
            // An IPv6 socket may carry IPv4, too.
            self.set("tos", SocketOption::Tos, tos.into())?;
        }
        Ok(())
    }

    /// Sets the size of the buffer for what was received.
    pub(crate) fn receive_buffer(&self, options: &CommonOptions) -> Applied {
        let Some(bytes) = options.receive_buffer else { return Ok(()) };
        self.set("tune.rcvbuf", SocketOption::ReceiveBuffer, i32::try_from(bytes).unwrap_or(i32::MAX))
    }

    /// Sets the options that all TCP connections have, or their listener; `probes` has the keywords of the
    /// probes' options.
    pub(crate) fn connection(&self, options: &CommonOptions, probes: &Probes) -> Applied {
        if !self.is_ip() {
            return Ok(());
        }
        if options.no_delay {
            self.set("nodelay", SocketOption::NoDelay, 1)?;
        }
        if let Some(time) = options.user_timeout {
            // 0 is the system's own
            let milliseconds = i32::try_from(time.as_millis()).unwrap_or(i32::MAX).max(1);
            self.set("tcp-ut", SocketOption::UserTimeout, milliseconds)?;
        }
        if let Some(name) = &options.congestion_control {
            options::set_congestion_control(self.socket, name)
                .map_err(|errno| (Step::Option("cc", "TCP_CONGESTION"), errno))?;
        }
        self.receive_buffer(options)?;
        let size = |bytes: u32| i32::try_from(bytes).unwrap_or(i32::MAX);
        if let Some(bytes) = options.send_buffer {
            self.set("tune.sndbuf", SocketOption::SendBuffer, size(bytes))?;
        }
        if let Some(bytes) = options.unsent {
            self.set("tune.notsent-lowat", SocketOption::NotSentLowWater, size(bytes))?;
        }
        if options.no_linger {
            options::set_reset_on_close(self.socket)
                .map_err(|errno| (Step::Option("nolinger", "SO_LINGER"), errno))?;
        }
        if let Some(probe) = options.keep_alive {
            self.set(probes.on, SocketOption::KeepAlive, 1)?;
            if let Some(count) = probe.count {
                self.set(probes.count, SocketOption::KeepAliveCount, count.into())?;
            }
            if let Some(idle) = probe.idle {
                self.set(probes.idle, SocketOption::KeepAliveIdle, seconds(idle))?;
            }
            if let Some(interval) = probe.interval {
                self.set(probes.interval, SocketOption::KeepAliveInterval, seconds(interval))?;
            }
        }
        Ok(())
    }
}

/// Keywords of the options for probes, on one side.
pub(crate) struct Probes {
    on: &'static str,
    count: &'static str,
    idle: &'static str,
    interval: &'static str,
}

/// Keywords for connections of clients.
pub(crate) const CLIENTS: Probes =
    Probes { on: "clitcpka", count: "clitcpka-cnt", idle: "clitcpka-idle", interval: "clitcpka-intvl" };

/// Keywords for connections to servers.
pub(crate) const SERVERS: Probes =
    Probes { on: "srvtcpka", count: "srvtcpka-cnt", idle: "srvtcpka-idle", interval: "srvtcpka-intvl" };

/// Rounds up to whole seconds. The system refuses values out of its range.
fn seconds(time: Duration) -> i32 {
    let whole = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
    i32::try_from(whole).unwrap_or(i32::MAX)
}
