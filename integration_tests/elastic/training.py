"""Common part of the trainings of elastic jobs: data, changes at their steps, and results.

Besides a net, the optimizer trains one number, whose gradient on every rank is the number of ranks: updates of the mean
count the contributions that have reached the weights.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from integration_tests.elastic.schedule import STEPS, Change, Event, Schedule
from paceline.examples import digits

BATCH, RATE, HIDDEN = 32, 0.1, 64
WAIT_LIMIT_S = 90.0

Array = np.ndarray[Any, Any]


class Changes:
    """Changes of a schedule as one rank makes them."""

    def __init__(self, folder: Path, hvd: Any) -> None:
        self._folder, self._hvd = folder, hvd
        schedule: Schedule = pickle.loads((folder / "schedule.pickle").read_bytes())
        self._events = {event.step: event for event in schedule.events}

    def before_step(self, state: Any, step: int) -> None:
        """Wait for the ranks of this step; raises what Horovod raises when ranks come and go."""
        event = self._events.get(step)
        if event is None or self._done(event).exists():
            return
        if self._hvd.size() == event.size:
            if self._hvd.rank() == 0:
                self._done(event).touch()
        elif event.change is not Change.KILL:
            self._wait(state, event)

    def passes(self, step: int, moment: str) -> None:
        """Kill this rank if its time has come."""
        event = self._events.get(step)
        if event is None or event.change is not Change.KILL or event.moment != moment:
            return
        mark = self._folder / f"killed.{step}"
        mine = os.environ["HOROVOD_HOSTNAME"] == event.name and self._hvd.local_rank() == 0
        if mine and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def after_step(self, step: int) -> None:
        """Log the number of ranks that made the step. All ranks do: any of them may be killed before this."""
        with (self._folder / "steps").open("a") as log:
            print(step, self._hvd.size(), file=log)

    def _done(self, event: Event) -> Path:
        return self._folder / f"done.{event.step}"

    def _wait(self, state: Any, event: Event) -> None:
        if self._hvd.rank() == 0:
            new = self._folder / "hosts.new"
            new.write_text("\n".join(event.hosts) + "\n")
            new.replace(self._folder / "hosts")
        end_s = time.monotonic() + WAIT_LIMIT_S
        while time.monotonic() < end_s:
            time.sleep(0.05)
            state.check_host_updates()
        raise AssertionError(f"rank {self._hvd.rank()}: no change of ranks within {WAIT_LIMIT_S:g} s: {event}")


class Digits:
    """Batches of handwritten digits, drawn by seed, step and rank, and the images for the test."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        train_x, self._train_y, test_x, self.test_y = digits.data(0, 1)
        self._train_x, self.test_x = train_x.reshape(len(train_x), -1), test_x.reshape(len(test_x), -1)

    def batch(self, step: int, rank: int) -> tuple[Array, Array]:
        """Images and labels of a rank in a step."""
        chosen = np.random.default_rng((self._seed, step, rank)).choice(len(self._train_x), BATCH, replace=False)
        return self._train_x[chosen], self._train_y[chosen]

    def weights(self) -> list[Array]:
        """First weights of the two layers, and their biases."""
        dice = np.random.default_rng(self._seed)
        sizes = [(64, HIDDEN), (HIDDEN, 10)]
        layers = [(dice.uniform(-1, 1, size) / np.sqrt(size[0]), np.zeros(size[1])) for size in sizes]
        return [part.astype(np.float32) for layer in layers for part in layer]

    def result(self, logits: Array, count: float) -> dict[str, float]:
        """Accuracy and loss of the test, and the number of contributions."""
        shifted = logits - logits.max(axis=1, keepdims=True)
        of_labels = shifted[np.arange(len(shifted)), self.test_y] - np.log(np.exp(shifted).sum(axis=1))
        accuracy = float((logits.argmax(axis=1) == self.test_y).mean())
        return {"accuracy": accuracy, "loss": float(-of_labels.mean()), "count": count}


def write_result(folder: Path, rank: int, seed: int, result: dict[str, float]) -> None:
    """Write a rank's result."""
    (folder / f"result.{seed}.{rank}.json").write_text(json.dumps(result))


__all__ = ["BATCH", "HIDDEN", "RATE", "STEPS", "Changes", "Digits", "write_result"]
