"""Draw the timing diagrams of the methods: python docs/pictures/draw.py writes an SVG for each beside this file.

One diagram has panels, above each other and on one time axis; a panel has lanes, a lane has blocks. Times are made up,
in units of a block of one layer; they show an order, not a measurement.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot

HERE = Path(__file__).parent
WIDTH_IN = 4.4
LANE_IN = 0.3
TITLE_IN = 0.34
COLOURS = {
    "forward": "#9ecae1",
    "backward": "#4292c6",
    "update": "#08519c",
    "message": "#fdae6b",
    "start": "#e6550d",
    "negotiate": "#756bb1",
    "encode": "#74c476",
    "wait": "#eeeeee",
    "late": "#fb6a4a",
}
ON_DARK = ("backward", "update", "start", "negotiate", "late")
Block = tuple[float, float, str, str]  # begin, length, kind, text


@dataclass
class Panel:
    """A title, lanes by label, and the time at which the step ends (None: no line)."""

    title: str
    lanes: dict[str, list[Block]]
    end: float | None = None
    ticks: list[float] = field(default_factory=list)


def in_a_row(begin: float, *blocks: tuple[float, str, str]) -> list[Block]:
    """Blocks (length, kind, text) one after another."""
    row = []
    for length, kind, text in blocks:
        row.append((begin, length, kind, text))
        begin += length
    return row


def draw(name: str, panels: list[Panel], legend: dict[str, str]) -> None:
    """Write the diagram `name`; `legend`: kind -> words."""
    last = max(begin + length for panel in panels for row in panel.lanes.values() for begin, length, _, _ in row)
    heights = [TITLE_IN + LANE_IN * len(panel.lanes) for panel in panels]
    legend_in = 0.24 * ((len(legend) + 2) // 3) + 0.08
    figure = pyplot.figure(figsize=(WIDTH_IN, sum(heights) + legend_in))
    whole = sum(heights) + legend_in
    top = whole
    for panel, height in zip(panels, heights):
        axes = figure.add_axes((0.2, (top - height) / whole, 0.79, (height - TITLE_IN) / whole))
        figure.text(0.01, (top - 0.1) / whole, panel.title, fontsize=9, fontweight="bold", va="top")
        _lanes(axes, panel, last)
        top -= height
    _legend(figure, legend, legend_in, whole)
    figure.savefig(HERE / f"{name}.svg", metadata={"Date": None, "Creator": None})
    pyplot.close(figure)


def _lanes(axes: pyplot.Axes, panel: Panel, last: float) -> None:
    rows = list(panel.lanes.items())
    for place, (label, row) in enumerate(rows):
        for begin, length, kind, text in row:
            axes.broken_barh(
                [(begin, length)], (place - 0.42, 0.84), facecolors=COLOURS[kind], edgecolors="white", linewidth=0.7
            )
            colour = "white" if kind in ON_DARK else "#222222"
            axes.text(begin + length / 2, place, text, ha="center", va="center", fontsize=7.5, color=colour)
        axes.text(-0.015 * last, place, label, ha="right", va="center", fontsize=8)
    for at in panel.ticks:
        axes.axvline(at, color="#bbbbbb", linewidth=0.8, linestyle=":")
    if panel.end is not None:
        axes.axvline(panel.end, color="#000000", linewidth=1.4)
    axes.set(xlim=(0, last * 1.01), ylim=(len(rows) - 0.5, -0.5))
    axes.axis("off")


def _legend(figure: pyplot.Figure, legend: dict[str, str], legend_in: float, whole: float) -> None:
    for number, (kind, words) in enumerate(legend.items()):
        x = 0.01 + 0.335 * (number % 3)
        y = (legend_in - 0.2 - 0.24 * (number // 3)) / whole
        figure.add_artist(pyplot.Rectangle((x, y), 0.03, 0.13 / whole, color=COLOURS[kind]))
        figure.text(x + 0.04, y + 0.02 / whole, words, fontsize=7.5, va="bottom")


def fusion() -> None:
    """Gradients one by one, merged by plan, and in an armed step."""
    compute = in_a_row(0, (3, "forward", "forward"), *((1, "backward", str(layer)) for layer in (4, 3, 2, 1)))
    kinds = {"negotiate": 0.7, "start": 0.8}

    def messages(groups: list[list[int]], negotiated: int) -> tuple[list[Block], float]:
        row: list[Block] = []
        free = 0.0
        for number, group in enumerate(groups):
            begin = max(free, 8.0 - min(group))
            parts: list[tuple[float, str, str]] = [(kinds["negotiate"], "negotiate", "")] if number < negotiated else []
            parts += [(kinds["start"], "start", ""), (0.7 * len(group), "message", "+".join(map(str, group)))]
            row += in_a_row(begin, *parts)
            free = begin + sum(part[0] for part in parts)
        return row, free

    panels = []
    for title, groups, negotiated in (
        ("one message for each gradient", [[4], [3], [2], [1]], 4),
        ("merged by plan", [[4, 3], [2, 1]], 2),
        ("merged by plan, armed step", [[4, 3], [2, 1]], 1),
    ):
        row, end = messages(groups, negotiated)
        panels.append(Panel(title, {"compute": compute, "network": row}, end))
    legend = {"negotiate": "negotiation", "start": "start-up", "message": "bytes", "backward": "backward, by layer"}
    draw("fusion", panels, legend)


def pipelined() -> None:
    """Synchronous steps, and steps whose gradients travel during the next one."""
    step = ((1, "forward", "F"), (2, "backward", "B"))
    compute: list[Block] = []
    network: list[Block] = []
    for number in range(3):
        begin = number * 6.5
        compute += [*in_a_row(begin, *step), (begin + 6, 0.5, "update", "")]
        network.append((begin + 3, 3, "message", f"g{number + 1}"))
    late: list[Block] = []
    during: list[Block] = []
    for number in range(5):
        begin = number * 3.5
        late += in_a_row(begin, *step, (0.5, "update", ""))
        during.append((begin + 3.25, 3, "message", f"g{number + 1}"))
    during = [(begin, length, kind, text) for begin, length, kind, text in during if begin + length <= 19.5]
    panels = [
        Panel("synchronous: three steps", {"compute": compute, "network": network}, ticks=[6.5, 13.0, 19.5]),
        Panel("pipelined, K = 2: an update uses the gradient before", {"compute": late, "network": during}),
    ]
    draw("pipelined", panels, {"forward": "forward", "backward": "backward", "update": "update", "message": "gradient"})


def partial() -> None:
    """Three ranks, one of them late: all wait, or the round begins without it."""

    def step(begin: float, compute: float, end: float, text: str) -> list[Block]:
        wait: list[Block] = [(begin + compute, end - begin - compute, "wait", "waits")] if end > begin + compute else []
        return [(begin, compute, "backward", text), *wait, (end, 1, "message", "")]

    together = {
        "rank 0": step(0, 3, 6, "step 1") + step(7, 3, 10, "step 2"),
        "rank 1": step(0, 3, 6, "step 1") + step(7, 3, 10, "step 2"),
        "rank 2": [(0, 6, "late", "step 1, late"), (6, 1, "message", ""), *step(7, 3, 10, "step 2")],
    }
    apart = {
        "rank 0": step(0, 3, 3, "step 1") + step(4, 3, 7, "step 2") + step(8, 3, 11, "step 3"),
        "rank 1": step(0, 3, 3, "step 1") + step(4, 3, 7, "step 2") + step(8, 3, 11, "step 3"),
        "rank 2": [
            (0, 6, "late", "step 1, late"),
            (6, 1, "wait", ""),
            (7, 1, "message", ""),
            *step(8, 3, 11, "step 3"),
        ],
    }
    panels = [
        Panel("synchronous: all wait for rank 2", together, 11),
        Panel("majority: rank 2 contributes to the next round", apart, 12),
    ]
    draw("partial", panels, {"backward": "forward, backward", "late": "late", "message": "allreduce"})


def local() -> None:
    """An exchange in every step, and one after H steps."""

    def steps(count: int, lengths: list[float]) -> tuple[list[Block], list[Block], float]:
        compute: list[Block] = []
        network: list[Block] = []
        now = 0.0
        for number in range(count):
            compute.append((now, 2, "backward", str(number + 1)))
            now += 2
            if lengths[number]:
                network.append((now, lengths[number], "message", ""))
                now += lengths[number]
        return compute, network, now

    every, messages, end = steps(4, [1.6] * 4)
    rare, mean, rare_end = steps(4, [0, 0, 0, 1.6])
    panels = [
        Panel("synchronous: gradients in every step", {"compute": every, "network": messages}, end),
        Panel("local, H = 4: weights after four steps", {"compute": rare, "network": mean}, rare_end),
    ]
    draw("local", panels, {"backward": "step on own data", "message": "average of all ranks"})


def split() -> None:
    """All ranks update everything, or each its own share, whose weights travel during the next forward pass."""
    before = {
        "compute": [
            *in_a_row(0, (2, "forward", "F"), (3, "backward", "B")),
            (8, 2, "update", "all"),
            (10, 2, "forward", "F"),
        ],
        "network": [(5, 3, "message", "gradients")],
    }
    after = {
        "compute": [
            *in_a_row(0, (2, "forward", "F"), (3, "backward", "B")),
            *in_a_row(6.5, (1, "update", "own"), (2, "forward", "F")),
        ],
        "network": [(5, 1.5, "message", "grad."), (7.5, 1.5, "message", "weights")],
    }
    panels = [
        Panel("synchronous: each rank updates all parameters", before, 10),
        Panel("split: each rank updates the share it owns", after, 7.5),
    ]
    draw("split", panels, {"forward": "forward", "backward": "backward", "update": "update", "message": "message"})


def collectives() -> None:
    """A broadcast by a tree and by a pipelined chain of four ranks."""
    tree: dict[str, list[Block]] = {
        "0 to 2": [(0, 4, "message", "whole message")],
        "0 to 1": [(4, 4, "message", "whole message")],
        "2 to 3": [(4, 4, "message", "whole message")],
    }
    chain = {f"{rank} to {rank + 1}": in_a_row(rank, *((1, "message", block) for block in "abcd")) for rank in range(3)}
    draw(
        "collectives",
        [
            Panel("binomial tree: log P whole messages", tree, 8),
            Panel("linear pipeline: blocks along a chain", chain, 6),
        ],
        {"message": "link from one rank to another"},
    )


def codecs() -> None:
    """A message of float32 and the same message in 8 bits."""
    plain: dict[str, list[Block]] = {"network": [(0, 12, "message", "4 bytes for each value")]}
    encoded: dict[str, list[Block]] = {
        "network": [(0, 0.8, "encode", ""), (0.8, 3, "message", "1 byte"), (3.8, 0.8, "encode", "")]
    }
    panels = [Panel("none: float32", plain, 12), Panel("q8: 8 bits and a scale for each block", encoded, 4.6)]
    draw("codecs", panels, {"message": "bytes", "encode": "encode, decode"})


def stages() -> None:
    """Three stages and four micro-batches: with a flush in every step (GPipe), and without (PipeMare)."""
    count, micro = 3, 4
    flushed: dict[str, list[Block]] = {f"stage {stage}": [] for stage in range(count)}
    length = 2 * (micro + count - 1)
    for step in range(2):
        for stage in range(count):
            row = flushed[f"stage {stage}"]
            begin = step * (length + 1)
            row += [(begin + stage + n, 1, "forward", str(n + 1)) for n in range(micro)]
            first = begin + micro + count - 1 + (count - 1 - stage)
            row += [(first + n, 1, "backward", str(n + 1)) for n in range(micro)]
            row.append((begin + length, 1, "update", "U"))
    end = 2 * (length + 1)
    draw(
        "stages",
        [
            Panel("GPipe: all stages flush, then update", _cut(flushed, end), ticks=[length + 1]),
            Panel("PipeMare: no flush, late weights", _cut(_asynchronous(count, end), end)),
        ],
        {"forward": "forward", "backward": "backward", "update": "update"},
    )


def _asynchronous(count: int, end: int) -> dict[str, list[Block]]:
    """Stages that take the backward pass of a micro-batch as soon as it is there, otherwise the next forward pass."""
    rows: dict[str, list[Block]] = {f"stage {stage}": [] for stage in range(count)}
    ready_forward = [dict.fromkeys(range(end), 0 if stage == 0 else end) for stage in range(count)]
    ready_backward = [dict.fromkeys(range(end), end) for _ in range(count)]
    next_forward, next_backward = [0] * count, [0] * count
    for now in range(end):
        for stage in range(count):
            batch = next_backward[stage]
            if ready_backward[stage][batch] <= now:
                rows[f"stage {stage}"].append((now, 1, "backward", str(batch % 4 + 1)))
                next_backward[stage] += 1
                if stage:
                    ready_backward[stage - 1][batch] = now + 1
                continue
            batch = next_forward[stage]
            if ready_forward[stage][batch] <= now and batch - next_backward[stage] < 2 * (count - stage) - 1:
                rows[f"stage {stage}"].append((now, 1, "forward", str(batch % 4 + 1)))
                next_forward[stage] += 1
                if stage + 1 < count:
                    ready_forward[stage + 1][batch] = now + 1
                else:
                    ready_backward[stage][batch] = now + 1
    return rows


def _cut(rows: dict[str, list[Block]], end: float) -> dict[str, list[Block]]:
    return {label: [block for block in row if block[0] + block[1] <= end] for label, row in rows.items()}


def main() -> None:
    """Draw all of them, the same bytes each time."""
    pyplot.rcParams.update({"font.family": "sans-serif", "svg.fonttype": "none", "svg.hashsalt": "paceline"})
    for picture in (fusion, pipelined, partial, local, split, collectives, codecs, stages):
        picture()


if __name__ == "__main__":
    main()
