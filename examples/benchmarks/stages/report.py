"""A comparison of schedules as JSON, with what it was measured on."""

from __future__ import annotations

from typing import Any

from paceline.examples.benchmarks.harness.report import interval, rounded
from paceline.examples.benchmarks.harness.report import ratio as ratio_values
from paceline.examples.benchmarks.stages.cases import SLEEPING, Case
from paceline.examples.benchmarks.stages.systems import TORCH, StageSystem
from paceline.examples.benchmarks.stages.turns import Comparison
from paceline.stages import schedules
from paceline.stages.costs import costs


def as_json(comparison: Comparison, machine: dict[str, Any], command: str) -> dict[str, Any]:
    """One case, ready for json.dumps. Times in milliseconds; what is not known is None.

    Of each system: `throughput`, micro-batches per second; `utilisation`, the share of time in which stages computed or
    slept, once the pipeline was full, mean over stages, and `utilisation_per_stage`; `utilisation_model`, what the
    schedule allows; `bound_share`, its throughput over that of a stage that does nothing but sleep as long as asked;
    `passes_ms`, what a forward and a backward pass took together; `weight_copies` and `activations` (micro-batches) per
    stage, at most, with `_model` what the schedule says; `loss` of the last mini-batch that it is known of. Ratios are
    of throughput, `ours_over_torch` has one for each schedule of both; `pipedream_over_pipemare` is of weight copies.
    """
    case = comparison.case
    sleeps = case.model == SLEEPING
    return {
        "model": case.model,
        "stages": case.stages,
        "microbatches": case.microbatches,
        "forward_ms": rounded(case.forward_s * 1e3) if sleeps else None,
        "backward_ms": rounded(case.backward_s * 1e3) if sleeps else None,
        "systems": {system.name: _system(comparison, system) for system in comparison.systems},
        "ratios": _ratios(comparison),
        "skipped": comparison.skipped,
        "machine": machine,
        "command": command,
    }


def _system(comparison: Comparison, system: StageSystem) -> dict[str, Any]:
    case, name = comparison.case, system.name
    runs = comparison.runs[name]
    model = costs(schedules.make(system.schedule, case.stages, case.microbatches))
    throughput = comparison.figure(name, lambda run: run.throughput)
    return {
        "throughput": interval(throughput),
        "utilisation": interval(comparison.figure(name, lambda run: run.utilisation)),
        "utilisation_per_stage": [_utilisation(comparison, name, stage) for stage in range(case.stages)],
        "utilisation_model": rounded(model.utilisation),
        "bound_share": _bound_share(case, throughput.median),
        "passes_ms": rounded(comparison.figure(name, lambda run: run.passes_s * 1e3).median),
        "cpu_ms_per_microbatch": rounded(comparison.figure(name, lambda run: run.cpu_s * 1e3).median),
        "weight_copies": copies(comparison, name),
        "weight_copies_model": list(model.weight_copies),
        "activations": [max(run.stages[stage].activations for run in runs) for stage in range(case.stages)],
        "activations_model": list(model.activations),
        "loss": runs[-1].loss,
        "turns": len(runs),
        "microbatches": sum(run.stages[0].microbatches for run in runs),
    }


def copies(comparison: Comparison, name: str) -> list[int]:
    """Sets of weights of each stage, at most."""
    return [max(run.stages[stage].weight_copies for run in comparison.runs[name]) for stage in _stages(comparison)]


def _stages(comparison: Comparison) -> range:
    return range(comparison.case.stages)


def _utilisation(comparison: Comparison, name: str, stage: int) -> float:
    return rounded(comparison.figure(name, lambda run: run.stages[stage].busy_s / run.stages[stage].wall_s).median)


def _bound_share(case: Case, throughput: float) -> float | None:
    return rounded(throughput * (case.forward_s + case.backward_s)) if case.model == SLEEPING else None


def _ratios(comparison: Comparison) -> dict[str, Any]:
    found: dict[str, Any] = {}
    theirs = {}
    for name, reference in comparison.ratios:
        value = ratio_values(comparison.ratio(name, reference))
        if reference == f"{TORCH}_{name}":
            theirs[name] = value
        else:
            found[f"{name}_over_{reference}"] = value
    if theirs:
        found["ours_over_torch"] = theirs
    if {"pipedream", "pipemare"} <= set(comparison.runs):
        several, one = (sum(copies(comparison, name)) for name in ("pipedream", "pipemare"))
        found["pipedream_over_pipemare"] = rounded(several / one)
    return found
