"""Files and texts that are damaged in any way are refused by a UserError, or read; nothing else is raised.

hypothesis damages valid ones: bytes are cut, changed and doubled, and values in JSON replaced by values of any type.
`HYPOTHESIS_PROFILE=long` tries each a hundred times as often.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

from integration_tests.unit.history.test_reading import rank_of_two
from integration_tests.unit.predict.test_execution_trace import Script
from integration_tests.unit.record.test_trace import rank_json
from paceline import config
from paceline.collectives import network_file
from paceline.errors import UserError
from paceline.examples.benchmarks.cluster.latencies import parse_latency
from paceline.examples.benchmarks.cluster.rates import parse_rate
from paceline.exchange.in_flight_file import load_in_flight, save_in_flight
from paceline.fusion import costs, from_trace, plan_file
from paceline.history.checks.checker import check
from paceline.launch.record import horovods_timeline
from paceline.predict import execution_trace, lateness
from paceline.record import trace

settings.register_profile(
    "short", max_examples=60, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
settings.register_profile("long", max_examples=6000, deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "short"))

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)

# --- what is damaged --------------------------------------------------------------------------------------------------


@st.composite
def damaged_bytes(draw: Any, whole: bytes) -> bytes:
    """`whole` after some cuts, changes and repetitions."""
    found = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(found)))
        end = min(len(found), begin + draw(st.integers(0, 40)))
        kind = draw(st.sampled_from(["cut", "end", "change", "repeat"]))
        if kind == "cut":
            del found[begin:end]
        elif kind == "end":
            del found[begin:]
        elif kind == "change":
            found[begin:end] = draw(st.binary(max_size=20))
        else:
            found[begin:begin] = found[begin:end]
    return bytes(found)


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, one in inside for place in _places(one, (*at, key)))]


@st.composite
def damaged_values(draw: Any, whole: Any) -> Any:
    """`whole` with some values replaced or left out."""
    found = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from(_places(found)[1:] or [(None,)]))
        if last is None:
            break
        parent = found
        for key in way:
            parent = parent[key]
        if draw(st.booleans()):
            parent[last] = draw(ANYTHING)
        else:
            del parent[last]
    return found


# --- files ------------------------------------------------------------------------------------------------------------

NETWORK = {
    "format": network_file.FORMAT,
    "version": 1,
    "paceline": "0.1.0",
    "hosts": ["a", "b"],
    "block_bytes": 65536,
    "pairs": [{"sender": s, "receiver": 1 - s, "latency_s": 1e-4, "bytes_per_s": 1e9} for s in range(2)],
    "timings": [
        {"operation": "allreduce", "collective": "ring", "size_bytes": 4096, "message_s": 1e-3, "call_s": 2e-3},
    ],
}
PLAN = {"format": plan_file.FORMAT, "version": 1, "policy": "optimal", "groups": [["a", "b"], ["c"]]}
TIMELINE = [
    {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "a"}},
    {"name": "ALLREDUCE", "ph": "B", "pid": 1, "ts": 5},
    {"name": "ALLREDUCE", "ph": "E", "pid": 1, "ts": 9},
]
HISTORY = [json.loads(msgspec.json.encode(one)) for one in rank_of_two(0, 1, 2)]


def _lines(values: Any) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in values)


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def _history(path: Path) -> None:
    path.rename(path.with_name("history-0.jsonl"))
    check(path.parent)


@cache
def _profile() -> tuple[Any, Any]:
    """Two steps of PyTorch's execution trace and of its profiler."""
    script = Script()
    script.step()
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("nodes.json", "events.json")]
        observer = ExecutionTraceObserver().register_callback(str(paths[0]))
        with profile(activities=[ProfilerActivity.CPU], execution_trace_observer=observer) as recording:
            for _ in range(2):
                script.step()
        recording.export_chrome_trace(str(paths[1]))
        execution_trace.load(*paths)
        nodes, events = (json.loads(path.read_bytes()) for path in paths)
        return nodes, events


def _load_profile(path: Path, damaged: int) -> None:
    """Load both files of a profile, of which `path` is the damaged one."""
    other = path.with_name("other.json")
    other.write_bytes(_dumped(_profile()[1 - damaged]))
    execution_trace.load(*((path, other) if damaged == 0 else (other, path)))


# By format: makes a valid value, how it is written, how it is read.
FORMATS: dict[str, tuple[Callable[[], Any], Callable[[Any], bytes], Callable[[Path], Any]]] = {
    "trace": (rank_json, _dumped, trace.load),
    "trace of a plan": (rank_json, _dumped, from_trace.load),
    "network": (lambda: NETWORK, _dumped, network_file.load),
    "plan": (lambda: PLAN, _dumped, plan_file.read),
    "timeline": (lambda: TIMELINE, _dumped, horovods_timeline.load),
    "execution trace": (lambda: _profile()[0], _dumped, lambda path: _load_profile(path, 0)),
    "kineto": (lambda: _profile()[1], _dumped, lambda path: _load_profile(path, 1)),
    "history": (lambda: HISTORY, _lines, _history),
}


def _read(read: Callable[[Path], Any], content: bytes) -> None:
    """Read a file of this content: it is read, or refused by a UserError that says what to do."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file.json"
        path.write_bytes(content)
        try:
            read(path)
        except UserError as error:
            assert str(error) and error.remedy


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
def test_damaged_files(name: str, data: Any) -> None:
    value, written, read = FORMATS[name]
    _read(read, data.draw(damaged_bytes(written(value()))))


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
def test_files_with_other_values(name: str, data: Any) -> None:
    value, written, read = FORMATS[name]
    _read(read, written(data.draw(damaged_values(value()))))


@given(data=st.data())
def test_damaged_gradients_in_flight(data: Any) -> None:
    state = {"in_flight": [({"w": np.arange(6.0), 3: np.ones((2, 2), np.float32)}, True)], "step": 7}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "state.npz"
        save_in_flight(path, state)
        whole = path.read_bytes()
    _read(load_in_flight, data.draw(damaged_bytes(whole)))


@given(data=st.data())
def test_damaged_lateness(data: Any) -> None:
    _read(lateness.of_file, data.draw(damaged_bytes(b"step,rank,late_s\n0,0,0.1\n0,1,0.2\n1,0,0.0\n1,1,0.3\n")))


# --- texts ------------------------------------------------------------------------------------------------------------

TEXTS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "lateness": ("normal:0.1,0.02", lateness.parse),
    "costs": ("1.2e-3,8e-9", costs.parse),
    "rate": ("200mbit", parse_rate),
    "latency": ("2ms", parse_latency),
    "debug": ("armed=True,fusion_warmup_steps=3", lambda text: config.read({"PACELINE_DEBUG": text})),
}


@pytest.mark.parametrize("name", TEXTS)
@given(data=st.data())
def test_other_texts(name: str, data: Any) -> None:
    valid, parse = TEXTS[name]
    damaged = damaged_bytes(valid.encode()).map(lambda one: one.decode(errors="replace"))
    try:
        parse(data.draw(damaged | st.text(max_size=20)))
    except UserError as error:
        assert str(error) and error.remedy


@given(
    values=st.dictionaries(st.sampled_from([one.variable for one in config.OPTIONS]), st.text(max_size=12), max_size=4)
)
def test_other_values_of_variables(values: dict[str, str]) -> None:
    try:
        config.read(values)
    except UserError as error:
        assert str(error) and error.remedy
