"""Training steps: settings, systems, ratios and columns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec

from paceline.errors import UserError
from paceline.examples.benchmarks.harness.hosts import open_hosts
from paceline.examples.benchmarks.harness.ratio import Ratio, each_over, over
from paceline.examples.benchmarks.harness.report import Benchmark, Column, Measured
from paceline.examples.benchmarks.harness.system import System
from paceline.examples.benchmarks.harness.turns import Comparison, Limits, Log, compare
from paceline.examples.benchmarks.networks import models
from paceline.examples.benchmarks.steps.team import StepTeam
from paceline.fusion.resolve import resolve

STOCK, DDP, ALONE, COMMUNICATION = "stock", "ddp", "alone", "communication"
ZERO, FSDP, DDP_FP16 = "zero", "fsdp", "ddp_fp16"
# Rate that four ranks on two processor cores sustain without the processor being the bottleneck.
CLEAN_BIT_S = 200e6
_TRAINING = "paceline.examples.benchmarks.steps.training"
_DEBUG = "PACELINE_DEBUG"


def _debug(*values: str) -> dict[str, str]:
    """Return debug values of the environment and these. Plans are measured, so no plan has to win a trial first."""
    return {_DEBUG: ",".join(filter(None, ["fusion_trial_steps=0", os.environ.get(_DEBUG), *values]))}


# Overrides the environment of the benchmark.
_SYNC = {"PACELINE_EXCHANGE": "sync", "PACELINE_FUSION": "threshold", **_debug("wake=cycle", "armed=no")}
_OPTIMAL = {**_SYNC, "PACELINE_FUSION": "optimal"}
_EVENTS, _ARMED = _debug("wake=events"), _debug("wake=events", "armed=yes")
_LOSSY = _debug("wake=events", "armed=no")  # steps with lossy codecs are never armed
_PIPELINED = {"PACELINE_EXCHANGE": "pipelined", "PACELINE_PIPELINED_K": "2", "PACELINE_PIPELINED_WARMUP_STEPS": "0"}
_MAJORITY = {**_SYNC, "PACELINE_EXCHANGE": "majority", **_EVENTS}
_PLANNED, _LATE, _APART = {"planned": True}, {"age": 1}, {"averages": False}
# Name -> function of training.py, environment, options of the worker. Names of policies, also with the prefix armed_,
# are systems, too.
SYSTEMS: dict[str, tuple[str, Mapping[str, str], Mapping[str, Any]]] = {
    STOCK: ("horovod", _SYNC, {}),
    DDP: ("ddp", {}, {}),
    DDP_FP16: ("ddp_fp16", {}, {}),
    ZERO: ("zero", {}, {}),
    FSDP: ("fsdp", {}, _APART),
    "sync_optimal": ("paceline", _OPTIMAL, _PLANNED),
    "sync_armed": ("paceline", {**_OPTIMAL, **_ARMED}, _PLANNED),
    "reproducible": ("horovod", {**_OPTIMAL, **_ARMED, "PACELINE_REPRODUCIBLE": "yes"}, _PLANNED),
    "bf16": ("paceline", {**_OPTIMAL, **_LOSSY, "PACELINE_CODEC": "bf16"}, {**_PLANNED, **_APART}),
    "q8": ("paceline", {**_OPTIMAL, **_LOSSY, "PACELINE_CODEC": "q8"}, {**_PLANNED, **_APART}),
    "weighted": ("weighted", {**_OPTIMAL, **_ARMED}, _PLANNED),
    "pipelined": ("paceline", {**_SYNC, **_PIPELINED}, _LATE),
    "pipelined_optimal": ("paceline", {**_OPTIMAL, **_PIPELINED}, {**_PLANNED, **_LATE}),
    "split": ("split", {**_SYNC, **_EVENTS}, _APART),
    "split_armed": ("split", {**_OPTIMAL, **_ARMED}, {**_PLANNED, **_APART}),
    "majority": ("paceline", _MAJORITY, _APART),
    "unmodified_pipelined": ("horovod", {**_SYNC, **_PIPELINED}, _LATE),
    "unmodified_majority": ("horovod", _MAJORITY, _APART),
    COMMUNICATION: ("communication", _SYNC, _APART),
    ALONE: ("alone", {}, _APART),
}
_OTHERS = (STOCK, DDP, DDP_FP16, ZERO, FSDP, COMMUNICATION, ALONE)  # systems that bucket_bytes does not affect


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`hosts` emulated hosts (1: this machine), `ranks` in all, links of `rate` and `latency`.

    With `share`, the rate is the one at which a ring sends the gradients in this multiple of the compute time.
    `bucket_bytes`: Paceline's systems send gradients of at most this size in buckets; None: the policy's default.
    """

    hosts: int = 4
    ranks: int | None = None
    rate: str | None = "1gbit"
    share: float | None = None
    latency: str | None = None
    models: tuple[str, ...] = ("resnet20",)
    systems: tuple[str, ...] = (STOCK, DDP, "armed_optimal", ALONE)
    bucket_bytes: int | None = None

    @property
    def size(self) -> int:
        """Total number of ranks: one per host, two on this machine."""
        return self.ranks or (self.hosts if self.hosts > 1 else 2)


