"""Settings that differ between ranks, because a launcher exported them to some: init() refuses them on every rank.

Before, each had another failure: PACELINE_EXCHANGE on one rank hung for ever, PACELINE_CODEC took a minute and blamed
the wrong ranks, a smaller HOROVOD_FUSION_THRESHOLD aborted its rank.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from integration_tests.support import debug
from integration_tests.support.more import more
from integration_tests.support.ranks import ranks, run_ranks
from paceline import config
from paceline.common_settings import BUILD, HOROVODS
from paceline.debug_values import DEBUG_VALUES

SIZE = 4
PLACES = (0, 1, SIZE - 1)  # the first, a middle and the last rank
# One rank gets the first of these that an option accepts and that is not its default.
_VALUES = ("single", "direct", "events", "solo", "q8", "samples", "raise", "yes", "no", "3", "0.25")
LIMIT_S = 10.0  # measured: at most 0.5 s, on busy cores

# Variable, value and rank of each difference in one init().
Case = list[tuple[str, str, int]]


def _other(option: config.Option) -> str:
    """Return a value of a shared option that is not its default."""
    assert option.shared is not None
    for text in _VALUES:
        try:
            if option.shared(option.parse(text)) != option.shared(option.default_value):
                return text
        except ValueError:
            continue
    raise AssertionError(f"none of {_VALUES} is a value of {option.variable}")


# Horovod's options come first: a fusion policy stays requested in its process, and excludes two of them.
_DIFFERENT = [
    *((one.name, str(int(one.default) + 1) if one.default else "mpi") for one in HOROVODS),
    *((option.variable, _other(option)) for option in config.OPTIONS if option.shared is not None),
    (debug.NAME, "gate_timeout_ms=3"),
]
# Each variable alone, on each of these ranks; then several together, on different ranks.
_DEBUG = [(debug.NAME, f"{one.name}={_other(one)}") for one in DEBUG_VALUES if one.shared is not None]
ALONE: list[Case] = [[(name, value, rank)] for name, value in _DIFFERENT + _DEBUG for rank in PLACES]
_ONCE = [(name, value, PLACES[n % len(PLACES)]) for n, (name, value) in enumerate(_DIFFERENT)]
TOGETHER: list[Case] = [_ONCE[n : n + 9] for n in range(0, len(_ONCE), 9)]


def _refused(rank: int, size: int, cases: list[Case], folder: str) -> list[tuple[str, float]]:
    """Errors of init() in each case, and the seconds it took; afterwards ranks with equal settings train."""
    import horovod.torch as hvd
    import torch

    os.chdir(folder)  # of a trace
    reported, before = [], dict(os.environ)
    for case in cases:
        os.environ.update({name: value for name, value, differing in case if rank == differing})
        start = time.monotonic()
        try:
            hvd.init()
            reported.append(("init() raised nothing", time.monotonic() - start))
            hvd.shutdown()
        except Exception as error:
            reported.append((f"{type(error).__name__}: {error}", time.monotonic() - start))
        for name, _, _ in case:
            os.environ.pop(name, None)
        os.environ.update(before)
    hvd.init()
    assert hvd.allreduce(torch.ones(3) * rank, op=hvd.Sum, name="agreed").tolist() == [size * (size - 1) / 2] * 3
    return reported


@pytest.mark.parametrize("cases", [pytest.param(TOGETHER, id="together"), more(ALONE, id="alone")])
def test_every_difference_is_named_on_all_ranks(cases: list[Case], tmp_path: Path) -> None:
    by_rank = run_ranks(_refused, SIZE, cases, str(tmp_path), fresh=True, timeout_s=250)
    slowest_s = max(took_s for reported in by_rank for _, took_s in reported)
    print(f"{len(cases)} times init() on {SIZE} ranks, {len(_DIFFERENT)} variables: refused within {slowest_s:.2f} s")
    assert slowest_s < LIMIT_S
    for case, *reported in zip(cases, *by_rank, strict=True):
        text = reported[0][0]
        assert all(one == text for one, _ in reported), (case, reported)
        assert text.startswith("UserError: Settings differ between ranks"), (case, text)
        *lines, remedy = text.splitlines()[1:]
        assert len(lines) == len(case), (case, text)
        for name, _, differing in case:
            (line,) = (one for one in lines if one.startswith(f"  {name}: "))
            assert f" on rank {differing}" in line, (differing, line)
            for launcher in ("mpirun", "mpiexec -genvlist", "srun --export=ALL", "ssh HOST env"):
                assert re.search(rf"{launcher}[^(]*\b{name}\b", remedy), (launcher, remedy)


def _as_by_default(rank: int, _size: int) -> None:
    import horovod.torch as hvd

    if rank == 1:
        written = {one.name: one.default for one in HOROVODS if one.default}
        written |= {
            option.variable: config.as_text(option.default)
            for option in config.OPTIONS
            if option.default is not None and not callable(option.default)
        }
        os.environ.update(written | dict(os.environ))
    hvd.init()


def test_defaults_may_be_written_out_on_one_rank() -> None:
    run_ranks(_as_by_default, 3, fresh=True)


@ranks(3, fresh=True)
def test_another_build_is_named(rank: int, _size: int) -> None:
    import horovod.torch as hvd

    import paceline

    if rank == 2:
        paceline.__version__ = "0.0.older"
    with pytest.raises(Exception, match=rf"{BUILD}: .* on ranks 0, 1; 0.0.older .* on rank 2\n.*horovod install"):
        hvd.init()
