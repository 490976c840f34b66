//! Generations that were replaced and have requests in queues still: what becomes of their servers they learn from the one that serves.

use super::local::Local;
use crate::generation::{Backend, Generation, ServerNumber};
use manylane_balance::{Index, StaticWeight};
use manylane_sched::{Class, Remote, TaskKind};
use manylane_sync::Arc;

static TELL: TaskKind = TaskKind::new("news for older ones");

/// Sets a server's weight.
///
/// # Errors
/// Where the algorithm's weights are fixed.
pub fn set_weight(local: &Local, backend: &Backend, index: Index, weight: u16) -> Result<(), StaticWeight> {
    backend.balancer.set_weight(index, weight, local.here().now())?;
    tell(local, backend.number_of(index));
    Ok(())
}

/// Sets a server's `maxconn`. Whether it has one: see [`manylane_balance::Balancer::set_maxconn`].
pub fn set_maxconn(local: &Local, backend: &Backend, index: Index, most: u32) -> bool {
    let is_limited = backend.balancer.set_maxconn(index, most, local.here().now());
    tell(local, backend.number_of(index));
    is_limited
}

/// A server has changed. Lanes that have older generations go by what it is when they hear of it, so it does not matter in which order they do.
pub(super) fn tell(local: &Local, number: ServerNumber) {
    if !Local::has_older(local) {
        return;
    }
    for &lane in &local.lane_ids() {
        let generation = local.generation.clone();
        // A lane that has ended has no requests.
        let _ = Remote::new(lane).spawn_with(&TELL, Class::Urgent, move |_| async move { told(&generation, number) });
    }
}

fn told(generation: &Arc<Generation>, number: ServerNumber) {
    let Some(serving) = Local::of(generation) else { return };
    let (backend, server) = generation.server(number);
    let Some(index) = backend.balancer.servers().index(server.index) else { return };
    let state = backend.balancer.servers()[index].state();
    let now = serving.here().now();
    for local in Local::all().iter().filter(|local| local.serial < serving.serial) {
        let same = local.generation.backend_named(&backend.name).filter(|own| own.mode == backend.mode);
        let Some(own) = same else { continue };
        let Some(like) = own.server_like(server) else { continue };
        let Some(own_index) = own.balancer.servers().index(like.index) else { continue };
        loop {
            let known = || (state.standing(), state.weight(), state.maxconn());
            let (standing, weight, most) = known();
            let _ = own.balancer.set_weight(own_index, weight, now); // weights that are fixed are the file's
            own.balancer.set_maxconn(own_index, most, now); // if it has one
            let (before, after) = own.balancer.update(own_index, now, |_| standing);
            if before == after {
                own.balancer.refresh(); // a balancer that follows another shares its servers' states
            }
            if known() == (standing, weight, most) {
                break; // else somebody has changed it meanwhile
            }
        }
    }
}
