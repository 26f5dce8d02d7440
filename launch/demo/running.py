"""One run of the demo: its command, its progress and its outcome."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.launch import console, horovodrun, ranks
from paceline.launch.demo.place import Place, system_path
from paceline.launch.demo.systems import Framework, System

LIMIT_S = 300.0  # of one run, which takes about 12 s
_STEP = re.compile(r"step (?P<done>\d+)/(?P<all>\d+)")


@dataclass(frozen=True)
class Outcome:
    """Result of a run: mean time of its last steps, the computing part of it, accuracy on held-out data."""

    framework: Framework
    system: System
    step_ms: float
    compute_ms: float
    accuracy: float
    equal: bool

    @property
    def exposed_ms(self) -> float:
        """Time of a step beyond its computing."""
        return max(0.0, self.step_ms - self.compute_ms)


def run(
    framework: Framework, system: System, place: Place, steps: int, folder: Path, on_share: Callable[[float], None]
) -> Outcome | None:
    """Train once; `on_share` gets the progress, 0 to 1. Returns None, and shows the last lines, if it failed."""
    files = folder / re.sub(r"\W+", "-", f"{framework.name} {system.label}".lower())
    result, log = files.with_suffix(".json"), files.with_suffix(".log")
    for old in (result, files.with_suffix(".store")):
        old.unlink(missing_ok=True)
    spec = importlib.util.find_spec(f"paceline.examples.{framework.script}")
    assert spec is not None and spec.origin is not None
    command = [*place.enter, *horovodrun.words(), "-np", "2", sys.executable, spec.origin]
    command += ["--steps", str(steps), "--late-ms", str(system.late_ms), "--wrapper", system.wrapper]
    command += ["--result", str(result.absolute())]
    ours = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    environ = {**os.environ, **ours, **dict(framework.environment), **dict(system.variables)}
    lines: list[str] = []

    def on_line(line: str) -> None:
        lines.append(line)
        if match := _STEP.fullmatch(line):
            on_share(int(match["done"]) / int(match["all"]))

    try:
        code, verdict = ranks.run(command, system_path(environ), LIMIT_S, on_line)
    finally:
        log.write_text("\n".join(lines) + "\n")
    if code or not result.exists():
        console.show_verdict(verdict)
        console.err().print(
            f"{framework.name}, {system.label} failed with exit code {code}.",
            style="bold red",
        )
        return None
    values: dict[str, Any] = json.loads(result.read_text())
    return Outcome(framework, system, **values)
