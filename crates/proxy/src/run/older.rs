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
            let (standing, weight) = (state.standing(), state.weight());
            let _ = own.balancer.set_weight(own_index, weight, now); // weights that are fixed are the file's
            let (before, after) = own.balancer.update(own_index, now, |_| standing);
            if before == after {
                own.balancer.refresh(); // a balancer that follows another shares its servers' states
            }
            if (state.standing(), state.weight()) == (standing, weight) {
                break; // else somebody has changed it meanwhile
            }
        }
    }
}
