"""The `paceline` command: a table of commands, loaded when used.

Nothing here imports Horovod, a framework or rich, so `paceline --help` answers at once on any machine.
"""

from __future__ import annotations

import importlib
import importlib.util

import click

import paceline
from paceline import config
from paceline.launch.reports import Reports

# Name -> definition of the command, and its line in `paceline --help`.
COMMANDS: dict[str, tuple[str, str]] = {
    "horovod": (
        "paceline.launch.horovod:horovod_command",
        "Build, install and check Horovod with Paceline's hooks.",
    ),
    "run": ("paceline.launch.run:run_command", "Start a script on several ranks: horovodrun with Paceline's options."),
    "rank": ("paceline.launch.rank.command:rank_command", "Run a script as one rank, in a task of Slurm, MPI, ..."),
    "advise": (
        "paceline.launch.advise.command:advise_command",
        "Record a script, predict every setting, and recommend one.",
    ),
    "record": (
        "paceline.launch.record.command:record_command",
        "Run an unmodified script and trace its communication.",
    ),
    "plan": (
        "paceline.launch.plan.group:plan_command",
        "Predict from a trace what each remedy saves; show schedules of pipeline stages.",
    ),
    "probe": (
        "paceline.launch.probe.command:probe_command",
        "Measure the network between ranks and every collective on it.",
    ),
    "template": (
        "paceline.launch.templates.command:template_command",
        "Write a complete job file for Slurm, Kubernetes, LSF, PBS or Docker.",
    ),
    "doctor": (
        "paceline.launch.doctor.command:doctor_command",
        "Look for what keeps ranks from starting, and say what to do; list all options.",
    ),
    "demo": ("paceline.launch.demo.command:demo_command", "Train over a slow network, with and without Paceline."),
}

# First commands for a new user, in this order, and their purpose.
FIRST_COMMANDS = (
    ("paceline horovod install", "build Horovod with Paceline's hooks: some minutes, once"),
    ("paceline demo", "train on real data over a slow network, and compare"),
    ("paceline advise -np 2 python train.py", "find out what to switch on for your script"),
    ("paceline advise --verify -np 2 python train.py", "also measure the best settings"),
    ("paceline run -np 2 --exchange pipelined python train.py", "start your script with a remedy"),
)


def _present(target: str) -> bool:
    """True if the command's module can be found; its parent packages are empty and cost nothing to import."""
    return importlib.util.find_spec(target.partition(":")[0]) is not None


class _Paceline(Reports, click.Group):
    """Commands from the table COMMANDS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, (target, _) in COMMANDS.items() if _present(target)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


def _show_first_commands() -> None:
    click.echo("Paceline makes data-parallel training wait less for the network and for slow ranks. To begin:\n")
    width = max(len(command) for command, _ in FIRST_COMMANDS)
    for number, (command, purpose) in enumerate(FIRST_COMMANDS, 1):
        click.echo(f"  {number}. {command:{width}}  {purpose}")
    click.echo("\n`paceline --help` lists all commands, `paceline doctor --options` all settings.")


@click.group(
    "paceline",
    cls=_Paceline,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=False,
    invoke_without_command=True,
)
@click.version_option(paceline.__version__, prog_name="paceline")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Data-parallel training that waits less for the network and for slow ranks: a plugin for Horovod.

    Options of `paceline run` can also be given as PACELINE_* variables: `paceline doctor --options` lists them.
    """
    config.read()  # every command refuses an unknown or wrong PACELINE_* variable
    if ctx.invoked_subcommand is None:
        _show_first_commands()


if __name__ == "__main__":
    main()
