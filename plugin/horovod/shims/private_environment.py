"""What ranks are started with goes to them by ways that no other user of a host can read.

Horovod puts the whole environment, tokens and passwords too, on the command lines of ssh and of the shells on both
ends, where `ps` shows them to everybody. Here a rank of this host inherits it, and one of another host reads it from
its standard input, which was empty before; both are readable by the same user alone.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from shlex import quote

from horovod.runner.common.util import env as env_util

# Names that a shell can set; others, and those that belong to the shell itself, stay on the command line.
_SETTABLE = re.compile(r"(?!(?:UID|EUID|PPID|GROUPS|SHELLOPTS|BASHOPTS|BASH_VERSINFO)\Z)[A-Za-z_][A-Za-z0-9_]*\Z")
# Carries to the shell before ssh what goes into ssh's standard input. printf is a part of the shell: it has no command
# line of its own.
_TO_SSH = "_PACELINE_TO_SSH"
_TASK_SETTINGS = "_PACELINE_TASK_SETTINGS"


class Command(str):
    """Horovod's command line of a rank, `text`, with what it is made from: `environment` and, behind it, `run`."""

    environment: dict[str, str]
    run: str

    def __new__(cls, text: str, environment: dict[str, str], run: str) -> Command:
        """Keep what may leave this process."""
        made = super().__new__(cls, text)
        made.environment = {name: value for name, value in environment.items() if env_util.is_exportable(name)}
        made.run = run
        return made

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        # To Spark's tasks, which take Horovod's text.
        return str, (str(self),)


@dataclass(frozen=True)
class Start:
    """`command`: for a shell on the rank's host. `inherited` by what starts it here; `stdin`: what it reads there."""

    command: str
    inherited: dict[str, str] = field(default_factory=dict)
    stdin: str = ""

    def shell_and_environment(self, command: str) -> tuple[str, dict[str, str] | None]:
        """What a shell of this host is to run so that `command`, ours or ssh with ours, is; and its environment."""
        if self.stdin:
            return f'printf %s "${_TO_SSH}" | {command}', {**os.environ, _TO_SSH: self.stdin}
        return command, {**os.environ, **self.inherited} if self.inherited else None


def of(command: str, remote: bool) -> Start:
    """How to start `command` on this host or, `remote`, in a shell of another one."""
    # Kubeflow's kubectl exec hands no standard input on.
    if not isinstance(command, Command) or (remote and env_util.is_kubeflow_mpi()):
        return Start(command)
    visible = {name: value for name, value in command.environment.items() if not _SETTABLE.match(name)}
    hidden = {name: value for name, value in command.environment.items() if _SETTABLE.match(name)}
    run = " ".join(("env", *(f"{name}={quote(value)}" for name, value in visible.items()), command.run))
    if not remote:
        return Start(run, inherited=hidden)
    exports = "".join(f"export {name}={quote(value)}\n" for name, value in hidden.items())
    # The shell that ssh meets may be any; this part is for one that is known.
    return Start("sh -c " + quote('eval "$(cat)" && exec ' + run), stdin=exports)


def of_task(command: str, remote: bool) -> Start:
    """The same for a task service, whose settings, the last word of `command`, have the job's key in them.

    ssh takes the command as it is, so it is quoted once more.
    """
    words, _, settings = command.rpartition(" ")
    start = of(Command(command, {_TASK_SETTINGS: settings}, f"{words} -"), remote)
    return Start(quote(start.command), stdin=start.stdin) if start.stdin else start


def task_settings(word: str) -> str:
    """The settings of a task service that was given this last word."""
    return os.environ.pop(_TASK_SETTINGS) if word == "-" else word
