"""Small models of the training matrix, and the batch that each rank has in each step. Odd sizes throughout."""

from __future__ import annotations

from collections.abc import Callable
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
    """Two tables with sparse gradients; with `bias` a dense layer behind them."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Embedding(ROWS, 3, sparse=True), nn.Embedding(7, 3, sparse=True)
        self.dense = nn.Linear(3, 3) if bias else nn.Identity()

    def forward(self, inputs: Tensor) -> Tensor:
        """Whole numbers (n,) -> (n, 3)."""
        return self.dense(self.first(inputs) * 2 + self.last(inputs % 7))


def _layers(bias: bool) -> nn.Module:
    return nn.Sequential(nn.Linear(5, 7, bias), nn.Tanh(), nn.Linear(7, 3, bias))


def _image(bias: bool) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 3, bias=bias), nn.Tanh(), nn.Flatten(), nn.Linear(27, 3, bias))


MODELS: dict[str, Callable[[bool], nn.Module]] = {"layers": _layers, "tied": Tied, "image": _image, "rows": Rows}


def model_of(kind: str, bias: bool, dtype: torch.dtype, seed: int) -> nn.Module:
    """A model of MODELS in `dtype`, with first weights that `seed` decides."""
    torch.manual_seed(seed)
    return MODELS[kind](bias).to(dtype)


def batch(kind: str, dtype: torch.dtype, rank: int, number: int) -> tuple[Tensor, Tensor]:
    """The inputs and targets that rank `rank` has as its batch `number`; no two are alike."""
    data = torch.Generator().manual_seed(1000 * number + rank)
    if kind == "rows":
        # Rows repeat within a rank and overlap between ranks.
        inputs = torch.tensor([number % ROWS, (number + rank) % ROWS, (number + rank) % ROWS, ROWS - 1])
    else:
        inputs = torch.randn(*((4, 2, 5, 5) if kind == "image" else (4, 5)), generator=data).to(dtype)
    return inputs, torch.randn(4, 5 if kind == "tied" else 3, generator=data).to(dtype)


def leaves(state: dict[str, Any]) -> dict[str, Any]:
    """Every tensor and number of an optimizer's state_dict(), by where it is; dense."""
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
