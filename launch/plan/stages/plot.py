"""Picture of a schedule: a lane for each stage, a bar for each pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline.launch import outputs
from paceline.stages.instructions import Kind
from paceline.stages.simulate import Simulation, Timed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours of mini-batches, in turn: forward, backward.
COLOURS = (("#b9d0e8", "#2f6ca3"), ("#f6d3ae", "#c46a12"), ("#c5e0c0", "#47843f"), ("#dccbe9", "#7d55a0"))
UPDATE_COLOUR = "#b0352b"
LANE = 0.84  # height of a lane; lanes are 1 apart
NUMBERED = 72  # with more ticks micro-batches have no numbers
INCHES_PER_TICK = 0.32
LEAST_INCHES, MOST_INCHES = 9.0, 24.0


def schedule_figure(shown: Simulation) -> Figure:
    """Return a figure with stages from top to bottom and ticks from left to right.

    Colours are mini-batches, numbers micro-batches. A red line ends the pass after which weights are updated.
    """
    stages = shown.schedule.stages
    width = min(max(LEAST_INCHES, INCHES_PER_TICK * shown.end_s), MOST_INCHES)
    figure = outputs.figure(figsize=(width, 1.7 + 0.5 * stages), layout="constrained")
    axes = figure.add_subplot()
    for stage, timed in enumerate(shown.stages):
        for one in timed:
            _draw(axes, shown, one, float(stages - 1 - stage))
    _label(axes, shown)
    return figure


def _draw(axes: Axes, shown: Simulation, one: Timed, base: float) -> None:
    instruction = one.instruction
    if instruction.kind is Kind.UPDATE:
        axes.vlines(one.start_s, base - LANE / 2, base + LANE / 2, color=UPDATE_COLOUR, linewidth=2.6, zorder=4)
        return
    forward = instruction.kind is Kind.FORWARD
    colour = COLOURS[instruction.minibatch % len(COLOURS)][0 if forward else 1]
    length = one.end_s - one.start_s
    axes.barh(base, length, LANE, one.start_s, color=colour, edgecolor="white", linewidth=0.8, zorder=2)
    if shown.end_s <= NUMBERED:
        number = instruction.minibatch * shown.schedule.microbatches + instruction.microbatch
        middle = one.start_s + length / 2
        ink = "black" if forward else "white"
        axes.text(middle, base, str(number), ha="center", va="center", fontsize=8, color=ink, zorder=3)


def _label(axes: Axes, shown: Simulation) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    schedule = shown.schedule
    axes.set_yticks([float(schedule.stages - 1 - stage) for stage in range(schedule.stages)])
    axes.set_yticklabels([f"stage {stage}" for stage in range(schedule.stages)])
    axes.set_ylim(-0.6, schedule.stages - 0.4)
    axes.set_xlim(0, shown.end_s)
    axes.set_xlabel("ticks")
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    share = sum(shown.utilisation()) / schedule.stages
    steps = "1 mini-batch" if shown.steps == 1 else f"{shown.steps} mini-batches"
    size = f"{schedule.stages} stages, {steps} of {schedule.microbatches} micro-batches"
    axes.set_title(f"{schedule.name}, {size}: {share:.0%} busy", loc="left")
    light, dark = COLOURS[0]
    handles: list[Line2D | Patch] = [
        Patch(color=light, label="forward"),
        Patch(color=dark, label="backward"),
        Line2D([], [], color=UPDATE_COLOUR, marker="|", markersize=9, markeredgewidth=2.6, linewidth=0, label="update"),
    ]
    axes.figure.legend(handles=handles, loc="outside lower right", ncols=len(handles), frameon=False, fontsize=9)