def find(name: str, model: str, bucket_bytes: int | None = None) -> System:
    """Return a system of the table, or a policy of merging. Raises UserError for an unknown one."""
    armed, policy = name.startswith("armed_"), name.removeprefix("armed_")
    if name in SYSTEMS:
        training, env, options = SYSTEMS[name]
    elif resolve(policy).makes_plans:
        training, env, options = "horovod", {**_SYNC, "PACELINE_FUSION": policy, **(_ARMED if armed else {})}, _PLANNED
    else:
        raise UserError(f"The policy {policy} is stock Horovod.", f"Its system is called {STOCK}.")
    buckets = 0 if name in _OTHERS else bucket_bytes
    if buckets is not None:
        env = {**env, _DEBUG: ",".join(filter(None, [env.get(_DEBUG), f"bucket_bytes={buckets}"]))}
    setup = "paceline.examples.benchmarks.steps.worker:NetworkWorker"
    return System(name, setup, env, {"training": f"{_TRAINING}:{training}", "model": model, **options})


def ratios(names: Sequence[str]) -> list[Ratio]:
    """Return the ratios of step times: Paceline's systems over stock Horovod and DDP, and over the parts of a step."""
    parts = (ALONE, COMMUNICATION)
    ours = [name for name in names if name not in parts]
    found = each_over(ours, [STOCK, DDP, DDP_FP16], "step_ms")
    late = [name for name in names if name in SYSTEMS and "age" in SYSTEMS[name][2]]
    found += [over(name, "sync_optimal", "step_ms") for name in late if "sync_optimal" in names]
    for name, base in (("reproducible", "armed_optimal"), ("weighted", "sync_armed")):
        if {name, base} <= set(names):
            found.append(over(name, base, "step_ms"))
    if set(parts) <= set(names):
        found += [Ratio(f"{name}_over_max_of_parts", name, parts, "step_ms") for name in late]
        found.append(Ratio("communication_over_compute", COMMUNICATION, (ALONE,), "step_ms"))
    return found


def measure(settings: Settings, limits: Limits, log: Log) -> Iterator[Measured]:
    """Measure each model."""
    chosen = [
        (model, [find(name, model.name, settings.bucket_bytes) for name in settings.systems])
        for model in map(models.find, settings.models)
    ]
    for model, systems in chosen:
        rate, note = (None, None) if settings.hosts == 1 else _rate(settings, model)
        with open_hosts(settings.hosts, rate, settings.latency) as hosts, ExitStack() as stack:
            teams = {}
            for system in systems:
                log(f"{model.name}: starting the ranks of {system.name}")
                teams[system.name] = stack.enter_context(StepTeam(system, settings.size, hosts, log))
            takes = {name: team.take for name, team in teams.items()}
            comparison = compare(takes, "step_ms", ratios(list(takes)), limits, log, model.name)
        facts = {
            "model": model.name, "tensors": model.tensors, "parameters": model.parameters, "hosts": settings.hosts,
            "ranks": settings.size, "rate": rate, "latency": settings.latency,
        }  # fmt: skip
        notes = [*([note] if note else []), *_plan_notes(comparison)]
        yield Measured(_title(model, settings, rate), comparison, facts, notes)


