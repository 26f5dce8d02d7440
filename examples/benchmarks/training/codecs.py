"""Final loss and accuracy of training with encoded gradients, compared with training without codec.

The ranks of one world make all runs; a turn is a seed. Tensors of every size are encoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from paceline.errors import UserError
from paceline.examples.benchmarks.harness.connections import connect_horovod
from paceline.examples.benchmarks.harness.hosts import Loopback
from paceline.examples.benchmarks.harness.place import Place
from paceline.examples.benchmarks.harness.report import Benchmark, Column, Measured
from paceline.examples.benchmarks.harness.system import System, check_known
from paceline.examples.benchmarks.harness.team import Team
from paceline.examples.benchmarks.harness.turn import Turn
from paceline.examples.benchmarks.harness.turns import Limits, Log, compare
from paceline.registry.codecs import CODECS

EXACT, PLAIN = "none", "_plain"
CODINGS = (*CODECS, *(f"{name}{PLAIN}" for name in CODECS if name != EXACT))
RUN_LIMIT_S = 600.0


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model of codecs_torch.py, and codecs; the suffix _plain means without error feedback.

    `seeds` runs of each. `steps` of a run: by default the model's.
    """

    model: str = "digits"
    systems: tuple[str, ...] = (EXACT, "bf16", "q8", f"q8{PLAIN}")
    seeds: int = 5
    ranks: int = 2
    collective: str = "direct"
    steps: int | None = None


class TrainingWorker:
    """A rank that trains a model with a coding and a seed."""

    hello = None

    def __init__(self, place: Place, options: dict[str, Any]) -> None:
        connect_horovod(place)
        from paceline.examples.benchmarks import codecs_torch

        self._train = codecs_torch.train
        self._case = codecs_torch.CASES[options["model"]]
        self._steps: int = options["steps"] or self._case.steps

    def answer(self, order: tuple[str, int], control: Connection) -> dict[str, Any]:
        """Train."""
        coding, seed = order
        return self._train(self._case, coding, seed, self._steps)


def measure(settings: Settings, limits: Limits, log: Log) -> Iterator[Measured]:
    """Train with each coding and seed; everything else is equal."""
    check_known(settings.systems, CODINGS)
    env = {
        "PACELINE_EXCHANGE": "sync",
        "PACELINE_COLLECTIVE": settings.collective,
        "PACELINE_CODEC": EXACT,
        "PACELINE_DEBUG": "codec_least_bytes=0",
    }
    options = {"model": settings.model, "steps": settings.steps}
    world = System("codecs", f"{__name__}:TrainingWorker", env, options)
    losses: dict[str, list[float]] = {}

    def take(team: Team, coding: str) -> Turn:
        seeds = losses.setdefault(coding, [])
        first, *_ = found = team.ask((coding, len(seeds)), RUN_LIMIT_S)
        if not all(one["equal"] for one in found):
            raise UserError(f"{coding}, seed {len(seeds)}: the ranks' models differ.", "Report this as a defect.")
        seeds.append(first["loss"])
        # Without codec the same seed has begun with the same weights and seen the same batches.
        exact = losses.get(EXACT, [])
        off = first["loss"] - exact[len(seeds) - 1] if coding != EXACT and len(exact) >= len(seeds) else None
        return Turn({name: first[name] for name in ("loss", "training_loss", "accuracy")} | {"loss_from_none": off})

    log(f"starting {settings.ranks} ranks")
    with Team(world, settings.ranks, Loopback()) as team:
        names = sorted(settings.systems, key=lambda name: name != EXACT)
        takes = {name: partial(take, team, name) for name in names}
        once = Limits(limits.time_s, settings.seeds, settles=False)
        comparison = compare(takes, "loss", (), once, log, settings.model)
    title = f"{settings.model}: {settings.ranks} ranks, {comparison.complete} seeds, collective {settings.collective}"
    yield Measured(title, comparison, {"model": settings.model, "ranks": settings.ranks})


BENCHMARK = Benchmark(
    "Codecs",
    Settings,
    measure,
    "codec",
    (
        Column("held-out loss", "loss", ".5f"),
        Column("from none, same seed", "loss_from_none", "+.5f"),
        Column("training loss", "training_loss", ".5f"),
        Column("accuracy", "accuracy", ".2%"),
    ),
    start_s=15.0,
    quick={"seeds": 1, "steps": 60},
)
