"""Local training against synchronous training and torchft's DiLoCo: step time, bytes sent, and held-out loss.

The model is the character-level transformer of characters_torch.py. A turn is a seed: the ranks of each system are
started again, with the same first weights and the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

import msgspec

from paceline.errors import UserError
from paceline.examples.benchmarks.harness.hosts import Hosts, open_hosts
from paceline.examples.benchmarks.harness.ratio import each_over
from paceline.examples.benchmarks.harness.report import Benchmark, Column, Measured
from paceline.examples.benchmarks.harness.system import System, check_known
from paceline.examples.benchmarks.harness.team import Team
from paceline.examples.benchmarks.harness.turn import Turn
from paceline.examples.benchmarks.harness.turns import Limits, Log, compare
from paceline.examples.benchmarks.steps.benchmark import where

SYNC, TORCHFT = "sync", "torchft"
TRAIN, JUDGE = "train", "judge"  # orders of a rank
TORCHFT_VERSION = "0.2.0"
TRAIN_LIMIT_S, JUDGE_LIMIT_S = 600.0, 120.0
# DiLoCo's and Streaming DiLoCo's.
OUTER = {"outer_momentum": 0.9, "outer_lr": 0.7, "nesterov": True}
FRAGMENTS, DELAY = 4, 1
STREAMING = {**OUTER, "fragments": FRAGMENTS, "delay": DELAY, "mixing": 0.5}
_PACELINE = "paceline.examples.benchmarks.training.local_paceline:PacelineWorker"
_TORCHFT = "paceline.examples.benchmarks.training.local_torchft:TorchftWorker"
# Equal for all systems; overrides the environment of the benchmark. An empty variable is not set.
_CHOICES = ("EXCHANGE", "CODEC", "FUSION", "SYNC_EVERY", "COLLECTIVE", "DEBUG")
_ENV = {f"PACELINE_{choice}": "" for choice in _CHOICES}
# Name -> worker, environment, arguments of hvd.Local or of torchft's DiLoCo (None: a synchronous exchange), codec.
SYSTEMS: dict[str, tuple[str, Mapping[str, str], Mapping[str, Any] | None, str]] = {
    SYNC: (_PACELINE, {"PACELINE_EXCHANGE": "sync", "PACELINE_FUSION": "optimal"}, None, "none"),
    "local": (_PACELINE, {}, {}, "none"),
    "diloco": (_PACELINE, {}, OUTER, "none"),
    "streaming": (_PACELINE, {}, STREAMING, "none"),
    **{f"streaming_{codec}": (_PACELINE, {}, STREAMING, codec) for codec in ("bf16", "q8", "q4")},
    TORCHFT: (_TORCHFT, {}, OUTER, "none"),
    f"{TORCHFT}_streaming": (_TORCHFT, {}, STREAMING, "none"),
}
USUAL = (SYNC, "local", "streaming_q8", TORCHFT)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`hosts` emulated hosts with a rank on each (1: two ranks of this machine), links of `rate`.

    `seeds` runs of `steps` steps of each system. `sync_every`: H, the steps between two averages of a weight, which
    divides `steps`. Systems that average fragments need an H that is a multiple of 4, and at least 8.
    """

    hosts: int = 4
    rate: str | None = "100mbit"
    systems: tuple[str, ...] = USUAL
    sync_every: int = 16
    steps: int = 160
    batch_size: int = 8
    seeds: int = 5

    @property
    def size(self) -> int:
        """Total number of ranks: one per host, two on this machine."""
        return self.hosts if self.hosts > 1 else 2


def find(name: str, settings: Settings, seed: int) -> System:
    """Return a system of the table that trains with a seed."""
    setup, env, arguments, codec = SYSTEMS[name]
    local = None if arguments is None else {"sync_every": settings.sync_every, **arguments}
    run = {"seed": seed, "steps": settings.steps, "batch_size": settings.batch_size}
    return System(name, setup, {**_ENV, **env}, {**run, "local": local, "codec": codec})


def refusal(name: str) -> str:
    """Return the reason why a system cannot be measured here; "" if it can."""
    if not name.startswith(TORCHFT):
        return ""
    try:
        import torchft.coordination
        import torchft.local_sgd  # noqa: F401
    except ImportError as error:
        return f"torchft cannot be imported ({error})"
    return ""


