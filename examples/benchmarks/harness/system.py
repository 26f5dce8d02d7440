"""A system that benchmarks compare."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Protocol

from paceline.config import nearest
from paceline.errors import UserError
from paceline.examples.benchmarks.harness.place import Place


class Worker(Protocol):
    """A rank of a system that is connected to the others."""

    @property
    def hello(self) -> Any:
        """First message to the controller."""
        ...

    def answer(self, order: Any, control: Connection) -> Any:
        """Carry out the controller's order and return the answer; `control` is for messages in between."""
        ...


Setup = Callable[[Place, dict[str, Any]], Worker]


@dataclass(frozen=True)
class System:
    """A row of a benchmark's table of systems.

    `setup` is "module:function" of a `Setup`. Each rank imports it and calls it once, with its place and with `options`
    (values of JSON). `env` is set on the ranks. `forked`: one process imports PyTorch and forks all ranks, which then
    take 50 MB each instead of 250 MB; for ranks of this machine.
    """

    name: str
    setup: str
    env: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    forked: bool = False


def load(setup: str) -> Setup:
    """Import the setup function that "module:function" names."""
    module, _, function = setup.partition(":")
    loaded: Setup = getattr(importlib.import_module(module), function)
    return loaded


def check_known(names: Iterable[str], known: Iterable[str]) -> None:
    """Raise UserError for a system that is missing in the table."""
    for name in names:
        if name not in known:
            raise UserError(f"There is no system {name!r}.", nearest(name, list(known)))
