"""Plans of steps that have halves of allreduces."""

from __future__ import annotations

import itertools

import pytest

from paceline.core._core import CostModel
from paceline.fusion.gradient import Gradient
from paceline.fusion.halves import bytes_as_allreduce, gathers, in_shares, of_one_kind
from paceline.fusion.planning import make_plan
from paceline.fusion.resolve import resolve
from paceline.native.halves import ALL_GATHER_NAMES, REDUCE_SCATTER_NAMES, shard

KINDS = {"r": REDUCE_SCATTER_NAMES, "g": ALL_GATHER_NAMES, "o": ""}
COSTS = CostModel.linear(0.002, 1e-8)


def _gradients(kinds: str, size_bytes: int = 100_000) -> list[Gradient]:
    return [Gradient(f"{KINDS[kind]}{n}", size_bytes, 0.01 * n) for n, kind in enumerate(kinds)]


@pytest.mark.parametrize("policy", ["none", "single", "mgwfbp", "optimal"])
@pytest.mark.parametrize("armed", [False, True])
def test_no_message_mixes_kinds(policy: str, armed: bool) -> None:
    gradients = _gradients("rrorrroogggggggg")
    plan = make_plan(
        resolve(policy), gradients, COSTS, coordination_s=0.004, cycle_s=0.001, threshold_bytes=1 << 26, armed=armed
    )
    for group in plan.groups:
        assert len({next(k for k, mark in KINDS.items() if mark in gradients[i].name) for i in group}) == 1, plan.groups
    assert sorted(index for group in plan.groups for index in group) == list(range(len(gradients)))


def test_halves_are_whole_and_in_order() -> None:
    gradients = _gradients("roor")
    assert of_one_kind([[0], [0], [1, 2, 3]], gradients) == [[0], [1, 2], [3]]
    assert of_one_kind([[1], [1]], gradients) == [[1], [1]]
    assert of_one_kind([[0, 1]], _gradients("oo")) == [[0, 1]]


def test_gathers_go_in_shares_but_in_no_message_that_is_mostly_start_up() -> None:
    gradients = _gradients("rr" + "g" * 16, 300_000)
    late = gathers(gradients)
    assert late == list(range(2, 18))
    assert in_shares(late, gradients, COSTS) == [[n] for n in range(2, 18)]
    assert [len(group) for group in in_shares(late, gradients, CostModel.linear(0.008, 1e-8))] == [3, 3, 3, 3, 3, 1]
    assert in_shares([], gradients, COSTS) == []


def test_reduce_scatters_do_not_wait_for_what_comes_after_them() -> None:
    """Alone or before all-gathers, they have the same groups."""
    both = [Gradient(f"{REDUCE_SCATTER_NAMES}{n}", 100_000, 0.005 * n) for n in range(8)]
    late = [Gradient(f"{ALL_GATHER_NAMES}{n}", 100_000, 0.2) for n in range(8)]

    def planned(gradients: list[Gradient]) -> list[list[int]]:
        return make_plan(
            resolve("optimal"),
            gradients,
            COSTS,
            coordination_s=0.004,
            cycle_s=0.001,
            threshold_bytes=1 << 26,
            armed=True,
        ).groups

    alone = planned(both)
    assert planned(both + late)[: len(alone)] == alone
    assert len(alone) > 1


def test_a_half_costs_half() -> None:
    assert bytes_as_allreduce(f"{REDUCE_SCATTER_NAMES}x", 100) == 50
    assert bytes_as_allreduce("x", 100) == 100


@pytest.mark.parametrize("elements", [0, 1, 5, 64, 1001])
@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_shards_cover_all(elements: int, ranks: int) -> None:
    ends = [shard(elements, rank, ranks) for rank in range(ranks)]
    assert ends[0][0] == 0 and ends[-1][1] == elements
    assert all(one[1] == two[0] for one, two in itertools.pairwise(ends))
    assert max(last - first for first, last in ends) - min(last - first for first, last in ends) <= 1
