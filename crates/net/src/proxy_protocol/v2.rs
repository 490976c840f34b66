//! Version 2: binary (2.2).

use super::tlv::{HEAD, kind};
use super::{EndpointPair, Header, HeaderError, LONGEST_V2, Parsed, Tlv, Tlvs, Version, same_family};
use crate::address::Transport;
use crc::{CRC_32_ISCSI, Crc, Table};
use std::net::{IpAddr, SocketAddr};

pub(super) const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Size of a header's fixed part, in bytes: signature, version and command, family and transport, length.
pub(super) const FIXED: usize = 16;

/// Algorithm of the checksum (2.2.3).
static CRC32C: Crc<u32, Table<1>> = Crc::<u32, Table<1>>::new(&CRC_32_ISCSI);

/// Size of a unix socket's name, in bytes.
const UNIX_NAME: usize = 108;

pub(super) fn parse(bytes: &[u8]) -> Result<Parsed<'_>, HeaderError> {
    // Errors are reported as soon as their byte is there.
    let command = bytes.get(12).map(|byte| (byte >> 4, byte & 0xf));
    match command {
        Some((2, 0 | 1)) | None => {}
        Some((2, command)) => return Err(HeaderError::Command(command)),
        Some((version, _)) => return Err(HeaderError::Version(version)),
    }
    let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED>() else {
        return Ok(Parsed::Incomplete { at_least: FIXED });
    };
    let [.., family, high, low] = *fixed;
    let (relayed, length) = (fixed[12] & 0xf == 1, u16::from_be_bytes([high, low]));
    let total = FIXED + usize::from(length);
    if total > LONGEST_V2 {
        return Err(HeaderError::Long(length));
    }
    // Of the sender's own connection, and of kinds that it cannot describe, only the length counts.
    let described = if relayed { transport_and_size(family)? } else { None };
    if described.is_some_and(|(_, addresses)| addresses > usize::from(length)) {
        return Err(HeaderError::Length(length));
    }
    let Some(block) = rest.get(..usize::from(length)) else {
        return Ok(Parsed::Incomplete { at_least: total });
    };
    let mut header = Header { version: Version::V2, ends: None, relayed, tlvs: Tlvs::default() };
    if let Some((transport, addresses)) = described {
        let (addresses, tlvs) = block.split_at(addresses);
        header.ends = Some(ends(addresses, transport));
        header.tlvs = Tlvs::check(tlvs)?;
        check_sum(&bytes[..total], total - tlvs.len(), header.tlvs)?;
    }
    Ok(Parsed::Complete { header, length: total })
}

/// Returns the transport, and the size of both addresses; `None` if the sender cannot describe one of them.
fn transport_and_size(family: u8) -> Result<Option<(Transport, usize)>, HeaderError> {
    let transport = match family & 0xf {
        0 => None,
        1 => Some(Transport::Stream),
        2 => Some(Transport::Datagram),
        _ => return Err(HeaderError::Family(family)),
    };
    let addresses = match family >> 4 {
        0 => None,
        1 => Some(2 * (4 + 2)),
        2 => Some(2 * (16 + 2)),
        3 => Some(2 * UNIX_NAME),
        _ => return Err(HeaderError::Family(family)),
    };
    Ok(transport.zip(addresses))
}

/// Parses addresses whose size determines their family.
fn ends(block: &[u8], transport: Transport) -> EndpointPair<'_> {
    if let Ok(block) = <&[u8; 12]>::try_from(block) {
        let [a, b, c, d, e, f, g, h, from @ .., _, _] = *block;
        let [.., to_high, to_low] = *block;
        return ip([a, b, c, d], [e, f, g, h], from, [to_high, to_low], transport);
    }
    if let Some((addresses, ports)) = block.split_first_chunk::<32>()
        && let Ok(&[from_high, from_low, to_high, to_low]) = <&[u8; 4]>::try_from(ports)
    {
        let (mut source, mut destination) = ([0; 16], [0; 16]);
        source.copy_from_slice(&addresses[..16]);
        destination.copy_from_slice(&addresses[16..]);
        return ip(source, destination, [from_high, from_low], [to_high, to_low], transport);
    }
    let (source, destination) = block.split_at(block.len() / 2);
    EndpointPair::Unix { transport, source: name(source), destination: name(destination) }
}

fn ip<const N: usize>(
    source: [u8; N],
    destination: [u8; N],
    from: [u8; 2],
    to: [u8; 2],
    transport: Transport,
) -> EndpointPair<'static>
where
    IpAddr: From<[u8; N]>,
{
    EndpointPair::Ip {
        transport,
        source: SocketAddr::new(source.into(), u16::from_be_bytes(from)),
        destination: SocketAddr::new(destination.into(), u16::from_be_bytes(to)),
    }
}

/// Removes the zeros at the end.
fn name(padded: &[u8]) -> &[u8] {
    let end = padded.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &padded[..end]
}

