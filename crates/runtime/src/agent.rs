//! Handles the results of agent checks.

use manylane_balance::{Admin, Availability, Index};
use manylane_check::agent::{self, AgentReply, Order};
use manylane_check::{CheckResult, HealthState, Status};
use manylane_lanes::{Local, administer, change, log_check, reason, set_maxconn, set_weight};
use manylane_plan::generation::{Backend, Change, ServerCheck, operation};
use std::time::Duration;

/// Handles the end of an agent check: `line` is the agent's answer; without one, `result` says why.
pub(super) fn heard(
    local: &Local,
    backend: &Backend,
    index: Index,
    own: &ServerCheck,
    result: CheckResult,
    line: Option<&[u8]>,
    took: Duration,
) {
    let check_result = match line.filter(|_| result.status == Status::Checked) {
        Some(line) => obey(local, backend, index, &AgentReply::read(&String::from_utf8_lossy(line))),
        None => result,
    };
    let (is_new, _) = own.board.heard(check_result, took);
    let report = own.board.read();
    let log = own.log && is_new;
    if log {
        log_check(local, backend, index, "Agent", &report);
    }
    let found = backend.servers[index.get()].found();
    let applies = match report.result.status {
        Status::L7Ok => found != HealthState::Down,
        Status::L7Sts => true,
        _ => false,
    };
    if !applies {
        return;
    }
    let mut why = String::new();
    if !log {
        reason(&mut why, &report.result, report.took);
    }
    change(local, backend, index, &why, |standing| match standing.is_in_maintenance() {
        true => standing,
        // The health is read again here, where no other change of the server can run.
        false => Availability { operation: operation(backend.servers[index.get()].found()), ..standing },
    });
}

/// Carries out an agent's answer: the administrative state, the weight, `maxconn`. Returns the result of the
/// check.
fn obey(local: &Local, backend: &Backend, index: Index, said: &AgentReply<'_>) -> CheckResult {
    let server = &backend.servers[index.get()];
    if let Some(order) = said.order {
        let admin = match order {
            Order::Ready => Admin::Ready,
            Order::Drain => Admin::Drain,
            Order::Maintenance => Admin::Maintenance,
        };
        administer(local, backend, index, admin);
    }
    let weighed = said.weight.map_or(Ok(()), |word| {
        let weight = agent::weight(word, server.weight)?;
        let fixed = "Backend is using a static LB algorithm and only accepts weights '0%' and '100%'.";
        set_weight(local, backend, index, weight).map_err(|_| fixed)
    });
    let bounded = said.maxconn.map_or(Ok(()), |word| {
        let most = agent::maxconn(word)?;
        if !set_maxconn(local, backend, index, most) && most > 0 {
            // The requests of this server are not counted yet. Until they are, each answer asks again.
            let changes =
                local.generation.changes.as_ref().ok_or("this process cannot give the server a limit")?;
            changes.ask(Change::Limit(backend.name.clone(), server.name.clone(), most));
        }
        Ok(())
    });
    said.result(weighed.and(bounded).err())
}
