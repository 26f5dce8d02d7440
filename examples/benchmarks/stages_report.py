"""Report of stages_torch.py: a table, and loss curves over steps and over time.

    python -m examples.benchmarks stages systems=gpipe,1f1b,pipemare microbatches=1,4 --json > times.txt
    python examples/benchmarks/stages_report.py losses.txt --times times.txt --plot late_gradients.png

Ranks that share a few processors do not show the time of stages on separate devices. The report therefore combines two
measurements: losses by step, and the share of time in which sleeping stages of each schedule are busy. The unit of time
is one stage's time for both passes of a mini-batch: a step of a schedule whose stages are busy half of the time takes
two units. Without --times the shares are the schedules' with free transfers.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.launch import outputs, runs
from paceline.stages.costs import costs
from paceline.stages.schedules import make

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GPIPE, WARM_UP = "gpipe", "1f1b"
SMOOTHED = 20  # mini-batches averaged into a point of a curve, on each side
# Labels and colours of the settings of stages_torch.py.
LABELS = {
    "gpipe": ("GPipe", "black"),
    "gpipe_short": ("GPipe, fewer steps", "#888888"),
    "t1t2t3": ("PipeMare, T1+T2+T3", "#c23b22"),
    "t2t3": ("PipeMare, T2+T3", "#e8963a"),
    "pipemare": ("PipeMare, no correction", "#2f6ca3"),
    "nesterov": ("PipeMare, Nesterov 0.9", "#47843f"),
    "nesterov_less": ("PipeMare, Nesterov 0.5", "#9ccf94"),
    "bounded": ("PipeMare, an update every 2P-1", "#7d55a0"),
    "bounded_ours": ("PipeMare, an update every P-1", "#b58ed0"),
    "pipemare_cut": ("PipeMare, N=4, no correction", "#59a9d1"),
}

# Share of time in which stages work, by schedule and number of micro-batches.
Work = dict[tuple[str, int], float]


@dataclass(frozen=True)
class Found:
    """All runs of one setting."""

    name: str
    runs: Sequence[dict[str, Any]]

    @property
    def losses(self) -> list[float]:
        """Losses on held-out text, one for each seed."""
        return [one["loss"] for one in self.runs]

    def curve(self) -> list[float]:
        """Training loss of each step, averaged over seeds and neighbouring steps."""
        means = [statistics.mean(values) for values in zip(*(one["losses"] for one in self.runs), strict=True)]
        return [statistics.mean(means[max(0, step - SMOOTHED) : step + SMOOTHED + 1]) for step in range(len(means))]

    def ends(self, work: Work, microbatches: int | None = None) -> list[float]:
        """End time of each step. `microbatches`: cut of a batch to assume, which changes no synchronous run."""
        run = self.runs[0]
        cut = microbatches or run["microbatches"]
        warm_up = run["options"].get("warmup_steps", 0)
        return list(
            accumulate(
                1 / share_of(work, WARM_UP if step < warm_up else run["schedule"], run["stages"], cut)
                for step in range(run["steps"])
            )
        )


def share_of(work: Work, schedule: str, stages: int, microbatches: int) -> float:
    """Measured share of time in which stages work; the schedule's own if not measured."""
    return work.get((schedule, microbatches)) or costs(make(schedule, stages, microbatches)).utilisation


def read_losses(paths: Sequence[Path]) -> list[Found]:
    """Results by setting, in the order of LABELS."""
    lines = [line for path in paths for line in path.read_text().splitlines()]
    results = [one for one in map(runs.result_in, lines) if one is not None]
    return [Found(name, found) for name in LABELS if (found := [one for one in results if one["setting"] == name])]


def read_work(path: Path | None) -> Work:
    """Read shares from the output of `python -m examples.benchmarks stages --json`."""
    if path is None:
        return {}
    cases = [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]
    return {
        (schedule, case["microbatches"]): found["bound_share"]["median"]
        for case in cases
        for schedule, found in case["systems"].items()
    }


