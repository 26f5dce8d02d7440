"""C entry points: an exception becomes an error of the caller; it used to end the process.

A transport (`communicator`) that another thread had closed was dereferenced, which is a segmentation fault.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import pytest

import paceline
from integration_tests.support.ranks import run_ranks

BRIDGE = Path(paceline.__file__).parent / "bridge"
_ENTRY = re.compile(r"^(?:void|int32_t|int64_t|double|const \w+\*) horovod_paceline_(\w+)\(", re.MULTILINE)
# They cannot throw.
_PLAIN = {"interface", "take_error"}
_NO_COMMUNICATOR = 999

# Calls that fail inside: no memory has a negative size, and no transport has this number.
_CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("register", (0, b"boundary", b"pipelined", None, -1)),
    ("agree_min_max", (0, b"boundary", -1, None, None, None, 1.0)),
    ("network", (2, 1.0, 1.0, 1, -1, None, None, None, None)),
    ("residual_put", (b"boundary", 0, None, -1)),
    ("communicator_send", (_NO_COMMUNICATOR, 0, 1, None, 0)),
    ("communicator_receive", (_NO_COMMUNICATOR, 0, 1, None, 0)),
    ("communicator_wait", (_NO_COMMUNICATOR, 1, 0.0)),
    ("communicator_abort", (_NO_COMMUNICATOR, 1, 0.0)),
    ("communicator_notify_failure", (_NO_COMMUNICATOR, b"text")),
    ("communicator_why", (_NO_COMMUNICATOR, None, 0)),
]
_WITH_ERROR = {"register", "agree_min_max", "network"}  # they have room for an error


def _fails(_rank: int, _size: int, name: str, arguments: tuple[Any, ...]) -> None:
    import paceline.torch as hvd
    from paceline.native.library import loaded

    hvd.init()
    entry = getattr(loaded("torch"), f"horovod_paceline_{name}")
    if name in _WITH_ERROR:
        error = ctypes.create_string_buffer(200)
        assert entry(*arguments, error, 200) == -1
        assert error.value
    else:
        with pytest.raises(RuntimeError, match=rf"horovod_paceline_{name}: \w+"):
            entry(*arguments)


@pytest.mark.parametrize(("name", "arguments"), _CALLS, ids=[name for name, _ in _CALLS])
def test_exceptions_are_errors(name: str, arguments: tuple[Any, ...]) -> None:
    run_ranks(_fails, 1, name, arguments)


def test_every_entry_point_ends_at_the_boundary() -> None:
    """PACELINE_CATCH (bridge/c_boundary.h) follows the body of each."""
    missing, found = [], 0
    for path in sorted(BRIDGE.rglob("*.cc")):
        text = path.read_text()
        for entry in _ENTRY.finditer(text):
            found += 1
            body = text[entry.start() :]
            end = re.search(r"^}\n(PACELINE_CATCH\()?|; }\n(PACELINE_CATCH\()?", body, re.MULTILINE)
            if entry[1] not in _PLAIN and not (end and (end[1] or end[2])):
                missing.append(f"{path.relative_to(BRIDGE)}: {entry[1]}")
    assert found > 40
    assert not missing
