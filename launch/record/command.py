"""`paceline record`: run an unmodified script under horovodrun and record the times of its tensors and messages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from paceline import config, variables
from paceline.errors import UserError
from paceline.launch import console, flags, horovodrun, interrupts, outputs, run
from paceline.launch.environment import announce, environment
from paceline.record import flight_recorder, trace
from paceline.record import summary as trace_summary

if TYPE_CHECKING:
    from rich.table import Table


# Variable with the file of Horovod's timeline.
TIMELINE = "HOROVOD_TIMELINE"


def prepare(path: Path) -> Path:
    """Return the absolute form of `path`, after removing files of earlier runs. Raises UserError if it is not writable.

    An earlier trace is renamed until there is a new one, so that no plan is made from it after a run that left none.
    """
    path = path.absolute()
    outputs.check(path, "the trace")
    if path.exists():
        path.replace(_set_aside(path))
    for part in trace.parts(path):
        part.unlink()
    flight_recorder.remove(path)
    return path


def _set_aside(path: Path) -> Path:
    return path.with_name(path.name + ".old")


def collect(path: Path) -> trace.Trace:
    """Merge the ranks' files for `path` into `path`, remove them, and report missing ranks.

    A rank's unusable file is named and left where it is. Raises UserError if no rank wrote a trace.
    """
    parts = trace.parts(path)
    usable: dict[Path, trace.Trace] = {}
    for part in parts:
        try:
            usable[part] = trace.load(part)
        except UserError as error:
            console.show_error(error)
    if not usable:
        if _set_aside(path).exists():
            console.note(f"The trace of an earlier run is {_set_aside(path)}.")
        raise UserError(
            f"No rank wrote a trace for {path}.",
            "The script must call hvd.init(), average gradients and end by itself, in a Horovod that was built by "
            "Paceline: `paceline horovod check` tells; ranks on other hosts need a file system that all hosts share. "
            "hvd.Pipeline without replicas= averages no gradients: `paceline plan stages` shows its steps.",
        )
    try:
        merged = trace.merge(usable.values())
    except ValueError as error:
        raise UserError(
            f"The ranks' traces {', '.join(part.name for part in usable)} do not belong together: {error}.",
            "They come from different runs: remove them and record again.",
        ) from None
    trace.write(merged, path)
    for part in (*usable, _set_aside(path)):
        part.unlink(missing_ok=True)
    if merged.missing:
        console.note(
            f"No trace of rank {', '.join(map(str, merged.missing))} of {merged.size}: it ended before its "
            "hvd.shutdown(), or wrote to the disk of another host."
        )
    return merged


def summary_table(merged: trace.Trace, title: str) -> Table:
    """Return a table of medians over steps, one row per rank and one for all of them."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("rank")
    for column in (
        "tensors",
        "steps",
        "step time",
        "waiting",
        "bytes/step",
        "messages/step",
        "rounds/step",
    ):
        table.add_column(column, justify="right")
    rows = [(str(one.rank), [one]) for one in merged.ranks]
    if len(merged.ranks) > 1:
        rows.append(("all", list(merged.ranks)))
    for name, ranks in rows:
        found = trace_summary.summarise(ranks)
        table.add_row(
            name,
            str(found.tensors),
            str(found.steps),
            "-" if found.step_ms is None else f"{found.step_ms:.2f} ms",
            "-" if found.waiting_share is None else f"{found.waiting_share:.1%}",
            f"{found.bytes_per_step:,.0f}",
            f"{found.messages_per_step:g}",
            f"{found.rounds_per_step:g}",
        )
    return table


def slowest_table(merged: trace.Trace) -> Table:
    """Return a table of the tensors with the longest time from submission to result."""
    from rich.table import Table

    table = Table(title="Slowest tensors (median time from hand-over to result)", title_justify="left")
    table.add_column("tensor", overflow="fold")
    table.add_column("bytes", justify="right")
    table.add_column("time", justify="right")
    for tensor in trace_summary.slowest_tensors(merged.ranks):
        table.add_row(tensor.name, f"{tensor.size_bytes:,}", f"{tensor.latency_ms:.2f} ms")
    return table


def plot(merged: trace.Trace, picture: Path) -> None:
    """Draw one step into `picture`. Raises UserError if the trace has no step or the file cannot be written."""
    from paceline.launch.record import plot as pictures

    pictures.save(pictures.step_figure(merged), picture)
    console.note(f"One step's timeline: {picture}")


