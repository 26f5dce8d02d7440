"""Python blocks of the pages for users run on two ranks, in order; test_pages.py has those whose results are checked.

A block finds a model, an optimizer, data and the other names that its page leaves out (`_torch`, `_keras`,
`_tensorflow`). Statements for another framework, as the comment at their end says, are left out.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import pages
from integration_tests.support.page_python import program, statements
from integration_tests.support.ranks import ranks

FOLDERS = ("README.md", "docs/start/", "docs/guides/", "docs/methods/")
# Page, beginning of a block -> why it does not run here.
NOT_RUN = {
    ("docs/guides/lightning.md", "trainer = L.Trainer"): "ranks/trainers/test_lightning.py trains with this strategy",
    (
        "docs/guides/lightning.md",
        "from collections.abc",
    ): "ranks/trainers/test_lightning.py compares it with the example",
    (
        "docs/guides/lightning.md",
        "class HorovodStrategy",
    ): "ranks/trainers/test_lightning.py compares it with the example",
    ("docs/guides/ray_and_spark.md", '"""Handwritten digits with PyTorch'): "Ray; ranks/engines runs the example",
    ("docs/guides/ray_and_spark.md", '"""Handwritten digits with Keras'): "Spark; ranks/engines runs the example",
    ("docs/methods/stages.md", "pipeline = hvd.Pipeline(model, optimizer"): "two replicas of two stages need 4 ranks",
}
# They have a test of their own in test_pages.py.
WITH_RESULTS = ("docs/guides/from_ddp.md", "docs/guides/logging.md", "docs/guides/train_in_stages.md")
OTHERS = {("docs/methods/stages.md", "import paceline.torch"), ("docs/methods/stages.md", "import keras")}


def _blocks(page: str) -> list[pages.Block]:
    """The Python blocks of a page that this file runs."""
    skipped = {beginning for of, beginning in (*NOT_RUN, *OTHERS) if of == page}
    found = [block for block in pages.blocks(page) if block.python]
    return [block for block in found if not any(block.python.startswith(one) for one in skipped)]


def _pages(framework: str) -> list[str]:
    return [
        page
        for page in pages.pages()
        if page.startswith(FOLDERS) and page not in WITH_RESULTS
        if any(framework in one.frameworks for block in _blocks(page) for one in statements(block))
    ]


def test_every_exception_is_a_block() -> None:
    for page, beginning in (*NOT_RUN, *OTHERS):
        assert any(block.python.startswith(beginning) for block in pages.blocks(page)), (page, beginning)


def _run(page: str, framework: str, hvd: Any, names: Any) -> None:
    """Run the blocks of a page in a folder of this rank; `names` returns what a block may use, by its text."""
    found: dict[str, Any] = {"__name__": "page", "hvd": hvd}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for block in _blocks(page):
                code = program(block, framework)
                if code is not None:
                    found.update(names(hvd, block.python, found))
                    exec(code, found)
        finally:
            os.chdir(before)


def _torch(hvd: Any, text: str, found: dict[str, Any]) -> dict[str, Any]:
    """A model, an optimizer that is wrapped unless the block wraps it, and data."""
    import torch
    from torch import nn

    if getattr(found.get("optimizer"), "drain", None):
        found["optimizer"].drain()
    torch.manual_seed(0)
    model, criterion = nn.Linear(4, 3), nn.functional.cross_entropy
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    if "DistributedOptimizer(" not in text:
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    inputs, targets = torch.randn(8, 4), torch.randint(3, (8,))
    loader = [(inputs, targets)] * 3
    return {
        "torch": torch,
        "Net": lambda: nn.Linear(4, 3),
        "model": model,
        "optimizer": optimizer,
        "inputs": inputs,
        "targets": targets,
        "loader": loader,
        "my_share_of_the_data": loader,
        "criterion": criterion,
        "loss_fn": criterion,
        "loss_of": criterion,
        "loss": criterion(model(inputs), targets),
        "tensor": torch.ones(3),
    }


@pytest.mark.parametrize("page", _pages("torch"))
@ranks(2, hvd="paceline.torch")
def test_blocks_for_torch(rank: int, size: int, hvd: Any, page: str) -> None:
    _run(page, "torch", hvd, _torch)


def _keras(hvd: Any, text: str, found: dict[str, Any]) -> dict[str, Any]:
    """A model, compiled with a wrapped optimizer unless the block compiles it, and data."""
    import keras
    import numpy as np

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
    optimizer = keras.optimizers.SGD(0.1)
    if "compile(" not in text:
        model.compile(hvd.DistributedOptimizer(optimizer), "sparse_categorical_crossentropy")
    x, y = np.random.default_rng(0).normal(size=(24, 4)).astype("float32"), np.arange(24) % 3
    return {
        "keras": keras,
        "model": model,
        "optimizer": optimizer,
        "x": x,
        "y": y,
        "test_x": x,
        "test_y": y,
        "x_share": x,
        "y_share": y,
    }


@pytest.mark.parametrize("page", _pages("keras"))
@ranks(2, env={"KERAS_BACKEND": "tensorflow"}, hvd="paceline.keras")
def test_blocks_for_keras(rank: int, size: int, hvd: Any, page: str) -> None:
    _run(page, "keras", hvd, _keras)


def _tensorflow(hvd: Any, text: str, found: dict[str, Any]) -> dict[str, Any]:
    """A model, its optimizer, a tape of its loss, and data."""
    import keras
    import tensorflow as tf

    tf.random.set_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
    loss_of = keras.losses.SparseCategoricalCrossentropy()
    inputs, targets = tf.random.normal((8, 4)), tf.range(8) % 3
    with tf.GradientTape(persistent=True) as tape:
        loss = loss_of(targets, model(inputs))
    return {
        "tf": tf,
        "model": model,
        "optimizer": keras.optimizers.SGD(0.1),
        "loss_of": loss_of,
        "first_batch": (inputs, targets),
        "inputs": inputs,
        "tape": tape,
        "loss": loss,
        "tensor": tf.ones(3),
    }


@pytest.mark.parametrize("page", _pages("tensorflow"))
@ranks(2, env={"KERAS_BACKEND": "tensorflow"}, hvd="paceline.tensorflow")
def test_blocks_for_tensorflow(rank: int, size: int, hvd: Any, page: str) -> None:
    _run(page, "tensorflow", hvd, _tensorflow)
