"""Stages of hvd.Pipeline that are killed, raise or stop at a random instruction, and the errors of the others."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import torch
from torch import Tensor, nn

from integration_tests.support.ranks import World
from integration_tests.support.stage_training import adamw, momentum, sgd
from paceline.stages import schedules
from paceline.stages.execution.executor import Executor
from paceline.stages.instructions import Instruction, Kind

OPTIMIZERS = {"sgd": sgd, "momentum": momentum, "adamw": adamw}
WAITED_FOR_S = 5  # HOROVOD_GLOO_TIMEOUT_SECONDS for a stage that stops
GLOO_S = 30  # for other cases: should never be reached
LATE_S = 10.0  # additional time: errors in flight, a busy machine
BEGIN_S = 90.0
STEPS = 4  # then a drain, repeatedly
WIDTH = 6


class Broken(Exception):
    """Error that a stage raises."""


@dataclass(frozen=True)
class Case:
    """One case: stage `victim` of `stages` fails by `how` (kill, raise, stop) at its instruction `number`.

    Instructions count from 0 through all steps; `moment` is before, within or after the instruction. `arguments`:
    hvd.Pipeline's.
    """

    how: str
    stages: int
    victim: int
    arguments: dict[str, Any]
    optimizer: str
    number: int
    moment: str

    @property
    def limit_s(self) -> float:
        """Limit in seconds for the errors of survivors."""
        return LATE_S + (WAITED_FOR_S if self.how == "stop" else 0.0)


def drawn(dice: random.Random, how: str, stages: int) -> Case:
    microbatches = dice.randint(1, 5)
    arguments: dict[str, Any] = {"schedule": dice.choice([*schedules.SCHEDULES]), "n_microbatches": microbatches}
    maybe = functools.partial(dice.choice, (False, True))
    if maybe():
        arguments["max_norm"] = 0.5
    if maybe():
        arguments["recompute"] = True
    if not schedules.make(arguments["schedule"], 1, 1).synchronous:
        if maybe():
            arguments["warmup_steps"] = dice.randint(1, STEPS)
        if maybe():
            arguments["annealing_steps"] = 7
        if maybe():
            arguments["correction"] = 0.3
    victim = dice.randrange(stages)
    kinds = [one.kind for again in (False, True) for one in _round(arguments, stages, victim, again)]
    kind = dice.choice(list(Kind))
    number = dice.choice([place for place, one in enumerate(kinds) if one is kind])
    moment = dice.choice(["before", "within", "after"])
    return Case(how, stages, victim, arguments, dice.choice([*OPTIMIZERS]), number, moment)


def _round(arguments: dict[str, Any], stages: int, stage: int, again: bool) -> Iterator[Instruction]:
    """Instructions of a stage in STEPS steps and a drain. `again`: there was a warm-up before."""
    count = arguments["n_microbatches"]
    synchronous = 0 if again else arguments.get("warmup_steps", 0)
    for name, steps in (("1f1b", synchronous), (arguments["schedule"], STEPS - synchronous)):
        schedule = schedules.make(name, stages, count)
        for step in range(steps):
            yield from schedule.of_step(stage, step)
        yield from schedule.drain(stage, steps)


class Fault:
    """Fault on the victim: strikes once. `folder`: gets a file with the time (CLOCK_MONOTONIC) of the fault."""

    def __init__(self, case: Case, folder: str) -> None:
        self._case, self._file = case, Path(folder) / "struck"
        self._number = -1
        self._now: Instruction | None = None

    def followed(self, instructions: Iterable[Instruction]) -> Iterator[Instruction]:
        """Yield the same instructions to the executor."""
        for one in instructions:
            self._number += 1
            self._now = one
            self._at("before")
            yield one
            self._at("after")

    def within(self, kind: Kind) -> None:
        """Called within the stage's layers, or within its optimizer."""
        if self._now is not None and self._now.kind is kind:
            self._at("within")

    def _at(self, moment: str) -> None:
        if self._number == self._case.number and moment == self._case.moment and not self._file.exists():
            self._strike()

    def _strike(self) -> None:
        now = self._file.with_suffix(".new")
        now.write_text(str(time.monotonic()))
        now.rename(self._file)
        if self._case.how == "raise":
            _break(self._case.victim)
        os.kill(os.getpid(), signal.SIGKILL if self._case.how == "kill" else signal.SIGSTOP)


def _break(stage: int) -> NoReturn:
    raise Broken(f"layer 7 of stage {stage} is broken")


class _Touchy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, within: Callable[[Kind], None]) -> Tensor:
        ctx.within = within
        within(Kind.FORWARD)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.within(Kind.BACKWARD)
        return gradients[0], None


class _TouchyLayer(nn.Module):
    def __init__(self, within: Callable[[Kind], None]) -> None:
        super().__init__()
        self.within = within
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, value: Tensor) -> Tensor:
        return _Touchy.apply(self.inner(value), self.within)


