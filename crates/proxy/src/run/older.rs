//! Generations that were replaced and have requests in queues still: what becomes of their servers they learn
//! from the one that serves.

use super::local::Local;
use crate::epoch::ServerVersion;
use crate::generation::{Backend, Generation, ServerNumber, ServerPlace, Whereabouts};
use manylane_balance::{Index, Standing, StaticWeight};
use manylane_sched::{Class, Remote, TaskKind, Time};
use manylane_sync::Arc;

static TELL: TaskKind = TaskKind::new("changes for older generations");

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

/// Changes where a server is. As it was.
pub(super) fn set_place(
    local: &Local,
    number: ServerNumber,
    to: impl FnOnce(&mut Whereabouts),
) -> Whereabouts {
    let (_, server) = local.generation.server(number);
    let before = server.addr.change(to);
    if before.place != server.addr.read().place {
        tell(local, number);
    }
    before
}

/// So that one lane tells each backend of them.
static NEWS: ServerVersion = ServerVersion::new();

/// A server has changed. Lanes that have older generations go by what it is when they hear of it, so it does
/// not matter in which order they do.
pub(super) fn tell(local: &Local, number: ServerNumber) {
    if !Local::has_older(local) {
        return;
    }
    let news = NEWS.next();
    for &lane in &local.lane_ids() {
        let generation = local.generation.clone();
        let make = move |_| async move { told(&generation, number, news).await };
        // A lane that has ended has no requests.
        let _ = Remote::new(lane).spawn_with(&TELL, Class::Normal, make);
    }
}

async fn told(generation: &Arc<Generation>, number: ServerNumber, news: u64) {
    let Some(serving) = Local::of(generation) else { return };
    for older in Local::all().filter(|local| local.serial < serving.serial) {
        if bring_up_to_date(&older.generation, generation, number, news, serving.here().now()) {
            serving.here().yield_now().await; // there may be many
        }
    }
}

/// Has the server in `older` be as it is in `serving`, if that has another balancer for it, which nobody has
/// told these news. Whether it had to.
fn bring_up_to_date(
    older: &Generation,
    serving: &Generation,
    number: ServerNumber,
    news: u64,
    now: Time,
) -> bool {
    let (backend, server) = serving.server(number);
    let found = || {
        let index = backend.balancer.servers().index(server.index)?;
        let own = older
            .backend_named(&backend.name)
            .filter(|own| own.mode == backend.mode && !std::ptr::eq(*own, backend))?;
        let like = own.server_like(server)?;
        Some((index, own, like, own.balancer.servers().index(like.index)?))
    };
    let Some((index, own, like, own_index)) = found() else { return false };
    own.told.tell(like.index, news, || {
        if own.balancer.shares(own_index, &backend.balancer, index) {
            own.balancer.refresh(now); // it is the same server, and where that is
            return own.balancer.look_again(own_index, now);
        }
        let state = backend.balancer.servers()[index].state();
        // weights that are fixed are the file's
        let _ = own.balancer.set_weight(own_index, state.weight(), now);
        own.balancer.set_maxconn(own_index, state.maxconn(), now); // if it has one
        be(own, own_index, state.standing(), like.goes_along(server), now);
    })
}

/// Has a server be like this, and there if it goes along. The two may have been read while the server that
/// serves got an address, or lost it: what is nowhere is out of service, whatever else was read.
fn be(own: &Backend, index: Index, standing: Standing, place: Option<Whereabouts>, now: Time) {
    let is_nowhere = place.as_ref().is_some_and(|known| known.place == ServerPlace::Nowhere);
    let go = || place.iter().for_each(|known| own.servers[index.get()].go_along(known));
    // It is somewhere before it is up, and out of service before it is nowhere: what is nowhere cannot be
    // connected to.
    if !is_nowhere {
        go();
    }
    own.balancer
        .update(index, now, |_| Standing { unresolved: standing.unresolved || is_nowhere, ..standing });
    if is_nowhere {
        go();
    }
}

