"""The picture of coordination by the number of ranks: measured on this machine, and simulated beyond it.

python -m examples.benchmarks.scale.plot bench-results/scale.json docs/pictures/scale.png
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.examples.benchmarks.scale.systems import ARMED, CACHED, EVENTS, UNCACHED
from paceline.launch import outputs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours that differ in lightness, too, and a mark for each.
_LOOKS = {
    UNCACHED: ("#b0352b", "s", "uncached: Horovod without its response cache"),
    CACHED: ("#d9822b", "o", "cached: stock Horovod"),
    EVENTS: ("#5b8c5a", "^", "events: PACELINE_DEBUG=wake=events"),
    ARMED: ("#1f4e79", "D", "armed: and armed=yes"),
}
_GRID = "#dddddd"


def scale_figure(results: Sequence[dict[str, Any]]) -> Figure:
    """Draw the coordination of a step by the number of ranks.

    Left: as measured, with the fitted model. Right: simulated on separate hosts. `results` is the benchmark's list, by
    number of ranks; the last one has the simulation.
    """
    figure = outputs.figure(figsize=(12, 5.2), layout="constrained")
    here, hosts = figure.subplots(1, 2, sharey=True)
    last = results[-1]
    for name, (colour, mark, _) in _LOOKS.items():
        found = {one["ranks"]: one["systems"][name]["coordination_ms"] for one in results if name in one["systems"]}
        measured = {ranks: value for ranks, value in found.items() if value is not None}
        if measured:
            medians = [one["median"] for one in measured.values()]
            reach = [
                [one["median"] - one["low"] for one in measured.values()],
                [one["high"] - one["median"] for one in measured.values()],
            ]
            here.errorbar(
                list(measured), medians, reach, color=colour, marker=mark, markersize=6, linewidth=0, elinewidth=1.2
            )
        followed = last["simulated"].get(name)
        if followed is not None:
            _draw(here, followed["fitted_ms"], colour, "dashed")
            _draw(hosts, followed["simulated_ms"], colour, "solid")
    _label(here, hosts, last)
    return figure


def _draw(axes: Axes, by_ranks_ms: dict[str, float], colour: str, style: str) -> None:
    points = sorted((int(ranks), value) for ranks, value in by_ranks_ms.items())
    axes.plot(
        [ranks for ranks, _ in points], [value for _, value in points], color=colour, linestyle=style, linewidth=1.6
    )


def _label(here: Axes, hosts: Axes, last: dict[str, Any]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FuncFormatter, NullLocator

    hops = f"{last['latency']} longer" if last["latency"] else "as here"
    cores = last["machine"]["cores"]
    here.set_title(f"measured: ranks that share {cores} cores", loc="left")
    hosts.set_title(f"simulated: a processor for each rank, hops {hops}", loc="left")
    here.set_ylabel(f"ms of coordination per step of {last['parts']} messages")
    for axes in (here, hosts):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("ranks")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_tick_params(labelleft=True)
        axes.grid(color=_GRID, linewidth=0.6)
        axes.set_axisbelow(True)
    there = [name for name in _LOOKS if name in last["systems"]]
    handles = [
        Line2D([], [], color=_LOOKS[name][0], marker=_LOOKS[name][1], linewidth=1.6, label=_LOOKS[name][2])
        for name in there
    ]
    handles.append(Line2D([], [], color="#555555", linestyle="dashed", linewidth=1.6, label="as fitted"))
    here.figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)


def main(kept: str, picture: str) -> None:
    """Draw the results of the file that the benchmark has kept."""
    results = json.loads(Path(kept).read_text())["results"]
    scale_figure(results).savefig(picture)


if __name__ == "__main__":
    main(*sys.argv[1:])