def stage(rank: int, size: int, case: Case, folder: str) -> tuple[float, str, str]:
    """Train until an error; return its time (CLOCK_MONOTONIC), type and text."""
    os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"] = str(WAITED_FOR_S if case.how == "stop" else GLOO_S)
    import paceline.torch as hvd

    hvd.init()
    try:
        return _trained(rank, size, case, Fault(case, folder) if rank == case.victim else None)
    finally:
        hvd.shutdown()


def _trained(rank: int, size: int, case: Case, fault: Fault | None) -> tuple[float, str, str]:
    import paceline.torch as hvd

    def within(kind: Kind) -> None:
        if fault is not None:
            fault.within(kind)

    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        made = OPTIMIZERS[case.optimizer](parameters)
        made.register_step_pre_hook(lambda *_: within(Kind.UPDATE))
        return made

    run = Executor.run

    def followed(self: Executor, instructions: Iterable[Instruction], given: Any) -> None:
        run(self, instructions if fault is None else fault.followed(instructions), given)

    torch.manual_seed(1)
    layers = [layer for _ in range(size) for layer in (_TouchyLayer(within), nn.Tanh())]
    cuts = [2 * number for number in range(1, size)]
    dice = random.Random(case.number)
    with mock.patch.object(Executor, "run", followed):
        pipeline = hvd.Pipeline(layers, optimizer, nn.functional.mse_loss, stages=cuts, **case.arguments)
        try:
            while True:
                for _ in range(STEPS):
                    rows = dice.randint(5, 7)
                    pipeline.step(torch.ones(rows, WIDTH), torch.zeros(rows, WIDTH))
                pipeline.drain()
        except Exception as error:
            heard_s = time.monotonic()
            raised = type(error).__name__, str(error)
    for use in (pipeline.step, pipeline.drain, pipeline.consolidate):
        with contextlib.suppress(hvd.UsageError):
            use()
            raise AssertionError(f"{use.__name__}() of a pipeline that has ended")
    pipeline.close()
    return heard_s, *raised


@dataclass
class Heard:
    """Problems found, and the seconds until each survivor had its error."""

    problems: list[str]
    seconds: list[float]


def let_happen(world: World, case: Case) -> Heard:
    """Run one case. The world can be reused unless a rank was killed."""
    with tempfile.TemporaryDirectory(prefix="stage-faults-") as folder:
        world.send(stage.__module__, stage.__qualname__, (case, folder))
        struck = Path(folder) / "struck"
        until_s = time.monotonic() + BEGIN_S
        early: dict[int, tuple[str, Any]] = {}
        while not struck.exists():
            early = world.answers(0.01)
            if (early and not struck.exists()) or time.monotonic() > until_s:
                return Heard([f"it came to no fault\n{world.report(early, BEGIN_S)}"], [])
        struck_s = float(struck.read_text())
        without = [] if case.how == "raise" else [case.victim]
        answers = {rank: answer for rank, answer in early.items() if rank not in without}
        answers |= world.answers(3 * case.limit_s, grace_s=3 * case.limit_s, without=[*without, *answers])
        if len(answers) < case.stages - len(without):
            report = world.report({case.victim: ("ok", None), **answers}, 3 * case.limit_s)
            return Heard([f"not all ended\n{report}"], [])
        if case.how == "stop":
            world.resume()
            answers |= world.answers(BEGIN_S, without=[*answers])
        heard = Heard([], [])
        for rank, (kind, value) in sorted(answers.items()):
            if kind != "ok":
                heard.problems.append(f"rank {rank} {kind}: {value}")
            elif rank != case.victim:
                heard.seconds.append(value[0] - struck_s)
                heard.problems += _wrong(case, rank, value[0] - struck_s, *value[1:])
            elif case.how == "raise" and value[1:] != ("Broken", f"layer 7 of stage {rank} is broken"):
                heard.problems.append(f"the victim, stage {rank}, raised {value[1:]}")
        if case.how == "stop" and case.victim not in answers:
            heard.problems.append(
                f"the stage that stopped did not end once it went on\n{world.report(answers, BEGIN_S)}"
            )
        return heard


# Expected errors of survivors; {0} is the victim.
_HEARD = {
    "kill": ("StageLost", r"Rank {0} died"),
    "raise": ("StageFailed", r"(?s)Stage {0} failed.*Traceback.*Broken: layer 7 of stage {0} is broken"),
    "stop": ("StageLost", r"Rank {0} \(process \d+ on host [^)]+\) does not answer"),
}
_BLAMED = re.compile(r"Rank (\d+) (?:died|\(process)")


def _wrong(case: Case, rank: int, seconds: float, kind: str, text: str) -> list[str]:
    expected, said = _HEARD[case.how]
    found = []
    blamed = {int(one) for one in _BLAMED.findall(text)} - {case.victim}
    if kind != expected or blamed or re.search(said.format(case.victim), text) is None:
        found.append(f"rank {rank} had {kind}: {text}")
    if seconds > case.limit_s:
        found.append(f"rank {rank} heard after {seconds:.1f} s: {text}")
    return found
