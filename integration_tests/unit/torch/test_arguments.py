"""Names and groups of parameters: what is accepted, what is refused and with which words."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from paceline.errors import UserError
from paceline.torch.errors import UsageError
from paceline.torch.names import ParameterNames
from paceline.torch.optimizer.buckets import form_groups


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
    # Alone in their group they travel as without groups.
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
        (lambda p: [[torch.nn.Parameter(torch.zeros(9))]], r"shape \(9,\)\) is no parameter of the optimizer"),
    ],
)
def test_groups_that_cannot_be_used_are_refused(groups: Any, words: str) -> None:
    parameters = _parameters(1, 2)
    with pytest.raises(UsageError, match=words) as caught:
        form_groups(groups(parameters), parameters)
    assert isinstance(caught.value, UserError) and isinstance(caught.value, ValueError) and caught.value.remedy
