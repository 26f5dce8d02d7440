"""Trace of a PyTorch script without Paceline: torch.profiler's execution trace (Chakra's JSON) and Kineto's trace.

The execution trace has the gradients and their sizes in bytes: a node torch::autograd::AccumulateGrad each. Kineto's
trace has the times. Both name an operation by its record function id.

  gradient   submitted when its AccumulateGrad has ended, with a GPU when the last kernel launched by then has ended
  step       ends with Optimizer.step, or with the profiler's own step; at least one must be complete
  message    an all_reduce of Gloo or NCCL, such as DistributedDataParallel's buckets; without any, no time is exposed

A step that has no successor is followed by its copy, so that it has a time.
"""

from __future__ import annotations

import gzip
import json
import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import median
from typing import Any

from paceline.errors import UserError
from paceline.fusion.from_trace import ALLREDUCE, WARM_UP_STEPS
from paceline.record.trace import Arrival, Collective, RankTrace, Step, Tensor, Totals, Trace

ACCUMULATE = "torch::autograd::AccumulateGrad"
RECORD_ID = "Record function id"
STEP_ENDS = re.compile(r"Optimizer\.step#|ProfilerStep#")
MESSAGE = re.compile(r"(gloo|nccl|mpi):all_?reduce")
REMEDY = (
    "Record some steps after the first ones by torch.profiler.profile(execution_trace_observer="
    "ExecutionTraceObserver().register_callback('et.json')), and export_chrome_trace('kineto.json')."
)


@dataclass(frozen=True)
class _Gradient:
    """A gradient of one step: dimensions, bytes per element, data type, and time at which it is ready."""

    shape: tuple[int, ...]
    size_bytes: int
    dtype: str
    ready_s: float


def load(path: Path, kineto: Path) -> Trace:
    """Return the trace of one rank. Raises UserError that names the file and what it lacks."""
    nodes, profile = _content(path, "nodes")["nodes"], _content(kineto, "traceEvents")
    try:
        found = _found(nodes, profile)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise UserError(
            f"{path} and {kineto} cannot be used: a record has another form ({type(error).__name__}: {error}).",
            REMEDY,
        ) from None
    if found is None:
        raise UserError(f"{path} and {kineto} have no gradient in common.", "Both must be of the same run. " + REMEDY)
    return found


def _found(nodes: Sequence[Any], profile: dict[str, Any]) -> Trace | None:
    """Return the trace, or None if no gradient is in both files."""
    events = [one for one in profile["traceEvents"] if one.get("ph") == "X"]
    world = profile.get("distributedInfo") or {}
    found = _gradients(nodes, events)
    if not found:
        return None
    steps = _steps(found, events)
    return Trace(int(world.get("world_size", 1)), (_rank(steps, events, world),))


def _content(path: Path, key: str) -> dict[str, Any]:
    """Return the JSON object in `path`, which has a list `key`."""
    try:
        raw = path.read_bytes()
        value = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    except (OSError, EOFError) as error:
        raise UserError(f"The trace {path} cannot be read: {error}.", REMEDY) from None
    except ValueError as error:
        raise UserError(f"The trace {path} cannot be used: it is cut short or not JSON ({error}).", REMEDY) from None
    if not isinstance(value, dict) or not isinstance(value.get(key), list):
        raise UserError(f"The trace {path} cannot be used: it has no list {key}.", REMEDY)
    return value


def _gradients(nodes: Sequence[dict[str, Any]], events: Sequence[dict[str, Any]]) -> list[_Gradient]:
    """Return all gradients of both traces, in order of readiness."""
    ends_us = {
        one["args"][RECORD_ID]: one["ts"] + one["dur"]
        for one in events
        if one["name"] == ACCUMULATE and RECORD_ID in one.get("args", {})
    }
    ready_us = _on_device(events)
    found = []
    for node in nodes:
        number = next((one["value"] for one in node.get("attrs", ()) if one["name"] == "rf_id"), None)
        if node["name"] == ACCUMULATE and number in ends_us:
            *_, elements, element_bytes, _ = node["inputs"]["values"][0]
            kind = str(node["inputs"]["types"][0]).removeprefix("Tensor(").removesuffix(")")
            shape = tuple(node["inputs"]["shapes"][0])
            found.append(_Gradient(shape, elements * element_bytes, kind, 1e-6 * ready_us(ends_us[number])))
    return sorted(found, key=lambda one: one.ready_s)


def _on_device(events: Sequence[dict[str, Any]]) -> Any:
    """Return a function from a time to the end of the last kernel launched by then; without a GPU, to that time."""
    launched = {
        one["args"]["correlation"]: one["ts"]
        for one in events
        if one.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in one.get("args", {})
    }
    kernels = sorted(
        (launched[one["args"]["correlation"]], one["ts"] + one["dur"])
        for one in events
        if one.get("cat") == "kernel"
        and "nccl" not in one["name"].lower()
        and one.get("args", {}).get("correlation") in launched
    )
    starts = [start for start, _ in kernels]
    ends = list(accumulate((end for _, end in kernels), max))

    def ready_us(at_us: float) -> float:
        number = bisect_right(starts, at_us)
        return max(at_us, ends[number - 1]) if number else at_us

    return ready_us


