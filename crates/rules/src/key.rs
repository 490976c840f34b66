//! Key for the balancing algorithm from an expression: `balance hash`; the server that a cookie of RDP names.

use super::context::{EvalContext, EvalPhase};
use manylane_balance::{Index, Key};
use manylane_expr::Type;
use manylane_net::Endpoint;
use manylane_plan::generation::{Backend, ServerAddress};
use std::net::{Ipv4Addr, SocketAddr};

/// Returns the hash of the backend's expression. Without a value the stream has no key, and goes to the
/// server whose turn it is.
pub fn key(eval: &EvalContext<'_>, phase: EvalPhase<'_>, backend: &Backend) -> Key<'static> {
    let Some(expression) = &backend.rules.balance else { return Key::None };
    let function = backend.balancer.algorithm().hash_function();
    let hash = eval.with(phase, |env, scratch| {
        let mut scratch = scratch.reborrow();
        let value = expression.eval_as(Type::Bin, env, &mut scratch).ok()?;
        Some(function.hash(value.bytes()?))
    });
    hash.map_or(Key::None, Key::Number)
}

/// Returns the server whose address the client's cookie of RDP has (`persist rdp-cookie`), if it takes
/// streams; with `obeyed`, whatever its state.
pub fn of_rdp_cookie(
    eval: &EvalContext<'_>,
    phase: EvalPhase<'_>,
    backend: &Backend,
    obeyed: bool,
) -> Option<Index> {
    let expression = backend.rules.persist_rdp.as_ref()?;
    let address = eval.with(phase, |env, scratch| {
        let mut scratch = scratch.reborrow();
        rdp_address(expression.eval_as(Type::Bin, env, &mut scratch).ok()?.bytes()?)
    })?;
    let endpoint = ServerAddress::At(Endpoint::Ip(address));
    let servers = backend.balancer.servers();
    let reader = eval.local.reader();
    let server = backend.listed().find(|server| *server.addr.load(&reader) == endpoint)?;
    let index = servers.index(server.index)?;
    (obeyed || servers[index].state().serves_its_own()).then_some(index)
}

/// Reads the address in a routing token (MS-RDPBCGR, 2.2.1.1): `IP.PORT.0000`, both as decimal numbers of
/// their bytes in little-endian order.
fn rdp_address(token: &[u8]) -> Option<SocketAddr> {
    let mut parts = token.split(|byte| *byte == b'.');
    let mut number = || {
        let digits = parts.next()?;
        let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse::<u32>().ok()
    };
    let (ip, port) = (number()?, number()?);
    let port = u16::try_from(port).ok()?.swap_bytes();
    Some((Ipv4Addr::from(ip.to_le_bytes()), port).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_the_bytes_of_an_address_in_reverse() {
        let address = |token: &str| rdp_address(token.as_bytes()).map(|address| address.to_string());
        assert_eq!(address("3640205228.15629.0000").as_deref(), Some("172.31.249.216:3389"));
        assert_eq!(address("16777343.20480.0000").as_deref(), Some("127.0.0.1:80"));
        assert_eq!(address("16777343.20480").as_deref(), Some("127.0.0.1:80"));
        for wrong in ["", "1", "1.", ".1", "a.1", "4294967296.1", "1.65536.0000", "+1.1", "1 .1"] {
            assert_eq!(address(wrong), None, "{wrong}");
        }
    }
}