/// A place of the server was taken or given back by this generation: in others there is less room for
/// requests, or more for those that wait. Those that are older have waited longer.
#[cold]
pub(crate) fn others_look_again(local: &Local, backend: &Backend, index: Index) {
    if !backend.balancer.tell_others(index) {
        return;
    }
    let (server, now) = (&backend.servers[index.get()], local.here().now());
    for other in Local::all() {
        let Some(own) = other.generation.backend_named(&backend.name).filter(|own| own.mode == backend.mode)
        else {
            continue;
        };
        let Some(own_index) = own.balancer.servers().by_name(&server.name) else { continue };
        if own.balancer.could_let_in(own_index)
            && own.balancer.shares_places_with(own_index, &backend.balancer, index)
        {
            own.balancer.look_again(own_index, now);
        }
    }
}

/// The same for all servers of backends that may have room of which nobody was told. Once a second.
pub(super) fn look_for_hidden_room() {
    for local in Local::all() {
        for backend in local.generation.backends.iter().filter(|backend| backend.balancer.has_hidden_room()) {
            others_look_again_behind(&local, backend, None);
        }
    }
}

/// The same, where a place of that server, or of any, may have been given back.
pub(crate) fn others_look_again_behind(local: &Local, backend: &Backend, queue: Option<Index>) {
    if !Local::has_older(local) {
        return;
    }
    let of_any = queue.is_none().then(|| backend.balancer.servers().iter().map(|(index, _)| index));
    for index in queue
        .into_iter()
        .chain(of_any.into_iter().flatten())
        .filter(|index| backend.balancer.shares_places(*index))
    {
        others_look_again(local, backend, index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generation::{Change, Wishes};
    use manylane_balance::{Operation, Priority};
    use manylane_config::cond::Build;
    use manylane_config::lex::Environment;
    use manylane_config::load;
    use manylane_config::source::Sources;
    use std::net::IpAddr;
    use std::sync::Mutex;
    use std::task::{Wake, Waker};

    const NOW: Time = Time::from_millis(5);
    const NAMED: ServerNumber = ServerNumber { backend: 1, server: 0 };

    /// A generation with two backends, of which the second has a server whose name has no address yet.
    fn built() -> Arc<Generation> {
        let mut sources = Sources::new();
        let text = "resolvers names\n nameserver n 127.0.0.1:53\nbackend a\n server s 127.0.0.1:80\n\
                    backend b\n server s a.test:80 resolvers names init-addr none maxconn 1\n";
        sources.add("test.cfg", text).expect("it is read");
        let mut loaded = load(&sources, &Build::bare(), Environment::new(), false);
        let generation = Generation::build(&loaded.config, Wishes::default(), &mut loaded.found);
        assert_eq!(loaded.found.errors(), 0, "{:?}", loaded.found.found());
        Arc::new(generation)
    }

    fn with_server(generation: &Generation, backend: &str, name: &str) -> Arc<Generation> {
        let change = Change::Add(backend.into(), name.into(), vec!["127.0.0.1:81".into()]);
        Arc::new(generation.with(&change).expect("it can be added").begin().0)
    }

    fn resolved(generation: &Generation, unresolved: bool) {
        let (backend, _) = generation.server(NAMED);
        let index = backend.balancer.servers().index(NAMED.server).expect("it is there");
        backend.balancer.update(index, NOW, |own| Standing { unresolved, ..own });
    }

    fn settled(generation: &Generation, ip: Option<IpAddr>) {
        generation.server(NAMED).1.addr.change(|known| known.settle(ip));
    }

    /// Where it is, and whether it serves.
    fn seen(generation: &Generation) -> (Option<IpAddr>, bool) {
        let serves = generation.standing(NAMED).is_some_and(Standing::serves);
        (generation.server(NAMED).1.addr.read().ip(), serves)
    }

    /// Sees how the server is when it is woken.
    struct Witness(Arc<Generation>, Mutex<Vec<(Option<IpAddr>, bool)>>);

    impl Wake for Witness {
        fn wake(self: Arc<Self>) {
            self.1.lock().expect("nobody panics").push(seen(&self.0));
        }
    }

    impl Witness {
        fn of(generation: &Arc<Generation>) -> (Arc<Self>, Waker) {
            let own = Arc::new(Self(generation.clone(), Mutex::default()));
            (own.clone(), Waker::from(own))
        }

        fn saw(&self) -> Vec<(Option<IpAddr>, bool)> {
            self.1.lock().expect("nobody panics").clone()
        }
    }

    #[test]
    fn a_server_is_never_up_and_nowhere_whatever_was_read_of_the_one_that_serves() {
        let (older, serving, address) = (built(), built(), Some(IpAddr::from([192, 0, 2, 1])));
        let tell = |news| assert!(bring_up_to_date(&older, &serving, NAMED, news, NOW));
        // It was read while it got an address, or lost it: what is behind it is told then.
        resolved(&serving, false);
        tell(1);
        assert_eq!(seen(&older), (None, false));
        settled(&serving, address);
        let backend = older.server(NAMED).0;
        let index = backend.balancer.servers().index(NAMED.server).expect("it is there");
        let (first, waker) = Witness::of(&older);
        let entering = backend.balancer.enqueue_any(Priority::default(), NOW, waker);
        tell(2);
        assert_eq!(first.saw(), [(address, true)], "who waited is let in when it is there");
        assert_eq!(backend.balancer.leave(entering), Some(index));
        let (second, waker) = Witness::of(&older);
        let waiting =
            backend.balancer.enqueue(index, Priority::default(), NOW, waker).expect("there is room to wait");
        resolved(&serving, true);
        settled(&serving, None);
        tell(3);
        assert_eq!(second.saw(), [(address, false)], "who waits is sent elsewhere before it is nowhere");
        assert_eq!(seen(&older), (None, false));
        assert_eq!(backend.balancer.leave(waiting), None);
        backend.balancer.release(index);
    }

    #[test]
    fn news_of_a_backend_that_both_have_are_no_work_and_those_of_another_are_heard_once() {
        let first = built();
        let second = with_server(&first, "a", "x");
        let third = with_server(&second, "a", "y");
        assert!(!bring_up_to_date(&first, &second, NAMED, 1, NOW), "it has the balancer that serves");
        let in_a = |server| ServerNumber { backend: 0, server };
        assert!(!bring_up_to_date(&first, &second, in_a(1), 2, NOW), "it does not have that server");
        assert!(
            bring_up_to_date(&first, &third, in_a(0), 3, NOW),
            "it has another balancer with that server"
        );
        assert!(!bring_up_to_date(&first, &third, in_a(0), 3, NOW), "another lane has told it");
        // After a reload they have one balancer together that does not serve.
        let fresh = built();
        assert!(bring_up_to_date(&first, &fresh, NAMED, 4, NOW));
        assert!(!bring_up_to_date(&second, &fresh, NAMED, 4, NOW), "it has heard of it with the first");
        assert!(bring_up_to_date(&second, &fresh, in_a(0), 5, NOW));
    }

    #[test]
    fn what_changed_is_what_the_older_one_has() {
        let (older, serving) = (built(), built());
        let (backend, _) = serving.server(NAMED);
        let index = backend.balancer.servers().index(NAMED.server).expect("it is there");
        settled(&serving, Some([192, 0, 2, 1].into()));
        resolved(&serving, false);
        backend.balancer.set_operation(index, Operation::Stopping, NOW);
        backend.balancer.set_weight(index, 7, NOW).expect("the algorithm is dynamic");
        assert!(backend.balancer.set_maxconn(index, 9, NOW));
        assert!(bring_up_to_date(&older, &serving, NAMED, 1, NOW));
        let state = |generation: &Generation| {
            let server = generation.server(NAMED).0.balancer.servers();
            let state = server[server.index(NAMED.server).expect("it is there")].state();
            (state.standing(), state.weight(), state.maxconn())
        };
        assert_eq!(state(&older), state(&serving));
        assert_eq!(older.server(NAMED).1.addr.read(), serving.server(NAMED).1.addr.read());
    }
}
