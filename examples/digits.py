"""Handwritten digits for the examples in PyTorch and Keras: scikit-learn's images, options, and output."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from paceline.config import EXCHANGES

BATCH = 32


def data(rank: int, size: int) -> tuple[np.ndarray, ...]:
    """Return this rank's share of the training images, and all test images: images (n, 8, 8) in 0..1, labels (n,)."""
    digits = load_digits()
    images = digits.images.astype("float32") / 16
    train_x, test_x, train_y, test_y = train_test_split(images, digits.target, test_size=0.2, random_state=1)
    equal = len(train_x) // size * size  # every rank makes the same number of steps
    return train_x[:equal][rank::size], train_y[:equal][rank::size], test_x, test_y


def arguments(description: str) -> argparse.Namespace:
    """Parse the options of a training script."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0, help="chooses first weights and batches")
    parser.add_argument("--exchange", choices=EXCHANGES, help="default: what PACELINE_EXCHANGE says")
    parser.add_argument(
        "--result",
        type=Path,
        help="write accuracy, equality of the replicas and how gradients were merged to this JSON file",
    )
    return parser.parse_args()


def line(epoch: int, epochs: int, step: int, steps: int, loss: float, accuracy: float | None) -> str:
    """Return the line that rank 0 prints every few steps. Accuracy is None before the first test."""
    tested = "-" if accuracy is None else f"{accuracy:.4f}"
    return f"epoch {epoch}/{epochs} step {step}/{steps} loss {loss:.4f} accuracy {tested}"


def conclude(hvd: Any, path: Path | None, **result: Any) -> None:
    """Print rank 0's result and the state of merging, for compare_exchanges.py, and write it to `path`."""
    merging = hvd.fusion_report()
    fields = ("policy", "state", "reason", "trial")
    result["fusion"] = {name: getattr(merging, name) for name in fields}
    print("RESULT " + json.dumps(result), flush=True)
    if path:
        path.write_text(json.dumps(result))
