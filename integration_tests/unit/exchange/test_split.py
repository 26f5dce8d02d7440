"""The split exchange without ranks: owners, refusals, and parameters whose values are in flight."""

from __future__ import annotations

import copy
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from paceline.errors import UserError
from paceline.split.owners import Owners
from paceline.split.settings import Split
from paceline.split.spans import spans
from paceline.torch.split.arriving import Arriving
from paceline.torch.split.state import check


def test_owners_have_equal_shares_and_keep_what_they_have() -> None:
    owners = Owners(3)
    many = [[(f"{span}.{one}", 100 + span) for one in range(4)] for span in range(12)]
    owners.add(many)
    assert max(owners.shares_bytes) - min(owners.shares_bytes) <= 4 * 111
    assert len({owners.of(name) for name, _ in many[0]}) == 1
    before = {name: owners.of(name) for span in many for name, _ in span}
    owners.add([[("late", 7), *many[0]], *many[1:]])
    assert {name: owners.of(name) for name in before} == before
    assert owners.of("late") == min(
        range(3), key=lambda rank: owners.shares_bytes[rank] - (owners.of("late") == rank) * 7
    )
    assert Owners.of_saved(3, before, many).shares_bytes == tuple(
        sum(count for span in many for name, count in span if before[name] == rank) for rank in range(3)
    )


def test_spans_have_every_parameter_once_from_the_last_on() -> None:
    sizes = [5, 1 << 21, 0, 1 << 16, 3, 1 << 15, 1 << 15]
    found = spans(sizes, 8)
    assert [number for span in found for number in span] == [6, 5, 4, 3, 2, 1, 0]
    assert all(len(span) == 1 or sum(sizes[number] for number in span) <= 1 << 20 for span in found)
    assert spans([], 8) == [] and spans([0, 0], 8) == [[1, 0]]


def test_tapes_refuse_it() -> None:
    refused = Split().needs_optimizer
    assert refused is not None
    assert "A tape was given" in refused[0] and 'exchange="sync"' in refused[1]


def test_optimizers_whose_updates_may_depend_on_other_parameters_are_refused() -> None:
    class Own(torch.optim.SGD):
        pass

    weights = [torch.nn.Parameter(torch.zeros(2))]
    check(torch.optim.Adam(weights), independent=False)
    check(Own(weights, lr=0.1), independent=True)
    with pytest.raises(UserError, match=r"Own, of which nobody has said(?s:.*)hvd.Split\(independent=True\)"):
        check(Own(weights, lr=0.1), independent=False)
    for independent in (False, True):
        with pytest.raises(UserError, match=r'LBFGS, whose update of a parameter depends on all others(?s:.*)"sync"'):
            check(torch.optim.LBFGS(weights), independent=independent)


def _layer() -> tuple[torch.nn.Linear, list[int], Arriving]:
    """A layer whose new values, all 2, are in flight; counts waits for them."""
    layer, waits = torch.nn.Linear(3, 2), [0]
    parameters = list(layer.parameters())

    def wait() -> list[torch.Tensor]:
        waits[0] += 1
        return [torch.full_like(one, 2.0) for one in (torch.empty(2, 3), torch.empty(2))]

    return layer, waits, Arriving(parameters, wait, lambda: None)


READERS: dict[str, Callable[[torch.nn.Linear], Any]] = {
    "forward": lambda layer: layer(torch.ones(1, 3)),
    "functional": lambda layer: torch.nn.functional.linear(torch.ones(1, 3), layer.weight),
    "functional_call": lambda layer: torch.func.functional_call(
        layer, dict(layer.named_parameters()), torch.ones(1, 3)
    ),
    "state_dict": lambda layer: layer.state_dict(),
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "data": lambda layer: layer.weight.data,
    "numpy": lambda layer: layer.bias.detach().numpy(),
    "moving average": lambda layer: torch.zeros(2, 3).lerp_(layer.weight, 0.1),
    "foreach": lambda layer: torch._foreach_add([torch.zeros(2, 3)], [layer.weight]),
    "printing": lambda layer: str(layer.weight),
    "other type": lambda layer: layer.weight.type(torch.float64),
    "equality": lambda layer: layer.weight == 2,
    "pointer": lambda layer: layer.weight.data_ptr(),
    "writing": lambda layer: layer.weight.data.mul_(1),
    "averaged model": lambda layer: torch.optim.swa_utils.AveragedModel(layer).update_parameters(layer),
}


@pytest.mark.parametrize("reader", READERS)
def test_who_reads_a_parameter_has_its_new_value(reader: str) -> None:
    layer, waits, _ = _layer()
    with torch.no_grad():
        READERS[reader](layer)
        assert waits == [1]
        assert type(layer.weight) is torch.nn.Parameter and type(layer.bias) is torch.nn.Parameter
        assert all(bool((one == 2).all()) for one in layer.parameters())
    assert not vars(layer.weight)


def test_who_asks_about_a_parameter_or_for_its_gradient_waits_for_nothing() -> None:
    layer, waits, arriving = _layer()
    held = torch.optim.SGD(layer.parameters(), lr=0.1)
    for one in layer.parameters():
        found = one.shape, one.dtype, one.device, one.numel(), one.size(), one.dim(), one.nbytes, one.is_leaf
        assert len(found) == 8 and one.requires_grad and isinstance(one, torch.nn.Parameter) and one in {one}
        one.grad = torch.ones(one.shape)
        assert one.grad is not None and one.is_floating_point() and one.element_size() == 4
    held.zero_grad(set_to_none=False)
    held.zero_grad()
    layer.zero_grad()
    layer.requires_grad_(False).requires_grad_(True)
    assert waits == [0]
    arriving.drop()
    assert type(layer.weight) is torch.nn.Parameter and not bool((layer.weight == 2).any())


def test_threads_that_read_at_once_have_the_new_value() -> None:
    layer = torch.nn.Linear(300, 300)
    parameters, found = list(layer.parameters()), []

    def wait() -> list[torch.Tensor]:
        time.sleep(0.05)
        return [torch.full((300, 300), 2.0), torch.full((300,), 2.0)]

    Arriving(parameters, wait, lambda: None)
    threads = [threading.Thread(target=lambda: found.append(layer.weight.detach().clone())) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(20)
    assert len(found) == 8 and all(bool((one == 2).all()) for one in found)


def test_what_waiting_raises_reaches_who_reads_and_leaves_ordinary_parameters() -> None:
    layer = torch.nn.Linear(3, 2)

    def wait() -> list[torch.Tensor]:
        raise RuntimeError("Rank 1 died")

    Arriving(list(layer.parameters()), wait, lambda: None)
    with pytest.raises(RuntimeError, match="Rank 1 died"):
        layer(torch.ones(1, 3))
    assert type(layer.weight) is torch.nn.Parameter
    layer(torch.ones(1, 3))
