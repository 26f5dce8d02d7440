"""`paceline advise`: record a script for some steps, predict every setting, and recommend one."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from paceline.errors import UserError
from paceline.launch import console, horovodrun, outputs, run

if TYPE_CHECKING:
    from paceline.launch.advise.ranking import Advice
    from paceline.launch.advise.script import Outcome, Script
    from paceline.predict.advice import StepModel
    from paceline.record.trace import Trace

STEPS, FEWEST_STEPS = 60, 10
SECONDS = 6
MEASURED_STEPS = 30  # enough for ranks to measure costs, also in a script with short steps
TURNS = 5
LIMIT_S = 300
STANDARD_OUTPUT = Path("-")
EPILOG = (
    "Run it where the training will run: predictions are for these hosts, this network and this batch size. "
    "docs/guides/advise.md explains the table."
)


@click.command("advise", cls=run.HorovodrunCommand, epilog=EPILOG)
@click.option(
    "--steps",
    type=click.IntRange(FEWEST_STEPS),
    default=STEPS,
    show_default=True,
    help="Steps of a run, or more in a script with short steps; the script is ended after them.",
)
@click.option(
    "--seconds",
    "least_s",
    type=click.IntRange(0),
    default=SECONDS,
    show_default=True,
    help="A run makes steps for at least so long.",
)
@click.option("--verify", is_flag=True, help="Measure the best three settings and stock Horovod in turn.")
@click.option(
    "--turns", type=click.IntRange(1), default=TURNS, show_default=True, help="With --verify: runs of each setting."
)
@click.option(
    "--time-limit",
    "limit_s",
    metavar="SECONDS",
    type=click.IntRange(1),
    default=LIMIT_S,
    show_default=True,
    help="End a run after so many seconds, and use the steps that it made.",
)
@click.option(
    "--json", "json_path", metavar="FILE", type=Path, help="Also write everything as JSON; - prints it alone."
)
@click.option("--html", "html_path", metavar="FILE", type=Path, help="Also write a report with pictures.")
@click.option("--trace", "trace_path", metavar="FILE", type=Path, help="Keep the trace, for `paceline plan`.")
def advise_command(
    steps: int,
    least_s: int,
    verify: bool,
    turns: int,
    limit_s: int,
    json_path: Path | None,
    html_path: Path | None,
    trace_path: Path | None,
    horovodrun_arguments: tuple[str, ...],
    command: tuple[str, ...],
) -> int:
    """Find out what to switch on for a script: `paceline advise -np 4 python train.py`.

    Runs the unmodified script for some steps with Horovod's own merging, measures the network between its ranks
    meanwhile, and prints the predicted step of every setting, what it costs, and the variable that switches it on.
    Nothing is recommended that gains less than the model's error. Flags of horovodrun say where the ranks are, as with
    `paceline run`. The exit code is 0, or the script's where it fails.
    """
    from paceline.launch.advise import curves, hints, ranking, report, texts, values
    from paceline.launch.advise.script import Script

    for path, what in ((json_path, "the JSON file"), (html_path, "the report"), (trace_path, "the trace")):
        if path not in (None, STANDARD_OUTPUT):
            outputs.check(path, what)
    _check(horovodrun_arguments, command)
    # All hosts see the current folder if they see the script.
    with _folder() as folder:
        script = Script(horovodrun_arguments, command, Path(folder), least_s, limit_s)
        notes = _set_aside(script.set_aside)
        outcome = script.record(steps)
        if outcome.code:
            console.show_verdict(outcome.verdict)
            return outcome.code
        recorded = _usable(outcome, steps, limit_s)
        if trace_path is not None:
            from paceline.record import trace

            trace.write(recorded, trace_path)
        model = _model(recorded, outcome.steps)
        notes += _notes(model, recorded, hints.stages(model.measured.gradients))
        advice = ranking.Advice(ranking.rows(model.remedies()), model.step_s, model.error, notes=notes)
        found = curves.curves(model, advice.rows)
        if verify:
            advice = _verified(script, advice, steps, turns)
    lines = texts.sentences(advice, shlex.join(["horovodrun", *horovodrun_arguments, *command]))
    if html_path is not None:
        report.write(html_path, report.html(advice, model, recorded, lines, found))
        console.note(f"The report: {html_path}")
    if json_path is not None:
        text = json.dumps(values.as_values(advice, model, command, found))
        if json_path == STANDARD_OUTPUT:
            click.echo(text)
            return 0
        report.write(json_path, text + "\n")
    megabytes = sum(one.bytes for one in model.measured.gradients) / 1e6
    title = f"{len(model.measured.gradients)} gradients, {megabytes:.4g} MB, {model.measured.ranks} ranks"
    console.out().print(texts.table(advice, title))
    for line in lines:
        console.out().print(line, markup=False, soft_wrap=True)
    return 0


def _folder() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="paceline-advise-", dir=Path.cwd())
    except OSError as error:
        raise UserError(
            f"No folder for traces can be made in {Path.cwd()}: {error.strerror}.",
            "Start the command in a folder that you may write to, and that all hosts share.",
        ) from None


def _check(horovodrun_arguments: Sequence[str], command: Sequence[str]) -> None:
    if not command:
        raise UserError(
            "No script was given to advise on.", "Put its command last: `paceline advise -np 2 python train.py`."
        )
    if horovodrun.parsed(horovodrun_arguments, command).num_proc == 1:
        raise UserError("One rank exchanges no gradients: there is nothing to advise.", "Give -np 2 or more.")


def _set_aside(found: Mapping[str, str]) -> list[str]:
    if not found:
        return []
    given = " ".join(f"{name}={text}" for name, text in found.items())
    note = f"Set aside in all runs: {given}. Settings are compared with stock Horovod."
    console.note(note)
    return [note]


def _usable(outcome: Outcome, steps: int, limit_s: int) -> Trace:
    """Return the trace. Raises UserError if the run made too few steps."""
    how = f"was ended after {limit_s} s (--time-limit)" if outcome.timed_out else "ended"
    if outcome.recorded is None:
        raise UserError(
            f"The script {how} and no rank has averaged a gradient through Horovod.",
            "The script must call hvd.init() and average gradients, in a Horovod that Paceline built (see `paceline "
            "horovod check`). Ranks on other hosts need a file system that all hosts share. hvd.Pipeline averages no "
            "gradients: `paceline plan stages` shows its steps.",
        )
    if outcome.steps < FEWEST_STEPS:
        raise UserError(
            f"The script {how} after {outcome.steps} steps; {FEWEST_STEPS} are needed, {STEPS} are better.",
            "Let it train longer, or raise --time-limit.",
        )
    if outcome.steps < steps:
        console.note(f"The script {how} after {outcome.steps} of {steps} steps; the advice is made from these.")
    return outcome.recorded


def _model(recorded: Trace, steps: int) -> StepModel:
    from paceline.predict.advice import model_of

    try:
        model = model_of(recorded)
    except UserError as error:
        if recorded.costs is not None:
            raise
        raise UserError(
            f"The script made {steps} steps, too few to measure what its messages cost. {error.problem}",
            f"Let it train for {MEASURED_STEPS} steps or more.",
        ) from None
    if model is None:
        raise UserError(
            "No recorded step is followed by the next one, so none has a time.",
            "Advise on a script whose every step averages the same gradients.",
        )
    return model


def _notes(model: StepModel, recorded: Trace, hint: str) -> list[str]:
    found = []
    if model.recorded.overlaps:
        found.append(
            "The messages of a step end after the next step has begun: the script itself chooses an exchange. Leave "
            "exchange= out of it; predictions are unreliable."
        )
    if recorded.costs is None:
        found.append("Messages were not measured one by one, because the run was short; predictions are less certain.")
    if recorded.missing:
        found.append(f"Rank {', '.join(map(str, recorded.missing))} wrote no trace.")
    return [*found, hint] if hint else found


def _verified(script: Script, advice: Advice, steps: int, turns: int) -> Advice:
    from paceline.launch.advise import ranking
    from paceline.launch.advise.verify import verify

    chosen = [advice.rows[0], *ranking.to_verify(advice.rows, advice.stock_s)]
    return ranking.with_measured(advice, verify(script, chosen, steps, turns, console.note))
