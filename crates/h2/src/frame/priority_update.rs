//! PRIORITY_UPDATE (RFC 9218, 7.1): ignored, except for errors.

use super::Header;
use crate::conn::Role;
use crate::error::Problem;

pub(crate) const KIND: u8 = 0x10;

/// Checks the frame by its header: only clients send it, on the connection, and it names a stream.
pub(crate) fn check(header: &Header, role: Role) -> Result<(), Problem> {
    header.of_connection()?;
    if header.len < 4 {
        return Err(Problem::FrameSize);
    }
    if role == Role::Client { Err(Problem::PriorityUpdateFromServer) } else { Ok(()) }
}
