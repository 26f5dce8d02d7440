"""One rank of one system: connects to its peers, and makes steps or rests as the controller says."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection

from paceline.examples.benchmarks.harness import merging
from paceline.examples.benchmarks.harness.assignment import Place, Ready, WarmUp
from paceline.examples.benchmarks.scale import messages, threads
from paceline.examples.benchmarks.scale.cases import Case, Rest, Rested, Stepped, Steps
from paceline.examples.benchmarks.scale.steps import Gradients
from paceline.examples.benchmarks.scale.systems import ScaleSystem

WARM_UP_STEPS = 3  # the response cache is filled after the first
# Between the end of a step and the next one's first gradients, where training computes.
PAUSE_S = 2e-3
# How long Horovod looks after what was before: its last round, and timers of its own.
SETTLE_S = 0.3


def serve(place: Place, case: Case, system: ScaleSystem, control: Connection) -> None:
    """Connect and warm up, then do what the controller says until it closes: `WarmUp` is answered with `Ready`, `Steps`
    with `Stepped`, `Rest` with `Rested`.
    """
    from paceline.examples.benchmarks.harness.system_horovod import connect

    before = threads.tasks()
    connect(place)
    gradients = Gradients(case, place.rank, place.size)
    ready = _warm_up(gradients, system, WARM_UP_STEPS)
    background = threads.background(before)  # threads that answered while ranks were connecting have ended by now
    control.send(ready)
    while True:
        try:
            order = control.recv()
        except EOFError:
            return
        if isinstance(order, WarmUp):
            control.send(_warm_up(gradients, system, order.steps))
            continue
        if isinstance(order, Rest):
            control.send(_rest(background, order))
            continue
        assert isinstance(order, Steps)
        control.send(_measure(gradients, background, order))


def _warm_up(gradients: Gradients, system: ScaleSystem, steps: int) -> Ready:
    for _ in range(steps):
        begin_s = time.monotonic()
        gradients.checked_step()
        step_s = time.monotonic() - begin_s
    return Ready(step_s, merging.of_this_rank() if system.planned else None)


def _timed_step_s(gradients: Gradients) -> float:
    time.sleep(PAUSE_S)
    begin_s = time.monotonic()
    gradients.step()
    return time.monotonic() - begin_s


def _measure(gradients: Gradients, background: int, order: Steps) -> Stepped:
    from paceline.examples.benchmarks.harness.system_horovod import counters

    gradients.step()  # ranks go on at slightly different moments; one step brings them together
    counted = counters()
    recording = messages.Recording(order.steps) if counted is not None else None
    process, thread = threads.process(), threads.thread(background)
    wall_s = sum(_timed_step_s(gradients) for _ in range(order.steps))
    process, thread = threads.process().since(process), threads.thread(background).since(thread)
    counted_end = counters()
    if counted is not None and counted_end is not None:
        counted = {name: counted_end[name] - counted[name] for name in counted}
    found = None if recording is None else recording.end()
    return Stepped(order.steps, wall_s, process, thread, counted, found)


def _rest(background: int, order: Rest) -> Rested:
    time.sleep(SETTLE_S)
    process, thread = threads.process(), threads.thread(background)
    time.sleep(order.seconds)
    return Rested(order.seconds, threads.process().since(process), threads.thread(background).since(thread))
