//! Generations that were replaced and have requests in queues still: what becomes of their servers they learn from the one that serves.

use super::local::Local;
use crate::generation::{Backend, Generation, ServerNumber};
use manylane_balance::{Index, StaticWeight};
use manylane_sched::{Class, Remote, TaskKind, Time};
use manylane_sync::Arc;
use manylane_sync::atomic::{AtomicU64, Ordering};

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

/// News are numbered, so that one lane tells each generation of them.
static NEWS: AtomicU64 = AtomicU64::new(0);

/// A server has changed. Lanes that have older generations go by what it is when they hear of it, so it does not matter in which order they do.
pub(super) fn tell(local: &Local, number: ServerNumber) {
    if !Local::has_older(local) {
        return;
    }
    let news = NEWS.fetch_add(1, Ordering::Relaxed) + 1;
    for &lane in &local.lane_ids() {
        let generation = local.generation.clone();
        let make = move |_| async move { told(&generation, number, news).await };
        // A lane that has ended has no requests.
        let _ = Remote::new(lane).spawn_with(&TELL, Class::Normal, make);
    }
}

async fn told(generation: &Arc<Generation>, number: ServerNumber, news: u64) {
    let Some(serving) = Local::of(generation) else { return };
    for older in Local::all().iter().filter(|local| local.serial < serving.serial) {
        if older.generation.told.are_new(generation.server(number), news) {
            bring_up_to_date(&older.generation, generation, number, serving.here().now());
            serving.here().yield_now().await; // there may be many
        }
    }
}

/// Has the server in `older` be as it is in `serving`.
fn bring_up_to_date(older: &Generation, serving: &Generation, number: ServerNumber, now: Time) {
    let (backend, server) = serving.server(number);
    let Some(index) = backend.balancer.servers().index(server.index) else { return };
    let Some(own) = older.backend_named(&backend.name).filter(|own| own.mode == backend.mode) else { return };
    let Some(like) = own.server_like(server) else { return };
    let Some(own_index) = own.balancer.servers().index(like.index) else { return };
    let state = backend.balancer.servers()[index].state();
    // It is somewhere before it is up, and out of service before it is nowhere: what is nowhere cannot be connected to.
    let leaves = state.standing().unresolved;
    if !leaves {
        like.go_along(server);
    }
    if own.balancer.shares(own_index, &backend.balancer, index) {
        own.balancer.refresh(now);
        return like.go_along(server);
    }
    loop {
        let known = || (state.standing(), state.weight(), state.maxconn());
        let (standing, weight, most) = known();
        let _ = own.balancer.set_weight(own_index, weight, now); // weights that are fixed are the file's
        own.balancer.set_maxconn(own_index, most, now); // if it has one
        own.balancer.update(own_index, now, |_| standing);
        if known() == (standing, weight, most) {
            break; // else somebody has changed it meanwhile
        }
    }
    like.go_along(server);
}

/// A place of the server was taken or given back by this generation: in others there is less room for requests, or more for those that wait. Those that
/// are older have waited longer.
#[cold]
pub(crate) fn others_look_again(local: &Local, backend: &Backend, index: Index) {
    let (server, now) = (&backend.servers[index.get()], local.here().now());
    for other in Local::all().iter().filter(|other| !std::ptr::eq(&***other, local)) {
        let Some(own) = other.generation.backend_named(&backend.name).filter(|own| own.mode == backend.mode) else { continue };
        let Some(own_index) = own.balancer.servers().by_name(&server.name) else { continue };
        if own.balancer.shares_places_with(own_index, &backend.balancer, index) {
            own.balancer.look_again(own_index, now);
        }
    }
}

/// The same, where a place of that server, or of any, may have been given back.
pub(crate) fn others_look_again_behind(local: &Local, backend: &Backend, queue: Option<Index>) {
    if !Local::has_older(local) {
        return;
    }
    let of_any = queue.is_none().then(|| backend.balancer.servers().iter().map(|(index, _)| index));
    for index in queue.into_iter().chain(of_any.into_iter().flatten()).filter(|index| backend.balancer.shares_places(*index)) {
        others_look_again(local, backend, index);
    }
}
