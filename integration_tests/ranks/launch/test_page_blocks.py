"""Python blocks of the pages for users run on two ranks, in order; test_pages.py has those whose results are checked.

A block finds a model, an optimizer, data and the other names that its page leaves out (`_torch`, `_keras`,
`_tensorflow`). Statements for another framework, as the comment at their end says, are left out.
"""

from __future__ import annotations

import os
import tempfile
import types
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
    ("docs/methods/local.md", "sites = "): "two sites of four ranks",
    ("docs/methods/stages.md", "pipeline = hvd.Pipeline(model, optimizer"): "two replicas of two stages need 4 ranks",
}
# Their fenced blocks have tests of their own in test_pages.py.
WITH_RESULTS = (
    "docs/guides/from_ddp.md",
    "docs/guides/logging.md",
    "docs/guides/train_in_stages.md",
    "docs/methods/stages.md",
)


def _blocks(page: str) -> list[pages.Block]:
    """Return the Python blocks of a page that this file runs."""
    skipped = tuple(beginning for of, beginning in NOT_RUN if of == page)
    found = [block for block in pages.blocks(page) if block.python and not block.python.startswith(skipped)]
    return [block for block in found if page not in WITH_RESULTS or not block.language]


def _pages(framework: str) -> list[str]:
    """Return the pages with a block for `framework`."""
    return [
        page
        for page in pages.pages()
        if page.startswith(FOLDERS)
        if any(framework in one.frameworks for block in _blocks(page) for one in statements(block))
    ]


def test_every_exception_is_a_block() -> None:
    for page, beginning in NOT_RUN:
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

    class WithLoss(nn.Linear):
        """A model as Hugging Face's Trainer expects it."""

        def forward(self, input: Any, labels: Any = None) -> Any:
            output = super().forward(input)
            return output if labels is None else {"loss": criterion(output, labels), "logits": output}

    if hasattr(found.get("optimizer"), "drain"):
        found["optimizer"].drain()
    torch.manual_seed(0)
    model, criterion = WithLoss(4, 3), nn.functional.cross_entropy
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    encoder_optimizer, critic_optimizer = (torch.optim.SGD([one], lr=0.1) for one in model.parameters())
    if "DistributedOptimizer(" not in text:
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    inputs, targets = torch.randn(8, 4), torch.randint(3, (8,))
    loader = [(inputs, targets)] * 3
    labelled = [{"input": one, "labels": label} for one, label in zip(inputs, targets, strict=True)]

    def train_one_epoch(model: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        criterion(model(inputs), targets).backward()
        optimizer.step()

    return {
        "torch": torch,
        "Net": lambda: nn.Linear(4, 3),
        "model": model,
        "all_parameters": model.parameters(),
        "optimizer": optimizer,
        "encoder_optimizer": encoder_optimizer,
        "critic_optimizer": critic_optimizer,
        "scaler": torch.amp.GradScaler("cpu"),
        "train_one_epoch": train_one_epoch,
        "inputs": inputs,
        "targets": targets,
        "loader": loader,
        "dataset": labelled if "transformers" in text else torch.utils.data.TensorDataset(inputs, targets),
        "my_share_of_the_data": loader,
        "criterion": criterion,
        "loss_fn": criterion,
        "loss_of": criterion,
        "loss": criterion(model(inputs), targets),
        "tensor": torch.ones(3),
        "step": 1,
        "writer": types.SimpleNamespace(add_scalar=lambda name, value, step: None),
    }


@pytest.mark.parametrize("page", _pages("torch"))
@ranks(2, hvd="paceline.torch")
def test_blocks_for_torch(rank: int, size: int, hvd: Any, page: str) -> None:
    _run(page, "torch", hvd, _torch)


def _keras(hvd: Any, text: str, found: dict[str, Any]) -> dict[str, Any]:
    """A model, compiled with a wrapped optimizer unless the block compiles it, and data."""
    import keras
    import numpy as np
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
    optimizer = keras.optimizers.SGD(0.1)
    if "compile(" not in text:
        model.compile(hvd.DistributedOptimizer(optimizer), "sparse_categorical_crossentropy")
    count = 24 if hvd.rank() == 0 else 8  # one batch on each rank, also where batches are unequal
    x, y = np.random.default_rng(0).normal(size=(count, 4)).astype("float32"), np.arange(count) % 3
    if '"mse"' in text:
        y = np.eye(3, dtype="float32")[y]
    return {
        "keras": keras,
        "model": model,
        "optimizer": optimizer,
        "dataset": tf.data.Dataset.from_tensor_slices((x, y)).batch(8),
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