def rows_of(everything: Sequence[Found], work: Work, cuts: Sequence[int]) -> list[list[str]]:
    """Rows of the table. GPipe has a row for each number of micro-batches, which changes only its time.

    Losses are compared with GPipe's for the same seeds.
    """
    rows = [
        ["setting", "seeds", "steps", "held-out loss", "over GPipe", "time", "GPipe's training loss then", "its own"]
    ]
    gpipe = next((one for one in everything if one.name == GPIPE), None)
    of_seed = {} if gpipe is None else {run["seed"]: run["loss"] for run in gpipe.runs}
    for found in everything:
        both = [run for run in found.runs if run["seed"] in of_seed]
        over = sum(run["loss"] for run in both) / sum(of_seed[run["seed"]] for run in both) - 1 if both else None
        mean = statistics.mean(found.losses)
        for cut in cuts if found.runs[0]["schedule"] == GPIPE else [found.runs[0]["microbatches"]]:
            end = found.ends(work, cut)[-1]
            then = "" if gpipe is None or found.name.startswith(GPIPE) else _loss_at(gpipe, work, cuts, end)
            rows.append(
                [
                    _label(found, cut if len(cuts) > 1 else None),
                    ", ".join(str(run["seed"]) for run in found.runs),
                    str(found.runs[0]["steps"]),
                    f"{mean:.3f} ± {runs.spread(found.losses):.3f}",
                    "" if over is None or found is gpipe else f"{over:+.1%}",
                    f"{end:.0f}",
                    then,
                    f"{found.curve()[-1]:.3f}",
                ]
            )
    return rows


def _label(found: Found, cut: int | None) -> str:
    """Label of a setting, with the number of micro-batches where that changes only the time."""
    label = LABELS[found.name][0]
    return f"{label}, N={cut}" if cut and found.runs[0]["schedule"] == GPIPE else label


def _loss_at(gpipe: Found, work: Work, cuts: Sequence[int], end: float) -> str:
    """GPipe's training loss at a time, for each number of micro-batches."""
    curve = gpipe.curve()
    said = []
    for cut in cuts:
        done = sum(one <= end for one in gpipe.ends(work, cut))
        said.append(f"{curve[max(0, done - 1)]:.3f}")
    return ", ".join(said)


def plot(everything: Sequence[Found], work: Work, cuts: Sequence[int], path: Path) -> None:
    """Plot curves over steps on the left, over time on the right."""
    figure = outputs.figure(figsize=(13.0, 5.0), layout="constrained")
    by_step, by_time = figure.subplots(1, 2, sharey=True)
    for found in everything:
        label, colour = LABELS[found.name]
        curve = found.curve()
        if found.name != "gpipe_short":
            by_step.plot(range(1, len(curve) + 1), curve, color=colour, label=label, linewidth=1.3)
        if found.runs[0]["schedule"] == GPIPE:
            for cut, style in zip(cuts, ("-", "--", ":"), strict=False):
                by_time.plot(found.ends(work, cut), curve, style, color=colour, label=_label(found, cut), linewidth=1.3)
        else:
            by_time.plot(found.ends(work), curve, color=colour, label=label, linewidth=1.3)
    _finish(by_step, "mini-batches")
    _finish(by_time, "time, in what one stage takes for the passes of a mini-batch")
    lowest = min(min(found.curve()) for found in everything)
    by_step.set_ylim(lowest - 0.05, lowest + 1.2)
    by_step.set_ylabel("training loss, mean over seeds")
    figure.savefig(path, dpi=110)


def _finish(axes: Axes, what: str) -> None:
    axes.set_xlabel(what)
    axes.set_xlim(left=0)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.legend(frameon=False, fontsize=8)


def main() -> None:
    """Read results, print the table, draw the plot."""
    parser = argparse.ArgumentParser(description="Draw what stages_torch.py found.")
    parser.add_argument("losses", nargs="+", type=Path, help="what stages_torch.py printed")
    parser.add_argument("--times", type=Path, help="what `python -m examples.benchmarks stages --json` printed")
    parser.add_argument("--gpipe-microbatches", default="1,4", help="to show GPipe's time for (default: %(default)s)")
    parser.add_argument("--plot", type=Path, help="a PNG file")
    chosen = parser.parse_args()

    everything, work = read_losses(chosen.losses), read_work(chosen.times)
    cuts = [int(one) for one in chosen.gpipe_microbatches.split(",")]
    head, *rows = rows_of(everything, work, cuts)
    for row in (head, ["---"] + ["---:"] * (len(head) - 1), *rows):
        print(f"| {' | '.join(row)} |")
    if chosen.plot:
        plot(everything, work, cuts, chosen.plot)


if __name__ == "__main__":
    main()
