#!/usr/bin/env python3
"""Why lanes waited for a processor, and whether a task that the watchdog told of ran for so long.

    manylane-bench manage --row stat --alone &
    perf record -a -m 4096 -e sched:sched_switch -e sched:sched_waking -e signal:signal_generate \\
        -e cpu-clock -c 100000 -o lanes.data -- sleep 90
    perf script -i lanes.data --show-lost-events -F comm,tid,cpu,time,event,trace | bench/lanes.py

`cpu-clock` interrupts each processor 10,000 times a second, whatever runs there. Where nothing came from a processor for
longer than SILENT it did not run: its host had it do something else, and yet the time is charged to the thread that was on it.
"""

import bisect
import re
import sys
from collections import Counter, defaultdict

LINE = re.compile(r"^\s*(.+?)\s+(\d+) \[(\d+)\] (\d+\.\d+):\s+(\S+):\s*(.*)$")
WAKES = re.compile(r" pid=(\d+)")
SWITCH = re.compile(r"prev_pid=(\d+).*prev_state=(\S+) ==> .*next_pid=(\d+)")
LANE = re.compile(r"^(manylane|lane \d+)$")
# Threads that make dumps, and what they are called by the system.
DUMPS = ("gives way", "when idle")
# The clock's period, and from where on a processor counts as standing still, seconds.
PERIOD, SILENT = 100e-6, 250e-6
# A task is told of that took so much processor time.
SLICE = 1e-3
# Whether a dump was at work is told by pieces of time of that length.
PIECE = 0.05