def _steps(found: Sequence[_Gradient], events: Sequence[dict[str, Any]]) -> list[list[_Gradient]]:
    """Return the gradients of each complete step: those with the usual sizes."""
    ends_s = sorted(1e-6 * (one["ts"] + one["dur"]) for one in events if STEP_ENDS.match(one["name"]))
    by_step: dict[int, list[_Gradient]] = {}
    for one in found:
        by_step.setdefault(bisect_right(ends_s, one.ready_s), []).append(one)
    usual = max(len(one) for one in by_step.values())
    return [one for _, one in sorted(by_step.items()) if len(one) == usual]


def _rank(steps: Sequence[Sequence[_Gradient]], events: Sequence[dict[str, Any]], world: dict[str, Any]) -> RankTrace:
    first_s = [step[0].ready_s for step in steps]
    gaps_s = [after - before for before, after in pairwise(first_s)]
    # One step alone takes the whole profile.
    begin_s = 1e-6 * min(one["ts"] for one in events)
    step_s = median(gaps_s) if gaps_s else 1e-6 * max(one["ts"] + one["dur"] for one in events) - begin_s
    starts_s = [*first_s, first_s[-1] + step_s]
    names = [f"gradient.{at}.{'x'.join(map(str, one.shape))}" for at, one in enumerate(steps[0])]
    tensors = tuple(Tensor(name, one.size_bytes, one.dtype, 0) for name, one in zip(names, steps[0], strict=True))
    made = []
    for number, start_s in enumerate(starts_s):
        at = min(number, len(steps) - 1)
        moved_s = start_s - first_s[at] - first_s[0]
        arrivals = tuple(Arrival(place, one.ready_s + moved_s) for place, one in enumerate(steps[at]))
        until_s = first_s[at + 1] if at + 1 < len(steps) else math.inf
        messages = _messages(steps[at], events, until_s, moved_s)
        made.append(Step(WARM_UP_STEPS + number, start_s - first_s[0], arrivals, messages, 0))
    sums = Totals(len(made), 0, sum(len(one.collectives) for one in made), len(made) * sum(_sizes(steps[0])))
    rank, size = int(world.get("rank", 0)), int(world.get("world_size", 1))
    return RankTrace(rank, size, "", "torch", "", "", tensors, tuple(made), sums)


def _sizes(step: Sequence[_Gradient]) -> list[int]:
    return [one.size_bytes for one in step]


def _messages(
    step: Sequence[_Gradient], events: Sequence[dict[str, Any]], until_s: float, moved_s: float
) -> tuple[Collective, ...]:
    """Return the step's messages: recorded ones, or one of no time at the last gradient."""
    begin_s, last_s = step[0].ready_s, step[-1].ready_s
    recorded = [one for one in events if MESSAGE.match(one["name"]) and begin_s <= 1e-6 * one["ts"] < until_s]
    on_device = [one for one in recorded if one.get("cat") == "gpu_user_annotation"]
    recorded = sorted(on_device or recorded, key=lambda one: one["ts"])
    spans_s = [(1e-6 * one["ts"] + moved_s, 1e-6 * (one["ts"] + one["dur"]) + moved_s) for one in recorded]
    groups = _groups(step, recorded)
    if groups is None:
        # The buckets are unknown: one message that is exposed as the recorded ones are.
        end_s = max([last_s + moved_s, *(end for _, end in spans_s)])
        groups, spans_s = [tuple(range(len(step)))], [(last_s + moved_s, end_s)]
    sizes = _sizes(step)
    return tuple(
        Collective(ALLREDUCE, group, sum(sizes[at] for at in group), *span)
        for group, span in zip(groups, spans_s, strict=True)
    )


def _groups(step: Sequence[_Gradient], recorded: Sequence[dict[str, Any]]) -> list[tuple[int, ...]] | None:
    """Return the gradients of each message: as many, in order, as have its number of elements; None if none fit."""
    elements = [math.prod(one.shape) for one in step]
    groups: list[tuple[int, ...]] = []
    at = 0
    for one in recorded:
        dimensions = one.get("args", {}).get("Input Dims") or [[]]
        wanted = math.prod(dimensions[0]) if dimensions[0] else 0
        first = at
        while at < len(step) and sum(elements[first : at + 1]) <= wanted:
            at += 1
        if first == at or sum(elements[first:at]) != wanted:
            return None
        groups.append(tuple(range(first, at)))
    return groups if groups and at == len(step) else None
