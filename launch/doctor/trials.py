"""Tiny real runs with two ranks on this host: which exchanges work with which framework."""

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


def exchanges() -> Iterator[Finding]:
    """Each installed framework with each exchange."""
    for framework in sorted(installed_frameworks()):
        tried: list[str] = []

        def said(line: str, tried: list[str] = tried) -> None:
            if line.startswith(_MARK):
                tried.append(json.loads(line.removeprefix(_MARK)))

        what = f"2 ranks with {framework}"
        # What is tried is the machine, not what the user chose for a job.
        environ = {name: value for name, value in os.environ.items() if not name.startswith(config.PREFIX)}
        environ |= {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        try:
            ranks.run_python(["-m", trial.__name__, framework], 2, environ, LIMIT_S, said)
        except UserError as failed:
            works = ", ".join(tried) or "none"
            at = config.EXCHANGES[len(tried)] if len(tried) < len(config.EXCHANGES) else "the end"
            yield error(what, f"exchanges that work: {works}; failed at {at}: {failed.problem}", failed.remedy)
        else:
            yield ok(what, f"exchanges that work: {', '.join(tried)}")
