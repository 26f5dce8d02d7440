"""On one rank the wrapped optimizer behaves as the held one: same results bit for bit, same interface, no overhead."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
import warnings
from typing import Any

import horovod.torch as horovod
import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.ranks import ranks
from integration_tests.support.torch_training import closure_of, net, parameters, train, update


@ranks(1)
def test_result_is_the_held_optimizers_and_nothing_is_watched(rank: int, size: int) -> None:
    plain, model = net(), net()
    train(plain, torch.optim.AdamW(plain.parameters(), lr=0.01), rank, 10)
    train(model, hvd.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=0.01)), rank, 10)
    assert torch.equal(parameters(plain), parameters(model))
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())


@ranks(1)
def test_everything_public_in_horovod_is_here(rank: int, size: int) -> None:
    public = [name for name in dir(horovod) if not name.startswith("_")]
    ours = {"DistributedOptimizer", "broadcast_optimizer_state", "broadcast_parameters"}
    assert len(public) > 60
    other = {name for name in public if name not in ours and getattr(hvd, name) is not getattr(horovod, name)}
    assert other == {name for name in public if "allreduce" in name and "sparse" not in name}
    for name in other:  # Horovod's, with one argument more
        *taken, codec = inspect.signature(getattr(hvd, name)).parameters.values()
        assert taken == list(inspect.signature(getattr(horovod, name)).parameters.values())
        assert codec.name == "codec" and codec.default is None
    assert set(public) <= set(hvd.__all__) <= set(dir(hvd))
    everything: dict[str, Any] = {}
    exec("from paceline.torch import *", everything)
    assert set(public) <= set(everything)


@ranks(1)
def test_face_of_the_held_optimizer(rank: int, size: int) -> None:
    model = net()
    held = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(held, model.named_parameters())
    train(model, optimizer, rank, 2)
    assert isinstance(optimizer, torch.optim.Optimizer)
    assert isinstance(optimizer, torch.optim.SGD)
    assert not isinstance(optimizer, torch.optim.Adam)
    assert optimizer.held is held
    assert optimizer.state is held.state
    assert optimizer.param_groups is held.param_groups
    assert optimizer.defaults is held.defaults
    assert repr(optimizer) == repr(held)
    assert optimizer.__getstate__() == held.__getstate__()
    assert {"step", "synchronize", "param_groups"} <= set(dir(optimizer))
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = optimizer.no_such_thing
    optimizer.note = "kept"
    assert held.note == "kept"
    del optimizer.note
    assert not hasattr(held, "note")


@ranks(1)
def test_hooks_run_once_and_see_the_optimizer_that_steps(rank: int, size: int) -> None:
    model = net()
    held = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(held, model.named_parameters())
    seen: list[Any] = []
    removable = optimizer.register_step_pre_hook(lambda opt, args, kwargs: seen.append(("pre", opt)))
    optimizer.register_step_post_hook(lambda opt, args, kwargs: seen.append(("post", opt)))
    optimizer.register_state_dict_post_hook(lambda opt, state: seen.append(("state", opt)))
    optimizer.register_load_state_dict_pre_hook(lambda opt, state: seen.append(("load", opt)))
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    assert [what for what, _ in seen] == ["pre", "post", "state", "load"]
    assert all(opt is held for _, opt in seen)
    removable.remove()
    optimizer.step()
    assert seen[-1][0] == "post" and len(seen) == 5


@ranks(1)
def test_copies_and_pickles_are_plain_optimizers(rank: int, size: int) -> None:
    model = net()
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.1), model.named_parameters())
    train(model, optimizer, rank, 2)
    for other in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert type(other) is torch.optim.Adam
        mine, theirs = optimizer.state_dict(), other.state_dict()
        assert mine["param_groups"] == theirs["param_groups"]
        for key, state in mine["state"].items():
            assert all(torch.equal(value, theirs["state"][key][name]) for name, value in state.items())


@ranks(1)
def test_state_goes_to_and_comes_from_plain_optimizers(rank: int, size: int) -> None:
    model, plain = net(), net()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    train(model, optimizer, rank, 3)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file)
    plain.load_state_dict(saved["model"])
    other = torch.optim.SGD(plain.parameters(), lr=5.0)
    other.load_state_dict(saved["optimizer"])
    train(model, optimizer, rank, 3)
    train(plain, other, rank, 3)
    assert torch.equal(parameters(model), parameters(plain))
    optimizer.load_state_dict(other.state_dict())
    momentum = optimizer.state_dict()["state"][0]["momentum_buffer"]
    assert torch.equal(momentum, other.state[plain[0].weight]["momentum_buffer"])


@ranks(1)
def test_schedulers_made_before_and_after_wrapping(rank: int, size: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = net()
        held = torch.optim.SGD(model.parameters(), lr=1.0)
        before = torch.optim.lr_scheduler.StepLR(held, step_size=1, gamma=0.5)
        optimizer = hvd.DistributedOptimizer(held, model.named_parameters())
        after = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
        cycle = torch.optim.lr_scheduler.OneCycleLR(
            hvd.DistributedOptimizer(torch.optim.SGD(net().parameters(), lr=1.0, momentum=0.9)), 1.0, 10
        )
        train(model, optimizer, rank, 1)
        before.step()
        assert optimizer.param_groups[0]["lr"] == 0.5
        train(model, optimizer, rank, 1)
        after.step()
        assert held.param_groups[0]["lr"] == 0.5
        train(model, optimizer, rank, 1)
        after.step()
        assert held.param_groups[0]["lr"] == 0.25
        cycle.optimizer.step()
        cycle.step()
        assert after.optimizer is optimizer and cycle.optimizer.param_groups[0]["momentum"] != 0.9


@ranks(1)
def test_accumulation_counts_as_on_many_ranks(rank: int, size: int) -> None:
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([weight], lr=1.0), [("alone.weight", weight)], backward_passes_per_step=2
    )
    for updates in range(3):
        for micro in range(2):
            assert weight[0].item() == -3 * updates
            update(optimizer, ((micro + 1) * weight).sum())
    assert weight.tolist() == [-9.0] * 3


@ranks(1)
def test_closure_without_other_ranks(rank: int, size: int) -> None:
    weight = torch.nn.Parameter(torch.tensor([3.0]))
    optimizer = hvd.DistributedOptimizer(torch.optim.LBFGS([weight]))

    assert optimizer.step(closure_of(optimizer, lambda: (weight - 1).pow(2).sum())).item() == 4.0
    assert weight.item() == pytest.approx(1.0, abs=1e-4)


@ranks(1)
def test_wrong_uses_are_refused_with_the_remedy(rank: int, size: int) -> None:
    model = net()
    held = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(held)

    def refused(words: str, **options: Any) -> None:
        other = options.pop("optimizer", None) or torch.optim.SGD(net().parameters(), lr=0.1)
        with pytest.raises(hvd.UsageError, match=words):
            hvd.DistributedOptimizer(other, **options)

    refused("SGD is wrapped .* already(.|\n)*first call returned", optimizer=optimizer)
    refused("SGD is wrapped .* already(.|\n)*first call returned", optimizer=held)
    refused(
        "is wrapped .* already", optimizer=horovod.DistributedOptimizer(torch.optim.SGD(net().parameters(), lr=0.1))
    )
    refused("given a Sequential where an optimizer", optimizer=model)
    refused("backward_passes_per_step=0", backward_passes_per_step=0)
    refused("gradient_predivide_factor=2.0 needs op=hvd.Average", gradient_predivide_factor=2.0, op=hvd.Sum)
    refused("process set .* not registered(.|\n)*add_process_set", process_set=hvd.ProcessSet([0]))
    refused("groups=-1", groups=-1)
    with pytest.warns(DeprecationWarning, match="use groups"):
        hvd.DistributedOptimizer(torch.optim.SGD(net().parameters(), lr=0.1), num_groups=2)
    with pytest.raises(hvd.UsageError, match="backward_passes_per_step=-1"):
        optimizer.set_backward_passes_per_step(-1)
    del optimizer
    hvd.DistributedOptimizer(held)  # free again


@ranks(1)
def test_before_init_the_remedy_is_init(rank: int, size: int) -> None:
    hvd.shutdown()
    with pytest.raises(hvd.UsageError, match=r"before hvd\.init\(\)"):
        hvd.DistributedOptimizer(torch.optim.SGD(net().parameters(), lr=0.1))
    hvd.init()