def check(settings: Settings) -> dict[str, str]:
    """Return the systems of `USUAL` that are left out, each with the reason.

    Raises UserError for an unknown system, for a chosen system that cannot be measured, and for invalid numbers of
    steps.
    """
    check_known(settings.systems, SYSTEMS)
    refused = {name: reason for name in settings.systems if (reason := refusal(name))}
    if refused and settings.systems != USUAL:
        name, reason = next(iter(refused.items()))
        raise UserError(f"{name} cannot be measured: {reason}.", f"Run `pip install torchft=={TORCHFT_VERSION}`.")
    if not 1 <= settings.sync_every <= settings.steps or settings.steps % settings.sync_every:
        raise UserError(
            f"steps={settings.steps} is not a multiple of sync_every={settings.sync_every}.",
            "Use 1 or more for sync_every, and a multiple of it for steps.",
        )
    fragmented = [name for name in settings.systems if (SYSTEMS[name][2] or {}).get("fragments")]
    if fragmented and (settings.sync_every % FRAGMENTS or settings.sync_every // FRAGMENTS <= DELAY):
        raise UserError(
            f"sync_every={settings.sync_every} was given to {fragmented[0]}, which averages {FRAGMENTS} fragments in"
            f" turn, each delayed by {DELAY} step.",
            f"Use a multiple of {FRAGMENTS}, {FRAGMENTS * (DELAY + 1)} or more.",
        )
    return refused


def take(system: System, settings: Settings, hosts: Hosts) -> Turn:
    """Start the ranks of a system, train, and test the mean of their models."""
    # torchft's lighthouse drops a rank without heartbeats, and a rank that is stopped for other turns sends none.
    with Team(system, settings.size, hosts) as team:
        trained: list[dict[str, float]] = team.ask(TRAIN, TRAIN_LIMIT_S)
        sent = team.sent_bytes
        first, *others = team.ask(JUDGE, JUDGE_LIMIT_S)
    if any(one["checksum"] != first["checksum"] for one in others):
        raise UserError(f"{system.name}: the ranks' models differ.", "Report this as a defect.")
    figures = {
        "step_ms": fmean(one["wall_s"] for one in trained) / settings.steps * 1e3,
        "cpu_ms": fmean(one["cpu_s"] for one in trained) / settings.steps * 1e3,
        "sent_bytes": None if sent is None else sent / settings.steps,
        "loss": first["loss"],
        "accuracy": first["accuracy"],
    }
    return Turn(figures)


def measure(settings: Settings, limits: Limits, log: Log) -> Iterator[Measured]:
    """Train with each system and seed."""
    refused = check(settings)
    able = [name for name in settings.systems if name not in refused]
    rate = settings.rate if settings.hosts > 1 else None
    seeds = dict.fromkeys(able, 0)
    with open_hosts(settings.hosts, rate) as hosts:

        def next_of(name: str) -> Turn:
            log(f"seed {seeds[name]}, {name}")
            system = find(name, settings, seeds[name])
            seeds[name] += 1
            return take(system, settings, hosts)

        takes = {name: partial(next_of, name) for name in able}
        once = replace(limits, turns=min(limits.turns, settings.seeds), settles=False)
        comparison = compare(takes, "step_ms", each_over(able, [SYNC, TORCHFT], "step_ms"), once, log, "characters")
    title = (
        f"characters: {where(settings.size, settings.hosts, rate, None)}; {comparison.complete} seeds,"
        f" {settings.steps} steps, averages every {settings.sync_every}"
    )
    facts = {
        "model": "characters", "hosts": settings.hosts, "ranks": settings.size, "rate": rate,
        "sync_every": settings.sync_every, "steps": settings.steps,
    }  # fmt: skip
    yield Measured(title, comparison, facts, left_out=refused)


BENCHMARK = Benchmark(
    "Local training",
    Settings,
    measure,
    "system",
    (
        Column("step ms", "step_ms"),
        Column("CPU ms", "cpu_ms"),
        Column("sent kB/host", "sent_bytes", ".1f", 1e3),
        Column("held-out loss", "loss", ".4f"),
        Column("accuracy", "accuracy", ".2%"),
    ),
    start_s=5.0,
    quick={"seeds": 1, "steps": 32},
)