/// Checks the checksum of the header's bytes, if there is one (2.2.3). The TLVs begin at `at`.
fn check_sum(header: &[u8], mut at: usize, tlvs: Tlvs<'_>) -> Result<(), HeaderError> {
    let mut found = None;
    for tlv in tlvs {
        at += HEAD;
        if tlv.kind == kind::CRC32C && found.replace((at, tlv.value)).is_some() {
            return Err(HeaderError::Checksums);
        }
        at += tlv.value.len();
    }
    let Some((at, checksum)) = found else { return Ok(()) };
    let mut sum = CRC32C.digest();
    for part in [&header[..at], &[0; 4], &header[at + 4..]] {
        sum.update(part);
    }
    if sum.finalize().to_be_bytes() == *checksum { Ok(()) } else { Err(HeaderError::Checksum) }
}

/// Contents of a version 2 header to write.
#[derive(Clone, Copy, Debug)]
pub struct HeaderContents<'a> {
    /// Both ends of the relayed connection; `None` for the sender's own connection.
    pub ends: Option<EndpointPair<'a>>,
    /// Other data, without a checksum, which is computed here.
    pub tlvs: &'a [Tlv<'a>],
    /// Whether to add a checksum.
    pub checksum: bool,
}

/// Appends a header of version 2 to `into`. Send it with or before the connection's first bytes.
///
/// # Errors
/// [`HeaderError::Length`] if it would be longer than [`LONGEST_V2`], which receivers need not accept;
/// [`HeaderError::Tlv`] for a TLV that this module would not accept. `into` is unchanged.
pub fn emit(what: &HeaderContents<'_>, into: &mut Vec<u8>) -> Result<(), HeaderError> {
    let start = into.len();
    let written = write(what, start, into);
    if written.is_err() {
        into.truncate(start);
    }
    written
}

/// Does what [`emit`] does, but leaves out TLVs that [`emit`] would refuse: those that would make the header
/// longer than [`LONGEST_V2`], in their order, and those that this module would not accept. Returns the types
/// of the TLVs that it left out.
///
/// # Errors
/// Those of [`emit`], which the rest of a header cannot cause.
pub fn emit_fitting(what: &HeaderContents<'_>, into: &mut Vec<u8>) -> Result<Vec<u8>, HeaderError> {
    let start = into.len();
    emit(&HeaderContents { tlvs: &[], ..*what }, into)?;
    let mut room = LONGEST_V2 - (into.len() - start);
    into.truncate(start);
    let (mut said, mut left_out) = (Vec::with_capacity(what.tlvs.len()), Vec::new());
    for tlv in what.tlvs {
        let length = HEAD + tlv.value.len();
        if length <= room && tlv.is_sayable() {
            room -= length;
            said.push(*tlv);
        } else {
            left_out.push(tlv.kind);
        }
    }
    emit(&HeaderContents { tlvs: &said, ..*what }, into)?;
    Ok(left_out)
}

fn write(what: &HeaderContents<'_>, start: usize, into: &mut Vec<u8>) -> Result<(), HeaderError> {
    into.extend(SIGNATURE);
    let transport = |transport| match transport {
        Transport::Stream | Transport::Multipath => 1,
        Transport::Datagram => 2,
    };
    match what.ends {
        None => into.extend([0x20, 0, 0, 0]),
        Some(EndpointPair::Ip { transport: by, source, destination }) => {
            let (source, destination) = same_family(source, destination);
            let family = if source.is_ipv4() { 0x10 } else { 0x20 };
            into.extend([0x21, family | transport(by), 0, 0]);
            for address in [source, destination] {
                match address.ip() {
                    IpAddr::V4(ip) => into.extend(ip.octets()),
                    IpAddr::V6(ip) => into.extend(ip.octets()),
                }
            }
            into.extend(source.port().to_be_bytes());
            into.extend(destination.port().to_be_bytes());
        }
        Some(EndpointPair::Unix { transport: by, source, destination }) => {
            into.extend([0x21, 0x30 | transport(by), 0, 0]);
            for name in [source, destination] {
                let kept = &name[..name.len().min(UNIX_NAME)];
                into.extend(kept);
                into.extend(std::iter::repeat_n(0, UNIX_NAME - kept.len()));
            }
        }
    }
    let tlvs = into.len();
    let sum = what.checksum.then(|| {
        into.extend([kind::CRC32C, 0, 4, 0, 0, 0, 0]);
        into.len() - 4
    });
    for tlv in what.tlvs {
        let length = u16::try_from(tlv.value.len()).map_err(|_| HeaderError::Tlv(tlv.kind))?;
        if tlv.kind == kind::CRC32C {
            return Err(HeaderError::Tlv(tlv.kind));
        }
        into.push(tlv.kind);
        into.extend(length.to_be_bytes());
        into.extend(tlv.value);
    }
    Tlvs::check(&into[tlvs..])?;
    let total = into.len() - start;
    let length = u16::try_from(total - FIXED).unwrap_or(u16::MAX);
    if total > LONGEST_V2 {
        return Err(HeaderError::Length(length));
    }
    into[start + 14..start + FIXED].copy_from_slice(&length.to_be_bytes());
    if let Some(at) = sum {
        let sum = CRC32C.checksum(&into[start..]);
        into[at..at + 4].copy_from_slice(&sum.to_be_bytes());
    }
    Ok(())
}
