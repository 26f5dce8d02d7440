"""What was measured of a number of ranks, and what follows from all of them, as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from paceline.examples.benchmarks.harness.report import interval, ratio, rounded
from paceline.examples.benchmarks.scale import plans
from paceline.examples.benchmarks.scale.cases import Case, Rested
from paceline.examples.benchmarks.scale.simulated import Simulation, simulate
from paceline.examples.benchmarks.scale.systems import find
from paceline.examples.benchmarks.scale.turns import Comparison
from paceline.examples.benchmarks.scale.worlds import ScaleRun


def as_json(
    comparison: Comparison, skipped: Mapping[str, str], machine: dict[str, Any], command: str
) -> dict[str, Any]:
    """One number of ranks, ready for json.dumps. Times in milliseconds, per step; a figure nobody counts is None.

    Of each system: `step_ms`; `coordination_ms`, in which something waited to travel and nothing did, and `message_ms`,
    in which messages travelled; of rank 0 `background_cpu_ms_per_step`, `cpu_ms_per_step` and `wakeups_per_step` of all
    threads, `coordination_rounds_per_step` and `messages_per_step`. At rest, per second, mean over ranks:
    `rest_wakeups_per_s`, `rest_background_wakeups_per_s`, `rest_cpu_ms_per_s`.
    """
    return {
        **_case(comparison.case),
        "ranks": comparison.size,
        "systems": {name: _system(comparison, name) for name in comparison.runs},
        "ratios": {one.name: ratio(comparison.value(one)) for one in comparison.ratios},
        "skipped": dict(skipped),
        "machine": machine,
        "command": command,
    }


def closing(
    case: Case,
    results: Sequence[dict[str, Any]],
    latency: str | None,
    latency_s: float,
    machine: dict[str, Any],
    command: str,
) -> dict[str, Any]:
    """What follows from `results`, one of `as_json` for each number of ranks: constants and simulated coordination of
    each system (None where nobody counts, or nothing follows; see `simulated.simulate`), and the bytes of plans.
    """
    names = list(dict.fromkeys(name for result in results for name in result["systems"]))
    found = {name: _simulated(case, name, results, machine["cores"], latency_s) for name in names}
    return {
        **_case(case),
        "latency": latency,
        "systems": found,
        "plans": [asdict(plans.of(tensors)) for tensors in plans.TENSORS],
        "machine": machine,
        "command": command,
    }


def measured_s(name: str, results: Sequence[dict[str, Any]]) -> dict[int, float]:
    """What a step's coordinations took a system, in seconds by number of ranks."""
    found = {result["ranks"]: result["systems"][name]["coordination_ms"] for result in results}
    return {ranks: one["median"] / 1e3 for ranks, one in found.items() if one is not None and one["median"] > 0}


def _case(case: Case) -> dict[str, int]:
    return {"tensors": case.tensors, "parts": case.parts, "size_bytes": case.size_bytes}


def _system(comparison: Comparison, name: str) -> dict[str, Any]:
    runs, rested = comparison.runs[name], comparison.rested[name]

    def figure(of: Callable[[ScaleRun], float | None]) -> dict[str, float] | None:
        found = comparison.figure(name, of)
        return None if found is None else interval(found)

    def middle(of: Callable[[ScaleRun], float | None]) -> float | None:
        found = comparison.figure(name, of)
        return None if found is None else rounded(found.median)

    return {
        "step_ms": interval(comparison.step_ms(name)),
        "coordination_ms": figure(lambda run: run.coordination_ms),
        "message_ms": figure(lambda run: run.message_ms),
        "background_cpu_ms_per_step": middle(lambda run: run.background_ms),
        "cpu_ms_per_step": middle(lambda run: run.cpu_ms),
        "wakeups_per_step": middle(lambda run: run.wakeups),
        "coordination_rounds_per_step": middle(lambda run: run.counted("coordination_rounds")),
        "messages_per_step": middle(lambda run: run.counted("messages")),
        **_rest(rested),
        "turns": len(runs),
        "steps": sum(run.steps for run in runs),
    }


def _rest(rested: Sequence[Rested]) -> dict[str, float]:
    return {
        "rest_wakeups_per_s": rounded(fmean([one.process.wakeups / one.seconds for one in rested])),
        "rest_background_wakeups_per_s": rounded(fmean([one.background.wakeups / one.seconds for one in rested])),
        "rest_cpu_ms_per_s": rounded(fmean([one.process.cpu_s * 1e3 / one.seconds for one in rested])),
    }


def _simulated(
    case: Case, name: str, results: Sequence[dict[str, Any]], cores: int, latency_s: float
) -> dict[str, Any] | None:
    found = simulate(find(name), case.parts, measured_s(name, results), cores, latency_s)
    return None if found is None else _simulation(found)


def _simulation(found: Simulation) -> dict[str, Any]:
    def by_ranks_ms(times_s: Mapping[int, float]) -> dict[str, float]:
        return {str(ranks): rounded(seconds * 1e3) for ranks, seconds in times_s.items()}

    return {
        "fixed_us": rounded(found.constants.fixed_s * 1e6),
        "hop_us": rounded(found.constants.hop_s * 1e6),
        "message_us": rounded(found.constants.message_s * 1e6),
        "fit_error": rounded(found.error),
        "fitted_ms": by_ranks_ms(found.here_s),
        "simulated_ms": by_ranks_ms(found.hosts_s),
    }
