"""`paceline demo`: the same training by stock Horovod, DDP and Paceline over a slow network, side by side."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click

from paceline.errors import UserError
from paceline.extras import how_to_install
from paceline.horovod.load import require
from paceline.launch import console
from paceline.launch.demo.picture import picture
from paceline.launch.demo.place import best_place
from paceline.launch.demo.report import conclusion, faults, show_outcomes
from paceline.launch.demo.running import Outcome, run
from paceline.launch.demo.systems import FRAMEWORKS, Framework, System

TYPICAL_RUN_S = 14.0  # on two cores; for the first estimate of the remaining time


def present() -> list[Framework]:
    """Return the installed frameworks and name the others. Raises UserError without any, or without scikit-learn."""
    if importlib.util.find_spec("sklearn") is None:
        raise UserError(
            "The demo trains on scikit-learn's handwritten digits, and scikit-learn is not installed.",
            f"Run `{how_to_install('demo')}`.",
        )
    found = []
    for framework in FRAMEWORKS:
        missing = [package for package in framework.packages if importlib.util.find_spec(package) is None]
        if missing:
            console.note(f"{framework.name} is left out: {', '.join(missing)} is not installed.")
        else:
            found.append(framework)
    if not found:
        raise UserError(
            f"No framework is installed for {sys.executable}.",
            f"Run `{how_to_install('torch')}` or `{how_to_install('tensorflow')}`, then `paceline horovod install`.",
        )
    return found


@contextmanager
def _progress(runs: int) -> Iterator[Callable[[str, float], None]]:
    """Yield a function of a run's name and its progress; it shows them and the remaining time."""
    output = console.out()
    began, done, last = time.monotonic(), 0, ""

    def left_s(share: float) -> float:
        complete = done + share
        passed_s = time.monotonic() - began
        return (runs - complete) * (passed_s / complete if complete >= 1 else TYPICAL_RUN_S)

    def begins_run(name: str, share: float) -> bool:
        nonlocal done, last
        if name == last:
            return False
        done, last = done + bool(last), name
        return True

    if not output.is_terminal:

        def plain(name: str, share: float) -> None:
            if begins_run(name, share):
                print(f"{done + 1}/{runs} {name}; about {left_s(share):.0f} s left", flush=True)

        yield plain
        return
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.fields[run]}"), BarColumn(), TextColumn("about {task.fields[left]:.0f} s left"))
    with Progress(*columns, console=output, transient=True) as bars:
        task = bars.add_task("", total=runs, run="", left=runs * TYPICAL_RUN_S)

        def show(name: str, share: float) -> None:
            begins_run(name, share)
            bars.update(task, completed=done + share, run=f"{done + 1}/{runs} {name}", left=left_s(share))

        yield show


@click.command("demo")
@click.option(
    "--steps",
    type=click.IntRange(1),
    default=None,
    help="Training steps of each run, in place of 200 or so: with few, plans of merging are not made in time.",
)
@click.option(
    "--only", "only", metavar="FRAMEWORK", type=click.Choice(["pytorch", "keras"]), help="pytorch or keras alone."
)
@click.option(
    "--output", type=Path, default=Path("demo-output"), show_default=True, help="Folder for the picture and logs."
)
def demo_command(steps: int | None, only: str | None, output: Path) -> int:
    """Train on real data over a slow network, with stock Horovod, DDP and Paceline.

    Two ranks train a character-level transformer in PyTorch and a small convolutional net in Keras. They run over a
    loopback of 200 Mbit/s where the kernel lets this user make one, else over the machine's own. Prints the time of a
    step in each run, the part of it that is not computing, and the accuracy on held-out data, and draws them. Exit code
    1 if a run fails, if the accuracies of a framework's runs differ by more than 5 %, or if replicas differ.
    """
    # A mistake in the command line is reported even if nothing is installed.
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"The folder {output} cannot be made: {error.strerror}.", "Name another with --output."
        ) from None
    frameworks = [one for one in present() if only in (None, one.name.lower())]
    for framework in frameworks:
        require(framework.library)
    if steps is not None:
        frameworks = [replace(framework, steps=steps) for framework in frameworks]
    runs: list[tuple[Framework, System]] = [
        (framework, system) for framework in frameworks for system in framework.systems
    ]
    outcomes: list[Outcome] = []
    place = best_place()
    with _progress(len(runs)) as show:
        for framework, system in runs:
            name = f"{framework.name}, {system.label}"
            show(name, 0.0)
            done = run(framework, system, place, framework.steps, output, lambda share, name=name: show(name, share))  # type: ignore[misc]
            outcomes += [done] if done is not None else []
    if outcomes:
        show_outcomes(outcomes, place.description)
        file = output / "steps.png"
        picture(outcomes, place.description).savefig(file)
        console.out().print(f"The same as a picture: {file}", markup=False, highlight=False, soft_wrap=True)
        for line in conclusion(outcomes, place.slow):
            console.out().print(line, markup=False, highlight=False, soft_wrap=True)
    found = faults(outcomes)
    for fault in found:
        console.note(fault)
    return 0 if len(outcomes) == len(runs) and not found else 1
