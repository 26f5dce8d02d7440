"""`paceline horovod`: build, install, check and clean up the Horovod that Paceline runs in."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from paceline import config
from paceline.errors import UserError
from paceline.horovod import gpu
from paceline.horovod.build import BUILD_TIMEOUT_S
from paceline.launch import console, flags

NOT_AS_EXPECTED = 1  # exit code of `paceline horovod check` for an unsuitable Horovod
LINE_EVERY = 0.1  # without a terminal, progress is printed whenever this share of a build is done


@contextmanager
def _progress() -> Iterator[Callable[[str, float | None], None]]:
    """Context with the build's progress callback: a bar on a terminal, otherwise an occasional line."""
    output = console.err()
    if not output.is_terminal:
        reported = -1.0

        def plain(line: str, done: float | None) -> None:
            nonlocal reported
            restarts = done is None or done < reported
            if restarts or reported < 0 or done in (0.0, 1.0) or done >= reported + LINE_EVERY:  # type: ignore[operator]
                reported = done or 0.0
                share = "" if done in (None, 0.0, 1.0) else f"[{done:.0%}] "
                output.print(share + line, markup=False, soft_wrap=True)

        yield plain
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("about"),
        # Sources differ in compile time: the mean of all so far predicts better than the last ones.
        TimeRemainingColumn(),
        TextColumn("left, {task.description}", markup=False),
    )
    with Progress(*columns, console=output, speed_estimate_period=BUILD_TIMEOUT_S) as bar:
        task = bar.add_task("", total=1.0)

        def show(line: str, done: float | None) -> None:
            bar.update(task, description=line, completed=done)

        yield show


def _build_options(command: click.Command) -> click.Command:
    """Add the options shared by `build` and `install`."""
    command.params += [
        click.Option(["--force"], is_flag=True, help="Build even if the cache has a wheel from the same inputs."),
        click.Option(
            ["--mpi/--no-mpi"],
            default=None,
            help="Build with MPI beside Gloo (default: as HOROVOD_WITH_MPI=1 says). Other HOROVOD_* variables of "
            "Horovod's build pass through.",
        ),
        click.Option(
            ["--nccl"],
            is_flag=True,
            help="Build with CUDA and NCCL, as HOROVOD_GPU_OPERATIONS=NCCL; by default gradients on GPUs are copied to "
            "CPU memory, which needs neither.",
        ),
        *flags.click_options("horovod"),
    ]
    return command


def _request(nccl: bool) -> None:
    """Set the variable of Horovod's build that `--nccl` stands for."""
    if nccl:
        os.environ[gpu.ALL] = gpu.NCCL


def _build(force: bool, mpi: bool | None, values: dict[str, Any]) -> Path:
    from paceline.horovod.build import build

    # End on SIGTERM as on Ctrl-C: stop the compilers and remove the temporary folder.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with _progress() as report:
        return build(config.read(flags=flags.texts(values)), report=report, force=force, mpi=mpi)


@click.group("horovod", context_settings={"help_option_names": ["-h", "--help"]})
def horovod_command() -> None:
    """Build, install and check the Horovod that Paceline runs in."""


@_build_options
@horovod_command.command("build")
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Also copy the wheel and a file with its sha256 to DIR, for machines that cannot build it.",
)
def build_command(force: bool, mpi: bool | None, nccl: bool, output: Path | None, **values: Any) -> None:
    """Build Horovod's wheel, or find it in the cache.

    Hooks and patches are put into the verified source first. Prints the wheel's path.
    """
    from paceline.horovod import carried

    _request(nccl)
    wheel = _build(force, mpi, values)
    click.echo(carried.write(wheel, output) if output else wheel)


@_build_options
@horovod_command.command("install")
@click.option(
    "--wheel",
    "given",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Install this wheel of `paceline horovod build -o DIR`; nothing is built.",
)
def install_command(force: bool, mpi: bool | None, nccl: bool, given: Path | None, **values: Any) -> None:
    """Build Horovod if need be, and install it.

    Builds as `paceline horovod build` does; does nothing if a Horovod is installed that fits and has what is asked for.
    """
    from paceline.horovod import install

    _request(nccl)
    if given is not None:
        install.install_carried(given)
        wheel = given
    elif not force and install.is_installed(mpi):
        console.note("The Horovod that is installed fits this Paceline and the frameworks; --force builds it again.")
        return
    else:
        wheel = _build(force, mpi, values)
        install.install(wheel)
    console.note(f"Installed {wheel.name}. Next: paceline demo, or paceline run -np 2 python train.py")


@horovod_command.command("check")
@click.option(
    "--import/--no-import", "imports", default=True, help="Also import Horovod with each framework (seconds)."
)
def check_command(imports: bool) -> int:
    """Compare the installed Horovod with the one needed.

    Needed are this Paceline's hooks and patches, built for the frameworks as installed. Exit code 1 if not all is so.
    """
    from rich.table import Table

    from paceline.horovod import check

    rows = check.findings()
    if all(row.ok for row in rows):
        rows += check.gpu_findings()
        if imports:
            rows += check.import_findings()
    table = Table(title="The Horovod that Paceline runs in", title_justify="left")
    for column in ("what", "found", "expected", ""):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(row.what, row.found, row.expected, "[green]ok[/]" if row.ok else "[red]wrong[/]")
    console.out().print(table)
    if all(row.ok for row in rows):
        return 0
    console.show_error(UserError("The installed Horovod is not the one this Paceline needs.", check.REMEDY))
    return NOT_AS_EXPECTED


@flags.with_options("horovod")
@horovod_command.command("clean")
def clean_command(**values: Any) -> None:
    """Remove archive, wheels and log from the cache."""
    from paceline.horovod.build import clean

    removed = clean(config.read(flags=flags.texts(values)))
    console.note("Removed " + ", ".join(map(str, removed)) + "." if removed else "The cache is empty already.")