def write_timeline(merged: trace.Trace, timeline: Path, horovods: Path | None) -> None:
    """Write the Chrome trace, with Horovod's timeline from `horovods`.

    Raises UserError if the trace has no step, a file cannot be read or written, or the timeline is of another run.
    """
    from paceline.launch.record import horovods_timeline, perfetto

    perfetto.save(merged, timeline, None if horovods is None else horovods_timeline.load(horovods))
    console.note(f"All steps, for https://ui.perfetto.dev: {timeline}")


def keep_dumps(path: Path, failed: bool) -> None:
    """Say where the ranks' flight-recorder dumps are, or remove those of a run that succeeded."""
    dumps = flight_recorder.folder(path)
    if not failed:
        flight_recorder.remove(path)
    elif dumps.is_dir():
        console.note(
            f"Last operations of each rank: {dumps}; `torchfrtrace {dumps}` names those that some ranks did not submit."
        )


@flags.with_options("run", hidden={"record"})
@click.command("record", cls=run.HorovodrunCommand)
@click.option("-o", "--output", type=Path, default=Path("trace.json"), show_default=True, help="The trace to write.")
@click.option(
    "--steps", type=click.IntRange(1), help="End the run after so many steps. [default: when the script ends]"
)
@click.option("--plot", "picture", type=Path, help="Also draw one step's timeline (PNG, PDF or SVG).")
@click.option(
    "--perfetto",
    "timeline",
    metavar="FILE",
    type=Path,
    help="Also write all steps as a Chrome trace, for https://ui.perfetto.dev (.json, .json.gz). Includes Horovod's "
    "timeline where --timeline-filename or HOROVOD_TIMELINE requests one.",
)
def record_command(
    output: Path,
    steps: int | None,
    picture: Path | None,
    timeline: Path | None,
    horovodrun_arguments: tuple[str, ...],
    command: tuple[str, ...],
    **values: Any,
) -> int:
    """Run an unmodified script and trace its communication: `paceline record -np 2 python train.py`.

    Writes one trace of all ranks (docs/developers/trace.md describes it) and prints where a step's time goes. Other
    flags are those of `paceline run`. The exit code is horovodrun's; what was traced is kept also when the script
    fails, and when Ctrl-C or a termination request ends it (exit code 130).
    """
    given = flags.texts(values)
    if "record" in given:
        raise UserError("--record belongs to `paceline run`.", "For `paceline record`, name the trace with -o FILE.")
    given["record"] = str(output.absolute())
    settings = config.read(flags=given)
    if steps is not None:
        given["debug"] = ",".join([*([str(settings.debug)] if settings.debug else []), f"record_stop={steps}"])
        settings = config.read(flags=given)
    job = run.job(horovodrun_arguments, command, environment(settings, given), settings)
    if picture is not None:
        outputs.check_picture(picture)
    if timeline is not None:
        outputs.check(timeline, "the timeline")
    horovods = None if timeline is None else _horovods(horovodrun_arguments, command)
    path = prepare(output)
    announce(settings)
    try:
        code = run.call(job)
    except KeyboardInterrupt:
        code = interrupts.INTERRUPTED
    return report(path, picture, timeline, horovods, code)


def _horovods(horovodrun_arguments: Sequence[str], command: Sequence[str]) -> Path | None:
    """Return the file in which Horovod writes its timeline, or None."""
    name = horovodrun.parsed(horovodrun_arguments, command).timeline_filename or variables.environ().get(TIMELINE)
    return Path(name) if name else None


def report(path: Path, picture: Path | None, timeline: Path | None, horovods: Path | None, code: int) -> int:
    """Merge, print and draw the trace; return the exit code to end with, given that of the run."""
    keep_dumps(path, failed=code != 0)
    try:
        merged = collect(path)
    except UserError as error:
        if code:  # the script's failure is the news, not the missing trace
            console.show_error(error)
            return code
        raise
    console.out().print(summary_table(merged, f"Trace of {merged.size} ranks: {path}"))
    console.out().print(slowest_table(merged))
    if picture is not None:
        plot(merged, picture)
    if timeline is not None:
        write_timeline(merged, timeline, horovods)
    return code
