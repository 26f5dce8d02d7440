"""Picture of a plan: the backward pass above, and below it the messages of each policy over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from paceline.fusion.parts import parts_of
from paceline.launch import outputs
from paceline.launch.record.plot import (
    ARRIVAL_COLOUR,
    FLAT_SHARE,
    KIND_COLOURS,
    LANE,
    LEAST_TICK,
    NEXT_COLOUR,
    UPRIGHT_SHARE,
    size_text,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from paceline.fusion.gradient import Gradient
    from paceline.fusion.planning import Plan

BACKWARD_COLOUR = "#c9d6e4"
MESSAGE_COLOUR = KIND_COLOURS["allreduce"]
EXPOSED_COLOUR = "#b0352b"
BEST = " (best)"
EDGED_SHARE = 0.004  # of the axis
MOST_MEDIANS = 2  # a policy slower than this multiple of the median is cut off, so that the others stay visible


def plan_figure(gradients: Sequence[Gradient], plans: Mapping[str, Plan]) -> Figure:
    """Return a figure with lanes from top to bottom: the backward pass, then one lane per policy.

    The backward pass has a tick where each gradient is ready on all ranks. A policy has a bar for each message with its
    bytes; messages after the backward pass are exposed. A lane far longer than the others ends in an arrow.
    """
    figure = outputs.figure(figsize=(13, 1.9 + 0.8 * (len(plans) + 1)), layout="constrained")
    axes = figure.add_subplot()
    last_ms = 1e3 * max(gradient.ready_s for gradient in gradients)
    finishes_ms = [1e3 * plan.predicted[name].finish_s for name, plan in plans.items()]
    end_ms = max(last_ms, min(max(finishes_ms), MOST_MEDIANS * median(finishes_ms)))
    axes.axvline(last_ms, color=NEXT_COLOUR, linewidth=1.2, linestyle="dashed", zorder=1)
    top = float(len(plans))
    axes.barh(top, last_ms, LANE, 0, color=BACKWARD_COLOUR, zorder=2)
    tick = max(LANE / len(gradients), LEAST_TICK)
    rise = (LANE - tick) / max(len(gradients) - 1, 1)
    for place, ready_s in enumerate(sorted(gradient.ready_s for gradient in gradients)):
        low = top - LANE / 2 + place * rise
        axes.vlines(1e3 * ready_s, low, low + tick, color=ARRIVAL_COLOUR, linewidth=1.8)
    for row, (name, plan) in enumerate(plans.items()):
        _draw(axes, gradients, name, plan, top - 1 - row, last_ms, end_ms)
    _label(axes, gradients, plans, last_ms, end_ms)
    return figure


def _draw(
    axes: Axes, gradients: Sequence[Gradient], name: str, plan: Plan, base: float, last_ms: float, end_ms: float
) -> None:
    labelled_ms = free_ms = -end_ms
    for group, parts, start_s, end_s in zip(
        plan.groups, parts_of(plan.groups), plan.starts_s, plan.ends_s, strict=True
    ):
        # Messages in flight together get bars one after the other, not on top of each other.
        start_ms, stop_ms = max(1e3 * start_s, free_ms), 1e3 * end_s
        free_ms = stop_ms
        for left, right, colour in (
            (start_ms, min(stop_ms, last_ms), MESSAGE_COLOUR),
            (max(start_ms, last_ms), stop_ms, EXPOSED_COLOUR),
        ):
            if right > left:
                # A bar thinner than its edges would be invisible.
                edge = 0.4 if right - left > EDGED_SHARE * end_ms else 0.0
                axes.barh(base, right - left, LANE, left, color=colour, edgecolor="white", linewidth=edge, zorder=2)
        middle_ms = (start_ms + stop_ms) / 2
        if stop_ms > end_ms * (1 + 1e-9):
            axes.plot([end_ms], [base], marker=">", markersize=9, color="black", clip_on=False, zorder=4)
            break
        if stop_ms - start_ms < UPRIGHT_SHARE * end_ms or middle_ms - labelled_ms < UPRIGHT_SHARE * end_ms:
            continue
        labelled_ms = middle_ms
        turn = 0 if stop_ms - start_ms > FLAT_SHARE * end_ms else 90
        text = size_text(sum(gradients[index].bytes for index in group) // parts)
        ink = "black" if middle_ms < last_ms else "white"
        axes.text(middle_ms, base, text, ha="center", va="center", rotation=turn, fontsize=7, color=ink, zorder=3)
    predicted = plan.predicted[name]
    plural = "" if predicted.messages == 1 else "s"
    label = f"{1e3 * predicted.finish_s:.4g} ms, {1e3 * predicted.exposed_s:.3g} exposed\n"
    label += f"{predicted.messages} message{plural}"
    axes.annotate(
        label,
        (1.01, base),
        xycoords=("axes fraction", "data"),
        ha="left",
        va="center",
        fontsize=8,
        annotation_clip=False,
    )


def _label(axes: Axes, gradients: Sequence[Gradient], plans: Mapping[str, Plan], last_ms: float, end_ms: float) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    finishes_s = {name: plan.predicted[name].finish_s for name, plan in plans.items()}
    best_s = min(finishes_s.values())
    names = [name + (BEST if finish_s <= best_s * (1 + 1e-9) else "") for name, finish_s in finishes_s.items()]
    rows = len(plans)
    axes.set_yticks([float(rows), *(float(rows - 1 - row) for row in range(rows))], ["backward pass", *names])
    axes.set_ylim(-0.6, rows + 0.6)
    axes.set_xlim(-0.01 * end_ms, 1.01 * end_ms or 1.0)
    axes.set_xlabel("ms since the first gradient of the step")
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    size = size_text(sum(gradient.bytes for gradient in gradients))
    axes.set_title(f"{len(gradients)} gradients, {size}, ready after {last_ms:.4g} ms: predicted messages", loc="left")
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=ARRIVAL_COLOUR, marker="|", linewidth=0, label="gradient ready on all ranks"),
        Line2D([], [], color=NEXT_COLOUR, linewidth=1.2, linestyle="dashed", label="backward pass ends"),
        Patch(color=MESSAGE_COLOUR, label="message, hidden behind the backward pass"),
        Patch(color=EXPOSED_COLOUR, label="exposed"),
    ]
    axes.figure.legend(handles=handles, loc="outside upper right", ncols=len(handles), frameon=False, fontsize=9)
