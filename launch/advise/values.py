"""The advice as JSON values: times in seconds, ratios to stock Horovod's step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.launch.advise.ranking import Advice, Row
from paceline.predict.advice import StepModel

FORMAT, VERSION = "paceline-advice", 1


def as_values(advice: Advice, model: StepModel, command: Sequence[str], curves: Sequence[Any]) -> dict[str, Any]:
    """Return everything as JSON values."""
    best = advice.best
    return {
        "format": FORMAT,
        "version": VERSION,
        "command": list(command),
        "ranks": model.measured.ranks,
        "steps": model.measured.steps,
        "gradients": len(model.measured.gradients),
        "gradient_bytes": sum(one.bytes for one in model.measured.gradients),
        "step_s": model.step_s,
        "compute_s": model.recorded.iteration.compute_s,
        "exposed_s": max(0.0, model.step_s - model.recorded.iteration.compute_s),
        "waits_for_late_ranks_s": model.late_s,
        "predicted_error": advice.error,
        "verified": advice.verified,
        "settings": [_row(one, advice) for one in advice.rows],
        "recommended": None if best is advice.rows[0] else best.name,
        "notes": list(advice.notes),
        "curves": [{"setting": one.name, "bandwidth": one.bandwidth, "step_s": one.step_s} for one in curves],
    }


def _row(row: Row, advice: Advice) -> dict[str, Any]:
    effect = row.effect
    measured = row.measured
    return {
        "variables": {f"PACELINE_{name.upper()}": value for name, value in row.options.items()},
        "code": row.code,
        "predicted_step_s": row.step_s,
        "predicted_ratio": row.step_s / advice.stock_s,
        "measured_step_s": row.measured_s,
        "measured_ratio": None
        if measured is None
        else {"median": measured.median, "low": measured.low, "high": measured.high, "turns": measured.count},
        "failed": row.failed,
        "changes_results": row.priced,
        "staleness": effect.staleness,
        "memory": effect.memory,
        "wire": effect.wire,
        "accuracy_lost": effect.accuracy,
        "page": effect.page,
    }
