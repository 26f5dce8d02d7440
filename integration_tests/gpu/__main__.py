"""Every exchange with tensors on a GPU that two ranks share: values, and times of steps against DDP.

    python -m integration_tests.gpu                     (values and times, some minutes)
    python -m integration_tests.gpu --values            (half a minute; --device cpu runs the same without a GPU)
    python -m integration_tests.gpu --write build/gpu.md

Horovod may be built with or without CUDA: paceline.horovod.shims.host_staging describes the path without. Times are
taken on this host, and as root also between two emulated hosts. Exits with 1 if a value was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from integration_tests.gpu import speed, values
from paceline.errors import UserError
from paceline.examples.benchmarks.cluster.cluster import Cluster
from paceline.examples.benchmarks.cluster.errors import ClusterError
from paceline.horovod import check, gpu

MODELS = ("resnet50", "transformer")
RATES = ("1gbit", "10gbit")  # of the emulated hosts' links
HERE = "this host"
INTERFACE = "eth0"  # of an emulated host

# Runs a command of horovodrun with more variables, and returns its exit code and output.
Run = Callable[[Sequence[str], dict[str, str]], tuple[int, str]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for the values, and for each time")
    parser.add_argument("--values", action="store_true", help="values only")
    parser.add_argument("--models", nargs="*", default=MODELS, choices=speed.MODELS)
    parser.add_argument("--systems", nargs="*", default=list(speed.SYSTEMS), choices=speed.SYSTEMS)
    parser.add_argument("--rates", nargs="*", default=RATES, help="of the links between emulated hosts; none: no hosts")
    parser.add_argument("--write", type=Path, default=Path("build/gpu.md"), help="file for the tables, in Markdown")
    parser.add_argument("--part", nargs=3, help=argparse.SUPPRESS)  # in a rank: system, model and store; or "values"
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)  # in a rank: file for its findings
    arguments = parser.parse_args()
    if arguments.out:
        _rank(arguments)
        return 0
    if arguments.device != "cpu" and not torch.cuda.is_available():
        Console(stderr=True).print("PyTorch finds no GPU here; --device cpu runs the same in CPU memory.")
        return 2
    Path("build").mkdir(exist_ok=True)
    lines = _facts(arguments.device, arguments.ranks)
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        right = _values(arguments, Path(folder), lines)
        if not arguments.values:
            _times(arguments, Path(folder), lines)
    arguments.write.write_text("\n".join(lines) + "\n")
    print(f"The tables: {arguments.write}")
    return 0 if right else 1


def _rank(arguments: argparse.Namespace) -> None:
    rank = int(os.environ["HOROVOD_RANK"])
    if arguments.part is None:
        found: Any = values.values(arguments.device)
    else:
        system, model, store = arguments.part
        trace = Path(f"build/gpu-{model}-{system.replace(', ', '-')}.json").resolve() if rank == 0 else None
        found = dataclasses.asdict(speed.measure(system, model, arguments.device, store, trace))
    Path(f"{arguments.out}.{rank}").write_text(json.dumps(found))


def _facts(device: str, ranks: int) -> list[str]:
    """Return the lines of a table about the machine and the versions."""
    inputs = check.built_from()
    rows = {
        "date": f"{datetime.date.today():%d %B %Y}",
        "device": "CPU memory" if device == "cpu" else torch.cuda.get_device_name(),
        "ranks": f"{ranks}, sharing it",
        "PyTorch": f"{torch.__version__}, CUDA {torch.version.cuda}",
        "gradients on GPUs": "not built by Paceline" if inputs is None else gpu.mode(inputs),
    }
    return ["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows.items()), ""]


def _started(
    arguments: argparse.Namespace,
    run: Run,
    hosts: Sequence[str],
    folder: Path,
    part: Sequence[str],
    env: dict[str, str],
) -> tuple[list[Any], str]:
    """Start the ranks for one part; return the findings of all ranks, or [] and the output."""
    out = folder / f"rank-{len(list(folder.iterdir()))}"
    command = [
        "horovodrun",
        "-np",
        str(arguments.ranks),
        *hosts,
        "--gloo",
        sys.executable,
        "-m",
        "integration_tests.gpu",
    ]
    command += ["--device", arguments.device, "--out", str(out), *part]
    code, output = run(command, env)
    files = [Path(f"{out}.{rank}") for rank in range(arguments.ranks)]
    if code or not all(one.exists() for one in files):
        return [], output
    return [json.loads(one.read_text()) for one in files], output


def _values(arguments: argparse.Namespace, folder: Path, lines: list[str]) -> bool:
    found, output = _started(arguments, _here(arguments.timeout), [], folder, [], {})
    if not found:
        print(output)
        return False
    header = ["with tensors on the device", *(f"rank {rank}" for rank in range(len(found)))]
    rows = [[name, *(one[name] for one in found)] for name in found[0]]
    _show(header, rows, lines)
    return all(cell == values.RIGHT for row in rows for cell in row[1:])


def _times(arguments: argparse.Namespace, folder: Path, lines: list[str]) -> None:
    """Measure the steps of each model and system, on this host and between emulated ones."""
    rows = []
    for place in (HERE, *arguments.rates):
        with contextlib.ExitStack() as stack:
            try:
                run, hosts, env = stack.enter_context(_place(place, arguments.timeout))
            except UserError as error:
                rows.append([place, "", "", error.problem, ""])
                continue
            for model in arguments.models:
                for number, system in enumerate(arguments.systems):
                    store = folder / f"store-{place}-{model}-{number}"
                    part = ["--part", system, model, str(store)]
                    found, output = _started(arguments, run, hosts, folder, part, {**env, **speed.SYSTEMS[system]})
                    rows.append([place, model, system, *_cells(found, output)])
                    print(" | ".join(rows[-1]), flush=True)
    _show(["between", "model", "system", "step, ms", "copies beside kernels"], rows, lines)


def _cells(found: Sequence[dict[str, Any]], output: str) -> list[str]:
    if not found:
        errors = [line for line in output.splitlines() if "Error" in line]
        return [f"failed: {(errors or output.splitlines() or ['no output'])[0][:160]}", ""]
    overlap = found[0]["overlap"]
    return [f"{max(one['step_ms'] for one in found):.1f}", "" if overlap is None else f"{overlap:.0%}"]


@contextlib.contextmanager
def _place(place: str, timeout_s: float) -> Iterator[tuple[Run, list[str], dict[str, str]]]:
    """Context with a function that runs commands, and arguments and variables for the hosts."""
    if place == HERE:
        yield _here(timeout_s), [], {}
        return
    with Cluster(hosts=2, rate=place) as cluster:

        def run(command: Sequence[str], env: dict[str, str]) -> tuple[int, str]:
            try:
                done = cluster.run(command, env=_environment(env), timeout_s=timeout_s)
            except ClusterError as error:
                return 1, f"Error: {error.problem}"
            return done.returncode, done.stdout + done.stderr

        yield run, ["-H", cluster.host_list], {"GLOO_SOCKET_IFNAME": INTERFACE, "NCCL_SOCKET_IFNAME": INTERFACE}


def _here(timeout_s: float) -> Run:
    def run(command: Sequence[str], env: dict[str, str]) -> tuple[int, str]:
        try:
            done = subprocess.run(
                command, env=_environment(env), timeout=timeout_s, capture_output=True, text=True, errors="replace"
            )
        except subprocess.TimeoutExpired:
            return 1, f"Error: not done within {timeout_s:g} s"
        return done.returncode, done.stdout + done.stderr

    return run


def _environment(env: dict[str, str]) -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", **env}


def _show(header: Sequence[str], rows: Sequence[Sequence[str]], lines: list[str]) -> None:
    table = Table(*header)
    for row in rows:
        table.add_row(*map(escape, row))
    Console().print(table)
    for row in (header, ["---"] * len(header), *rows):
        lines.append(f"| {' | '.join(row)} |")
    lines.append("")


if __name__ == "__main__":
    sys.exit(main())
