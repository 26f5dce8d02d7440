"""A rank that trains the character-level transformer: the part that all systems of local.py share."""

from __future__ import annotations

import time
import zlib
from abc import ABC, abstractmethod
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import nn

from paceline.examples import characters
from paceline.examples.benchmarks.harness import usage
from paceline.examples.benchmarks.harness.place import Place
from paceline.examples.benchmarks.training.local import JUDGE, TRAIN
from paceline.examples.characters_torch import Net

LEARNING_RATE = 2e-3


class CharactersWorker(ABC):
    """Answers TRAIN with the times of the training, and JUDGE with loss, accuracy and checksum of the mean model.

    `options`: "seed", "steps", "batch_size"; "local" has the arguments of local training, or None; "codec" of messages.
    """

    hello = None

    def __init__(self, place: Place, options: dict[str, Any]) -> None:
        torch.set_num_threads(1)
        self.place, self.options = place, options
        self._steps: int = options["steps"]
        self._batch_size: int = options["batch_size"]
        torch.manual_seed(options["seed"])  # equal first weights
        self.model = Net()
        self._windows = characters.training(place.rank, place.size, self._steps * self._batch_size, options["seed"])
        self._optimizer = self.wrap(torch.optim.Adam(self.model.parameters(), lr=LEARNING_RATE))

    @abstractmethod
    def wrap(self, optimizer: torch.optim.Optimizer) -> Any:
        """Return the optimizer that a script calls: `optimizer`, or the system's wrapper of it."""

    @abstractmethod
    def meet(self) -> None:
        """Wait for all ranks."""

    @abstractmethod
    def average(self) -> None:
        """Give all ranks the mean of their models."""

    def answer(self, order: str, control: Connection) -> Any:
        """Train, or test the model."""
        if order == TRAIN:
            return self.train()
        assert order == JUDGE
        return self.judge()

    def train(self) -> dict[str, float]:
        """Make all steps and return their seconds: wall clock, and processor time of all threads."""
        factor = partial(characters.rate_factor, steps=self._steps)
        schedule = torch.optim.lr_scheduler.LambdaLR(self._optimizer, factor)
        loss_of = nn.CrossEntropyLoss()
        self.meet()
        used, begin_s = usage.process(), time.monotonic()
        for step in range(self._steps):
            inputs, targets = (torch.from_numpy(part).long() for part in self._windows.batch(step, self._batch_size))
            self._optimizer.zero_grad()
            loss_of(self.model(inputs), targets).backward()
            self._optimizer.step()
            schedule.step()
        wall_s = time.monotonic() - begin_s
        return {"wall_s": wall_s, "cpu_s": usage.process().since(used).cpu_s}

    def judge(self) -> dict[str, Any]:
        """Average the models of all ranks. Rank 0 tests the mean on text that no rank has seen."""
        self.average()
        weights = b"".join(one.numpy().tobytes() for one in self.model.state_dict().values())
        found: dict[str, Any] = {"checksum": zlib.crc32(weights)}
        if self.place.rank == 0:
            test = characters.held_out()
            targets = torch.from_numpy(test.targets).long()
            self.model.eval()
            with torch.no_grad():
                logits = self.model(torch.from_numpy(test.inputs).long())
                found["loss"] = nn.CrossEntropyLoss()(logits, targets).item()
                found["accuracy"] = (logits.argmax(1) == targets).float().mean().item()
        return found