def _rate(settings: Settings, model: models.Model) -> tuple[str | None, str | None]:
    """Return the rate of the links, and the reason for it if it was computed.

    In a ring every rank sends 2 (p - 1) / p times the gradients' bytes to the next one. Ranks of one host are
    neighbours in it, so each host's link carries as much. Headers and coordination are left out.
    """
    if settings.share is None:
        return settings.rate, None
    if model.computes:
        raise UserError(f"The time that {model.name} computes is not known.", "Give a rate in place of share.")
    link_bytes = 2 * (settings.size - 1) / settings.size * model.gradient_bytes
    bit_s = float(f"{8 * link_bytes / (settings.share * model.compute_ms / 1e3):.3g}")
    doubt = "" if bit_s <= CLEAN_BIT_S else "; more than this machine may drive: the links may not set the pace"
    rate = f"{bit_s / 1e6:.12g}mbit"
    return rate, (
        f"{rate} are chosen so that {link_bytes / 1e6:.2f} MB a step and link take {settings.share:g} x the"
        f" {model.compute_ms:.1f} ms of compute{doubt}"
    )


def _title(model: models.Model, settings: Settings, rate: str | None) -> str:
    compute = "computed on the processor"
    if not model.computes:
        compute = f"{model.forward_ms:g} + {model.backward_ms:g} ms compute"
    return (
        f"{model.name}: {where(settings.size, settings.hosts, rate, settings.latency)};"
        f" {model.tensors} tensors, {model.parameters / 1e6:.2f} M parameters, {compute}"
    )


def where(ranks: int, hosts: int, rate: str | None, latency: str | None) -> str:
    """Return the number of ranks and hosts, and the rate and latency of their links, as text."""
    setting = f"{ranks} ranks on {hosts} host" + ("s" if hosts > 1 else "")
    return setting + (f", {rate}" if rate else "") + (f", {latency} one way" if latency else "")


def _plan_notes(comparison: Comparison) -> Iterator[str]:
    for name, turns in comparison.turns.items():
        plan = turns[-1].details.get("plan")
        if plan is None:
            continue
        count, late = len(plan["group_bytes"]), plan["timeouts"]
        interval = comparison.interval(name, "predicted_over_measured")
        forecast = ""
        if interval is not None:
            forecast = (
                f"; step predicted {plan['step_s'] * 1e3:.1f} ms ({plan['exposed_s'] * 1e3:.1f} ms exposed),"
                f" {interval.median:.3f} of the measured"
            )
        yield (
            f"{name}: {count} message{'s' if count > 1 else ''} planned at {plan['a_s'] * 1e3:.2f} ms"
            f" + {plan['b_s_per_byte'] * 1e9:.2f} ms/MB each and {plan['coordination_s'] * 1e3:.2f} ms of"
            f" coordination{forecast}" + (f"; {late} went incomplete" if late else "")
        )


BENCHMARK = Benchmark(
    "Training steps",
    Settings,
    measure,
    "per step",
    (
        Column("time ms", "step_ms"),
        Column("CPU ms", "cpu_ms"),
        Column("wake-ups", "wakeups", ".0f"),
        Column("rounds", "coordination_rounds"),
        Column("messages", "messages"),
        Column("payload MB", "bytes", ".2f", 1e6),
        Column("sent MB/host", "sent_bytes", ".2f", 1e6),
    ),
    start_s=60.0,
)
