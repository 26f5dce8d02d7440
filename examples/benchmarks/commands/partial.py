"""`python -m examples.benchmarks partial`: what partial collectives gain where ranks come at different times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from paceline.errors import UserError
from paceline.examples.benchmarks.commands.limits import check_time_limit
from paceline.examples.benchmarks.commands.options import MOST_RANKS, check_installed
from paceline.examples.benchmarks.commands.showing import show
from paceline.examples.benchmarks.harness import uneven_training
from paceline.launch import console

T = TypeVar("T")
MICRO, TRAINING = "micro", "training"
MOST_MS = 1000.0
MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class PartialRequest:
    """What to measure, as the options of the command say it."""

    ranks: int
    parts: tuple[str, ...]
    skew_ms: float
    cycle_ms: float
    iterations: int
    sizes_bytes: tuple[int, ...]
    flush_each: bool
    seeds: int
    cases: tuple[str, ...]
    time_limit_s: float

    def check(self) -> None:
        """Raise UserError for a number that cannot be used."""
        from paceline.examples.benchmarks.harness.skew import ELEMENT_BYTES

        if not 2 <= self.ranks <= MOST_RANKS:
            raise UserError(f"--ranks {self.ranks} cannot be used.", f"Give 2 to {MOST_RANKS}: ranks wait for others.")
        for option, value in (("--skew-ms", self.skew_ms), ("--cycle-ms", self.cycle_ms)):
            if not 0 < value <= MOST_MS:
                raise UserError(f"{option} {value:g} cannot be used.", f"Give more than 0, at most {MOST_MS:g}.")
        for option, count in (("--iterations", self.iterations), ("--seeds", self.seeds)):
            if count < 1:
                raise UserError(f"{option} {count} cannot be used.", "Give at least 1.")
        for size_bytes in self.sizes_bytes:
            if not (0 < size_bytes <= MOST_BYTES and size_bytes % ELEMENT_BYTES == 0):
                raise UserError(
                    f"--size {size_bytes} cannot be used.",
                    f"Give a multiple of {ELEMENT_BYTES} (the bytes of a float32), at most {MOST_BYTES}.",
                )
        check_time_limit(self.time_limit_s)

    @property
    def command(self) -> str:
        """The command line that asks for this."""
        words = f"python -m examples.benchmarks partial --ranks {self.ranks}" + _repeated("--part", self.parts)
        if MICRO in self.parts:
            words += f" --skew-ms {self.skew_ms:g} --cycle-ms {self.cycle_ms:g} --iterations {self.iterations}"
            words += " --flush-each" * self.flush_each + _repeated("--size", self.sizes_bytes)
        if TRAINING in self.parts:
            words += f" --seeds {self.seeds}" + _repeated("--case", self.cases)
        return f"{words} --time-limit-s {self.time_limit_s:g}"


@click.command("partial")
@click.option("--ranks", default=8, show_default=True, help="Ranks, all on this machine.")
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice((MICRO, TRAINING)),
    default=(MICRO, TRAINING),
    show_default=True,
    help="What to measure, may be repeated.",
)
@click.option("--skew-ms", default=1.0, show_default=True, help="micro: rank r comes r times as late.")
@click.option("--cycle-ms", default=1.0, show_default=True, help="micro: Horovod's cycle time, a part of each latency.")
@click.option("--iterations", default=64, show_default=True, help="micro: calls of each system, at most.")
@click.option(
    "--size",
    "sizes_bytes",
    type=int,
    multiple=True,
    help="micro: bytes of the tensor, may be repeated.  [default: 64, 512, 4096, 32768, 262144, 4194304]",
)
@click.option(
    "--flush-each",
    is_flag=True,
    help="micro: flush after each call, so that no contribution is carried into the next round.",
)
@click.option("--seeds", default=3, show_default=True, help="training: runs of each system, with seeds 0, 1, ...")
@click.option(
    "--case",
    "cases",
    multiple=True,
    type=click.Choice(tuple(uneven_training.CASES)),
    default=tuple(uneven_training.CASES),
    show_default=True,
    help="training: who is late, may be repeated: in each step one random rank; all ranks by rotating amounts; ranks"
    " with long sequences.",
)
@click.option("--time-limit-s", default=600.0, show_default=True, help="Seconds of measuring for each part, at most.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each size and case in place of tables.")
def partial_command(
    parts: tuple[str, ...], sizes_bytes: tuple[int, ...], cases: tuple[str, ...], as_json: bool, **others: Any
) -> None:
    """Compare partial collectives (solo, majority) with the ordinary ones where ranks are late.

    micro: latencies of one allreduce when rank r comes r times the skew late, beside the model; also with the paper's
    majority, a random initiator. training: steps per second and accuracy of a training whose ranks differ in speed.
    """
    from paceline.examples.benchmarks.harness.partial_table import as_table
    from paceline.examples.benchmarks.harness.skew import SIZES_BYTES
    from paceline.horovod.load import require

    request = PartialRequest(
        parts=_once(parts), sizes_bytes=_once(sizes_bytes) or SIZES_BYTES, cases=_once(cases), **others
    )
    request.check()
    check_installed()
    require("torch")
    with console.err().status("") as status:
        for part, measured in ((MICRO, _micro), (TRAINING, _training)):
            if part not in request.parts:
                continue
            for result in measured(request, status.update):
                show(result, as_table, as_json)


def _micro(request: PartialRequest, tell: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """The results of the micro-benchmark."""
    from paceline.examples.benchmarks.harness import report, skew, skew_report

    about = report.machine()
    plan = skew.SkewPlan(
        request.ranks,
        request.skew_ms,
        request.iterations,
        request.sizes_bytes,
        request.cycle_ms,
        request.flush_each,
        request.time_limit_s,
    )
    for size_bytes, samples in skew.measure(plan, tell):
        yield skew_report.as_json(plan, size_bytes, samples, about, request.command)


def _training(request: PartialRequest, tell: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """The same of training."""
    from paceline.examples.benchmarks.harness import report, uneven_report

    about = report.machine()
    rows = uneven_training.compare(
        request.ranks, range(request.seeds), request.cases, uneven_training.SYSTEMS, tell, request.time_limit_s
    )
    yield from uneven_report.as_json(rows, request.ranks, about, request.command)


def _once(values: tuple[T, ...]) -> tuple[T, ...]:
    """Without repetitions: what is named twice is measured once."""
    return tuple(dict.fromkeys(values))


def _repeated(option: str, values: tuple[object, ...]) -> str:
    return "".join(f" {option} {value}" for value in values)
