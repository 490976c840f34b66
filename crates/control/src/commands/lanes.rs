//! `show lanes` and `show contention`.

use super::Call;
use crate::reply::ReplyError;
use std::fmt::Write;
use std::time::Duration;

pub(super) async fn show(call: &mut Call<'_, '_>) -> Result<(), ReplyError> {
    call.reply.put(
        "# lane live queued rounds polls spawned completed arrived woken_remotely timers sleeps running\n",
    );
    for lane in manylane_sched::report() {
        let _ = writeln!(
            call.reply,
            "{} {} {} {} {} {} {} {} {} {} {} {}",
            lane.lane.index(),
            lane.live,
            lane.run_queue(),
            lane.rounds,
            lane.polls(),
            lane.spawned,
            lane.completed,
            lane.arrived,
            lane.woken_remotely,
            lane.timers,
            lane.sleeps,
            lane.running.map_or("-".into(), |kind| kind.replace(' ', "_")),
        );
        call.reply.breathe().await?;
    }
    Ok(())
}

pub(super) fn contention(call: &mut Call<'_, '_>) {
    call.reply.put("# lock_class waits total_us longest_us\n");
    for class in manylane_sync::contention() {
        let (name, micros) = (class.class.replace(' ', "_"), |time: Duration| time.as_micros());
        let _ =
            writeln!(call.reply, "{name} {} {} {}", class.times, micros(class.total), micros(class.longest));
    }
}
