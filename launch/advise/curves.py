"""Predicted steps over the network's bandwidth, for the settings of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paceline.launch import outputs
from paceline.launch.advise.effects import options
from paceline.launch.advise.ranking import Row, is_another_policy
from paceline.predict.advice import StepModel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Bandwidths as multiples of the recorded one.
FACTORS = tuple(2.0**exponent for exponent in (-3, -2, -1, 0, 1, 2, 3, 4))
MOST_CURVES = 7


@dataclass(frozen=True)
class Curve:
    """Predicted steps of a setting in seconds, at multiples of the recorded network's bandwidth."""

    name: str
    bandwidth: list[float]
    step_s: list[float]


def curves(model: StepModel, shown: Sequence[Row]) -> list[Curve]:
    """Return a curve for stock Horovod and the first settings; latencies stay unchanged."""
    predicted = [_steps(model, 1 / factor) for factor in FACTORS]
    return [Curve(row.name, list(FACTORS), [at[_key(row.options)] for at in predicted]) for row in shown[:MOST_CURVES]]


# Exchange, codec, and True if any option is set. The best merging depends on the bandwidth.
_Key = tuple[str, str, bool]


def _key(given: Mapping[str, str]) -> _Key:
    return given.get("exchange", ""), given.get("codec", ""), bool(given)


def _steps(model: StepModel, slower: float) -> dict[_Key, float]:
    stock, *others = model.remedies(slower)
    found = {_key({}): stock.step_s}
    for one in others:
        given = options(one.flags)
        if one.ranks == stock.ranks and given and not is_another_policy(given):
            found[_key(given)] = min(one.step_s, found.get(_key(given), one.step_s))
    return found


def figure(found: Sequence[Curve]) -> Figure:
    """Draw the curves; a line marks the recorded network."""
    made = outputs.figure(figsize=(9, 4.5), layout="constrained")
    axes = made.add_subplot()
    for one in found:
        axes.plot(one.bandwidth, [1e3 * step for step in one.step_s], marker=".", label=one.name)
    axes.axvline(1, color="#888888", linestyle="dashed", label="recorded")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("bandwidth, multiples of the recorded network's")
    axes.set_ylabel("predicted step, ms")
    axes.set_ylim(bottom=0)
    axes.grid(color="#dddddd")
    made.legend(loc="outside right upper", frameon=False, fontsize=8)
    return made
