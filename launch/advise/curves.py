"""Predicted steps over the network's bandwidth, for the settings of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paceline.launch import outputs
from paceline.launch.advise.ranking import Row, rows
from paceline.predict.advice import StepModel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Bandwidths as multiples of the recorded one.
FACTORS = tuple(2.0**exponent for exponent in (-3, -2, -1, 0, 1, 2, 3, 4))
MOST_CURVES = 7


@dataclass(frozen=True)
class Curve:
    """Predicted steps of a setting in seconds, at bandwidths in bytes of gradients per second."""

    name: str
    bytes_per_s: list[float]
    step_s: list[float]


def curves(model: StepModel, shown: Sequence[Row]) -> list[Curve]:
    """A curve for stock Horovod and the first of the settings; none where messages of any size take equally long."""
    if model.bytes_per_s == float("inf"):
        return []
    predicted = [_steps(model, 1 / factor) for factor in FACTORS]
    made = []
    for row in shown[:MOST_CURVES]:
        # Where communication is longer, the setting may come with another way of merging.
        steps = [min(s for key, s in at.items() if _same(key, _key(row))) for at in predicted]
        made.append(Curve(row.name, [model.bytes_per_s * factor for factor in FACTORS], steps))
    return made


_Key = tuple[str, str, bool]


def _key(row: Row) -> _Key:
    given = row.options
    return given.get("exchange", ""), given.get("codec", ""), bool(given)


def _same(key: _Key, other: _Key) -> bool:
    return key == other


def _steps(model: StepModel, slower: float) -> dict[_Key, float]:
    found: dict[_Key, float] = {}
    for one in rows(model.remedies(slower)):
        key = _key(one)
        found[key] = min(one.step_s, found.get(key, one.step_s))
    return found


def figure(found: Sequence[Curve], bytes_per_s: float) -> Figure:
    """Draw the curves; a line marks the recorded network."""
    made = outputs.figure(figsize=(9, 4.5), layout="constrained")
    axes = made.add_subplot()
    for one in found:
        megabits = [8e-6 * rate for rate in one.bytes_per_s]
        axes.plot(megabits, [1e3 * step for step in one.step_s], marker=".", label=one.name)
    axes.axvline(8e-6 * bytes_per_s, color="#888888", linestyle="dashed", label="recorded")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:.4g}")
    axes.set_xlabel("gradients reduced, Mbit/s")
    axes.set_ylabel("predicted step, ms")
    axes.set_ylim(bottom=0)
    axes.grid(color="#dddddd")
    made.legend(loc="outside right upper", frameon=False, fontsize=8)
    return made
