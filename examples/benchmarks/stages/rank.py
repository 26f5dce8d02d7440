"""One rank of one library: connects to its peers, and trains as the controller says.

python -m paceline.examples.benchmarks.stages.rank PLACE SETUP
"""

from __future__ import annotations

import resource
import sys
import time
from multiprocessing.connection import Connection

from paceline.examples.benchmarks.harness import crew_rank
from paceline.examples.benchmarks.harness.assignment import Place
from paceline.examples.benchmarks.stages import models, systems
from paceline.examples.benchmarks.stages.cases import Connected, Train, Trained
from paceline.examples.benchmarks.stages.systems import Prepare
from paceline.examples.benchmarks.stages.timed import Recorder, Span, overlap_s


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _mean_s(spans: list[Span]) -> float:
    return sum(end - begin for begin, end in spans) / len(spans) if spans else 0.0


def _train(order: Train, prepare: Prepare) -> Trained:
    case, recorder = order.case, Recorder()
    training = prepare(case, order.schedule, models.stages_of(case, recorder), recorder)
    for _ in range(case.fill):
        training.step()
    training.clear()
    used_s, begin_s = _cpu_s(), time.monotonic()
    for _ in range(order.steps):
        loss = training.step()
    end_s, used_s = time.monotonic(), _cpu_s() - used_s
    spans = recorder.forwards + recorder.backwards
    measured = Trained(
        order.steps * case.microbatches,
        end_s - begin_s,
        overlap_s(spans, begin_s, end_s),
        _mean_s(recorder.forwards),
        _mean_s(recorder.backwards),
        used_s,
        training.weight_copies(),
        recorder.most_held,
        loss,
    )
    training.end()
    return measured


def _serve(prepare: Prepare, control: Connection) -> None:
    control.send(Connected())
    while True:
        try:
            order = control.recv()
        except EOFError:
            return
        assert isinstance(order, Train)
        control.send(_train(order, prepare))


def main(text: str, setup: str) -> None:
    """Serve until the controller closes."""
    place = Place.from_json(text)
    crew_rank.serve(
        place.rank, place.folder, place.control, lambda control: _serve(systems.load(setup)(place), control)
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
