"""The micro-benchmark of partial allreduces as JSON: what was measured beside what the model says."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.examples.benchmarks.harness import skew_model
from paceline.examples.benchmarks.harness.ratios import over
from paceline.examples.benchmarks.harness.report import rounded
from paceline.examples.benchmarks.harness.skew import EVEN, FRESH, LATENCY_S, LATENESS_S, SKEWED, Samples, SkewPlan

Values = NDArray[np.float64]


def as_json(plan: SkewPlan, size_bytes: int, samples: Samples, machine: dict[str, Any], command: str) -> dict[str, Any]:
    """One size's result, ready for json.dumps. Times in milliseconds; latencies are means over ranks and iterations.

    Of each system: `latency_ms` without skew ("even") and with it ("skewed"), `fresh` contributions in time per round
    of the latter, and the prolongation `wait_over_skew`, (skewed - even) / skew, with its standard error (`error`),
    beside `model`, the closed form, and `model_at_fresh`, which takes the numbers of contributions and the transfer as
    they were measured (skew_model.with_transfer). The ratios are of latencies with skew. `lateness_ms` is how late
    ranks came to their calls. Raises ValueError if the ranks were not answered with the same rounds.
    """
    systems = {name: _system(plan, name, samples[:, :, position]) for position, name in enumerate(skew_model.SYSTEMS)}
    skewed = {name: system["latency_ms"]["skewed"]["mean"] for name, system in systems.items()}
    lateness_ms = samples[..., LATENESS_S] * 1e3
    return {
        "part": "micro",
        "size_bytes": size_bytes,
        "ranks": plan.ranks,
        "skew_ms": plan.skew_ms,
        "cycle_ms": plan.cycle_ms,
        "flush_each": plan.flush_each,
        "iterations": samples.shape[1],
        "systems": systems,
        **{
            over(name, skew_model.SYNC).name: rounded(skewed[name] / skewed[skew_model.SYNC])
            for name in skew_model.SYSTEMS
            if name != skew_model.SYNC
        },
        "lateness_ms": {"mean": rounded(float(lateness_ms.mean())), "max": rounded(float(lateness_ms.max()))},
        "machine": machine,
        "command": command,
    }


def _system(plan: SkewPlan, name: str, samples: Samples) -> dict[str, Any]:
    """One system; the axes of its samples are ranks, iterations, situations and quantities."""
    counts = samples[:, :, SKEWED, FRESH]
    if (counts != counts[0]).any():
        raise ValueError(f"{name}: ranks were answered with different rounds of the same iteration")
    fresh = counts[0]
    latency_ms = samples[..., LATENCY_S].mean(axis=0) * 1e3
    even_ms, skewed_ms = latency_ms[:, EVEN], latency_ms[:, SKEWED]
    # Both situations of an iteration were measured one after the other: what disturbs both is not in the difference.
    wait = (skewed_ms - even_ms) / plan.skew_ms
    transfer = float(even_ms.mean()) / plan.skew_ms
    return {
        "latency_ms": {"even": _mean_and_sd(even_ms), "skewed": _mean_and_sd(skewed_ms)},
        "fresh": {**_mean_and_sd(fresh), "model": rounded(skew_model.expected_fresh(name, plan.ranks))},
        "wait_over_skew": {
            "mean": rounded(float(wait.mean())),
            "error": rounded(_sd(wait) / len(wait) ** 0.5),
            "model": rounded(skew_model.expected_wait(name, plan.ranks)),
            "model_at_fresh": rounded(skew_model.with_transfer(fresh.tolist(), plan.ranks, transfer)),
        },
    }


def _mean_and_sd(values: Values) -> dict[str, float]:
    return {"mean": rounded(float(values.mean())), "sd": rounded(_sd(values))}


def _sd(values: Values) -> float:
    """The sample standard deviation; that of one value is not known and counts as 0."""
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0
