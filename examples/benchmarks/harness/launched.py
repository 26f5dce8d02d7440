"""A program of the benchmark on ranks of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from paceline.launch.ranks import run_python

START_LIMIT_S = 120.0  # for importing the framework and connecting, on a machine that others use
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

    def on_line(line: str) -> None:
        if line.startswith(_PROGRESS):
            tell(line.removeprefix(_PROGRESS))

    run_python(words, ranks, {**os.environ, **_PLAIN, **environ}, START_LIMIT_S + limit_s, on_line)
