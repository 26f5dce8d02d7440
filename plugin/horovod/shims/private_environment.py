"""Start of ranks without exposing their environment to other users of a host.

Horovod puts the whole environment, including tokens and passwords, on the command lines of ssh and of the shells on
both ends, where `ps` shows them to all users. Here a rank on this host inherits it, and a rank on another host reads it
from its standard input, which was empty before. Only the same user can read either.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from shlex import quote

from horovod.runner.common.util import env as env_util

# Names that a shell can set; other names, and the shell's own, stay on the command line.
_SETTABLE = re.compile(r"(?!(?:UID|EUID|PPID|GROUPS|SHELLOPTS|BASHOPTS|BASH_VERSINFO)\Z)[A-Za-z_][A-Za-z0-9_]*\Z")
# Passes the standard input of ssh to the shell that starts it. printf is a shell builtin and has no command line.
_TO_SSH = "_PACELINE_TO_SSH"
_TASK_SETTINGS = "_PACELINE_TASK_SETTINGS"


class Command(str):
    """Horovod's command line of a rank, `text`, and its parts: `environment`, followed by the command `run`."""

    environment: dict[str, str]
    run: str

    def __new__(cls, text: str, environment: dict[str, str], run: str) -> Command:
        """Keep the variables that may be exported."""
        made = super().__new__(cls, text)
        made.environment = {name: value for name, value in environment.items() if env_util.is_exportable(name)}
        made.run = run
        return made

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        # Pickled for Spark's tasks, which use Horovod's text.
        return str, (str(self),)


@dataclass(frozen=True)
class Start:
    """Start of a rank.

    Attributes:
        command: command for a shell on the rank's host.
        inherited: variables for the process on this host.
        stdin: standard input of the process on another host.
    """

    command: str
    inherited: dict[str, str] = field(default_factory=dict)
    stdin: str = ""

    def shell_and_environment(self, command: str) -> tuple[str, dict[str, str] | None]:
        """Return the command line for a shell on this host, and its environment.

        `command` is the rank's command, or ssh with it.
        """
        if self.stdin:
            return f'printf %s "${_TO_SSH}" | {command}', {**os.environ, _TO_SSH: self.stdin}
        return command, {**os.environ, **self.inherited} if self.inherited else None


def of(command: str, remote: bool) -> Start:
    """Return the start of `command` on this host or, if `remote`, in a shell on another host."""
    # Kubeflow's kubectl exec does not forward standard input.
    if not isinstance(command, Command) or (remote and env_util.is_kubeflow_mpi()):
        return Start(command)
    visible = {name: value for name, value in command.environment.items() if not _SETTABLE.match(name)}
    hidden = {name: value for name, value in command.environment.items() if _SETTABLE.match(name)}
    run = " ".join(("env", *(f"{name}={quote(value)}" for name, value in visible.items()), command.run))
    if not remote:
        return Start(run, inherited=hidden)
    exports = "".join(f"export {name}={quote(value)}\n" for name, value in hidden.items())
    # The remote login shell is unknown; sh runs this part.
    return Start("sh -c " + quote('eval "$(cat)" && exec ' + run), stdin=exports)


def of_task(command: str, remote: bool) -> Start:
    """Return the start of a task service, whose settings, the last word of `command`, contain the job's key.

    ssh gets the command without further quoting, so it is quoted once more.
    """
    words, _, settings = command.rpartition(" ")
    start = of(Command(command, {_TASK_SETTINGS: settings}, f"{words} -"), remote)
    return Start(quote(start.command), stdin=start.stdin) if start.stdin else start


def task_settings(word: str) -> str:
    """Return the settings of a task service whose last word is `word`."""
    return os.environ.pop(_TASK_SETTINGS) if word == "-" else word
