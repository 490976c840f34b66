//! `show activity`, `show threads` and `show tasks`: the parts of HAProxy's internals that exist here.

use super::Call;
use crate::reply::ReplyError;
use manylane_sched::{Class, LaneReport};
use std::fmt::Write;

/// `show activity [-1|0|<thread>]`: a line for each counter, with its sum and, if there are several lanes,
/// each lane's value; with 0 the sum alone, with the number of a lane its value.
pub(super) fn activity(call: &mut Call<'_, '_>) {
    let mut lanes = manylane_sched::report();
    let all = lanes.len();
    let word = if call.words.is_empty() { "-1" } else { call.word(0) };
    let Some(thread) = word.parse::<i64>().ok().filter(|&thread| (-1..=all as i64).contains(&thread)) else {
        return call.error("Thread ID number must be between -1 and nbthread");
    };
    if thread > 0 {
        lanes = lanes.drain(..).skip(thread as usize - 1).take(1).collect();
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let _ = writeln!(call.reply, "thread_id: {} (1..{all})", thread.max(1));
    let _ = writeln!(call.reply, "date_now: {}.{:06}", now.as_secs(), now.subsec_micros());
    type Of = fn(&LaneReport) -> u64;
    let counters: [(&str, Of); 13] = [
        ("tasksw", LaneReport::polls),
        ("tasksw_urgent", |lane| lane.polled[Class::Urgent as usize]),
        ("tasksw_normal", |lane| lane.polled[Class::Normal as usize]),
        ("tasksw_bulk", |lane| lane.polled[Class::Bulk as usize]),
        ("tasksw_heavy", |lane| lane.polled[Class::Heavy as usize]),
        ("loops", |lane| lane.rounds),
        ("sleeps", |lane| lane.sleeps),
        ("wake_tasks", |lane| lane.woken_remotely),
        ("timers", |lane| lane.timers),
        ("tasks_begun", |lane| lane.spawned),
        ("tasks_ended", |lane| lane.completed),
        ("accq_pushed", |lane| lane.arrived),
        ("accq_full", |lane| lane.refused),
    ];
    for (name, of) in counters {
        let each: Vec<u64> = lanes.iter().map(of).collect();
        let _ = write!(call.reply, "{name}: {}", each.iter().sum::<u64>());
        if thread < 0 && each.len() > 1 {
            let each: Vec<String> = each.iter().map(u64::to_string).collect();
            let _ = write!(call.reply, " [ {} ]", each.join(" "));
        }
        call.reply.put("\n");
    }
}

/// `show threads`: `*` marks the lane that answers.
pub(super) async fn threads(call: &mut Call<'_, '_>) -> Result<(), ReplyError> {
    let own = call.here.lane();
    for (number, lane) in (1..).zip(manylane_sched::report()) {
        let mark = if lane.lane == own { '*' } else { ' ' };
        let active = u8::from(lane.running.is_some());
        let _ = writeln!(
            call.reply,
            "{mark} Thread {number} : lane={} act={active} rq={} tasks={} loops={} sleeps={}",
            lane.lane.index(),
            lane.run_queue(),
            lane.live,
            lane.rounds,
            lane.sleeps
        );
        let _ = writeln!(call.reply, "             curr_task={}", lane.running.unwrap_or("(none)"));
        call.reply.breathe().await?;
    }
    Ok(())
}

/// `show tasks`: the tasks in the run queues, by class.
pub(super) fn tasks(call: &mut Call<'_, '_>) {
    let lanes = manylane_sched::report();
    let of = |class: Class| lanes.iter().map(|lane| lane.queued[class as usize]).sum::<u64>();
    let all: u64 = lanes.iter().map(LaneReport::run_queue).sum();
    let _ = writeln!(call.reply, "Running tasks: {all} ({} threads)", lanes.len());
    let _ = writeln!(call.reply, "  {:<10} {:>10} {:>6}", "class", "places", "%");
    for (class, name) in
        [(Class::Urgent, "urgent"), (Class::Normal, "normal"), (Class::Bulk, "bulk"), (Class::Heavy, "heavy")]
    {
        let queued = of(class);
        if queued > 0 {
            let _ = writeln!(
                call.reply,
                "  {name:<10} {queued:>10} {:>5.1}%",
                queued as f64 * 100.0 / all as f64
            );
        }
    }
}
