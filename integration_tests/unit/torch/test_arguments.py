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


def test_names_are_taken_from_named_parameters_in_the_order_of_the_groups() -> None:
    a, b, c = _parameters(1, 2, 3)
    optimizer = torch.optim.SGD([{"params": [c, a]}, {"params": [b]}], lr=1)
    assert _names(optimizer, iter([("a", a), ("b", b), ("c", c), ("head", _parameters(4)[0])])) == ["c", "a", "b"]


def test_names_are_made_from_group_and_position() -> None:
    a, b, c = _parameters(1, 2, 3)
    assert _names(torch.optim.SGD([{"params": [c, a]}, {"params": [b]}], lr=1)) == [
        "parameter.0.0",
        "parameter.0.1",
        "parameter.1.0",
    ]


def test_names_that_torch_knows_are_used() -> None:
    a, b = _parameters(1, 2)
    optimizer = torch.optim.SGD([("a", a), ("b", b)], lr=1)
    if "param_names" not in optimizer.param_groups[0]:
        pytest.skip("this torch keeps no names in groups")
    assert _names(optimizer) == ["a", "b"]


def test_a_group_added_later_is_named() -> None:
    a, b, c = _parameters(1, 2, 3)
    optimizer = torch.optim.SGD([a], lr=1)
    names = ParameterNames(optimizer.param_groups, [("a", a), ("b", b)])
    optimizer.add_param_group({"params": [b, c]})
    names.add_group(optimizer.param_groups, 1)
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


def test_a_usage_error_is_both_a_user_error_and_a_value_error() -> None:
    with pytest.raises(ValueError) as caught:
        form_groups(-1, [])
    assert isinstance(caught.value, UserError)
    assert caught.value.remedy


def _lengths(groups: Any, parameters: list[Any]) -> list[list[int]]:
    return [[len(member) for member in group] for group in dict.fromkeys(form_groups(groups, parameters).values())]


def test_a_number_of_groups_cuts_neighbours() -> None:
    parameters = _parameters(1, 2, 3, 4, 5, 6, 7)
    assert _lengths(3, parameters) == [[1, 2, 3], [4, 5], [6, 7]]
    assert _lengths(1, parameters) == [[1, 2, 3, 4, 5, 6, 7]]
    assert _lengths(0, parameters) == _lengths(None, parameters) == []


def test_parameters_alone_in_their_group_travel_as_without_groups() -> None:
    parameters = _parameters(1, 2, 3)
    assert _lengths(7, parameters) == []
    assert _lengths([[parameters[2], parameters[0]], [parameters[1]]], parameters) == [[3, 1]]


def test_a_group_has_one_element_type() -> None:
    parameters = _parameters(1, 2, 3, 4)
    parameters[1].data = parameters[1].data.double()
    parameters[3].data = parameters[3].data.double()
    assert _lengths(1, parameters) == [[1, 3], [2, 4]]


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
    with pytest.raises(UsageError, match=words):
        form_groups(groups(parameters), parameters)
