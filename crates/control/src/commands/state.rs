//! `show servers state` and `show servers conn`.

use super::Call;
use super::server::backend_named;
use super::stat::streams;
use crate::reply::ReplyError;
use manylane_balance::{Admin, Operation};
use manylane_check::CheckResult;
use manylane_lanes::Local;
use manylane_net::address::Port;
use manylane_plan::generation::{Backend, ServerAddrState, ServerAddress, ServerCheck};
use manylane_sched::Time;
use manylane_sync::Arc;
use std::fmt::Write;

/// Version of the format.
const VERSION: u32 = 1;

/// Returns all backends, or the one that the command names. If it is unknown, replies with an error and
/// returns `None`.
fn backends<'g>(call: &mut Call<'g, '_>) -> Option<&'g [Arc<Backend>]> {
    let all = &call.generation.backends;
    let Some(name) = call.words.first() else { return Some(all) };
    match backend_named(all, name) {
        Some(at) => Some(&all[at..=at]),
        None => {
            call.error("Can't find backend.");
            None
        }
    }
}

/// Address and port columns.
fn addr_and_port(endpoint: &ServerAddress) -> (String, u16) {
    match endpoint {
        ServerAddress::At(manylane_net::Endpoint::Ip(address)) => (address.ip().to_string(), address.port()),
        _ => ("-".into(), 0),
    }
}

/// Address and port columns of a server; a server without an address still has its port.
fn of_server(known: &ServerAddrState) -> (String, u16) {
    match (&known.address, known.port) {
        (ServerAddress::Nowhere, Port::One(port)) => ("-".into(), port),
        (at, _) => addr_and_port(at),
    }
}

/// Address and port columns of checks: an address that a `server` line or a command has set, a port that
/// differs from the server's, and the port of an agent.
fn check_target(check: Option<&ServerCheck>, is_agent: bool, own: &ServerAddress) -> (String, u16) {
    let Some(check) = check else { return ("-".into(), 0) };
    let target = check.target.read();
    let ((file, file_port), (_, own_port)) = (addr_and_port(&check.address()), addr_and_port(own));
    let address = target
        .ip
        .map(|ip| ip.to_string())
        .or(check.has_address.then_some(file))
        .unwrap_or_else(|| "-".into());
    let port = target.port.or((file_port != own_port || is_agent).then_some(file_port)).unwrap_or(0);
    (address, port)
}

pub(super) async fn states(call: &mut Call<'_, '_>) -> Result<(), ReplyError> {
    let Some(backends) = backends(call) else { return Ok(()) };
    let _ = writeln!(
        call.reply,
        "{VERSION}\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight \
            srv_iweight \
         srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state \
         srv_agent_state \
         bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port \
         srv_check_addr \
         srv_agent_addr srv_agent_port"
    );
    for backend in backends {
        for server in backend.listed() {
            let Some(index) = backend.balancer.servers().index(server.index) else { continue };
            let state = backend.balancer.servers()[index].state();
            let known = server.addr.read();
            let (address, port) = of_server(&known);
            // First stopped, starting, running or stopping. Then the cause of maintenance or drain: the file
            // or a command.
            let operation = match (state.operation(), state.admin()) {
                (Operation::Down, _) | (_, Admin::Maintenance) => 0,
                (Operation::Up, _) if state.is_warming() => 1,
                (Operation::Up, _) => 2,
                (Operation::Stopping, _) => 3,
            };
            let by_file = if server.disabled { 4 } else { 0 }; // stays set after later commands
            let standing = state.standing();
            let admin = by_file
                | match standing.own {
                    Admin::Ready => 0,
                    Admin::Drain => 8,
                    Admin::Maintenance => 1,
                }
                | match standing.inherited {
                    Admin::Ready => 0,
                    Admin::Drain => 16,
                    Admin::Maintenance => 2,
                }
                | if standing.unresolved { 32 } else { 0 }
                | if known.renamed { 64 } else { 0 };
            let name = known.name.as_deref().unwrap_or("-");
            let service = server.resolution.as_ref().and_then(|own| own.service.as_ref());
            let service = service.map_or("-", |service| service.as_str());
            let report = server.check.as_ref().map(|check| check.board.read());
            let paused = server.disabled || report.as_ref().is_some_and(|report| report.paused);
            let paused = if paused { 8 } else { 0 };
            let since = Time::now().since(Time::ZERO).saturating_sub(server.past.read().changed).as_secs();
            let (status, result, health, check) = match &report {
                Some(report) => {
                    let CheckResult { status, .. } = report.result;
                    let busy = u8::from(report.in_progress);
                    // Bits: configured and enabled.
                    (
                        status.number(),
                        status.result(),
                        report.health.value(),
                        if report.disabled { 2 } else { 6 } | paused | busy,
                    )
                }
                None => (1, 0, if admin & 7 == 0 { server.rise } else { 0 }, paused),
            };
            let agent = server.agent.as_ref().map_or(0, |agent| {
                let report = agent.board.read();
                // Bits: configured, enabled, and of an agent.
                if report.disabled { 18 } else { 22 | u8::from(report.in_progress) }
            });
            let (check_addr, check_port) = check_target(server.check.as_ref(), false, &known.address);
            let (agent_addr, agent_port) = check_target(server.agent.as_ref(), true, &known.address);
            // HAProxy connects without TLS to a server that has `ssl` and 0 here.
            let tls = u8::from(server.tls.is_some());
            let _ = writeln!(
                call.reply,
                "{} {} {} {} {address} {operation} {admin} {} {} {since} {status} {result} {health} {check} \
                    {agent} {} {} {name} {port} {service} {tls} {check_port} {check_addr} {agent_addr} \
                    {agent_port}",
                backend.id,
                backend.name,
                server.id,
                server.name,
                state.weight(),
                server.weight,
                u8::from(backend.id_is_given),
                u8::from(server.id_is_given),
            );
            call.reply.breathe().await?;
        }
    }
    Ok(())
}

pub(super) async fn connections(call: &mut Call<'_, '_>) -> Result<(), ReplyError> {
    let Some(backends) = backends(call) else { return Ok(()) };
    let lanes = Local::of(call.generation).map(|local| local.lane_ids()).unwrap_or_default();
    let _ = writeln!(
        call.reply,
        "# bkname/svname bkid/svid addr port - purge_delay used_cur used_max need_est unsafe_nb safe_nb \
            idle_lim idle_cur idle_per_thr[{}]",
        lanes.len()
    );
    for backend in backends {
        for server in backend.listed() {
            let Some(index) = backend.balancer.servers().index(server.index) else { continue };
            let known = server.addr.read();
            let (address, port) = of_server(&known);
            let (used, most) = streams(server, backend.balancer.servers()[index].state().maxconn().into());
            let needed = server.counts.figures(Time::now()).usual;
            let idle = backend.idle_pools.idle(index);
            let limit = server.pool_max.map_or(-1, i64::from);
            let _ = write!(
                call.reply,
                "{}/{} {}/{} {address} {port} - {} {used} {most} {needed} {idle} 0 {limit} {idle}",
                backend.name,
                server.name,
                backend.id,
                server.id,
                server.pool_purge.as_millis(),
            );
            for lane in &lanes {
                let _ = write!(call.reply, " {}", backend.idle_pools.idle_on(*lane, index));
            }
            call.reply.put("\n");
            call.reply.breathe().await?;
        }
    }
    Ok(())
}
