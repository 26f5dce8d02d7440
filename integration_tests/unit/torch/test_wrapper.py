"""The optimizer's wrapper: names, groups and buckets of parameters, and which step() makes the update."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from paceline.errors import UserError
from paceline.split.spans import LEAST_SPAN_BYTES
from paceline.torch.errors import UsageError
from paceline.torch.names import ParameterNames
from paceline.torch.optimizer.bucket import DENSE, Gradient
from paceline.torch.optimizer.buckets import Buckets, digest, fits, form_groups, neighbours
from paceline.torch.optimizer.passes import Passes
from paceline.torch.optimizer.reduction import Reduction


def _parameters(*lengths: int) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.zeros(length)) for length in lengths]


def _names(optimizer: torch.optim.Optimizer, named: Any = None) -> list[str]:
    return [name for name, _ in ParameterNames(optimizer.param_groups, named).items()]


def test_names() -> None:
    a, b, c = _parameters(1, 2, 3)
    groups = [{"params": [c, a]}, {"params": [b]}]
    optimizer = torch.optim.SGD(groups, lr=1)
    assert _names(optimizer, iter([("a", a), ("b", b), ("c", c), ("head", _parameters(4)[0])])) == ["c", "a", "b"]
    assert _names(optimizer) == ["parameter.0.0", "parameter.0.1", "parameter.1.0"]
    known = torch.optim.SGD([("a", a), ("b", b)], lr=1)
    if "param_names" in known.param_groups[0]:  # not every release of torch keeps them
        assert _names(known) == ["a", "b"]
    grown = torch.optim.SGD([a], lr=1)
    names = ParameterNames(grown.param_groups, [("a", a), ("b", b)])
    grown.add_param_group({"params": [b, c]})
    names.add_group(grown.param_groups, 1)
    assert [name for name, _ in names.items()] == ["a", "b", "a.added.1.1"]


@pytest.mark.parametrize(
    ("named", "words"),
    [
        (lambda a, b: [("w", a), ("w", b)], r"'w' twice(.|\n)*prefix"),
        (lambda a, b: [("w", a)], r"leaves out 1 .*number 1 of group 0 \(shape \(2,\)\)"),
        (lambda a, b: [a, b], r"type Parameter where \(name, parameter\)"),
        (lambda a, b: [("w", a, 1)], r"type tuple where \(name, parameter\)"),
    ],
)
def test_names_that_cannot_be_used_are_refused(named: Any, words: str) -> None:
    a, b = _parameters(1, 2)
    with pytest.raises(UsageError, match=words):
        _names(torch.optim.SGD([a, b], lr=1), named(a, b))


def _lengths(groups: Any, parameters: list[Any]) -> list[list[int]]:
    return [[len(member) for member in group] for group in dict.fromkeys(form_groups(groups, parameters).values())]


def test_groups() -> None:
    parameters = _parameters(1, 2, 3, 4, 5, 6, 7)
    assert _lengths(3, parameters) == [[1, 2, 3], [4, 5], [6, 7]]
    assert _lengths(1, parameters) == [[1, 2, 3, 4, 5, 6, 7]]
    assert _lengths(0, parameters) == _lengths(None, parameters) == []
    # A gradient that is alone in its group is sent as without groups.
    assert _lengths(7, parameters) == []
    first, second, third = parameters[:3]
    assert _lengths([[third, first], [second]], parameters[:3]) == [[3, 1]]
    # A group has one element type.
    for parameter in (parameters[1], parameters[3]):
        parameter.data = parameter.data.double()
    assert _lengths(1, parameters[:4]) == [[1, 3], [2, 4]]


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (lambda p: -2, "groups=-2 is negative"),
        (lambda p: "all", "groups is of type str"),
        (lambda p: True, "groups is of type bool"),
        (lambda p: p, r"groups\[0\] is of type Parameter"),
        (lambda p: [[p[0], 5]], r"groups\[0\]\[1\] is of type int"),
        (lambda p: [[p[0]], [p[1], p[0]]], r"groups\[1\]\[1\] \(shape \(1,\)\) is in groups twice"),
        (lambda p: [[torch.nn.Parameter(torch.zeros(9))]], r"shape \(9,\)\) is not a parameter of the optimizer"),
    ],
)
def test_groups_that_cannot_be_used_are_refused(groups: Any, words: str) -> None:
    parameters = _parameters(1, 2)
    with pytest.raises(UsageError, match=words) as caught:
        form_groups(groups(parameters), parameters)
    assert isinstance(caught.value, UserError) and isinstance(caught.value, ValueError) and caught.value.remedy


def _gradients(*sizes: int | torch.Tensor) -> list[Gradient]:
    tensors = [torch.zeros(size) if isinstance(size, int) else size for size in sizes]
    return [Gradient(torch.nn.Parameter(tensor), f"p{number}") for number, tensor in enumerate(tensors)]


def _formed(gradients: list[Gradient], most_bytes: int = 64) -> list[list[str]]:
    small = {gradient for gradient in gradients if fits(gradient.parameter, most_bytes)}
    return [[gradient.name for gradient in bucket] for bucket in neighbours(gradients, small)]


def test_buckets_are_small_neighbours_of_one_type_within_an_eighth_of_all() -> None:
    assert _formed(_gradients(3, 17, 16, 1, 99, 2)) == [["p5", "p3", "p2", "p0"]]
    assert [len(bucket) for bucket in _formed(_gradients(*[16] * (1 << 14)))] == [1 << 11] * 8
    # In a small model a bucket spans at most 64 KiB of gradients.
    large = LEAST_SPAN_BYTES // 4 - 3
    assert _formed(_gradients(1, 2, 3, large, 1, 2)) == [["p5", "p4"], ["p2", "p1", "p0"]]
    assert _formed(_gradients(2, large, 1)) == [["p2", "p0"]]
    assert _formed(_gradients(3, large, 1)) == [], "alone, each of them"
    # One type a bucket and none of what cannot be a part.
    wide = [torch.zeros(2, dtype=torch.float64) for _ in range(2)]
    assert _formed(_gradients(wide[0], 3, wide[1], 4)) == [["p3", "p1"], ["p2", "p0"]]
    for odd in (torch.zeros(4, 3).t(), torch.zeros(2, dtype=torch.bfloat16), torch.zeros(0), torch.zeros(2).to("meta")):
        assert not fits(torch.nn.Parameter(odd), 64), odd
    assert not fits(torch.nn.Parameter(torch.zeros(3)), 0)


def test_ranks_whose_buckets_would_differ_have_other_digests() -> None:
    gradients, longer = _gradients(3, 4, 5), _gradients(3, 4, 6)
    mine = digest(gradients, set(gradients))
    again = _gradients(3, 4, 5)
    assert mine == digest(again, set(again)) > 0
    two = gradients[:2]
    others = [digest(longer, set(longer)), digest(two, set(two)), digest(gradients, set(two))]
    assert len({mine, *others}) == 4
    assert digest(gradients, set()) == 0, "nothing is small"


def test_a_drain_takes_out_what_frozen_parameters_are_owed() -> None:
    """Also where a bucket has nothing else left, and other gradients have."""
    weights = [torch.nn.Parameter(torch.zeros(2, dtype=one)) for one in (torch.float32, torch.float32, torch.double)]
    sgd = torch.optim.SGD(weights, lr=1.0)
    names = ParameterNames(sgd.param_groups, [(f"p{number}", weight) for number, weight in enumerate(weights)])
    formed = Buckets(sgd, names, None, sparse_as_dense=False, small_bytes=64, shapes_stay=True)
    formed.update()
    for gradient in formed.all:
        gradient.sparse_dims = DENSE
    formed.form_flat(formed.all)
    formed.all[0].owed = torch.ones(2)
    exchange: Any = SimpleNamespace(
        settings=SimpleNamespace(exchanges_gradients=True, weighs=False),
        lag=None,
        weighted=None,
        drain=lambda: [({"p2": np.full(2, 3.0)}, 1.0)],
    )
    found = [
        [None if one.grad is None else one.grad.tolist() for one in weights]
        for _ in Reduction(formed, exchange, 1).drain()
    ]
    assert found == [[[1.0, 1.0], None, [3.0, 3.0]]]
    assert formed.all[0].owed is None


def _run(per_update: int, events: str) -> str:
    """Play b (a backward pass) and s (a call of step); the answer marks each s that updated as U, others as '-'."""
    passes, gradients, marks = Passes(per_update), 0, ""
    for event in events.replace(" ", ""):
        if event == "b":
            gradients += 1
            passes.saw_gradient(gradients)
        elif passes.count_call():
            passes.updated()
            gradients = 0
            marks += "U"
        else:
            marks += "-"
    return marks


@pytest.mark.parametrize(
    ("per_update", "events", "marks"),
    [
        (1, "bs bs bs", "UUU"),
        (1, "s s", "UU"),  # a rank without gradients takes part in every update
        # step() after every backward pass
        (3, "bs bs bs bs bs bs", "--U--U"),
        (3, "bs s bs bs", "--U-"),  # a pass without gradients on this rank counts
        # the caller counts, and calls step() once
        (3, "bbbs bbbs", "UU"),
        (3, "bbbs bbs bbbs", "UUU"),  # the rest of an epoch
        (3, "bbbs bs bs bs bs", "UU--U"),  # ... but only one: then step() is called after every pass
        (2, "bbs bs bbs bs", "UUUU"),
        (4, "bbs bbs", "-U"),  # two passes for each step(): passes are what counts
    ],
)
def test_calls_that_update(per_update: int, events: str, marks: str) -> None:
    assert _run(per_update, events) == marks


def test_gradients_are_kept_only_within_an_accumulation() -> None:
    passes = Passes(2)
    assert not passes.accumulating()
    passes.saw_gradient(1)
    assert passes.accumulating()
    passes.saw_gradient(2)
    assert not passes.accumulating()
    passes.restart()
    assert not passes.accumulating()
    alone = Passes(1)
    alone.saw_gradient(1)
    assert not alone.accumulating()
