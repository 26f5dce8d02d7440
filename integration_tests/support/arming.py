"""Armed steps for tests: names in groups, and steps until they are armed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from integration_tests.support.debug import debug
from integration_tests.support.merging import ByHand, ask_for, repeat, step_until
from paceline.fusion.armed import ArmedReport, armed
from paceline.native.library import loaded

ARMED = debug(armed=True)
# Time that a group waits for its last gradient before a step is aborted (the core waits no longer): enough for ranks on
# a busy machine.
CALM_S = 5.0
# The same for tests in which gradients come too late: each rank waits this long.
TIMEOUT_S = 1.0


def state(library: str = "torch") -> ArmedReport:
    """Return this rank's state of armed steps."""
    return armed(loaded(library))


class TorchSteps:
    """Steps of named allreduces in PyTorch, whose results are checked to the last bit.

    `sizes`: elements by name, in the order of submission.
    """

    library = "torch"

    def __init__(self, rank: int, size: int, sizes: dict[str, int]) -> None:
        import horovod.torch as hvd

        self.hvd: Any = hvd
        self.rank, self.size, self.sizes = rank, size, sizes
        self.handles: dict[str, Any] = {}

    def value(self, rank: int, name: str, step: int) -> float:
        """Value of all elements that a rank submits."""
        return float((rank + 1) * 1000 + step % 100 + 7 * list(self.sizes).index(name))

    def start(self, name: str, step: int, **options: Any) -> None:
        import torch

        tensor = torch.full((self.sizes[name],), self.value(self.rank, name, step))
        self.handles[name] = self.hvd.allreduce_async_(tensor, name=name, **({"op": self.hvd.Sum} | options))

    def finish(self, name: str, step: int) -> None:
        result = self.hvd.synchronize(self.handles.pop(name))
        expected = sum(self.value(rank, name, step) for rank in range(self.size))
        assert (result == expected).all(), f"step {step}, {name}: {result[:3]}, expected {expected}"

    def step(self, step: int, names: Sequence[str] | None = None) -> None:
        chosen = list(self.sizes) if names is None else list(names)
        for name in chosen:
            self.start(name, step)
        for name in chosen:
            self.finish(name, step)

    def step_around(self, step: int, first: int, between: Callable[[], Any], finished: int = 0) -> Any:
        """Make a step with a call after its `first` tensors; return the result of the call.

        `finished`: number of tensors to wait for before the call, the number in the first group. Otherwise its round
        may perform the call's operation, too, before the armed part of the step begins.
        """
        names = list(self.sizes)
        for name in names[:first]:
            self.start(name, step)
        for name in names[:finished]:
            self.finish(name, step)
        result = between()
        for name in names[first:]:
            self.start(name, step)
        for name in names[finished:]:
            self.finish(name, step)
        return result


def groups_of(hand: ByHand, label: str, sizes: Sequence[int]) -> list[list[str]]:
    """Groups of `sizes` tensors from those with `label` in their names, in the order of names."""
    names = sorted(hand.names(label))
    assert sum(sizes) == len(names), names
    ends = [sum(sizes[: n + 1]) for n in range(len(sizes))]
    return [names[end - count : end] for end, count in zip(ends, sizes, strict=True)]


def in_parts(names: Sequence[str], parts: dict[int, int]) -> list[list[str]]:
    """Each tensor alone in a group, those with numbers in `parts` in that many parts."""
    return [[name] for n, name in enumerate(names) for _ in range(parts.get(n, 1))]


def meet(library: str = "torch") -> None:
    """Wait for all ranks, between two steps."""
    importlib.import_module(f"horovod.{library}").broadcast_object(0, 0, name="arming.meet")


def is_armed(library: str = "torch") -> bool:
    """Return True if steps are armed, once all ranks have performed the same operations and are in the same state."""
    meet(library)
    return state(library).state == "armed"


def arm(
    step: Callable[[int], None],
    label: str,
    sizes: Sequence[int],
    library: str = "torch",
    begin: int = 0,
    timeout_s: float = CALM_S,
) -> tuple[ByHand, int]:
    """Make steps until they are armed, under a plan of groups of `sizes` tensors; returns the next step's number."""
    hand = ByHand(library).start()
    step(begin)
    meet(library)
    hand.follow(groups_of(hand, label, sizes), timeout_s)
    return hand, repeat(library, step, lambda: is_armed(library), begin + 1, lambda: state(library))


def armed_by_driver(library: str, step: Callable[[int], object]) -> None:
    """Make steps until the driver's plan is in force and steps are armed; every gradient is a message of its own."""
    ask_for(library, "none")
    step_until(library, step)
    repeat(library, step, lambda: is_armed(library), about=lambda: state(library))


def step_armed(step: Callable[[int], object], count: int, library: str = "torch", begin: int = 0) -> int:
    """Make steps until `count` more have been armed; returns the next step's number."""
    before = state(library).steps
    return repeat(library, step, lambda: state(library).steps >= before + count, begin, lambda: state(library))
