"""`paceline plan`: predictions from a trace, and schedules of pipeline stages."""

from __future__ import annotations

import click

from paceline.launch.plan.command import trace_command
from paceline.launch.plan.stages.command import stages_command


class Plan(click.Group):
    """A first word that is not a command, including --help, belongs to `paceline plan trace`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words of the command line."""
        return super().parse_args(ctx, self.with_command(args))

    def with_command(self, args: list[str]) -> list[str]:
        """Return the words that begin with the name of a command."""
        named = bool(args) and args[0] in self.commands
        return args if named else [str(trace_command.name), *args]


plan_command = Plan("plan", commands=[trace_command, stages_command], add_help_option=False)
