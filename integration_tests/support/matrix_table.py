"""The training matrix as a table: torch's optimizers x features of scripts x exchanges, and the rows of each test run.

`ROWS` are the rows of `make test`: every possible pair of optimizer and feature, of optimizer and exchange, and of
feature and exchange. `MORE` is the rest of the product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import optim

from integration_tests.support.matrix_features import FEATURES
from integration_tests.support.pairs import cover


class Row(NamedTuple):
    """Keys of OPTIMIZERS, FEATURES and EXCHANGES."""

    optimizer: str
    feature: str
    exchange: str


DENSE = ("layers", "tied", "image")
ALL = (*DENSE, "rows")


@dataclass(frozen=True)
class Optimizer:
    """An optimizer: its factory, and its limits in torch.

    `kinds`: models that it can train. `bias`: True if it accepts vectors. `closure`: True if step() needs one, which it
    calls several times. `groups`: True if it accepts several parameter groups. `broadcast`: True if Horovod broadcasts
    its state.
    """

    make: Callable[[Any], Any]
    kinds: tuple[str, ...] = DENSE
    bias: bool = True
    closure: bool = False
    groups: bool = True
    broadcast: bool = True


OPTIMIZERS: dict[str, Optimizer] = {
    "SGD": Optimizer(lambda p: optim.SGD(p, lr=0.05, momentum=0.9), kinds=ALL),
    "Adam": Optimizer(lambda p: optim.Adam(p, lr=0.01)),
    "ASGD": Optimizer(lambda p: optim.ASGD(p, lr=0.05, t0=2)),
    "Adadelta": Optimizer(lambda p: optim.Adadelta(p, lr=1.0)),
    "Adafactor": Optimizer(lambda p: optim.Adafactor(p, lr=0.01)),
    "Adagrad": Optimizer(lambda p: optim.Adagrad(p, lr=0.05), kinds=ALL),
    "AdamW": Optimizer(lambda p: optim.AdamW(p, lr=0.01, weight_decay=0.1)),
    "Adamax": Optimizer(lambda p: optim.Adamax(p, lr=0.01)),
    "LBFGS": Optimizer(lambda p: optim.LBFGS(p, lr=0.1, max_iter=4), closure=True, groups=False, broadcast=False),
    "Muon": Optimizer(lambda p: optim.Muon(p, lr=0.01), kinds=("layers", "tied"), bias=False),
    "NAdam": Optimizer(lambda p: optim.NAdam(p, lr=0.01)),
    "RAdam": Optimizer(lambda p: optim.RAdam(p, lr=0.01)),
    "RMSprop": Optimizer(lambda p: optim.RMSprop(p, lr=0.01, momentum=0.5, weight_decay=0.01)),
    "Rprop": Optimizer(lambda p: optim.Rprop(p, lr=0.01)),
    "SparseAdam": Optimizer(lambda p: optim.SparseAdam(p, lr=0.01), kinds=("rows",), bias=False),
}

# Exchanges that must equal one process: Horovod's own, with a plan, and others with settings that make them exact.
EXCHANGES = ("sync", "optimal", "pipelined", "partial", "split")


def kind_of(optimizer: str, feature: str) -> str:
    """Model for the pair: the feature's, else the optimizer's."""
    return FEATURES[feature].kind or OPTIMIZERS[optimizer].kinds[0]


def possible(row: Row) -> bool:
    """True if torch, without any ranks, and the semantics of the exchange allow the row."""
    chosen, feature, kind = OPTIMIZERS[row.optimizer], FEATURES[row.feature], kind_of(row.optimizer, row.feature)
    # A second evaluation needs the first one's gradients from all ranks; a partial exchange may have them later, and in
    # a split one other ranks hold most of them.
    several = chosen.closure and row.exchange in ("partial", "split")
    # An update from send buffers is one more than a single process makes.
    late = feature.all_at_once and row.exchange == "partial"
    return (
        kind in chosen.kinds
        and not (feature.dense and kind == "rows")
        and not (row.feature == "add_param_group" and not chosen.groups)
        and not (row.feature == "resuming" and not chosen.broadcast)
        and not (row.feature == "accumulation_counted" and chosen.closure)
        and not (feature.stateless and chosen.closure)  # torch's LBFGS keeps the parameters
        and not (row.feature == "bf16" and chosen.closure)
        and not (row.feature == "channels_last" and chosen.closure)  # torch's LBFGS takes no other layout
        and not several
        and not late
    )


def _in_order(rows: Iterable[Row]) -> list[Row]:
    """Sort rows so that rows with one set of gradients are adjacent: a plan is for one set."""
    return sorted(rows, key=lambda row: (EXCHANGES.index(row.exchange), gradients(row), row))


def gradients(row: Row) -> str:
    """Name of the set of gradients, by name, shape and type, of the row's model."""
    chosen, feature = OPTIMIZERS[row.optimizer], FEATURES[row.feature]
    biases = "" if chosen.bias else "-matrices"
    return f"{kind_of(row.optimizer, row.feature)}{biases}-{str(feature.dtype).removeprefix('torch.')}"


POSSIBLE = [row for row in (Row(o, f, e) for e in EXCHANGES for o in OPTIMIZERS for f in FEATURES) if possible(row)]
ROWS = _in_order(cover(POSSIBLE))
MORE = _in_order(set(POSSIBLE) - set(ROWS))


def missing_optimizers() -> set[str]:
    """Optimizers of this torch that are not in the table."""
    classes = {name for name in dir(torch.optim) if isinstance(getattr(torch.optim, name), type)}
    return classes - {"Optimizer"} - set(OPTIMIZERS)
