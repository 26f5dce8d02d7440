"""Gloo's benchmark program, built from Horovod's archive, beside the collectives of Horovod and Paceline.

Gloo's program times the collective alone. The others are calls of Horovod, which the ranks negotiate first.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from paceline import config
from paceline.errors import UserError
from paceline.examples.benchmarks.outside import lists
from paceline.examples.benchmarks.outside.program import Program, Rows, Run
from paceline.examples.benchmarks.outside.systems import MESSAGES, STOCK
from paceline.horovod import archive
from paceline.launch.quantities import ELEMENT_BYTES, size_bytes, size_name

_RANKS = "paceline.examples.benchmarks.outside.gloo_ranks"
_PREFIX = "gloo_"
# Algorithms of the program. Horovod and torch.distributed use the first.
ALGORITHMS = ("new_allreduce_ring", "allreduce_ring_chunked", "allreduce_halving_doubling", "allreduce_bcube")
BUILD_LIMIT_S = 900
# Bytes, elements; microseconds: least, median, 99th percentile, most; GB/s, calls.
_RESULT = re.compile(r"^\s*\d+\s+\d+\s+\d+\s+(?P<us>\d+)\s+\d+\s+\d+\s+[\d.]+\s+\d+\s*$", re.MULTILINE)


def obtain(folder: str | None) -> Path:
    """Return the program: `folder`, or built once from Horovod's archive in Paceline's cache.

    Raises UserError if the archive cannot be downloaded, and with the compiler's last lines if the build fails.
    """
    if folder is not None:
        if not Path(folder).is_file():
            raise UserError(f"{folder} is no program.", "Give folder= the path of Gloo's program `benchmark`.")
        return Path(folder)
    cache = config.read().cache_dir
    program = cache / "gloo-benchmark"
    if not program.exists():
        _build(archive.fetch(cache), program)
    return program


def _build(source: Path, program: Path) -> None:
    if shutil.which("cmake") is None:
        raise UserError("Gloo's benchmark needs cmake, which is not installed.", "Run `pip install cmake`.")
    with tempfile.TemporaryDirectory(prefix="gloo-", dir=program.parent) as folder:
        gloo = archive.unpack(source, Path(folder)) / "third_party" / "gloo"
        build = Path(folder) / "build"
        options = ["-DBUILD_BENCHMARK=ON", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_POLICY_VERSION_MINIMUM=3.5"]
        for command in (
            ["cmake", "-S", str(gloo), "-B", str(build), *options],
            ["cmake", "--build", str(build), "--target", "benchmark", "--parallel", "2"],
        ):
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False)
            except subprocess.TimeoutExpired:
                raise UserError(f"`{' '.join(command)}` did not end within {BUILD_LIMIT_S} s.", "Try again.") from None
            if done.returncode != 0:
                last = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
                raise UserError("Gloo's benchmark could not be built.", f"Its last output:\n{last}")
        (build / "gloo" / "benchmark" / "benchmark").replace(program)


def command(run: Run) -> list[str]:
    """Messages of one size."""
    settings = run.settings
    if not run.system.startswith(_PREFIX):
        return lists.messages(run, [size_bytes(run.input) // ELEMENT_BYTES])
    elements = size_bytes(run.input) // ELEMENT_BYTES
    arguments = [
        "--elements", str(elements), "--warmup-iters", str(settings.warm_up), "--iteration-count", str(settings.steps),
        *settings.arguments, run.system.removeprefix(_PREFIX),
    ]  # fmt: skip
    return ["-m", _RANKS, str(run.place), json.dumps(arguments)]


def read(run: Run, output: str) -> Rows:
    """Return the median time of a call. Raises UserError without a result."""
    title = f"allreduce of {size_name(size_bytes(run.input))}"
    if not run.system.startswith(_PREFIX):
        return {title: lists.figures(output)}
    match = _RESULT.search(output)
    if match is None:
        raise UserError("Gloo's benchmark printed no result.", f"Its last output:\n{output[-2000:]}")
    return {title: {"time_ms": int(match["us"]) / 1e3}}


PROGRAM = Program(
    "Gloo benchmark",
    obtain,
    {**{f"{_PREFIX}{name}": {} for name in ALGORITHMS}, **MESSAGES},
    (f"{_PREFIX}{ALGORITHMS[0]}", STOCK),
    ("4KiB", "1MiB", "4MiB"),
    command,
    read,
)
