"""`paceline demo`: train on handwritten digits with every installed framework, with Horovod's own merging of gradients
and with the optimal plan, and show where a step's time goes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from paceline.errors import UserError
from paceline.horovod.load import require
from paceline.launch import console, flags
from paceline.launch import ranks as launched
from paceline.launch.record import command as record
from paceline.record import summary as trace_summary

# How a run is called in tables and files -> the policy that the same script is started with.
RUNS = {"stock": "threshold", "optimal": "optimal"}
LEAST_ACCURACY = 0.95
MOST_DIFFERENCE = 0.02  # of the runs' accuracies; with more than two ranks sums differ in their last bits
RECORDED_STEPS = 60  # the last ones: by then a run that plans has measured, planned and switched to its plan
LIMIT_S = 900.0  # for one framework; it takes well under a minute, on a busy machine a few
LAST_LINES = 20  # of a failed script's output

# What rank 0 of both scripts prints.
_LINE = re.compile(
    r"epoch (?P<epoch>\d+)/(?P<epochs>\d+) step (?P<step>\d+)/(?P<steps>\d+) "
    r"loss (?P<loss>\S+) accuracy (?P<accuracy>\S+)"
)


@dataclass(frozen=True)
class Framework:
    """One framework of the demo: the packages it needs, Horovod's library, its script and variables."""

    name: str
    packages: tuple[str, ...]
    library: str
    script: str
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def missing(self) -> list[str]:
        """The packages that are not installed."""
        return [package for package in self.packages if importlib.util.find_spec(package) is None]

    @property
    def path(self) -> Path:
        """Where the script lies in this installation."""
        spec = importlib.util.find_spec(f"paceline.examples.{self.script}")
        assert spec is not None and spec.origin is not None
        return Path(spec.origin)


FRAMEWORKS = (
    Framework("PyTorch", ("torch",), "torch", "digits_torch"),
    Framework("Keras", ("keras", "tensorflow"), "tensorflow", "digits_keras", (("KERAS_BACKEND", "tensorflow"),)),
)


@dataclass(frozen=True)
class Outcome:
    """What one run of a framework's script achieved: medians of its last steps, and how the training ended.

    `state`, `reason` and `trial` are those of merging at the end (docs/fusion.md); Horovod's own has the state "off".
    """

    framework: str
    run: str
    step_ms: float | None
    waiting_share: float | None
    messages: float
    accuracy: float
    equal: bool
    state: str
    reason: str
    trial: str = ""

    @property
    def verdict(self) -> str:
        """What became of the plan, in a sentence; empty for Horovod's own merging."""
        found = self.trial or self.reason
        return f"{self.framework}, {self.run}: {found.rstrip('.')}." if found else ""

    def faults(self) -> list[str]:
        """What is wrong with it, in sentences."""
        found = []
        if self.accuracy <= LEAST_ACCURACY:
            found.append(f"accuracy {self.accuracy:.2%} does not exceed {LEAST_ACCURACY:.0%}.")
        if not self.equal:
            found.append("the replicas on the ranks are not equal.")
        if RUNS[self.run] != "threshold" and self.state not in ("active", "stock"):
            why = f" ({self.reason})" if self.reason else ""
            found.append(f"merging is {self.state}{why}, expected a plan: with more --epochs it has longer to plan.")
        return [f"{self.framework}, {self.run}: {fault}" for fault in found]


def disagreement(outcomes: Sequence[Outcome]) -> list[str]:
    """A sentence for each framework whose runs differ in accuracy by more than chance explains."""
    accuracies: dict[str, list[float]] = {}
    for one in outcomes:
        accuracies.setdefault(one.framework, []).append(one.accuracy)
    return [
        f"{framework}: the accuracies of its runs differ by {max(those) - min(those):.2%},"
        f" expected at most {MOST_DIFFERENCE:.0%}."
        for framework, those in accuracies.items()
        if max(those) - min(those) > MOST_DIFFERENCE
    ]


def present() -> list[Framework]:
    """The installed frameworks; says which are left out. Raises UserError if none or scikit-learn is installed."""
    if importlib.util.find_spec("sklearn") is None:
        raise UserError(
            "The demo trains on scikit-learn's handwritten digits, and scikit-learn is not installed.",
            "Run `pip install 'paceline[demo]'`.",
        )
    found = []
    for framework in FRAMEWORKS:
        if framework.missing:
            console.note(f"{framework.name} is left out: {', '.join(framework.missing)} is not installed.")
        else:
            found.append(framework)
    if not found:
        raise UserError(
            f"No framework is installed for {sys.executable}.",
            "Run `pip install 'paceline[torch]'` or `'paceline[tensorflow]'`, then `paceline horovod install`.",
        )
    return found


