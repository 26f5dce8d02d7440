"""Picture of one step: submission of tensors on each rank, and messages over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.errors import UserError
from paceline.launch import outputs
from paceline.record.alignment import shifts_s
from paceline.record.timed import median_step, timed_steps
from paceline.record.trace import RankTrace, Step, Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ARRIVAL_COLOUR = "#1f4e79"
WAITING_COLOUR = "#f4d9c6"
KIND_COLOURS = {"allreduce": "#d9822b", "broadcast": "#5b8c5a", "allgather": "#8e6bbf"}
NEXT_COLOUR = "#555555"
OTHER_COLOUR = "#888888"
LANE = 0.8  # height of a lane; lanes are 1 apart
LEAST_TICK = 0.06  # height of an arrival's tick, even if there are many
FLAT_SHARE = 0.04  # a bar narrower than this share of the axis gets an upright label
UPRIGHT_SHARE = 0.013  # minimal room for an upright label


def step_figure(trace: Trace, index: int | None = None) -> Figure:
    """One step of every rank, by default the step of median time.

    Two lanes per rank: a tick for every arrival, ordered upwards, and a bar for every collective with its bytes. Zero
    is the first arrival of the earliest rank. Ranks have no common clock, so they are aligned on the ends of their
    collectives, which all ranks see at nearly the same moment. Raises UserError if the trace has no such step.
    """
    index = median_step(trace) if index is None else index
    shown = [(one, step) for one in trace.ranks for step in one.steps if step.index == index]
    if not shown:
        what = "no step" if index is None else f"no step {index}"
        raise UserError(
            f"The trace has {what} to draw.",
            "A step begins when a tensor name repeats: record a script of several steps.",
        )
    origins_s = _origins([step for _, step in shown])
    figure = outputs.figure(figsize=(12, 1.6 + 1.5 * len(shown)), layout="constrained")
    axes = figure.add_subplot()
    end_ms = max(_end_ms(one, step, origin) for (one, step), origin in zip(shown, origins_s, strict=True))
    for row, ((one, step), origin_s) in enumerate(zip(shown, origins_s, strict=True)):
        _draw_rank(axes, one, step, origin_s, 2.0 * (len(shown) - 1 - row), end_ms)
    _label(axes, trace, shown, end_ms, index)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write the picture in the format of the file's suffix. Raises UserError if that fails."""
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(
            f"The picture {path} cannot be written: {reason}.", "Name a .png, .pdf or .svg file in an existing folder."
        ) from None


def _origins(steps: Sequence[Step]) -> list[float]:
    """For each rank's step, the time on that rank's clock that is zero in the picture."""
    offsets_s = shifts_s([[step] for step in steps])
    earliest_s = min(step.start_s - offset_s for step, offset_s in zip(steps, offsets_s, strict=True))
    return [earliest_s + offset_s for offset_s in offsets_s]


def _next_ms(one: RankTrace, step: Step, origin_s: float) -> float | None:
    """Time at which the rank's next step begins; None if it was not recorded."""
    length_ms = next((timed.time_ms for timed in timed_steps(one) if timed.step is step), None)
    return None if length_ms is None else 1e3 * (step.start_s - origin_s) + length_ms


def _end_ms(one: RankTrace, step: Step, origin_s: float) -> float:
    times_s = [arrival.time_s for arrival in step.arrivals] + [each.end_s for each in step.collectives]
    end_ms = 1e3 * (max(times_s, default=step.start_s) - origin_s)
    return max(end_ms, _next_ms(one, step, origin_s) or end_ms)


def _draw_rank(axes: Axes, one: RankTrace, step: Step, origin_s: float, base: float, end_ms: float) -> None:
    """Draw both lanes of one rank: collectives at `base`, arrivals above them, and the wait behind both."""
    arrivals_ms = sorted(1e3 * (arrival.time_s - origin_s) for arrival in step.arrivals)
    last_ms = arrivals_ms[-1] if arrivals_ms else 1e3 * (step.start_s - origin_s)
    waiting_ms = next((timed.waiting_ms for timed in timed_steps(one) if timed.step is step), 0.0)
    if waiting_ms:
        ends = [last_ms, last_ms + waiting_ms]
        axes.fill_between(ends, base - 0.5, base + 1.5, color=WAITING_COLOUR, linewidth=0, zorder=0)
    next_ms = _next_ms(one, step, origin_s)
    if next_ms is not None:
        axes.vlines(next_ms, base - 0.5, base + 1.5, color=NEXT_COLOUR, linewidth=1.2, linestyles="dashed")
    height = LANE / max(len(arrivals_ms), 1)
    for place, time_ms in enumerate(arrivals_ms):
        low = base + 1 - LANE / 2 + place * height
        axes.vlines(time_ms, low, low + max(height, LEAST_TICK), color=ARRIVAL_COLOUR, linewidth=1.8)
    labelled_ms = -end_ms
    for collective in sorted(step.collectives, key=lambda one: one.start_s):
        start_ms = 1e3 * (collective.start_s - origin_s)
        width_ms = 1e3 * (collective.end_s - collective.start_s)
        colour = KIND_COLOURS.get(collective.kind, OTHER_COLOUR)
        axes.barh(base, width_ms, LANE, start_ms, color=colour, edgecolor="white", linewidth=0.4)
        middle_ms = start_ms + width_ms / 2
        if middle_ms - labelled_ms < UPRIGHT_SHARE * end_ms:
            continue
        labelled_ms = middle_ms
        turn = 0 if width_ms > FLAT_SHARE * end_ms else 90
        text = size_text(collective.size_bytes)
        axes.text(middle_ms, base, text, ha="center", va="center", rotation=turn, fontsize=8)


def _label(axes: Axes, trace: Trace, shown: Sequence[tuple[RankTrace, Step]], end_ms: float, index: int | None) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    rows = len(shown)
    places, names = [], []
    for row, (one, _) in enumerate(shown):
        base = 2.0 * (rows - 1 - row)
        places += [base + 1, base]
        names += [f"rank {one.rank}: arrivals", "collectives"]
        if row:
            axes.axhline(base + 1.5, color="#bbbbbb", linewidth=0.8)
    axes.set_yticks(places, names)
    axes.set_ylim(-0.5, 2 * rows - 0.5)
    axes.set_xlim(-0.01 * end_ms, 1.02 * end_ms or 1.0)
    axes.set_xlabel("ms since the first arrival of the step")
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    first, step = shown[0]
    times_ms = [timed.time_ms for timed in timed_steps(first) if timed.step is step]
    length = f", {times_ms[0]:.2f} ms on rank {first.rank}" if times_ms else ""
    axes.set_title(f"Step {index} of {first.library}, {trace.size} ranks{length}", loc="left")
    kinds = dict.fromkeys(one.kind for _, step in shown for one in step.collectives)
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=ARRIVAL_COLOUR, marker="|", linewidth=0, label="tensor handed in")
    ]
    handles += [Patch(color=KIND_COLOURS.get(kind, OTHER_COLOUR), label=kind) for kind in kinds]
    handles.append(Line2D([], [], color=NEXT_COLOUR, linewidth=1.2, linestyle="dashed", label="next step begins"))
    handles.append(Patch(color=WAITING_COLOUR, label="waiting for communication"))
    axes.figure.legend(handles=handles, loc="outside upper right", ncols=len(handles), frameon=False, fontsize=9)


def size_text(size_bytes: int) -> str:
    """A size for people: 512 B, 4.8 kB, 1.2 MB."""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    return f"{size_bytes / 1e3:.3g} kB" if size_bytes < 1e6 else f"{size_bytes / 1e6:.3g} MB"
