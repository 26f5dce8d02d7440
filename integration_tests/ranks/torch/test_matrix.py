"""Training with Paceline on ranks equals one process that has all their data: optimizers x features x exchanges.

The table is in integration_tests/support/matrix_table.py; a case has the name of its row.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.debug import debug
from integration_tests.support.matrix_features import FEATURES
from integration_tests.support.matrix_runs import OneProcess, OnRanks, Setting
from integration_tests.support.matrix_table import (
    EXCHANGES,
    MORE,
    OPTIMIZERS,
    ROWS,
    Row,
    gradients,
    kind_of,
    missing_optimizers,
)
from integration_tests.support.ranks import run_ranks

# Of all values of a tensor, against the largest of them. With two ranks the bits are equal but where torch itself adds
# up in another order: rows of sparse gradients, and compiled code.
RELATIVE = {torch.float32: 1e-6, torch.float64: 1e-6, torch.bfloat16: 2.0**-7}
OTHER_ORDER = ("sparse", "compile")
# Under split the norm of a gradient is made of the norms of its shards.
CLIPPED = ("clipping", "clipping_in_flight")
# In this world a plan is in force; parameters that are frozen leave its groups incomplete.
PLANNED = {
    "PACELINE_FUSION": "optimal",
    **debug(fusion_warmup_steps=2, fusion_watch_steps=0, gate_timeout_ms=10),
}
MOST_STEPS = 500

_planned = ""  # the gradients that the plan of this rank's world is for


@functools.cache
def _alone(optimizer: str, feature: str, size: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    run = OneProcess(_setting(optimizer, feature, dtype), size, seed=7)
    (FEATURES[feature].reference or FEATURES[feature].train)(run)
    return run.result()


def _setting(optimizer: str, feature: str, dtype: torch.dtype) -> Setting:
    chosen = OPTIMIZERS[optimizer]
    return Setting(kind_of(optimizer, feature), chosen.bias, dtype, chosen.make, chosen.closure)


def _row(rank: int, size: int, row: Row) -> None:
    feature = FEATURES[row.feature]
    # With three ranks Horovod determines the order of sums; only the precision can show that nothing else differs.
    dtype = torch.float64 if size > 2 and feature.dtype is torch.float32 else feature.dtype
    choices: dict[str, Any] = {
        "sync": {},
        "optimal": {"fusion": "optimal"},
        "pipelined": {"exchange": hvd.Pipelined(k=1)},
        "partial": {
            "exchange": hvd.Partial(quorum=size, sync_every=2 * feature.averaging),
            "sparse_as_dense": True,
        },
        "split": {"exchange": "split"},
    }
    setting = _setting(row.optimizer, row.feature, dtype)
    prefix = f"matrix.{gradients(row)}" if row.exchange == "optimal" else "matrix." + ".".join(row)
    # Rows of sparse gradients are gathered: without a dense one there is nothing to merge.
    if row.exchange == "optimal" and (setting.bias or setting.kind != "rows"):
        _plan(OnRanks(setting, size, rank, prefix, fusion="optimal"), prefix)
    run = OnRanks(setting, size, rank, prefix, **choices[row.exchange])
    feature.train(run)
    expected, found = _alone(row.optimizer, row.feature, size, dtype), run.result()
    assert found.keys() == expected.keys()
    for place, right in expected.items():
        # LBFGS keeps differences of gradients: of other sums they are other numbers, where its steps still agree.
        if size > 2 and setting.closure and place.startswith("state."):
            continue
        mine = found[place]
        assert mine.dtype == right.dtype and mine.shape == right.shape, place
        other_order = {*OTHER_ORDER, "rows", *(CLIPPED if row.exchange == "split" else ())}
        if size == 2 and not {row.feature, kind_of(row.optimizer, row.feature)} & other_order:
            assert torch.equal(mine, right), f"{place}: {mine} is not {right}"
        else:
            apart = (mine - right).abs().max() / right.abs().max().clamp(min=1e-30)
            assert apart <= RELATIVE[dtype], f"{place}: {mine} is {apart:.1e} from {right}"


def _plan(run: OnRanks, prefix: str) -> None:
    """Train until a plan for gradients of these names is in force."""
    global _planned
    if _planned == prefix:
        return

    # A request for another policy in between makes the ranks measure again.
    hvd.DistributedOptimizer(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0), fusion="threshold")
    hvd.barrier()
    run.build()
    for step in range(MOST_STEPS):
        run.update(run.one_pass(step))
        report = hvd.fusion_report()
        planned = report.state == "active" and any(prefix in name for group in report.groups for name in group)
        if hvd.broadcast(torch.tensor([int(planned)]), 0, name="matrix.planned").item():
            _planned = prefix
            return
    raise AssertionError(f"no plan after {MOST_STEPS} steps: {hvd.fusion_report()}")


def _cases(planned: bool) -> list[Any]:
    """Rows on 2 ranks; for `make test-more` the rest of the product, for `make soak` those on 3."""

    def case(row: Row, size: int, *marks: Any) -> Any:
        return pytest.param(row, size, id="-".join((*row, f"{size}ranks")), marks=marks)

    rows, rest = ([row for row in some if (row.exchange == "optimal") is planned] for some in (ROWS, MORE))
    return [
        *(case(row, 2) for row in rows),
        *(case(row, 2, pytest.mark.more) for row in rest),
        *(case(row, 3, pytest.mark.soak) for row in rows),
    ]


@pytest.mark.parametrize(("row", "size"), _cases(planned=False))
def test_training_equals_one_process(row: Row, size: int) -> None:
    run_ranks(_row, size, row)


@pytest.mark.parametrize(("row", "size"), _cases(planned=True))
def test_training_by_plan_equals_one_process(row: Row, size: int) -> None:
    run_ranks(_row, size, row, env=PLANNED)


def test_every_optimizer_of_torch_and_every_feature_is_tried_under_every_exchange() -> None:
    assert not missing_optimizers()
    for exchange in EXCHANGES:
        tried = [row for row in ROWS if row.exchange == exchange]
        several = {"LBFGS"} if exchange in ("partial", "split") else set()
        assert {row.optimizer for row in tried} == set(OPTIMIZERS) - several
        assert {row.feature for row in tried} == set(FEATURES) - ({"resuming"} if exchange == "partial" else set())
