"""One training of the matrix: on ranks that exchange gradients, or in one process with all of their data.

A feature of the matrix (matrix_features.py) is written once, over `Run`; both kinds of run execute it. Models are
small, with odd sizes throughout; every rank has its own batch in each step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

ROWS = 11


class Tied(nn.Module):
    """Two layers that share one weight: its gradient has two parts."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 5, bias), nn.Linear(5, 5, bias)
        self.last.weight = self.first.weight

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, 5) -> (n, 5)."""
        return self.last(torch.tanh(self.first(inputs)))


class Rows(nn.Module):
    """Two tables with sparse gradients; with `bias` followed by a dense layer."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Embedding(ROWS, 3, sparse=True), nn.Embedding(7, 3, sparse=True)
        self.dense = nn.Linear(3, 3) if bias else nn.Identity()

    def forward(self, inputs: Tensor) -> Tensor:
        """Integers (n,) -> (n, 3)."""
        return self.dense(self.first(inputs) * 2 + self.last(inputs % 7))


def _layers(bias: bool) -> nn.Module:
    return nn.Sequential(nn.Linear(5, 7, bias), nn.Tanh(), nn.Linear(7, 3, bias))


def _image(bias: bool) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 3, bias=bias), nn.Tanh(), nn.Flatten(), nn.Linear(27, 3, bias))


MODELS: dict[str, Callable[[bool], nn.Module]] = {"layers": _layers, "tied": Tied, "image": _image, "rows": Rows}


def model_of(kind: str, bias: bool, dtype: torch.dtype, seed: int) -> nn.Module:
    """A model of MODELS in `dtype`; `seed` determines its initial weights."""
    torch.manual_seed(seed)
    return MODELS[kind](bias).to(dtype)


