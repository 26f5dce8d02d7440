"""Exit of a command: its own exit code, or one form for all errors that a user can correct."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from paceline.errors import UserError
from paceline.launch import console, interrupts


class Reports(click.Command):
    """A click command, or with click.Group a group, that reports user errors in two lines."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]
        """Run and exit with the command's own code, 0 by default, 2 for a user error, 130 after an interrupt."""
        extra.pop("standalone_mode", None)
        stdout = sys.stdout
        try:
            with interrupts.remembered():
                code = super().main(args, prog_name or self.name, standalone_mode=False, **extra)
        except SystemExit:
            # click replaces the stream if the reader of a help text closed the pipe, as in `| head`.
            if sys.stdout is stdout:
                raise
            code = 0
        except UserError as error:
            console.show_error(error)
            code = console.USER_ERROR
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message())
            code = console.USER_ERROR
        except click.ClickException as error:
            console.show_error(console.from_click(error))
            code = console.USER_ERROR
        except (click.Abort, KeyboardInterrupt):
            code = interrupts.INTERRUPTED
        sys.exit(code if isinstance(code, int) else 0)
