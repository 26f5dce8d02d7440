"""A Python program on ranks of this machine, started by horovodrun as a user would."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from paceline.errors import UserError
from paceline.launch import run

START_LIMIT_S = 120.0  # for importing the framework and connecting, on a machine that others use
LAST_LINES = 30  # of the ranks' output, when they fail
_KEPT_LINES = 1000
# What the environment of the benchmark asks for is none of its business: one thread a rank, nothing exchanged or merged
# but by the calls that are measured.
_PLAIN = {
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "PACELINE_EXCHANGE": "sync",
    "PACELINE_FUSION": "threshold",
}
_PROGRESS = "progress: "


def say(text: str) -> None:
    """On a rank: tell the program that started it what goes on."""
    print(f"{_PROGRESS}{text}", flush=True)


def run_ranks(
    words: Sequence[str], ranks: int, environ: Mapping[str, str], limit_s: float, tell: Callable[[str], None]
) -> None:
    """Run Python with the arguments `words` on `ranks` ranks of this machine, to its end.

    `environ` is added to this process's environment. `tell` gets what a rank tells with `say`. Raises UserError with
    the last lines of output when the program fails, or has not ended START_LIMIT_S after `limit_s` seconds.
    """
    lines: deque[str] = deque(maxlen=_KEPT_LINES)

    def on_line(line: str) -> None:
        said = run.unmarked(line)
        if said.startswith(_PROGRESS):
            tell(said.removeprefix(_PROGRESS))
        else:
            lines.append(line)

    command = [*run.horovodrun(), "-np", str(ranks), sys.executable, *words]
    try:
        code = run.call(command, {**os.environ, **_PLAIN, **environ}, on_line, START_LIMIT_S + limit_s)
    except UserError as error:
        raise UserError(error.problem, _remedy(lines)) from None
    if code:
        raise UserError(f"The benchmark's ranks ended with exit code {code}.", _remedy(lines))


def _remedy(lines: Sequence[str]) -> str:
    return "\n".join(["The last lines of its output:", *run.last_words(lines, LAST_LINES)])
