"""The demo's picture: for each run a bar with the computing part of its step and the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paceline.launch import outputs
from paceline.launch.demo.running import Outcome
from paceline.launch.plan.plot import BACKWARD_COLOUR, EXPOSED_COLOUR

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def picture(outcomes: Sequence[Outcome], place: str) -> Figure:
    """Return a figure with a panel for each framework and a bar for each run, the fastest in bold."""
    frameworks = list(dict.fromkeys(one.framework.name for one in outcomes))
    counts = [sum(one.framework.name == name for one in outcomes) for name in frameworks]
    figure = outputs.figure(figsize=(10, 1.6 + 0.42 * len(outcomes)), layout="constrained")
    panels = figure.subplots(len(frameworks), 1, squeeze=False, height_ratios=counts)[:, 0]
    for axes, name in zip(panels, frameworks, strict=True):
        ours = [one for one in outcomes if one.framework.name == name]
        for row, one in enumerate(ours):
            compute_ms = min(one.compute_ms, one.step_ms)
            axes.barh(row, compute_ms, 0.7, color=BACKWARD_COLOUR)
            axes.barh(row, one.exposed_ms, 0.7, compute_ms, color=EXPOSED_COLOUR)
            axes.text(one.step_ms, row, f" {one.step_ms:.0f} ms", va="center")
        axes.set_yticks(range(len(ours)), [one.system.label for one in ours])
        axes.invert_yaxis()
        axes.margins(x=0.1)
        axes.set_title(f"{name}: {ours[0].framework.data}", loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel(
        "time of a training step in ms: computing (grey), waiting for the network or a late rank (red)"
    )
    figure.suptitle(f"Training steps on {place}", fontweight="bold")
    return figure
