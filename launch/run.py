"""`paceline run`: horovodrun with Paceline's options as flags, start-up progress, and the first failure."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from paceline import config, variables
from paceline.errors import UserError
from paceline.failure import reports
from paceline.launch import console, flags, horovodrun, hosts, interrupts, mistakes, processes, start, status
from paceline.launch.enough import Enough
from paceline.launch.environment import announce, environment
from paceline.launch.failures.output import Output, writer
from paceline.launch.failures.verdict import Verdict


class HorovodrunCommand(click.Command):
    """A click command whose own flags may be mixed with horovodrun's, up to the command of the ranks.

    The callback gets `horovodrun_arguments` and `command`, both tuples of words, in addition to its own parameters.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give our flags to click and keep the rest. Raises UserError for an unknown flag."""
        ours = {
            name: 0 if isinstance(parameter, click.Option) and parameter.is_flag else 1
            for parameter in self.get_params(ctx)
            for name in (*parameter.opts, *parameter.secondary_opts)
        }
        if args and args[0] in ("-h", "--help"):  # also works without Horovod
            return super().parse_args(ctx, args)
        parts = flags.split(args, ours, horovodrun.FLAGS, ctx.command_path)
        rest = super().parse_args(ctx, parts.ours)
        ctx.params["horovodrun_arguments"] = tuple(parts.theirs)
        ctx.params["command"] = tuple(parts.command)
        return rest

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the usage line, including horovodrun's part."""
        formatter.write_usage(ctx.command_path, "[OPTIONS] [HOROVODRUN OPTIONS] COMMAND...")


@dataclass(frozen=True)
class Job:
    """Job of `paceline run`: horovodrun's full command and its environment.

    `ranks`: host of each rank; {} if only horovodrun can find `hosts`. `progress`: ranks report start-up progress.
    """

    words: list[str]
    environ: dict[str, str]
    ranks: dict[int, str] = field(default_factory=dict)
    hosts: str = ""
    progress: bool = False


def job(
    horovodrun_arguments: Sequence[str], command: Sequence[str], environ: Mapping[str, str], settings: config.Settings
) -> Job:
    """Return the job. Raises UserError without a command, for which horovodrun would print its whole environment.

    Also raises UserError for calls that would end in a traceback.
    """
    begin = [*horovodrun.words(), *mistakes.cache_arguments(horovodrun_arguments)]
    if horovodrun.ANSWERS.intersection(horovodrun_arguments):
        return Job([*begin, *horovodrun_arguments, *command], dict(environ))
    if not command:
        raise UserError(
            "There is no command for the ranks to run.", "Put it last: `paceline run -np 2 python train.py`."
        )
    asked = horovodrun.parsed(horovodrun_arguments, command)
    named = hosts.asked_for(asked)
    mistakes.check(asked, named, command)
    # With --output-filename horovodrun writes the output of ranks to the user's files: no progress lines there.
    progress = settings.progress and not asked.output_filename
    own = flags.environment({"progress": config.as_text(progress)})
    own[reports.VARIABLE] = reports.FAILURES if asked.output_filename else reports.ALL
    words = [*begin, *hosts.plain(horovodrun_arguments, asked, named), *command]
    unknown = asked.host_discovery_script or "found out by horovodrun"
    return Job(words, {**environ, **own}, start.ranks_of_hosts(asked, named), unknown, progress)


def call(job: Job) -> int:
    """Run horovodrun to its end; return its exit code. Output of ranks is passed on, the first failure is printed last.

    If ranks stop recording (`record_stop`), the run is ended when all traces are written, with exit code 0. Raises
    KeyboardInterrupt.
    """
    code, verdict = finished(job, Enough())
    console.show_verdict(verdict)
    return code


def finished(job: Job, enough: Enough, show: tuple[str, str] = ("stdout", "stderr")) -> tuple[int, Verdict]:
    """Run horovodrun to its end, or until `enough`; return its exit code and the verdict.

    `show`: names of the streams for the ranks' standard output and standard error; "" discards one. Raises
    KeyboardInterrupt.
    """
    line = status.StatusLine(sys.stderr)
    begun = start.Start(job.ranks, line, line.around(lambda text: console.note(text.rstrip())))

    def heard(rank: int, report: reports.Report) -> None:
        begun.heard(rank, report)
        enough.heard(rank, report)

    def over() -> bool:
        if enough.over:
            output.mute()
        return enough.over

    out, err = (line.around(writer(name)) for name in show)
    output = Output(out, err, job.ranks, heard)
    sys.stdout.flush()
    code = interrupts.INTERRUPTED
    interrupted = True
    try:
        with begun.reporting() if job.progress else contextlib.nullcontext():
            code = processes.call(job.words, job.environ, output.out, output.err, enough=over)
            interrupted = False
    finally:
        begun.ended(0 if interrupted else code)
        verdict = output.ended(code, interrupted)
        if interrupted:
            console.show_verdict(verdict)
    return code, verdict


def shown(job: Job) -> list[str]:
    """Return hosts (as comments), variables and command that would be used, in shell syntax."""
    names = sorted(name for name in job.environ if name.startswith((config.PREFIX, "HOROVOD_", variables.PLANS)))
    by_host = start.by_host(job.ranks)
    return [
        *(f"# {host}: rank {', '.join(map(str, ranks))}" for host, ranks in by_host.items()),
        *([f"# hosts: {job.hosts}"] if job.hosts and not by_host else []),
        *(f"{name}={shlex.quote(job.environ[name])}" for name in names),
        shlex.join(job.words),
    ]


@flags.with_options("run")
@click.command("run", cls=HorovodrunCommand)
@click.option("--dry-run", is_flag=True, help="Print hosts, variables and horovodrun's command, and start nothing.")
def run_command(horovodrun_arguments: tuple[str, ...], command: tuple[str, ...], dry_run: bool, **values: Any) -> int:
    """Start a script on several ranks: `paceline run -np 4 -H a:2,b:2 python train.py`.

    This is horovodrun with Paceline's options; without any, gradients are merged by plan (--fusion optimal). They may
    stand anywhere before the command and become PACELINE_* variables of the ranks; all others go to horovodrun as they
    are (`horovodrun --help` lists them). The exit code is horovodrun's, 130 after Ctrl-C; what failed first is said
    again at the end.
    """
    given = flags.texts(values)
    plans = {} if "--autotune" in horovodrun_arguments else {variables.PLANS: "yes"}
    settings = config.read({**os.environ, **plans}, given)
    started = job(horovodrun_arguments, command, {**environment(settings, given), **plans}, settings)
    announce(settings, starts=not dry_run)
    if dry_run:
        click.echo("\n".join(shown(started)))
        return 0
    return call(started)
