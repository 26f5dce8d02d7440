"""`paceline template`: complete job files for schedulers, to be read, changed and submitted."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from paceline import config
from paceline.errors import UserError
from paceline.launch import console, flags
from paceline.launch.environment import remark
from paceline.launch.quantities import mebibytes, seconds
from paceline.launch.templates import docker, engines, kubernetes, lsf, pbs, slurm
from paceline.launch.templates.job import Job, check, user_variables
from paceline.launch.templates.output import write
from paceline.launch.templates.scheduler import Scheduler, refuse

SCHEDULERS: tuple[Scheduler, ...] = (
    slurm.SCHEDULER,
    kubernetes.SCHEDULER,
    lsf.SCHEDULER,
    pbs.SCHEDULER,
    docker.SCHEDULER,
)
DEFAULT_NAME = "paceline"


class _Quantity(click.ParamType[Any]):
    """A text that `parse` converts to a number; refused with the violated rule."""

    def __init__(self, name: str, parse: Any) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._parse(value)
        except ValueError as error:
            flag = param.opts[0] if param else self.name
            raise UserError(f"{flag} {value} cannot be used: it {error}.", f"Correct {flag} or leave it out.") from None


def _job_options() -> list[click.Option]:
    """Options of every scheduler. None: not given, so that a kind without the option can refuse any other value."""
    count = click.IntRange(1)
    return [
        click.Option(["--name"], help=f"Name of the job (default: {DEFAULT_NAME})."),
        click.Option(["--nodes"], type=count, help="Machines (default: 1)."),
        click.Option(
            ["--ranks-per-node"], type=count, help="Ranks on each machine (default: one per GPU, or 1 without GPUs)."
        ),
        click.Option(["--cores"], type=count, help="Processor cores of each rank (default: 1)."),
        click.Option(["--gpus"], type=count, help="GPUs of each machine (default: none)."),
        click.Option(
            ["--time"], type=_Quantity("time", seconds), help="Longest time, such as 90m or 1-12:00:00 (default: the"
            " cluster's)."
        ),
        click.Option(
            ["--memory"], type=_Quantity("memory", mebibytes), help="Memory of each machine, such as 64G (default: the"
            " cluster's)."
        ),
        click.Option(["--image"], help="Container image that the ranks run in."),
        click.Option(["--env"], multiple=True, metavar="NAME=VALUE", help="Variable of the ranks; may be repeated."),
        click.Option(
            ["--setup"], multiple=True, metavar="LINE", help="Line of shell to run before every rank, such as 'module"
            " load python'; may be repeated."
        ),
    ]  # fmt: skip


class _TemplateCommand(click.Command):
    """Keeps its own words for the file's first lines; all words after the user's command belong to that command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["paceline.template.words"] = tuple(args)
        return super().parse_args(ctx, args)


def _command(scheduler: Scheduler) -> click.Command:
    """Return the subcommand that writes this scheduler's files."""

    @click.pass_context
    def callback(
        ctx: click.Context, /, output: Path | None, force: bool, command: tuple[str, ...], **given: Any
    ) -> None:
        settings = config.read(flags=flags.texts(given))
        kind = scheduler.kind(given[scheduler.chooser])
        refuse(scheduler, kind, {**given, "command": command})
        job = _job(given, command)
        check(job)
        made_by = shlex.join(["paceline", "template", scheduler.name, *ctx.meta["paceline.template.words"]])
        text = scheduler.render(job, given, kind, made_by)
        remark(settings, starts=False)
        if output is None:
            click.echo(text, nl=False)
            return
        write(output, text, force)
        console.note(f"Wrote {output}.")

    kinds = "; ".join(f"{kind.name}: {kind.meaning}" for kind in scheduler.kinds)
    made = _TemplateCommand(
        scheduler.name,
        callback=callback,
        help=f"Write {scheduler.summary}.\n\nThe command of the ranks comes last, for example: `paceline template"
        f" {scheduler.name} --nodes 2 -o {scheduler.file} python train.py`. Without -o the file is printed.",
        short_help=f"Write {scheduler.summary}.",
        context_settings={"allow_interspersed_args": False},
    )
    made.params += [
        click.Option(
            [f"--{scheduler.chooser}"],
            type=click.Choice([kind.name for kind in scheduler.kinds]),
            default=scheduler.kinds[0].name,
            show_default=True,
            help=f"What to write. {kinds}.",
        ),
        *_job_options(),
        *(make() for make in scheduler.options),
        *flags.click_options("run"),
        click.Option(["-o", "--output"], type=click.Path(path_type=Path), help="File to write."),
        click.Option(["--force"], is_flag=True, help="Overwrite the file if there is one."),
        click.Argument(["command"], nargs=-1, type=click.UNPROCESSED),
    ]
    return made


def _job(given: dict[str, Any], command: tuple[str, ...]) -> Job:
    gpus = given["gpus"] or 0
    return Job(
        name=given["name"] or DEFAULT_NAME,
        nodes=given["nodes"] or 1,
        ranks_per_node=given["ranks_per_node"] or gpus or 1,
        cores=given["cores"] or 1,
        gpus=gpus,
        time_s=given["time"],
        memory_mib=given["memory"],
        image=given["image"],
        variables={**user_variables(given["env"]), **flags.environment(flags.texts(given))},
        setup=given["setup"],
        command=command,
    )


@click.group("template", context_settings={"help_option_names": ["-h", "--help"]})
def template_command() -> None:
    """Write a complete job file for a scheduler, or a script for Ray or Spark.

    Options of `paceline run`, such as --fusion, become PACELINE_* variables of the ranks. Comments in the file say what
    to change. What a scheduler cannot express is refused, not left out.
    """


for _scheduler in SCHEDULERS:
    template_command.add_command(_command(_scheduler))
for _engine in engines.ENGINES:
    template_command.add_command(engines.command(_engine))
