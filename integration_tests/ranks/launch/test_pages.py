"""Python code of documentation pages runs unchanged on two ranks."""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import pages
from integration_tests.support.packages import ROOT
from integration_tests.support.ranks import ranks
from paceline.launchers import alone_by_mistake


def blocks(page: str) -> list[str]:
    """The fenced blocks of Python."""
    return [block.text for block in pages.blocks(f"docs/{page}") if block.language == "python"]


@ranks(2)
def test_step_of_the_page_for_ddp(rank: int, size: int) -> None:
    import torch

    import paceline.torch as hvd

    (block,) = blocks("guides/from_ddp.md")
    found: dict[str, Any] = {}
    torch.manual_seed(0)
    exec(block, found)
    assert found["mean"] == (size - 1) / 2
    weights = hvd.allgather_object(found["model"].weight.tolist(), name="from_ddp.weights")
    assert weights[0] == weights[1]


@ranks(2, hvd="paceline.torch")
def test_functions_of_the_page_about_logging(rank: int, size: int, hvd: Any) -> None:
    import torch

    hvd.partial_allreduce(torch.ones(3), "pages.partial", quorum=size)
    found: dict[str, Any] = {}
    function, _, _ = blocks("guides/logging.md")
    exec(function, found)
    file = io.StringIO()
    found["log"](file, 3, hvd, loss=0.5)
    line = json.loads(file.getvalue())
    assert (line["epoch"], line["rank"], line["loss"]) == (3, rank, 0.5)
    assert line["paceline_partial_rounds_total"] >= 1 and line["paceline_fusion_plan_version"] == 0
    for _ in range(3):
        hvd.allreduce(torch.ones(3), name="pages.step")
    scalars = hvd.metrics()
    assert all(isinstance(value, (int, float)) for value in scalars.values())
    # The page has a row for each.
    listed = set(re.findall(r"`(paceline_\w+)`", (ROOT / "docs" / "guides/logging.md").read_text()))
    promised = {"paceline_fusion_predicted_step_seconds", "paceline_fusion_state"}  # with a plan, and in files alone
    assert listed - promised == set(scalars)


class _Writer:
    """In the place of torch.utils.tensorboard's, which needs a package that no test does."""

    def __init__(self, folder: str) -> None:
        self.folder, self.closed = folder, False
        self.written: list[tuple[str, float, int]] = []

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.written.append((name, value, step))

    def close(self) -> None:
        self.closed = True


@ranks(2)
def test_loop_of_the_page_about_logging(rank: int, size: int) -> None:
    import sys
    import tempfile
    import types

    sys.modules["torch.utils.tensorboard"] = types.ModuleType("tensorboard")
    vars(sys.modules["torch.utils.tensorboard"])["SummaryWriter"] = _Writer
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for block in blocks("guides/logging.md")[:2]:
            exec(block, found)
        lines = [json.loads(line) for line in Path(f"log.{rank}.jsonl").read_text().splitlines()]
        os.chdir("/")
    assert [line["epoch"] for line in lines] == [0, 1, 2] and {line["rank"] for line in lines} == {rank}
    writer = found["writer"]
    assert writer.folder == f"runs/rank{rank}" and writer.closed
    assert {name for name, _, epoch in writer.written if epoch == 2} >= {
        "paceline_steps_total",
        "paceline_step_seconds",
    }


@ranks(2, env={"KERAS_BACKEND": "torch"}, hvd="paceline.keras", fresh=True)
def test_callback_of_the_page_about_logging(rank: int, size: int, hvd: Any) -> None:
    import keras
    import numpy as np

    found: dict[str, Any] = {}
    exec(blocks("guides/logging.md")[2], found)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), name="pages"), "mse")
    data = np.ones((20, 3), np.float32), np.ones((20, 2), np.float32)
    history = model.fit(*data, batch_size=2, epochs=2, verbose=0, callbacks=[found["Metrics"](hvd)])
    assert history.history["paceline_messages_total"][1] > 10


@ranks(2)
def test_training_of_the_page_about_stages(rank: int, size: int) -> None:
    block, _, _ = blocks("methods/stages.md")
    found: dict[str, Any] = {}
    exec(block, found)
    assert found["loss"] < 10
    assert (found["whole"] is not None) == (rank == 0)
    if rank == 0:
        layers = [*(f"{number}.0" for number in range(8)), "8"]
        assert set(found["whole"]["model"]) == {f"{layer}.{one}" for layer in layers for one in ("weight", "bias")}


@ranks(2)
def test_training_of_the_page_of_one_screen(rank: int, size: int) -> None:
    (block,) = blocks("guides/train_in_stages.md")
    found: dict[str, Any] = {}
    exec(block, found)
    assert found["outputs"].shape == (5, 10)
    assert found["scores"]["accuracy"] > 0.8 and found["scores"]["loss"] < 0.8  # the page has 0.853 and 0.635
    assert (found["whole"] is not None) == (rank == 0)


@pytest.mark.more
@pytest.mark.timeout(400)
@ranks(2, timeout_s=300, env={"KERAS_BACKEND": "tensorflow"})
def test_training_with_keras_of_the_page_about_stages(rank: int, size: int) -> None:
    _, _, block = blocks("methods/stages.md")
    found: dict[str, Any] = {}
    exec(block, found)
    assert len(found["history"].history["val_loss"]) == 3
    assert (found["whole"] is not None) == (rank == 0)
    if rank == 0:
        whole = list(found["whole"]["model"].values())
        assert all((own == given).all() for own, given in zip(found["plain"].get_weights(), whole, strict=True))


def test_page_for_ddp_quotes_what_processes_of_torchrun_hear() -> None:
    said = alone_by_mistake({"WORLD_SIZE": "2", "RANK": "0"})
    assert f"Paceline: {said}" in " ".join((ROOT / "docs" / "guides/from_ddp.md").read_text().split())
