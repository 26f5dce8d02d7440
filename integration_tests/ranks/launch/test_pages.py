"""The Python of pages that users copy from runs as it stands there, on two ranks."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

from integration_tests.support.packages import ROOT
from integration_tests.support.ranks import ranks


def blocks(page: str) -> list[str]:
    """The fenced blocks of Python."""
    return re.findall(r"^```python\n(.*?)^```$", Path(ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)


@ranks(2)
def test_step_of_the_page_for_ddp(rank: int, size: int) -> None:
    import torch

    import paceline.torch as hvd

    (block,) = blocks("from_ddp.md")
    found: dict[str, Any] = {}
    torch.manual_seed(0)
    exec(block, found)
    assert found["mean"] == (size - 1) / 2
    weights = hvd.allgather_object(found["model"].weight.tolist(), name="from_ddp.weights")
    assert weights[0] == weights[1]


@ranks(2)
def test_functions_of_the_page_about_logging(rank: int, size: int) -> None:
    import torch

    import paceline.torch as hvd

    hvd.init()
    hvd.partial_allreduce(torch.ones(3), "pages.partial", quorum=size)
    found: dict[str, Any] = {}
    for block in blocks("logging.md"):
        exec(block, found)
    file = io.StringIO()
    found["log"](file, 3, hvd, loss=0.5)
    line = json.loads(file.getvalue())
    assert (line["epoch"], line["rank"], line["loss"], line["fusion"]["policy"]) == (3, rank, 0.5, "threshold")
    assert line["exchange"]["rounds"] >= 1 and 0 <= line["in_time"] <= 1
    scalars = found["scalars"](hvd)
    assert scalars["exchange/rounds"] == line["exchange"]["rounds"]
    assert scalars["fusion/version"] == 0
    assert all(isinstance(value, (int, float)) for value in scalars.values())
    for name in re.findall(r"`(fusion|exchange)\.(\w+)`", (ROOT / "docs" / "logging.md").read_text()):
        assert name[1] in line[name[0]]
