"""Weights that two stages share, as GPT-2's embedding and head do: equal to one process."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from integration_tests.support import stage_training
from integration_tests.support.more import more
from integration_tests.support.stage_gpt import accumulate, cross_entropy, gpt, text
from integration_tests.support.stage_threads import in_threads
from integration_tests.support.stage_training import Optimizer, adamw, data, momentum, sgd
from integration_tests.unit.stages.pipelines import made

EMBEDDING, HEAD = "0.tokens.weight", "3.logits.weight"


def pipelines(
    stages: int, steps: range, optimizer: Optimizer, state: Any = None, rows: int = 7, **arguments: Any
) -> list[Any]:
    """Of each stage: losses, own weights, the state of all, names of trained parameters."""
    models = [gpt() for _ in range(stages)]

    def body(mail: Any) -> Any:
        pipeline = made(mail, models[mail.rank], optimizer=optimizer, loss=cross_entropy, **arguments)
        if state is not None:
            pipeline.load_state_dict(state)
        losses = [pipeline.step(*text(step, rows)).item() for step in steps]
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
    # The mean of two mini-batches of alike rows is that of one with both.
    both = [pytree.tree_map(lambda *one: torch.cat(one), text(step, 6), text(step + 1, 6)) for step in (0, 2, 4)]
    stage_training.accumulate(plain, sgd, both, 6, loss=cross_entropy)
    for _, own, *_ in pipelines(3, range(6), sgd, rows=6, update_every=2):
        assert_equal(own, plain)


def test_copies_begin_with_the_weights_of_their_owner_and_freeze_with_them() -> None:
    models = [gpt(seed=rank) for rank in range(3)]
    for model in models:
        model[0].tokens.weight.requires_grad_(False)

    def body(mail: Any) -> Any:
        pipeline = made(mail, models[mail.rank], loss=cross_entropy, n_microbatches=2)
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
    stage_training.accumulate(plain, momentum, [(batch, target)] * 5, 3, max_norm=0.1)

    def body(mail: Any) -> Any:
        pipeline = made(mail, model(), optimizer=momentum, max_norm=0.1)
        assert (pipeline.optimizer is None) == (mail.rank > 0)
        for _ in range(5):
            pipeline.step(batch, target)
        pipeline.close()
        return pipeline.state_dict()["model"][f"{mail.rank}.tied"]

    for found in in_threads(3, body):
        torch.testing.assert_close(found, plain[0].tied.detach(), rtol=0, atol=1e-14)
