"""What .ci/check-includes lets pass, and what not."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("file", "include", "allowed"),
    [
        ("core/fusion/gate.cc", '"core/fusion/gate.h"', True),
        ("core/fusion/gate.cc", "<vector>", True),
        ("core/failure/watch_socket.cc", "<sys/socket.h>", True),
        ("core/fusion/gate.cc", '"bridge/hooks.h"', False),
        ("core/fusion/gate.cc", '"horovod/common/common.h"', False),
        ("core/fusion/gate.cc", "<pybind11/pybind11.h>", False),
        ("core/binding.cc", "<pybind11/pybind11.h>", True),
        ("bridge/hooks.cc", '"horovod/common/operations.h"', True),
        ("bridge/hooks.cc", '"torch/extension.h"', False),
        ("bridge/hooks.cc", '"bridge/partial/partial.h"', False),
        ("bridge/participants.cc", '"bridge/partial/partial.h"', True),
        ("bridge/partial/partial.cc", '"bridge/partial/rounds.h"', True),
        ("bridge/partial/partial.cc", '"bridge/message_plan.h"', True),
        ("bridge/partial/partial.cc", '"bridge/fusion/merger.h"', False),
        ("bridge/partial/partial.cc", "<gloo/math.h>", False),
    ],
)
def test_a_layer_includes_itself_and_those_below(file: str, include: str, allowed: bool) -> None:
    wrong = runpy.run_path(str(ROOT / ".ci" / "check-includes"))["wrong"]
    assert (wrong(file, include[0] == '"', include[1:-1]) is None) == allowed
