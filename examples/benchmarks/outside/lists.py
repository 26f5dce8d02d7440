"""Lists of gradients from other projects, sent as in a training step without computing.

KungFu's fake models are the sizes of the gradients of ResNet-50, VGG-16 and BERT. PARAM's Chakra trace of ResNet-50
under DDP has the buckets in the order in which DDP sent them, and the gradients in the order in which they were ready.
"""

from __future__ import annotations

import gzip
import json
import re
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from paceline.errors import UserError
from paceline.examples.benchmarks.outside.program import Program, Rows, Run
from paceline.examples.benchmarks.outside.sources import KUNGFU, PARAM_TRACE, Source
from paceline.examples.benchmarks.outside.systems import MESSAGES, STOCK, TRAINING
from paceline.launch import runs

TORCH = "torch"
_RANKS = "paceline.examples.benchmarks.outside.lists_ranks"
_KUNGFU_FILES = {"resnet50": KUNGFU.files[0], "vgg16": KUNGFU.files[1], "bert": KUNGFU.files[2]}
# Names of the trace's nodes: a bucket's allreduce, and the copy of a gradient, divided by the number of ranks, into its
# bucket.
_TRACE_NODES = {"buckets": "nccl:all_reduce", "gradients": "torch::distributed::reducer::mul_out"}
_STEP = "ProfilerStep#"
_LINE_LIMIT = 100_000  # characters of the lists in a command line


def kungfu(place: Path, name: str) -> list[int]:
    """Return the numbers of elements of a fake model, in its order: a slice of Go's in a file of its own."""
    text = (place / _KUNGFU_FILES[name]).read_text()
    found = re.search(r"=\s*\[\]int\{([^}]*)\}", text)
    if found is None:
        raise UserError(f"{place / _KUNGFU_FILES[name]} has no list of sizes.", "Use another commit of KungFu.")
    return [int(number) for number in re.findall(r"\d+", found[1])]


def chakra(place: Path, name: str) -> list[int]:
    """Return the numbers of elements of the messages, or gradients, of the first step of the trace."""
    path = place / PARAM_TRACE.files[0]
    with gzip.open(path) as file:
        nodes = sorted(json.load(file)["nodes"], key=lambda node: node["id"])
    steps = 0
    sizes: list[int] = []
    for node in nodes:
        steps += node["name"].startswith(_STEP)
        if steps == 1 and node["name"] == _TRACE_NODES[name]:
            sizes.append(prod(node["inputs"]["shapes"][0]))
    if not sizes:
        raise UserError(f"{path} has no nodes {_TRACE_NODES[name]}.", "Use another commit of PARAM.")
    return sizes


def messages(run: Run, sizes: Sequence[int]) -> list[str]:
    """Return the words of ranks that send allreduces of `sizes` elements together, again and again."""
    settings = run.settings
    library = TORCH if run.system == TORCH else "horovod"
    text = ",".join(map(str, sizes))
    assert len(text) < _LINE_LIMIT
    return ["-m", _RANKS, library, str(settings.warm_up), str(settings.steps), text, *settings.arguments]


def figures(output: str) -> dict[str, float]:
    """Return the figures that lists_ranks.py has printed. Raises UserError without them."""
    found = [result for line in output.splitlines() if (result := runs.result_in(line)) is not None]
    if len(found) != 1:
        raise UserError(f"The ranks printed {len(found)} results.", f"Their last output:\n{output[-2000:]}")
    return {"time_ms": statistics.median(found[0]["times_ms"]), "messages": found[0]["messages"]}


def _command(read_list: Callable[[Path, str], list[int]], run: Run) -> list[str]:
    return messages(run, read_list(run.place, run.input))


def _read(read_list: Callable[[Path, str], list[int]], run: Run, output: str) -> Rows:
    sizes = read_list(run.place, run.input)
    return {f"{run.input}: {len(sizes)} tensors, {4 * sum(sizes) / 1e6:.1f} MB": figures(output)}


def _program(title: str, source: Source, read_list: Callable[[Path, str], list[int]], names: Any) -> Program:
    return Program(
        title,
        source.find,
        {TORCH: {}, **MESSAGES, **{name: TRAINING[name] for name in ("optimal", "bf16", "q8")}},
        (STOCK, TORCH),
        tuple(names),
        partial(_command, read_list),
        partial(_read, read_list),
    )


KUNGFU_PROGRAM = _program("KungFu's fake models", KUNGFU, kungfu, _KUNGFU_FILES)
CHAKRA_PROGRAM = _program("DDP's ResNet-50 in PARAM's trace", PARAM_TRACE, chakra, _TRACE_NODES)