def _environment(framework: Framework, run: str, ranks: int) -> dict[str, str]:
    threads = str(max(1, (os.cpu_count() or 1) // ranks))
    ours = {"OMP_NUM_THREADS": threads, "TF_NUM_INTRAOP_THREADS": threads, "TF_CPP_MIN_LOG_LEVEL": "2"}
    options = {"fusion": RUNS[run], "record_steps": str(RECORDED_STEPS)}
    return {**ours, **os.environ, **dict(framework.environment), **flags.environment(options)}


@contextmanager
def _progress(name: str) -> Iterator[Callable[[re.Match[str]], None]]:
    """A bar that lives on the terminal; a line per epoch where there is none."""
    output = console.out()
    if not output.is_terminal:

        def plain(match: re.Match[str]) -> None:
            if match["step"] == match["steps"]:
                print(f"{name}: {match[0]}", flush=True)

        yield plain
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"), TimeElapsedColumn())
    with Progress(*columns, console=output) as bars:
        task = bars.add_task(name, total=None, state="starting the ranks")

        def show(match: re.Match[str]) -> None:
            epoch, epochs, step, steps = (int(match[part]) for part in ("epoch", "epochs", "step", "steps"))
            state = f"epoch {epoch}/{epochs}  step {step}/{steps}  loss {match['loss']}  accuracy {match['accuracy']}"
            bars.update(task, total=epochs * steps, completed=(epoch - 1) * steps + step, state=state)

        yield show


def train(framework: Framework, run: str, ranks: int, epochs: int, folder: Path) -> Outcome | None:
    """Train with `framework` and draw one step into `folder`; None, and the script's last words shown, if it failed."""
    name = f"{framework.name}, {run}"
    files = folder / f"{framework.script}-{run}"
    result, log = files.with_suffix(".json"), files.with_suffix(".log")
    result.unlink(missing_ok=True)
    lines: list[str] = []
    with _progress(name) as show:

        def on_line(line: str) -> None:
            lines.append(line)
            if match := _LINE.fullmatch(launched.unmarked(line)):
                show(match)

        try:
            code, merged = record.run_traced(
                [sys.executable, str(framework.path), "--epochs", str(epochs), "--result", str(result)],
                ranks,
                files.with_suffix(".trace.json"),
                _environment(framework, run, ranks),
                on_line=on_line,
                limit_s=LIMIT_S,
            )
        finally:
            log.write_text("\n".join(lines) + "\n")
    if merged is None or not result.exists():
        said = launched.last_words(lines, LAST_LINES)
        console.err().print("\n".join(said), markup=False, soft_wrap=True)
        console.err().print(f"{name} failed with exit code {code}; all of its output is in {log}.", style="bold red")
        return None
    record.plot(merged, files.with_suffix(".png"))
    summary = trace_summary.summarise(merged.ranks)
    values: dict[str, Any] = json.loads(result.read_text())
    return Outcome(
        framework=values["framework"],
        run=run,
        step_ms=summary.step_ms,
        waiting_share=summary.waiting_share,
        messages=summary.messages_per_step,
        accuracy=values["accuracy"],
        equal=values["equal"],
        state=values["fusion"]["state"],
        reason=values["fusion"]["reason"],
        trial=values["fusion"]["trial"],
    )


def show_outcomes(outcomes: list[Outcome], ranks: int) -> None:
    """The closing table."""
    from rich.table import Table

    table = Table(title=f"Handwritten digits, {ranks} ranks", title_justify="left")
    table.add_column("framework")
    table.add_column("merging")
    for column in ("step time", "waiting for\ncommunication", "messages\nper step", "test accuracy", "replicas equal"):
        table.add_column(column, justify="right")
    for one in outcomes:
        table.add_row(
            one.framework,
            one.run,
            "-" if one.step_ms is None else f"{one.step_ms:.2f} ms",
            "-" if one.waiting_share is None else f"{one.waiting_share:.1%}",
            f"{one.messages:g}",
            f"{one.accuracy:.2%}",
            "yes" if one.equal else "no",
        )
    console.out().print(table)


@click.command("demo")
@click.option("--np", "ranks", type=click.IntRange(1), default=2, show_default=True, help="Number of ranks.")
@click.option("--epochs", type=click.IntRange(1), default=10, show_default=True, help="Passes over all images.")
@click.option(
    "--output", type=Path, default=Path("demo-output"), show_default=True, help="Folder for pictures, traces and logs."
)
def demo_command(ranks: int, epochs: int, output: Path) -> int:
    """Train a small network on handwritten digits with PyTorch and with Keras.

    Each script runs twice: with Horovod's own merging of gradients, and with PACELINE_FUSION=optimal. Shows progress,
    then for each run the step time, the share of it spent waiting for communication, the messages of a step, the test
    accuracy and whether all replicas are equal, and draws one step's timeline. The figures are medians of the last
    steps. Exit code 1 if a run fails, if an accuracy does not exceed 95 %, if the runs' accuracies or the replicas
    differ, or if merging came to no plan.
    """
    # A mistake in the command line is said also where nothing is installed.
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"The folder {output} cannot be made: {error.strerror}.", "Name another with --output."
        ) from None
    frameworks = present()
    for framework in frameworks:
        require(framework.library)
    outcomes = [train(framework, run, ranks, epochs, output) for framework in frameworks for run in RUNS]
    done = [outcome for outcome in outcomes if outcome is not None]
    if done:
        show_outcomes(done, ranks)
        for outcome in done:
            if outcome.verdict:
                console.out().print(outcome.verdict, markup=False, highlight=False, soft_wrap=True)
    faults = [fault for outcome in done for fault in outcome.faults()] + disagreement(done)
    for fault in faults:
        console.note(fault)
    return 0 if len(done) == len(outcomes) and not faults else 1
