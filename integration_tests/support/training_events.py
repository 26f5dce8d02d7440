"""Random events in a training (freezing, discarding, resuming and others), compared with one process.

Gradients depend on no weight, and plain SGD adds them up: once nothing is in flight, weights are the sum of all
gradients, with any exchange and in any order of arrival. A gradient that is lost, doubled or assigned to another
parameter is visible from its value, which encodes its rank, step and parameter.
"""

from __future__ import annotations

import contextlib
import random
import time
from typing import Any

import torch
from torch import Tensor

from integration_tests.support import random_events

RATE = 2.0**-4
LARGEST = 4096.0  # of any gradient
_FIRST = 5  # parameters that an optimizer is made with
# Of the largest gradient, for each update: what rounding may take from sums of encoded gradients.
LOST = {"none": 1e-9, "bf16": 2.0**-6, "q8": 0.1}


def part(rank: int, step: int, number: int, elements: int) -> Tensor:
    """The gradient of parameter `number` on `rank` in `step`: whole numbers, all different."""
    return (torch.arange(elements) % 13 + 16 * (step % 29) + 512 * (number % 3) + 1024 * rank).double()


def _copy(old: Any) -> Any:
    return torch.nn.Parameter(old.detach().clone(), requires_grad=old.requires_grad)


class Training:
    """A model, its wrapped optimizer, and what one process makes of the same gradients.

    All ranks draw the same choices from `same`; `own` is each rank's.
    """

    def __init__(self, rank: int, size: int, label: str, same: random.Random, own: random.Random) -> None:
        import paceline.torch as hvd

        self.hvd, self.rank, self.size, self.label, self.same, self.own = hvd, rank, size, label, same, own
        late = [hvd.Pipelined(k=2), hvd.Pipelined(k=3)]
        exchanges: list[Any] = ["sync", *late, "majority", "solo", hvd.Local(sync_every=3), "split"]
        self.exchange = same.choice(exchanges)
        self.options: dict[str, Any] = {"backward_passes_per_step": same.choice([1, 1, 2]), "codec": "none"}
        if self.exchange in ("sync", "split") or isinstance(self.exchange, hvd.Pipelined):
            self.options["codec"] = same.choice(["none", "none", "bf16", "q8"])
        if self.exchange == "sync":
            self.options |= same.choice([{}, {"groups": 2}, {"bucket_bytes": 0}, {"bucket_bytes": 4096}])
        self.codec = self.options["codec"]
        self.dtype = torch.float64 if self.codec == "none" else torch.float32
        self.weights: dict[str, Any] = {}
        self.wanted: dict[str, Tensor] = {}
        self.frozen: set[str] = set()
        self.number = self.updates = 0
        for _ in range(_FIRST):
            self._add()
        self._wrap()

    def __str__(self) -> str:
        return f"{self.label}: {self.exchange}, {self.options}, step {self.number}"

    # --- the script --------------------------------------------------------------------------------------------

    def _add(self) -> Any:
        name = f"{self.label}.{len(self.weights)}"
        self.weights[name] = torch.nn.Parameter(torch.zeros(self.same.choice([1, 7, 300, 5001]), dtype=self.dtype))
        self.wanted[name] = torch.zeros_like(self.weights[name], dtype=torch.float64)
        return self.weights[name]

    def _wrap(self) -> None:
        weights = list(self.weights.values())  # each parameter added later has a separate group
        groups = [weights[:_FIRST], *([late] for late in weights[_FIRST:])]
        held = torch.optim.SGD([{"params": group} for group in groups], lr=RATE)
        self.optimizer = self.hvd.DistributedOptimizer(
            held, list(self.weights.items()), exchange=self.exchange, **self.options
        )

    def _backward(self, counted: bool = True, computed: bool = True) -> None:
        trained = [name for name in self.weights if name not in self.frozen]
        # The first is in use everywhere, or there may be no gradient at all.
        absent = {name: self.same.choice([None] * 8 + [-1, *range(self.size)]) for name in trained[1:]}
        losses = []
        for number, (name, weight) in enumerate(self.weights.items()):
            if name not in trained or absent.get(name) == -1:
                continue
            if absent.get(name) != self.rank:
                gradient = part(self.rank, self.number, number, weight.numel()).to(self.dtype)
                losses.append((weight * gradient).sum())
            if counted:
                for other in range(self.size):
                    if absent.get(name) != other:
                        gradient = part(other, self.number, number, weight.numel())
                        self.wanted[name] -= RATE * gradient / self.size
        if self.own.random() < 0.1:
            time.sleep(0.01 * self.own.random())
        self.number += 1
        if computed:
            torch.stack(losses).sum().backward()

    # --- events --------------------------------------------------------------------------------------------------

    def step(self) -> None:
        self.optimizer.zero_grad()
        for _ in range(self.options["backward_passes_per_step"]):
            self._backward()
        if self.same.random() < 0.1:
            self.evaluate()
        if self.same.random() < 0.1:
            self.optimizer.synchronize()
        self.optimizer.step()
        self.updates += 1

    def steps(self) -> None:
        for _ in range(self.same.randint(1, 6)):
            self.step()

    def evaluate(self) -> None:
        """A metric of the script's own, which is exact with any encoding of gradients."""
        metric = torch.arange(300, dtype=torch.float32) * 1.37 + self.rank
        found = self.hvd.allreduce(metric, op=self.hvd.Sum, name=f"{self.label}.metric")
        wanted = sum(torch.arange(300, dtype=torch.float32) * 1.37 + other for other in range(self.size))
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=0, msg=f"rank {self.rank}, {self}: a metric")

    def drain(self) -> None:
        """Nothing is in flight: weights are right on every rank."""
        self.optimizer.drain()
        allowed = RATE * LARGEST * LOST[self.codec] * (1 if self.codec == "none" else self.size)
        for name, weight in self.weights.items():
            off = (weight.detach().double() - self.wanted[name]).abs().max().item()
            assert off <= allowed, f"rank {self.rank}, {self}, {name}: off by {off / RATE * self.size:.6g} of gradients"

    def freeze(self) -> None:
        """Freeze all but the first, or some, or none."""
        self.drain()
        names = list(self.weights)[1:]
        self.frozen = set(self.same.sample(names, self.same.randint(0, len(names))))
        for name, weight in self.weights.items():
            weight.requires_grad_(name not in self.frozen)

    def late(self) -> None:
        if len(self.weights) < 9:
            self.drain()
            self.optimizer.add_param_group({"params": [self._add()]})

    def replace(self) -> None:
        """Other parameters in the places of some."""
        self.drain()
        for name in self.same.sample(list(self.weights), 2):
            old = self.weights[name]
            new = _copy(old)
            self.weights[name] = new
            for group in self.optimizer.param_groups:
                group["params"] = [new if one is old else one for one in group["params"]]

    def discard(self) -> None:
        """A batch that some ranks drop before, or all after its gradients were combined."""
        if isinstance(self.exchange, str) and self.exchange != "sync":
            self.drain()  # else earlier late gradients are dropped, too
        self.optimizer.zero_grad()
        # A pipelined exchange combines older gradients than these.
        combined = self.same.random() < 0.5 and not isinstance(self.exchange, self.hvd.Pipelined)
        computed = combined or self.own.random() < 0.7
        for _ in range(self.options["backward_passes_per_step"]):
            self._backward(counted=False, computed=computed)
        if combined:
            self.optimizer.synchronize()
        self.optimizer.discard()

    def fail(self) -> None:
        """An exception in one rank's backward pass, which the script survives."""
        if isinstance(self.exchange, str) and self.exchange != "sync":
            self.drain()
        self.optimizer.zero_grad()
        victim = self.same.choice([name for name in self.weights if name not in self.frozen])
        unlucky = self.same.choice([self.rank, self.same.randrange(self.size)]) == self.rank

        def refuse(gradient: Tensor) -> None:
            raise ArithmeticError("the script's own")

        hook = self.weights[victim].register_hook(refuse) if unlucky else None
        with contextlib.suppress(ArithmeticError):
            self._backward(counted=False)
        if hook is not None:
            hook.remove()
        self.optimizer.discard()

    def resume(self) -> None:
        """As in a new process: weights and state are loaded into others of the same names."""
        if len(self.weights) > _FIRST:
            self.drain()  # parameters added later had no names then, and what is in flight is kept by name
        self.hvd.barrier()
        if self.same.random() < 0.5:
            self.optimizer.consolidate_state_dict(to=None)
            state = self.optimizer.state_dict()
        else:
            state = self.optimizer.local_state_dict()
        self.hvd.barrier()
        del self.optimizer
        self.weights = {name: _copy(old) for name, old in self.weights.items()}
        self._wrap()
        self.optimizer.load_state_dict(state)


EVENTS = ("evaluate", "drain", "freeze", "late", "replace", "discard", "fail", "resume")


def train(rank: int, size: int, seed: int, events: int = 4) -> int:
    """Two trainings in turn, each through random events; returns how many updates they made."""
    import paceline.torch as hvd

    hvd.init()
    trainings = random_events.run(
        lambda number, same, own: Training(rank, size, f"events.{seed}.{number}", same, own),
        EVENTS, rank, size, seed, events,
    )  # fmt: skip
    return sum(training.updates for training in trainings)
