"""PARAM's comms.py: times of a collective by message size, over torch.distributed and over Horovod."""

from __future__ import annotations

import json
import re

from paceline.errors import UserError
from paceline.examples.benchmarks.outside.program import Program, Rows, Run
from paceline.examples.benchmarks.outside.sources import PARAM
from paceline.examples.benchmarks.outside.systems import MESSAGES, STOCK
from paceline.launch.quantities import size_bytes, size_name

GLOO = "gloo"
_RANKS = "paceline.examples.benchmarks.outside.param_ranks"
# Bytes, elements, and microseconds of the median rank; then other percentiles of the ranks.
_RESULT = re.compile(r"COMMS-RES-(?P<collective>[a-z_]+)-float32\s+(?P<bytes>\d+)\s+\d+\s+(?P<us>[\d.]+)")


def command(run: Run) -> list[str]:
    """One call at a time after a barrier, with the program's own check of the results."""
    backend = GLOO if run.system == GLOO else "horovod"
    settings = run.settings
    sizes = ",".join(str(size_bytes(size)) for size in settings.inputs)
    arguments = [
        "--backend", backend, "--device", "cpu", "--sizes", sizes, "--w", str(settings.warm_up),
        "--num_iters", str(settings.steps), "--blocking", "1", "--c", "1", *settings.arguments,
    ]  # fmt: skip
    return ["-m", _RANKS, str(run.place), json.dumps(arguments)]


def read(run: Run, output: str) -> Rows:
    """Return the time of a call for each size. Raises UserError without a result."""
    found: Rows = {}
    for match in _RESULT.finditer(output):
        what = f"{match['collective']} of {size_name(int(match['bytes']))}"
        found[what] = {"time_ms": float(match["us"]) / 1e3}
    if not found:
        raise UserError("PARAM's comms.py printed no result.", f"Its last output:\n{output[-2000:]}")
    return found


PROGRAM = Program(
    "PARAM comms.py",
    PARAM.find,
    {GLOO: {}, **MESSAGES},
    (STOCK, GLOO),
    ("4KiB", "64KiB", "1MiB", "4MiB"),
    command,
    read,
    at_once=True,
)
