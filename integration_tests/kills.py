"""Time until survivors learn which rank died: ranks that train are killed at random moments.

    python -m integration_tests.kills --kills 10        (every exchange and collective: many minutes)
    python -m integration_tests.kills --kills 100 --only armed --ranks 4
    python -m integration_tests.kills --sanitizer address --minutes 20

Every kill (SIGKILL) has a world of its own. A survivor's time runs from the signal to the HorovodInternalError in its
training thread. Exits with 1 if a survivor raised another error or none, or blamed another rank.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from integration_tests import sanitizers
from integration_tests.support.arming import ARMED, TorchSteps, arm
from integration_tests.support.forks import frameworks_of
from integration_tests.support.ranks import RankFailed, World
from integration_tests.support.slow_close import slow_close
from paceline.registry import collectives

EXCHANGES = ("sync", "pipelined", "majority", "local")
COLLECTIVES = tuple(name for name in collectives.COLLECTIVES if name != collectives.HOROVODS)
READY_TIMEOUT_S = 300.0  # under a sanitizer, on busy processors, importing torch alone takes two minutes
HEARD_TIMEOUT_S = 60.0  # Gloo's own limit is 30 s: long enough to show the behaviour without the patch
WARM_UP_STEPS = 5
SLOW_CLOSE_MS = 100
# The first group's message stays in flight while later ones start.
STEP_SIZES = {"kills.0": 2_000_000, **{f"kills.{n}": 1000 + n for n in range(1, 6)}}
STEP_GROUPS = (1, 1, 4)

_BLAMED = re.compile(r"Rank (\d+) died")


@dataclass(frozen=True)
class Heard:
    """Error of one survivor: seconds after the signal (None: no HorovodInternalError), and its text."""

    rank: int
    seconds: float | None
    text: str

    def named(self, victim: int) -> bool:
        """True if the text names the rank that died, and no other."""
        return self.seconds is not None and set(_BLAMED.findall(self.text)) == {str(victim)}


def train(rank: int, size: int, exchange: str, folder: str) -> tuple[float, str]:
    """Train until another rank dies; return the time of the error (CLOCK_MONOTONIC, system-wide) and its text."""
    import torch

    import paceline.torch as hvd

    hvd.init()
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(384, 384) for _ in range(6)])
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1e-4), named_parameters=model.named_parameters(), exchange=exchange
    )
    own = random.Random(rank)
    end_s = time.monotonic() + READY_TIMEOUT_S + HEARD_TIMEOUT_S
    step = 0
    try:
        while time.monotonic() < end_s:
            optimizer.zero_grad()
            model(torch.ones(4, 384)).square().mean().backward()
            optimizer.step()
            step += 1
            if step == WARM_UP_STEPS:
                (Path(folder) / str(rank)).touch()
            time.sleep(own.random() * 0.01)
    except hvd.HorovodInternalError as error:
        return time.monotonic(), str(error)
    raise TimeoutError(f"rank {rank} trained {step} steps and heard of no death")


def train_in_steps(rank: int, size: int, armed: bool, folder: str) -> tuple[float, str]:
    """Train like `train`, in steps of named allreduces, with an occasional pause before the second group."""
    import horovod.torch as hvd

    hvd.init()
    steps, number = TorchSteps(rank, size, STEP_SIZES), 0
    if armed:
        _, number = arm(steps.step, "kills.", STEP_GROUPS)
    own = random.Random(rank)
    end_s = time.monotonic() + READY_TIMEOUT_S + HEARD_TIMEOUT_S
    (Path(folder) / str(rank)).touch()
    try:
        while time.monotonic() < end_s:
            for name in STEP_SIZES:
                if name == "kills.1" and own.random() < 0.5:
                    time.sleep(own.random() * 0.1)
                steps.start(name, number)
            for name in STEP_SIZES:
                steps.finish(name, number)
            number += 1
    except hvd.HorovodInternalError as error:
        heard_s, text = time.monotonic(), str(error)
        for handle in steps.handles.values():  # no wait may hang
            with contextlib.suppress(hvd.HorovodInternalError):
                hvd.synchronize(handle)
        return heard_s, text
    raise TimeoutError(f"rank {rank} heard of no death in {number} steps")


@dataclass(frozen=True)
class Case:
    """Work of the ranks when one dies."""

    name: str
    body: Callable[..., tuple[float, str]]
    args: tuple[Any, ...]
    env: Mapping[str, str]


def cases(folder: Path) -> Iterable[Case]:
    """Every exchange; every collective in negotiated and armed steps, with connections that close fast or slowly."""
    for exchange in EXCHANGES:
        yield Case(exchange, train, (exchange,), {})
    slow = slow_close(folder, SLOW_CLOSE_MS)
    for collective in COLLECTIVES:
        for armed in (True, False):
            for closing in ("", ", slow close"):
                name = f"{collective}, {'armed' if armed else 'negotiated'}{closing}"
                env = {"PACELINE_COLLECTIVE": collective, **(ARMED if armed else {}), **(slow if closing else {})}
                yield Case(name, train_in_steps, (armed,), env)


def kill(
    exchange: str, victim: int, moment_s: float, size: int = 3, env: Mapping[str, str] | None = None
) -> list[Heard]:
    """Kill `victim` after `moment_s` of training; return the errors of the survivors."""
    return kill_in(train, (exchange,), victim, moment_s, size, env)


def kill_in(
    body: Callable[..., tuple[float, str]],
    args: tuple[Any, ...],
    victim: int,
    moment_s: float,
    size: int,
    env: Mapping[str, str] | None = None,
) -> list[Heard]:
    """Run body(rank, size, *args, folder), and kill `victim` `moment_s` after every rank has made a file in `folder`.

    The body returns the time of its HorovodInternalError (CLOCK_MONOTONIC) and its text.
    """
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        world = World(size, env or {}, frameworks_of(body.__module__))
        try:
            world.send(body.__module__, body.__qualname__, (*args, folder))
            limit_s = time.monotonic() + READY_TIMEOUT_S
            while len(list(Path(folder).iterdir())) < size:
                early = world.answers(0.01)
                if early or time.monotonic() > limit_s:
                    raise RankFailed(f"no kill, for not all ranks have begun\n{world.report(early, READY_TIMEOUT_S)}")
            time.sleep(moment_s)
            killed_s = time.monotonic()
            world.kill(victim)
            answers = world.answers(HEARD_TIMEOUT_S, grace_s=HEARD_TIMEOUT_S, without=[victim])
            hung = "" if len(answers) == size - 1 else world.report({victim: ("ok", None), **answers}, HEARD_TIMEOUT_S)
        finally:
            world.end()
    heard = []
    for rank in sorted(set(range(size)) - {victim}):
        kind, value = answers.get(rank, ("hung", hung))
        heard.append(Heard(rank, value[0] - killed_s, value[1]) if kind == "ok" else Heard(rank, None, str(value)))
    return heard


def main() -> int:
    parser = argparse.ArgumentParser(description="How soon survivors learn which rank died.")
    parser.add_argument("--kills", type=int, default=10, help="of each case")
    parser.add_argument("--minutes", type=float, help="of all cases together, instead of a number of kills")
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    sanitizers.add_argument(parser, sanitizers.NONE)
    arguments, console = parser.parse_args(), Console()
    with tempfile.TemporaryDirectory(prefix="kills-") as temporary:
        folder = Path(temporary)
        env = sanitizers.chosen_env(arguments.sanitizer, folder, console)
        ok = _run([case for case in cases(folder) if arguments.only in case.name], env, arguments, console)
        if env:
            ok = sanitizers.verdict(sanitizers.logs(folder), console) and ok
        return 0 if ok else 1


def _run(chosen: list[Case], env: Mapping[str, str], arguments: argparse.Namespace, console: Console) -> bool:
    dice, ok = random.Random(arguments.seed), True
    table = Table("case", "kills", "survivors", "median s", "longest s", "raised", "named the dead rank")
    for case in chosen:
        every: list[tuple[int, Heard]] = []
        number, begin_s = 0, time.monotonic()
        while _goes_on(number, time.monotonic() - begin_s, len(chosen), arguments):
            victim = number % arguments.ranks  # every rank in turn: rank 0 coordinates
            number += 1
            variables = sanitizers.joined(env, case.env)
            for heard in kill_in(case.body, case.args, victim, dice.random(), arguments.ranks, variables):
                every.append((victim, heard))
                if not heard.named(victim):
                    console.print(f"{case.name}: rank {victim} died, rank {heard.rank}: {heard.text}", markup=False)
        times = [heard.seconds for _, heard in every if heard.seconds is not None]
        named = sum(heard.named(victim) for victim, heard in every)
        ok = ok and named == len(every)
        table.add_row(
            case.name,
            str(number),
            str(len(every)),
            f"{statistics.median(times):.3f}" if times else "-",
            f"{max(times):.3f}" if times else "-",
            f"{len(times)} of {len(every)}",
            f"{named} of {len(every)}",
        )
    console.print(table)
    return ok


def _goes_on(kills: int, passed_s: float, cases: int, arguments: argparse.Namespace) -> bool:
    """Return whether a case needs more kills, after `kills` of them in `passed_s` seconds."""
    if arguments.minutes is None:
        return kills < int(arguments.kills)
    return kills < arguments.ranks or passed_s < arguments.minutes * 60 / cases


if __name__ == "__main__":
    from integration_tests import kills  # the ranks find `train` by the name of its module

    sys.exit(kills.main())
