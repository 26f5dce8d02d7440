"""Replaced parameters, and parameters of two optimizers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.branches import Branches, wrapped
from integration_tests.support.debug import debug
from integration_tests.support.ranks import ranks
from integration_tests.support.torch_training import parameters


def _grown(model: Any, optimizer: Any, names: str) -> None:
    """Other parameters of another length in the places of these."""
    for name in names:
        old = getattr(model, name)
        new = torch.nn.Parameter(torch.cat([old.detach(), old.detach()[:2] + 1.0]))
        setattr(model, name, new)
        for group in optimizer.param_groups:
            group["params"] = [new if one is old else one for one in group["params"]]


def _options(size: int) -> list[dict[str, Any]]:
    ways: list[dict[str, Any]] = [{"exchange": one} for one in ("sync", hvd.Partial(quorum=size), "local")]
    ways.append({"exchange": hvd.Local(sync_every=2, outer_momentum=0.5)})
    ways += [{"exchange": hvd.Pipelined(k=2)}, {"groups": 1}, {"bucket_bytes": 0}, {"codec": "bf16"}]
    return ways


@ranks(2)
def test_parameters_replaced_by_others_of_another_length(rank: int, size: int) -> None:
    """Gaussian splatting, resized vocabularies: drain() and zero_grad(), and on as plain torch does."""
    for way, options in enumerate(_options(size)):
        for passes in (1, 2):
            model = Branches("a", "b", "c")
            named = [(f"grown.{way}.{passes}.{name}", one) for name, one in model.named_parameters()]
            held = torch.optim.SGD(model.parameters(), lr=1.0)
            optimizer = hvd.DistributedOptimizer(held, named, backward_passes_per_step=passes, **options)
            for number, replaced in enumerate(("", "b", "", "abc", "c")):
                optimizer.drain()
                _grown(model, optimizer, replaced)
                optimizer.zero_grad()
                for _ in range(passes):
                    model(a=2.0 * (number + 1), b=4.0, c=8.0).backward()
                optimizer.step()
            optimizer.drain()
            found = {name: one.tolist() for name, one in model.named_parameters()}
            alone = {"a": 30.0, "b": 20.0, "c": 40.0}
            for name, values in found.items():
                momentum = getattr(options.get("exchange"), "outer_momentum", 0.0)
                assert momentum or values[0] == -alone[name] * passes, (options, passes, name, values)
            assert [len(values) for values in found.values()] == [5, 7, 7]


@ranks(2)
def test_replacements_in_flight_and_uncounted_ones_are_refused(rank: int, size: int) -> None:
    model = Branches("a", "b")
    optimizer = wrapped(model, exchange="pipelined")
    model(a=2.0, b=4.0).backward()
    optimizer.step()
    _grown(model, optimizer, "a")
    with pytest.raises(hvd.UsageError, match=f"(?s)Rank {rank}.*'a'.*drain"):
        optimizer.zero_grad()
    model = Branches("a", "b")
    optimizer = wrapped(model, backward_passes_per_step=2)
    _grown(model, optimizer, "ab")
    model(a=2.0, b=4.0).backward()
    with pytest.raises(hvd.UsageError, match=r"(?s)not counted.*zero_grad"):
        optimizer.step()
    # After the backward pass, as the reference code of Gaussian splatting does: new ones without a gradient stay.
    model = Branches("a", "b")
    optimizer = wrapped(model)
    for number in range(3):
        optimizer.zero_grad()
        model(a=2.0, b=4.0).backward()
        if number < 2:
            _grown(model, optimizer, "a")
        optimizer.step()
    assert model.a[0].item() == -2.0 and model.b[0].item() == -12.0


@ranks(2)
def test_a_parameter_of_two_live_optimizers_is_refused(rank: int, size: int) -> None:
    """The remedy is right: one wrapped optimizer of all parameters combines, the two that update them are plain."""
    for exchange in ("sync", "pipelined", hvd.Partial(quorum=size)):
        model = Branches("encoder", "first", "second")
        both = [(model.encoder, model.first), (model.encoder, model.second)]
        two = [hvd.DistributedOptimizer(torch.optim.SGD(some, lr=1.0), exchange=exchange) for some in both]
        with pytest.raises(hvd.UsageError, match=f"(?s)Rank {rank}.*two live.*reducer"):
            model(encoder=2.0, first=4.0, second=8.0).backward()
        hvd.barrier()
        del two
        # A dropped optimizer, with its scheduler, does not count as another owner.
        alone = Branches("a")
        for _ in range(2):
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(alone.parameters(), lr=1.0), exchange=exchange)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
            alone(a=2.0).backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            optimizer.drain()
        assert alone.a[0].item() == -4.0
    model = Branches("encoder", "first", "second")
    plain = [torch.optim.Adam(some, lr=1.0) for some in ((model.encoder, model.first), (model.encoder, model.second))]
    reducer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters()), op=hvd.Sum)
    one = Branches("encoder", "first", "second")
    ones = [torch.optim.Adam(some, lr=1.0) for some in ((one.encoder, one.first), (one.encoder, one.second))]
    for step in range(3):
        slopes = {"encoder": 1.0 + step, "first": 2.0, "second": 3.0}
        reducer.zero_grad()
        model(**{name: slope * (rank + 1) for name, slope in slopes.items()}).backward()
        reducer.synchronize()
        one.zero_grad()
        one(**{name: slope * 3 for name, slope in slopes.items()}).backward()
        for optimizer in (*plain, *ones):
            optimizer.step()
    assert torch.equal(parameters(model), parameters(one))


@ranks(2, env=debug(codec_least_bytes=0))
def test_a_parameter_does_not_inherit_what_a_codec_lost_of_the_one_before(rank: int, size: int) -> None:
    """bfloat16 has 1 and 1.0078: with the residual of the first 1.003, the second would arrive as 1.0078."""
    import paceline.torch as hvd

    hvd.init()
    for bucket_bytes in (0, 1000):
        model = Branches("a", "b")
        named = [(f"heir.{bucket_bytes}.{name}", one) for name, one in model.named_parameters()]
        held = torch.optim.SGD(model.parameters(), lr=1.0)
        optimizer = hvd.DistributedOptimizer(held, named, codec="bf16", bucket_bytes=bucket_bytes)
        for _ in range(2):
            model.a = torch.nn.Parameter(torch.zeros(3))
            optimizer.param_groups[0]["params"][0] = model.a
            optimizer.zero_grad()
            model(a=1.003, b=1.0).backward()
            optimizer.step()
            assert model.a.tolist() == [-1.0] * 3
