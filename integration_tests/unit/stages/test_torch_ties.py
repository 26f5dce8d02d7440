"""Weights that two stages share, as GPT-2's embedding and head do: equal to one process."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from integration_tests.support.more import first_of, more
from integration_tests.support.stage_gpt import accumulate, cross_entropy, gpt, text
from integration_tests.support.stage_threads import in_threads
from integration_tests.support.stage_training import Optimizer, adamw, data, momentum, sgd
from paceline.stages.schedules import SCHEDULES
from paceline.torch.errors import UsageError

EMBEDDING, HEAD = "0.tokens.weight", "3.logits.weight"


def pipelines(stages: int, steps: range, optimizer: Optimizer, state: Any = None, **arguments: Any) -> list[Any]:
    """Of each stage: losses, own weights, the state of all, names of trained parameters."""
    models = [gpt() for _ in range(stages)]

    def body(mail: Any) -> Any:
        import paceline.torch as hvd

        pipeline = hvd.Pipeline(models[mail.rank], optimizer, cross_entropy, 3, mail=mail, **arguments)
        if state is not None:
            pipeline.load_state_dict(state)
        losses = [pipeline.step(*text(step, 7)).item() for step in steps]
        losses += [loss.item() for loss in pipeline.drain()]
        output = pipeline.predict(text(99, 5)[0])["logits"]
        whole = pipeline.consolidate()
        own = {name: one.clone() for name, one in pipeline.state_dict()["model"].items()}
        names = pipeline.names
        pipeline.close()
        return losses, own, whole, names, output

    return in_threads(stages, body)


def assert_equal(found: dict[str, Tensor], plain: nn.Module) -> None:
    for name, one in found.items():
        torch.testing.assert_close(one, plain.state_dict()[name], rtol=0, atol=1e-12, msg=name)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("stages", [more(1), more(2), 3, more(4)])
@pytest.mark.parametrize(
    ("optimizer", "arguments"),
    [(momentum, {"max_norm": 0.5}), (adamw, {}), (adamw, {"recompute": True, "max_norm": 2.0})],
)
def test_a_tied_embedding_equals_one_process(
    schedule: str, stages: int, optimizer: Optimizer, arguments: dict[str, Any]
) -> None:
    plain = gpt()
    losses = accumulate(plain, optimizer(plain.parameters()), range(12), 7, 3, arguments.get("max_norm"))
    expected = plain(text(99, 5)[0])["logits"].detach()
    results = pipelines(stages, range(12), optimizer, schedule=schedule, **arguments)
    assert losses[-1] != losses[0]
    for found, own, _, _, output in results:
        assert found == pytest.approx(losses, rel=1e-12)
        assert_equal(own, plain)
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)
    # Both have it, bit for bit, and one optimizer trains it.
    assert torch.equal(results[0][1][EMBEDDING], results[-1][1][HEAD])
    names = [name for _, _, _, own, _ in results for name in own]
    assert names.count(EMBEDDING) == 1
    assert HEAD not in names
    whole = results[0][2]
    assert set(whole["model"]) == set(plain.state_dict())
    assert len(whole["optimizer"]["state"]) == len(list(plain.parameters()))


def test_the_state_goes_on_in_one_process_and_in_another_cut() -> None:
    plain = gpt()
    optimizer = adamw(plain.parameters())
    accumulate(plain, optimizer, range(4), 7, 3)
    whole = pipelines(3, range(4), adamw)[0][2]
    losses = accumulate(plain, optimizer, range(4, 9), 7, 3)
    for found, own, *_ in pipelines(2, range(4, 9), adamw, whole):
        assert found == pytest.approx(losses, rel=1e-12)
        assert_equal(own, plain)
    again = gpt(seed=1)
    loaded = adamw(again.parameters())
    again.load_state_dict(whole["model"])
    loaded.load_state_dict(whole["optimizer"])
    assert accumulate(again, loaded, range(4, 9), 7, 3) == pytest.approx(losses, rel=1e-12)


def test_an_update_of_several_minibatches() -> None:
    plain = gpt()
    optimizer = sgd(plain.parameters())
    for first in range(0, 6, 2):
        gradients: list[Tensor] = [torch.zeros_like(one) for one in plain.parameters()]
        for step in (first, first + 1):
            inputs, target = text(step, 6)
            cross_entropy(plain(inputs), target).backward()
            for total, one in zip(gradients, plain.parameters(), strict=True):
                total += one.grad / 2
            plain.zero_grad()
        for one, total in zip(plain.parameters(), gradients, strict=True):
            one.grad = total
        optimizer.step()
        optimizer.zero_grad()
    models = [gpt() for _ in range(3)]

    def body(mail: Any) -> dict[str, Tensor]:
        import paceline.torch as hvd

        pipeline = hvd.Pipeline(models[mail.rank], sgd, cross_entropy, 3, mail=mail, update_every=2)
        for step in range(6):
            pipeline.step(*text(step, 6))
        pipeline.drain()
        own = {name: one.clone() for name, one in pipeline.state_dict()["model"].items()}
        pipeline.close()
        return own

    for own in in_threads(3, body):
        assert_equal(own, plain)


def test_copies_begin_with_the_weights_of_their_owner_and_freeze_with_them() -> None:
    models = [gpt(seed=rank) for rank in range(3)]
    for model in models:
        model[0].tokens.weight.requires_grad_(False)

    def body(mail: Any) -> Any:
        import paceline.torch as hvd

        pipeline = hvd.Pipeline(models[mail.rank], sgd, cross_entropy, 2, mail=mail)
        for step in range(3):
            pipeline.step(*text(step, 4))
        own = pipeline.state_dict()["model"]
        pipeline.close()
        return own.get(EMBEDDING if mail.rank == 0 else HEAD)

    first, _, last = in_threads(3, body)
    assert torch.equal(first, gpt(seed=0)[0].tokens.weight)
    assert torch.equal(last, first)


class Shared(nn.Module):
    """Uses a parameter that others use, too, and has no other."""

    def __init__(self, tied: nn.Parameter) -> None:
        super().__init__()
        self.tied = tied

    def forward(self, value: Tensor) -> Tensor:
        return (value @ self.tied).tanh()


def test_a_weight_of_three_stages_of_which_two_train_nothing_else() -> None:
    def model() -> list[nn.Module]:
        tied = nn.Parameter(torch.eye(5, dtype=torch.float64) / 2)
        return [Shared(tied), Shared(tied), Shared(tied)]

    batch, target = data(0, 6)[0], data(1, 6)[0]
    plain = nn.Sequential(*model())
    optimizer = momentum(plain.parameters())
    for _ in range(5):
        for one, goal in zip(batch.tensor_split(3), target.tensor_split(3), strict=True):
            (nn.functional.mse_loss(plain(one), goal) / 3).backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()

    def body(mail: Any) -> Any:
        import paceline.torch as hvd

        pipeline = hvd.Pipeline(model(), momentum, nn.functional.mse_loss, 3, mail=mail, max_norm=0.1)
        assert (pipeline.optimizer is None) == (mail.rank > 0)
        for _ in range(5):
            pipeline.step(batch, target)
        pipeline.close()
        return pipeline.state_dict()["model"][f"{mail.rank}.tied"]

    for found in in_threads(3, body):
        torch.testing.assert_close(found, plain[0].tied.detach(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("schedule", first_of((one for one in SCHEDULES if one not in ("gpipe", "1f1b")), "pipemare"))
def test_asynchronous_schedules_refuse_ties(schedule: str) -> None:
    def body(mail: Any) -> str:
        import paceline.torch as hvd

        with pytest.raises(UsageError) as caught:
            hvd.Pipeline(gpt(), sgd, cross_entropy, 3, schedule, mail=mail)
        return str(caught.value)

    for found in in_threads(2, body):
        first, second = found.splitlines()
        assert f"{HEAD} of stage 1 is the same tensor as {EMBEDDING} of stage 0" in first
        assert 'or use schedule="1f1b" or "gpipe"' in second
