"""`python -m examples.benchmarks pipeline`: what schedules of pipeline stages give, and what they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from paceline.config import nearest
from paceline.errors import UserError
from paceline.examples.benchmarks.commands.limits import Limited, check_limits, limits
from paceline.examples.benchmarks.commands.options import MOST_RANKS, check_installed, named_words
from paceline.examples.benchmarks.commands.showing import show_each
from paceline.launch import console

if TYPE_CHECKING:
    from paceline.examples.benchmarks.stages.cases import Case

MOST_MICROBATCHES = 1024
MOST_PASS_MS = 10_000.0


@dataclass(frozen=True)
class PipelineRequest(Limited):
    """What to measure, as the options of the command say it."""

    stages: int
    microbatches: tuple[int, ...]
    models: tuple[str, ...]
    systems: tuple[str, ...]
    forward_ms: float
    backward_ms: float

    @property
    def command(self) -> str:
        """The command line that asks for this."""
        return (
            "python -m examples.benchmarks "
            f"pipeline --stages {self.stages} --microbatches {','.join(map(str, self.microbatches))}"
            f" --models {','.join(self.models)} --systems {','.join(self.systems)}"
            f" --forward-ms {self.forward_ms:g} --backward-ms {self.backward_ms:g}"
            f" {self.limit_options}"
        )

    @property
    def cases(self) -> list[Case]:
        """Every model with every number of micro-batches."""
        from paceline.examples.benchmarks.stages.cases import Case

        times_s = self.forward_ms / 1e3, self.backward_ms / 1e3
        return [Case(model, self.stages, count, *times_s) for model in self.models for count in self.microbatches]


@click.command("pipeline")
@click.option("--stages", default=4, show_default=True, help="Stages, a rank of this machine each.")
@click.option("--microbatches", default="4,8,16", show_default=True, help="Micro-batches per mini-batch.")
@click.option("--models", help="sleeping: stages that sleep; blocks: stages that compute. [default: both]")
@click.option(
    "--systems",
    help="Schedules of hvd.Pipeline; torch_gpipe and torch_1f1b are torch.distributed.pipelining's. [default: all]",
)
@click.option("--forward-ms", default=20.0, show_default=True, help="A forward pass of a stage that sleeps.")
@click.option("--backward-ms", default=20.0, show_default=True, help="A backward pass of a stage that sleeps.")
@limits("model and number of micro-batches", time_limit_s=120.0, turns=50)
def pipeline_command(as_json: bool, **options: Any) -> None:
    """Compare schedules of pipeline stages: GPipe, 1F1B, PipeDream, 2BW, PipeMare, and PyTorch's own over Gloo.

    Throughput, the share of time in which stages are busy, copies of weights and activations held, on stages that
    sleep for given times and on a model that computes. The systems run in turn.
    """
    request = requested(**options)
    check_installed()
    from paceline.examples.benchmarks.stages.table import as_table

    show_each(lambda tell: _measure(request, tell), as_table, as_json)


def requested(microbatches: str, models: str | None, systems: str | None, **others: Any) -> PipelineRequest:
    """What the options ask for. Raises UserError for what cannot be used."""
    from paceline.examples.benchmarks.stages.cases import MODELS
    from paceline.examples.benchmarks.stages.systems import SYSTEMS, find

    names = named_words(systems) or tuple(SYSTEMS)
    for name in names:
        find(name)
    asked = named_words(models) or MODELS
    for model in asked:
        if model not in MODELS:
            raise UserError(f"There is no model {model!r} of stages.", nearest(model, list(MODELS)))
    request = PipelineRequest(microbatches=_counts(microbatches), models=asked, systems=names, **others)
    if not 2 <= request.stages <= MOST_RANKS:
        raise UserError(f"--stages {request.stages} cannot be used.", f"Give 2 to {MOST_RANKS}.")
    for option, value in (("--forward-ms", request.forward_ms), ("--backward-ms", request.backward_ms)):
        if not 0 < value <= MOST_PASS_MS:
            raise UserError(f"{option} {value:g} cannot be used.", f"Give more than 0, at most {MOST_PASS_MS:g}.")
    check_limits(request.time_limit_s, request.turns)
    return request


def _counts(text: str) -> tuple[int, ...]:
    words = named_words(text)
    if not words or not all(
        word.isascii() and word.isdigit() and 1 <= int(word) <= MOST_MICROBATCHES for word in words
    ):
        raise UserError(
            f"--microbatches {text} cannot be used.", f'Give numbers from 1 to {MOST_MICROBATCHES}, such as "4,8,16".'
        )
    return tuple(dict.fromkeys(map(int, words)))


def _measure(request: PipelineRequest, tell: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    from paceline.examples.benchmarks.harness import report as machine_report
    from paceline.examples.benchmarks.harness.hosts import Loopback
    from paceline.examples.benchmarks.harness.turns import Limits
    from paceline.examples.benchmarks.stages import report, turns
    from paceline.examples.benchmarks.stages.systems import find

    most = Limits(request.time_limit_s, request.turns)
    measured = [find(name) for name in request.systems]
    about = machine_report.machine()
    for comparison in turns.compare(request.cases, measured, Loopback(), most, tell):
        if comparison.systems:
            yield report.as_json(comparison, about, request.command)
        else:
            console.note("; ".join(f"{name} is left out: {reason}" for name, reason in comparison.skipped.items()))
        about = machine_report.machine()
