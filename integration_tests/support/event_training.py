"""A training of three parameters under one exchange of the table of events, compared with one process.

Gradients are whole numbers that depend on no weight, and plain SGD adds them up: a gradient that is lost, doubled or
given to another parameter shows by its value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from integration_tests.support.arming import armed_by_driver
from integration_tests.support.event_table import (
    Members,
    act_nowhere,
    always_exact,
    codec_of,
    exchange_of,
    updates_in_message,
)
from integration_tests.support.events import ARMED
from integration_tests.support.training_events import LARGEST, LOST, RATE, part

ELEMENTS = (300, 300, 300)
STEPS = 12  # of an armed training after its event: more than are negotiated again


class EventTraining:
    """Parameters "a", "b" and "c", their wrapped optimizer, and what one process makes of the same gradients.

    `members`: the process set that trains, of which this rank is one; None: all ranks. `elements`: of the parameters.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        column: str,
        label: str,
        passes: int = 1,
        members: Members | None = None,
        elements: Sequence[int] = ELEMENTS,
    ) -> None:
        import paceline.torch as hvd

        self.hvd, self.rank, self.column, self.label, self.passes = hvd, rank, column, label, passes
        self.members = Members(range(size), hvd.global_process_set) if members is None else members
        self.size = len(self.members.ranks)
        self.codec = codec_of(column)
        self.dtype = torch.float64 if self.codec == "none" else torch.float32
        lengths = dict(zip("abc", elements, strict=True))
        self.weights = {name: torch.nn.Parameter(torch.zeros(n, dtype=self.dtype)) for name, n in lengths.items()}
        self.wanted = {name: torch.zeros(n, dtype=torch.float64) for name, n in lengths.items()}
        self.number = 0
        self.lost = LOST[self.codec] / 5  # of the largest gradient, by rounding; an event may take more
        self.lost *= updates_in_message(column)
        self.wrap()

    def __str__(self) -> str:
        return f"rank {self.rank}, {self.column}, {self.label}, step {self.number}"

    def wrap(self) -> None:
        """Make the optimizer of the present parameters."""
        self.optimizer = self.hvd.DistributedOptimizer(
            torch.optim.SGD(self.weights.values(), lr=RATE),
            [(f"{self.label}.{name}", one) for name, one in self.weights.items()],
            exchange=exchange_of(self.column, self.hvd, self.size),
            codec=self.codec,
            backward_passes_per_step=self.passes,
            process_set=self.members.process_set,
        )

    def gradient(self, name: str, rank: int, step: int) -> Tensor:
        return part(rank, step, list(self.weights).index(name), self.weights[name].numel()).to(self.dtype)

    def backward(
        self,
        absent: str = "",
        counted: bool = True,
        scale: Callable[[Tensor], Tensor] | None = None,
        act: Callable[[str], None] = act_nowhere,
    ) -> None:
        """One backward pass of a loss; `absent` have no gradient on this rank, `counted`: an update comes of it.

        `act` is called with "gradients" before the last gradient.
        """
        used = [name for name, one in self.weights.items() if one.requires_grad and name not in absent]
        products = [self.weights[name] * self.gradient(name, self.rank, self.number) for name in used]
        if act is not act_nowhere:
            products[0].register_hook(lambda _: act("gradients"))  # autograd goes from the last product to the first
        loss = torch.stack([one.sum() for one in products]).sum()
        (loss if scale is None else scale(loss)).backward()
        if counted:
            self.count([name for name, one in self.weights.items() if one.requires_grad])
        self.number += 1

    def count(
        self, names: Sequence[str], without: tuple[str, int] | None = None, ranks: Sequence[int] | None = None
    ) -> None:
        """One process makes an update of these; `without`: a parameter that has no gradient on one rank.

        `ranks`: that have gradients; None: all members.
        """
        for name in names:
            for rank in self.members.ranks if ranks is None else ranks:
                if (name, rank) != without:
                    self.wanted[name] -= RATE * self.gradient(name, rank, self.number).double() / self.size

    def step(self, _number: int = 0, act: Callable[[str], None] = act_nowhere) -> None:
        """One update; `act` is called with the name of each moment."""
        act("before")
        self.begin_step(act)
        act("backward")
        self.finish_step()
        act("after")

    def begin_step(self, act: Callable[[str], None] = act_nowhere) -> None:
        """The backward passes of an update: gradients are in flight afterwards."""
        self.optimizer.zero_grad()
        for _ in range(self.passes):
            self.backward(act=act)

    def finish_step(self) -> None:
        """The update of `begin_step`."""
        self.optimizer.step()

    def step_of(self, ranks: Sequence[int]) -> None:
        """One update to which only these ranks contribute, this one among them; the others have joined."""
        self.optimizer.zero_grad()
        self.count_of(ranks)
        self.backward(counted=False)
        self.optimizer.step()

    def count_of(self, ranks: Sequence[int]) -> None:
        """One process makes the next update with gradients of these ranks alone."""
        self.count(list(self.weights), ranks=ranks)

    def steps(self) -> None:
        """Some updates, until steps are armed in that column."""
        if self.column != ARMED:
            for _ in range(3):
                self.step()
            return
        armed_by_driver("torch", self.step)

    def go_on(self) -> None:
        """After the event: some updates, and a drain; weights equal one process on every rank."""
        for _ in range(3 if self.column != ARMED else STEPS):
            self.step()
        self.check()

    @property
    def exact(self) -> bool:
        """True if weights are those of one process without a drain."""
        return always_exact(self.column)

    def check(self, names: str = "abc") -> None:
        """Drain, and compare these parameters with one process."""
        self.optimizer.drain()
        self.compare(names)

    def compare(self, names: str = "abc") -> None:
        """Compare these parameters with one process."""
        allowed = RATE * LARGEST * self.lost * self.size
        for name in names:
            off = (self.weights[name].detach().double() - self.wanted[name]).abs().max().item()
            assert off <= allowed, f"{self}: {name} is off by {off / RATE * self.size:.6g} of summed gradients"
