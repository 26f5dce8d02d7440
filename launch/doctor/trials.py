"""Tiny real runs with two ranks on this host: the exchanges, collectives and codecs that work with each framework."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from paceline import config
from paceline.errors import UserError
from paceline.horovod.key import installed_frameworks
from paceline.launch import ranks
from paceline.launch.doctor import trial
from paceline.launch.doctor.findings import Finding, error, ok

LIMIT_S = 180.0  # importing a framework on a busy machine takes most of it
_MARK = "TRIED "


def _named(tried: list[tuple[str, str]]) -> str:
    """Working choices of each kind, in their order."""
    kinds = dict.fromkeys(kind for kind, _ in trial.choices(trial.TORCH))
    return "; ".join(
        f"{kind}s that work: {', '.join(name for one, name in tried if one == kind) or 'none'}" for kind in kinds
    )


def choices() -> Iterator[Finding]:
    """Try each installed framework with each of its trial.choices."""
    for framework in sorted(installed_frameworks()):
        tried: list[tuple[str, str]] = []

        def said(line: str, tried: list[tuple[str, str]] = tried) -> None:
            if line.startswith(_MARK):
                kind, name = json.loads(line.removeprefix(_MARK))
                tried.append((kind, name))

        what = f"2 ranks with {framework}"
        # The trial is about the machine, not about the user's choices for a job.
        environ = {name: value for name, value in os.environ.items() if not name.startswith(config.PREFIX)}
        environ |= {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        try:
            ranks.run_python(["-m", trial.__name__, framework], 2, environ, LIMIT_S, said)
        except UserError as failed:
            at = next(("=".join(choice) for choice in trial.choices(framework)[len(tried) :]), "the end")
            yield error(what, f"{_named(tried)}; failed at {at}: {failed.problem}", failed.remedy)
        else:
            yield ok(what, _named(tried))