def batch_of(kind: str, dtype: torch.dtype, rank: int, number: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of rank `rank` in its batch `number`; all batches differ."""
    data = torch.Generator().manual_seed(1000 * number + rank)
    if kind == "rows":
        # Rows repeat within a rank and overlap between ranks.
        inputs = torch.tensor([number % ROWS, (number + rank) % ROWS, (number + rank) % ROWS, ROWS - 1])
    else:
        inputs = torch.randn(*((4, 2, 5, 5) if kind == "image" else (4, 5)), generator=data).to(dtype)
    return inputs, torch.randn(4, 5 if kind == "tied" else 3, generator=data).to(dtype)


def leaves(state: dict[str, Any]) -> dict[str, Any]:
    """Every tensor and number of an optimizer's state_dict(), by its path; dense."""
    found: dict[str, Any] = {}

    def walk(place: str, value: Any) -> None:
        if isinstance(value, dict):
            for key in sorted(value):
                walk(f"{place}.{key}", value[key])
        elif isinstance(value, (list, tuple)):
            for position, one in enumerate(value):
                walk(f"{place}.{position}", one)
        elif isinstance(value, (Tensor, int, float)):
            found[place] = value.detach().to_dense().clone() if isinstance(value, Tensor) else torch.tensor(value)

    walk("state", state["state"])
    return found


# One rank's forward and backward pass or passes: given the rank, returns its loss.
Backward = Callable[[int], Tensor]


@dataclass(frozen=True)
class Setting:
    """Model and optimizer of a training: kind of model, biases, dtype, and factory of the optimizer."""

    kind: str
    bias: bool
    dtype: torch.dtype
    make: Callable[[Any], Any]
    closure: bool


def in_one(passes: list[Backward]) -> Backward:
    """Combine passes into one, executed in order; its loss is their sum."""
    return lambda rank: torch.stack([backward(rank) for backward in passes]).sum()


class Run(ABC):
    """A model and its optimizer, which `build` makes."""

    optimizer: Any

    def __init__(self, setting: Setting, size: int, seed: int) -> None:
        self.setting = setting
        self.size = size
        self.closure = setting.closure
        self.model = self._model(seed)
        self.forward: Callable[..., Tensor] = self.model

    def _model(self, seed: int) -> Any:
        return model_of(self.setting.kind, self.setting.bias, self.setting.dtype, seed)

    def build(self, parameters: Any = None, **options: Any) -> Any:
        """Make the optimizer, of all parameters by default; `options`: arguments of DistributedOptimizer."""
        held = self.setting.make(list(self.model.parameters() if parameters is None else parameters))
        return self.wrap(held, **options)

    @abstractmethod
    def wrap(self, held: Any, **options: Any) -> Any:
        """Use `held` as the optimizer, wrapped on ranks."""

    @abstractmethod
    def gradients(self, backward: Backward) -> Tensor:
        """Run `backward` on the data, which leaves gradients in `.grad`; returns the loss."""

    @abstractmethod
    def combine(self) -> None:
        """Make `.grad` the mean over the ranks."""

    @abstractmethod
    def counted(self, passes: list[Backward]) -> None:
        """Make one update with the gradients of several passes, in a loop with zero_grad() and step() around each."""

    def renew(self) -> None:
        """Replace the model by one with other weights, and drop the optimizer, as in a new process."""
        del self.optimizer
        self.forward = self.model = self._model(seed=99)

    @abstractmethod
    def share(self) -> None:
        """Give every rank the model and optimizer state of the first."""

    @abstractmethod
    def settle(self) -> None:
        """Apply everything in flight."""

    def first(self) -> bool:
        return True

    def loss(self, rank: int, number: int) -> Tensor:
        inputs, targets = batch_of(self.setting.kind, self.setting.dtype, rank, number)
        return torch.nn.functional.mse_loss(self.forward(inputs), targets)

    def one_pass(self, number: int) -> Backward:
        """Return the usual backward pass over batch `number`."""

        def backward(rank: int) -> Tensor:
            loss = self.loss(rank, number)
            loss.backward()
            return loss.detach()

        return backward

    def update(self, backward: Backward, change: Callable[[], object] | None = None, combine: bool = True) -> None:
        """Make one update; `change` modifies the combined gradients first. Without `combine` it combines by itself."""

        def evaluate() -> Tensor:
            self.optimizer.zero_grad()
            loss = self.gradients(backward)
            if change is not None:
                if combine:
                    self.combine()
                change()
            return loss

        if self.closure:
            self.optimizer.step(evaluate)
        else:
            evaluate()
            self.optimizer.step()

    @abstractmethod
    def collect(self) -> None:
        """Collect all of the optimizer's state into its state_dict() here."""

    def result(self) -> dict[str, Tensor]:
        """Result of the training: parameters and the optimizer's state."""
        self.collect()
        weights = {name: parameter.detach().clone() for name, parameter in self.model.named_parameters()}
        return {**weights, **leaves(self.optimizer.state_dict())}


class OneProcess(Run):
    """Has the data of all ranks and averages their gradients: no Horovod, no Paceline."""

    def wrap(self, held: Any, **options: Any) -> Any:
        self.optimizer = held
        return held

    def gradients(self, backward: Backward) -> Tensor:
        """Sum the gradients in the order of ranks: with two, the same bits as on ranks."""
        parameters = list(self.model.parameters())
        totals: dict[Tensor, Tensor] = {}
        losses = []
        for rank in range(self.size):
            for parameter in parameters:
                parameter.grad = None
            losses.append(backward(rank))
            for parameter in parameters:
                if parameter.grad is not None:
                    wide = torch.promote_types(parameter.dtype, torch.float32)
                    mine = parameter.grad.to(wide)
                    totals[parameter] = totals[parameter] + mine if parameter in totals else mine
        for parameter, total in totals.items():
            parameter.grad = (total / self.size).to(parameter.dtype)
        return sum(losses[1:], losses[0]) / self.size

    def counted(self, passes: list[Backward]) -> None:
        """Make one step(), counted by the script."""
        self.update(in_one(passes))

    def combine(self) -> None:
        """Nothing to do: `gradients` has combined them."""

    def share(self) -> None:
        """Nothing to do: there are no other ranks."""

    def settle(self) -> None:
        """Nothing to do: nothing is ever in flight."""

    def collect(self) -> None:
        """Nothing to do: the state is complete."""


class OnRanks(Run):
    """This rank's part, with gradients that Paceline combines."""

    def __init__(self, setting: Setting, size: int, rank: int, prefix: str, **exchange: Any) -> None:
        import paceline.torch as hvd

        self._hvd, self._rank, self._prefix, self._exchange = hvd, rank, prefix, exchange
        # Other initial weights on every rank: the first one's are broadcast.
        super().__init__(setting, size, seed=7 + rank)
        self.share()

    def wrap(self, held: Any, **options: Any) -> Any:
        named = [(f"{self._prefix}.{name}", parameter) for name, parameter in self.model.named_parameters()]
        self.optimizer = self._hvd.DistributedOptimizer(held, named, **self._exchange, **options)
        return self.optimizer

    def gradients(self, backward: Backward) -> Tensor:
        return backward(self._rank)

    def combine(self) -> None:
        self.optimizer.synchronize()

    def counted(self, passes: list[Backward]) -> None:
        """Call step() for each pass; the wrapper counts."""
        for backward in passes:
            self.optimizer.zero_grad()
            backward(self._rank)
            self.optimizer.step()

    def share(self) -> None:
        self._hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        if hasattr(self, "optimizer"):
            self._hvd.broadcast_optimizer_state(self.optimizer, root_rank=0)

    def settle(self) -> None:
        self.optimizer.drain()

    def collect(self) -> None:
        self.optimizer.consolidate_state_dict(to=None)

    def first(self) -> bool:
        return self._rank == 0
