"""Traces of torch.profiler: sizes and order of gradients, steps, messages of DDP's buckets, and refusals."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

from paceline.errors import UserError
from paceline.fusion import from_trace
from paceline.predict import execution_trace
from paceline.record.timed import timed_steps

STEPS = 3
Change = Callable[[dict[str, Any], dict[str, Any]], None]


class Script:
    """A PyTorch script without Paceline, whose gradients are in another order than its parameters."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32, bias=False), torch.nn.Linear(32, 4)
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.order: list[torch.Tensor] = []
        for parameter in self.model.parameters():
            # As Paceline's optimizer does.
            parameter.register_post_accumulate_grad_hook(self.order.append)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(torch.randn(8, 16)).sum().backward()
        self.optimizer.step()


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Script, Path, Path]:
    folder = tmp_path_factory.mktemp("profiled")
    script = Script()
    script.step()
    script.order.clear()
    observer = ExecutionTraceObserver().register_callback(str(folder / "et.json"))
    with profile(activities=[ProfilerActivity.CPU], execution_trace_observer=observer) as recording:
        for _ in range(STEPS):
            script.step()
    recording.export_chrome_trace(str(folder / "kineto.json"))
    return script, folder / "et.json", folder / "kineto.json"


def test_gradients_are_the_parameters_in_the_order_of_our_hooks(profiled: tuple[Script, Path, Path]) -> None:
    script, trace, kineto = profiled
    found = execution_trace.load(trace, kineto)
    (rank,) = found.ranks
    assert (found.size, rank.library) == (1, "torch")
    hooked = script.order[: len(script.order) // STEPS]
    assert [one.size_bytes for one in rank.tensors] == [one.numel() * one.element_size() for one in hooked]
    assert {one.dtype for one in rank.tensors} == {"float"}
    assert len(rank.steps) == STEPS + 1, "the last step is followed by its copy"
    for step in rank.steps:
        assert [one.tensor for one in step.arrivals] == list(range(len(hooked)))
        times_s = [one.time_s for one in step.arrivals]
        assert times_s == sorted(times_s) and times_s[0] == pytest.approx(step.start_s)
    assert all(one.time_ms > 0 and one.waiting_ms == 0 for one in timed_steps(rank))
    measured = from_trace.measure(found, 1e-3)
    assert [one.bytes for one in measured.gradients] == [one.size_bytes for one in rank.tensors]
    assert measured.exposed_s == 0 and measured.steps == STEPS + 1


def changed(profiled: tuple[Script, Path, Path], tmp_path: Path, change: Change) -> tuple[Path, Path]:
    contents = [json.loads(path.read_text()) for path in profiled[1:]]
    change(*contents)
    paths = tmp_path / "et.json", tmp_path / "kineto.json.gz"
    paths[0].write_text(json.dumps(contents[0]))
    paths[1].write_bytes(gzip.compress(json.dumps(contents[1]).encode()))
    return paths


def steps_of(kineto: dict[str, Any]) -> list[list[dict[str, Any]]]:
    events = [one for one in kineto["traceEvents"] if one.get("name") == execution_trace.ACCUMULATE]
    events.sort(key=lambda one: one["ts"])
    count = len(events) // STEPS
    return [events[at : at + count] for at in range(0, len(events), count)]


def add_buckets(kineto: dict[str, Any], elements: tuple[int, ...]) -> None:
    """Add messages as DistributedDataParallel has them, after each step's last gradient."""
    for events in steps_of(kineto):
        last = events[-1]["ts"] + events[-1]["dur"]
        for at, count in enumerate(elements):
            kineto["traceEvents"].append(
                {"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "ts": last + 1 + at, "dur": 1.0,
                 "args": {"Input Dims": [[count]]}}
            )  # fmt: skip
    kineto["distributedInfo"] = {"rank": 1, "world_size": 4}


def test_buckets_become_messages(profiled: tuple[Script, Path, Path], tmp_path: Path) -> None:
    sizes = [one.size_bytes // 4 for one in execution_trace.load(*profiled[1:]).ranks[0].tensors]
    buckets = (sum(sizes[:2]), sum(sizes[2:]))
    found = execution_trace.load(*changed(profiled, tmp_path, lambda _, kineto: add_buckets(kineto, buckets)))
    (rank,) = found.ranks
    assert (found.size, rank.rank) == (4, 1)
    for step in rank.steps:
        assert [one.tensors for one in step.collectives] == [(0, 1), tuple(range(2, len(sizes)))]
        assert [one.size_bytes for one in step.collectives] == [4 * count for count in buckets]
        assert step.collectives[-1].end_s - step.arrivals[-1].time_s == pytest.approx(3e-6, rel=0.01)
    # Buckets of unknown tensors: one message, which is exposed as the recorded ones.
    found = execution_trace.load(*changed(profiled, tmp_path, lambda _, kineto: add_buckets(kineto, (1, 2))))
    (message,) = found.ranks[0].steps[0].collectives
    assert len(message.tensors) == len(sizes)
    assert message.end_s - message.start_s == pytest.approx(3e-6, rel=0.01)


def test_gradients_of_a_gpu_are_ready_with_their_kernels(profiled: tuple[Script, Path, Path], tmp_path: Path) -> None:
    def launch(_: dict[str, Any], kineto: dict[str, Any]) -> None:
        for number, events in enumerate(steps_of(kineto)):
            at = events[0]["ts"]
            launched = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at, "dur": 1.0}
            ends = events[-1]["ts"] + events[-1]["dur"] + 5
            kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": at, "dur": ends - at}
            kineto["traceEvents"] += [one | {"args": {"correlation": number}} for one in (launched, kernel)]

    for step in execution_trace.load(*changed(profiled, tmp_path, launch)).ranks[0].steps[:-1]:
        assert step.arrivals[-1].time_s == pytest.approx(step.start_s, abs=1e-7), "one kernel makes all gradients"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda trace, kineto: trace.pop("nodes"), "no list nodes"),
        (lambda trace, kineto: kineto.pop("traceEvents"), "no list traceEvents"),
        (lambda trace, kineto: trace["nodes"].clear(), "no gradient in common"),
        (lambda trace, kineto: kineto["traceEvents"].clear(), "no gradient in common"),
    ],
)
def test_traces_without_gradients(
    profiled: tuple[Script, Path, Path], tmp_path: Path, change: Change, problem: str
) -> None:
    with pytest.raises(UserError, match=problem):
        execution_trace.load(*changed(profiled, tmp_path, change))


def test_files_that_cannot_be_read(profiled: tuple[Script, Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        execution_trace.load(tmp_path / "nothing.json", profiled[2])
    (tmp_path / "cut.json").write_text(profiled[1].read_text()[:-9])
    with pytest.raises(UserError, match="cut short"):
        execution_trace.load(tmp_path / "cut.json", profiled[2])