class Trace:
    def __init__(self, lines):
        self.events = defaultdict(list)  # by processor: when, whose
        self.names = {0: "idle"}
        self.ran = defaultdict(list)  # by lane: from, to, processor, whether it fell asleep then
        self.waits = []  # lane, from, to, processor
        self.reports = []  # when, lane
        self.dumping = set()
        running, since, woken = {}, {}, {}

        def leaves(cpu, at, asleep):
            tid = running.get(cpu)
            if tid in since:
                self.ran[tid].append((since.pop(tid), at, cpu, asleep))

        def enters(cpu, at, tid):
            running[cpu] = tid
            if self.is_lane(tid):
                since[tid] = at
            if tid in woken:
                self.waits.append((tid, woken.pop(tid), at, cpu))

        for line in lines:
            if "PERF_RECORD_LOST" in line:
                sys.exit("records were lost, which looks as if the processor had stood still; take a larger buffer (`-m`)")
            found = LINE.match(line)
            if not found:
                continue
            name, tid, cpu, at, event, text = found.groups()
            tid, cpu, at = int(tid), int(cpu), float(at)
            self.names[tid] = "idle" if tid == 0 else name.split("/")[0]
            if self.names[tid] in DUMPS:
                self.dumping.add(int(at / PIECE))
            if running.get(cpu) != tid:  # a switch that was not recorded, as those of an idle processor
                before = self.events[cpu][-1][0] if self.events[cpu] else at
                leaves(cpu, before, True)
                enters(cpu, before, tid)
            self.events[cpu].append((at, tid))
            if event.endswith("sched_waking"):
                lane = int(WAKES.search(text).group(1))
                if self.is_lane(lane) and lane not in running.values():
                    woken.setdefault(lane, at)
            elif event.endswith("sched_switch"):
                switch = SWITCH.search(text)
                if switch is None:
                    sys.exit(f"a switch reads otherwise than it should: '{line.strip()}'; `perf` prints it by a plugin, leave that out")
                before, state, after = switch.groups()
                asleep = not state.startswith("R")
                leaves(cpu, at, asleep)
                if self.is_lane(int(before)) and not asleep:
                    woken[int(before)] = at
                enters(cpu, at, int(after))
            elif event.endswith("signal_generate") and name == "watchdog":
                self.reports.append((at, int(WAKES.search(text).group(1))))
        if not self.events:
            sys.exit("nothing was read; see the head of this file for the commands")
        end = max(events[-1][0] for events in self.events.values())
        for tid, begin in since.items():
            cpu = next(cpu for cpu in running if running[cpu] == tid)
            self.ran[tid].append((begin, end, cpu, False))
        self.begin = min(events[0][0] for events in self.events.values())
        self.length = end - self.begin
        self.times = {cpu: [at for at, _ in events] for cpu, events in self.events.items()}

    def is_lane(self, tid):
        return LANE.match(self.names.get(tid, "")) is not None

    def pieces(self, begin, end, cpu):
        """What that processor did from `begin` to `end`: for how long, and whom the sign of life behind it is of."""
        index = bisect.bisect_right(self.times[cpu], begin)
        at = begin
        while at < end:
            known = index < len(self.times[cpu])
            then = min(self.times[cpu][index], end) if known else end
            yield then - at, self.events[cpu][index][1] if known else 0
            at, index = then, index + 1

    def who(self, tid):
        name = self.names.get(tid, "?")
        return "a lane" if self.is_lane(tid) else "the dump" if name in DUMPS else name

    def tell_waits(self):
        of_dumps = len(self.dumping) * PIECE
        for at_work in (False, True):
            seconds = of_dumps if at_work else self.length - of_dumps
            waits = [wait for wait in self.waits if (int(wait[1] / PIECE) in self.dumping) == at_work]
            if not waits or seconds <= 0:
                continue
            lengths = sorted(end - begin for _, begin, end, _ in waits)
            at = lambda part: lengths[int(len(lengths) * part)] * 1e6
            print(f"{'a dump' if at_work else 'no dump'} at work, {seconds:.1f} s: lanes wait {1e3 * sum(lengths) / seconds:.0f} ms a second, "
                  f"us p50 {at(.5):.0f}, p90 {at(.9):.0f}, p99 {at(.99):.0f}, p99.9 {at(.999):.0f}")
            held = []
            for least, most in ((0, 0.3e-3), (0.3e-3, 1e-3), (1e-3, 1e9)):
                sums, count = Counter(), 0
                for _, begin, end, cpu in waits:
                    if not least <= end - begin < most:
                        continue
                    count, own = count + 1, 0
                    for length, tid in self.pieces(begin, end, cpu):
                        who = "the processor stood still" if length > SILENT else self.who(tid)
                        sums[who] += length
                        own += length if who == "the dump" else 0
                    held += [own] if own else []
                total = sum(sums.values()) or 1
                shares = ", ".join(f"{who} {100 * part / total:.0f} %" for who, part in sums.most_common(6))
                print(f"    from {least * 1e3:.1f} ms: {count / seconds:.0f} a second, {1e3 * total / seconds:.1f} ms a second: {shares}")
            if held:
                print(f"    the dump has the processor in {len(held) / seconds:.0f} waits a second, {1e3 * sum(held) / seconds:.1f} ms a second; for 0.3 ms "
                      f"in {sum(h > 0.3e-3 for h in held) / seconds:.1f}, for 1 ms in {sum(h > 1e-3 for h in held) / seconds:.1f}; at most {1e3 * max(held):.1f} ms")

    def tell_reports(self):
        told = Counter()
        for at, lane in self.reports:
            ran = silent = 0.0
            segments = [segment for segment in self.ran[lane] if at - 0.05 < segment[1] and segment[0] < at]
            for begin, end, cpu, asleep in reversed(segments):
                if asleep and end < at:
                    break  # no task goes on behind a sleep
                for length, _ in reversed(list(self.pieces(begin, min(end, at), cpu))):
                    if ran + silent >= SLICE:
                        break  # of that much of its time the watchdog tells
                    ran += PERIOD if length > SILENT else length
                    silent += length - PERIOD if length > SILENT else 0
            kind = "waited" if ran + silent < SLICE else "stood still" if ran < SLICE * 0.9 else "ran"
            told[kind] += 1
            print(f"    {at - self.begin:8.3f} s, thread {lane}: the last {1e3 * (ran + silent):.2f} ms that it was on a processor, of which that stood still for {1e3 * silent:.2f}: {kind}")
        print(f"{len(self.reports)} tasks told of: {told['stood still']} while the processor stood still, {told['waited']} waited for one, {told['ran']} ran")

    def tell_silence(self):
        for cpu, times in sorted(self.times.items()):
            gaps = [after - before for before, after in zip(times, times[1:])]
            print(f"processor {cpu} stood still for a millisecond {sum(gap > 1e-3 for gap in gaps) / self.length:.1f} times a second, "
                  f"at most for {1e3 * max(gaps, default=0):.1f} ms")


def main():
    trace = Trace(sys.stdin)
    trace.tell_silence()
    trace.tell_waits()
    trace.tell_reports()


if __name__ == "__main__":
    main()
