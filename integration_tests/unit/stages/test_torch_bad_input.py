"""Models, arguments, activations and saved states that hvd.Pipeline cannot take, and odd ones that it can."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from integration_tests.support.stage_threads import in_threads
from integration_tests.support.stage_training import N, accumulate, adam, data, momentum, net, sgd
from paceline.stages.schedules import SCHEDULES
from paceline.torch.errors import UsageError

mse = nn.functional.mse_loss


def all_hear(size: int, model: Callable[[], Any], optimizer: Any = sgd, batch: Any = None, **arguments: Any) -> None:
    """A step, which ends on all stages with the same error; `said` must be in it."""
    said = arguments.pop("said")

    def body(mail: Any) -> str:
        import paceline.torch as hvd

        with pytest.raises(Exception) as caught:
            pipeline = hvd.Pipeline(model(), optimizer, mse, mail=mail, **{"n_microbatches": 2, **arguments})
            pipeline.step(*(batch or data(0, 4)))
        return f"{type(caught.value).__name__}: {caught.value}"

    for text in in_threads(size, body):
        assert said in text, text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"optimizer": torch.optim.Adam(net().parameters())}, "optimizer is a Adam: expected a function"),
        ({"optimizer": None}, "optimizer is a NoneType: expected a function"),
        ({"loss": "mse"}, "loss='mse': expected a function"),
        ({"n_microbatches": 0}, "cannot have 0 micro-batches"),
        ({"micro_batches": 2}, "no argument micro_batches. Did you mean n_microbatches?"),
        ({"optimiser": sgd}, "no argument optimiser."),
    ],
)
def test_first_mistakes_get_two_lines(arguments: dict[str, Any], said: str) -> None:
    def body(mail: Any) -> str:
        import paceline.torch as hvd

        given: dict[str, Any] = {"optimizer": sgd, "loss": mse, "n_microbatches": 2, **arguments}
        with pytest.raises(UsageError) as caught:
            hvd.Pipeline(net(), mail=mail, **given)
        return str(caught.value)

    for text in in_threads(2, body):
        first, _ = text.splitlines()
        assert said in first


def test_a_pipeline_is_not_called() -> None:
    def body(mail: Any) -> str:
        import paceline.torch as hvd

        pipeline = hvd.Pipeline(net(), sgd, mse, 2, mail=mail)
        with pytest.raises(UsageError, match="called like a model"):
            pipeline(data(0, 4)[0])
        loss = pipeline.step(*data(0, 4)).item()
        pipeline.close()
        return str(loss)

    assert len(in_threads(2, body)) == 2


class Locked(nn.Module):
    """Cannot be pickled."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def forward(self, value: Tensor) -> Tensor:
        with self.lock:
            return value.tanh()


def with_locks() -> list[nn.Module]:
    return [layer for linear in net() if isinstance(linear, nn.Linear) for layer in (linear, Locked())][:-1]


@pytest.mark.parametrize("schedule", [*SCHEDULES])
def test_modules_that_cannot_be_pickled_train_and_are_saved(schedule: str) -> None:
    with pytest.raises(TypeError):
        pickle.dumps(Locked())

    def body(mail: Any) -> tuple[float, Any]:
        import paceline.torch as hvd

        pipeline = hvd.Pipeline(with_locks(), momentum, mse, N, schedule, mail=mail)
        loss = pipeline.step(*data(0, 10)).item()
        pipeline.drain()
        whole = pipeline.consolidate()
        pipeline.close()
        return loss, whole

    plain = nn.Sequential(*with_locks())
    losses = accumulate(plain, momentum, [data(0, 10)], N)
    results = in_threads(3, body)
    assert [loss for loss, _ in results] == losses * 3
    assert set(results[0][1]["model"]) == set(plain.state_dict())


@pytest.mark.parametrize("schedule", [*SCHEDULES])
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("trained", [0, 1, 2, None])
def test_stages_without_parameters(schedule: str, recompute: bool, trained: int | None) -> None:
    late: dict[str, Any] = {"correction": 0.3, "annealing_steps": 4} if schedule == "pipemare" else {}

    def model() -> list[nn.Module]:
        torch.manual_seed(4)
        return [nn.Linear(5, 5) if number == trained else nn.Tanh() for number in range(3)]

    batch = torch.ones(6, 5), torch.zeros(6, 5)

    def body(mail: Any) -> tuple[list[float], Any]:
        import paceline.torch as hvd

        pipeline = hvd.Pipeline(model(), sgd, mse, 3, schedule, mail=mail, recompute=recompute, max_norm=0.5, **late)
        assert (pipeline.optimizer is None) == (mail.rank != trained)
        losses = [pipeline.step(*batch).item() for _ in range(8)]
        losses += [loss.item() for loss in pipeline.drain()]
        pipeline.load_state_dict(pipeline.state_dict())
        whole = pipeline.consolidate()
        pipeline.close()
        return losses, whole

    results = in_threads(3, body)
    losses, whole = results[0]
    assert all(other == losses for other, _ in results)
    assert len(whole["model"]) == (0 if trained is None else 2)
    assert losses[-1] == losses[0] if trained is None else losses[-1] < losses[0]


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_shapes_that_a_stage_cannot_take(failing: int) -> None:
    def model() -> list[nn.Module]:
        return [nn.Linear(6 if number == failing else 5, 5, dtype=torch.float64) for number in range(3)]

    all_hear(3, model, batch=(torch.zeros(4, 5).double(), torch.zeros(4, 5)), said="mat1 and mat2 shapes cannot be")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"stages": 5}, "stages=5: expected"),
        ({"stages": [1, 2.5]}, "stages=[1, 2.5]: expected"),
        ({"stages": [1, None]}, "stages=[1, None]: expected"),
        ({"n_microbatches": "4"}, "n_microbatches='4': expected a whole number"),
        ({"n_microbatches": 2.0}, "n_microbatches=2.0: expected a whole number"),
        ({"n_microbatches": True}, "n_microbatches=True: expected a whole number"),
        ({"schedule": None}, "schedule=None: expected a name"),
        ({"schedule": ["1f1b"]}, "schedule=['1f1b']: expected a name"),
        ({"correction": "0.3"}, "correction='0.3': expected a number"),
        ({"discrepancy": 0.3}, "hvd.Pipeline has no argument discrepancy.\nUse correction=0.3."),
        ({"max_norm": "1"}, "max_norm='1': expected a positive number"),
        ({"max_norm": float("nan")}, "max_norm=nan: expected a positive number"),
        ({"costs": [1, "2", 3, 4, 5, 6, 7, 8, 9]}, "costs="),
        ({"costs": 3}, "costs="),
        ({"n_microbatches": 5}, "has 4 rows: expected one number, of 5 (n_microbatches) at least"),
        ({"optimizer": lambda parameters: None}, "optimizer returned a NoneType: expected a torch.optim.Optimizer"),
    ],
)
def test_arguments_that_cannot_be(changed: dict[str, Any], said: str) -> None:
    all_hear(3, net, **{"schedule": "pipemare", **changed}, said=said)


def test_models_that_are_no_list_of_layers() -> None:
    all_hear(2, lambda: nn.Linear(5, 3), said="cannot cut a Linear")
    all_hear(2, lambda: [nn.Linear(5, 3), len], said="Layer 1 of the model is a builtin_function_or_method")
    all_hear(3, lambda: [nn.Linear(5, 5), nn.Linear(5, 3)], said="2 layers, and there are 3 stages")


def test_a_rank_that_cannot_say_what_it_wants_ends_all() -> None:
    def body(mail: Any) -> str:
        import paceline.torch as hvd

        class Odd(list):  # type: ignore[type-arg]
            def __len__(self) -> int:
                raise ZeroDivisionError("an odd list of costs")

        with pytest.raises((ZeroDivisionError, UsageError)) as caught:
            hvd.Pipeline(net(), sgd, mse, 2, mail=mail, costs=Odd() if mail.rank == 1 else None)
        return str(caught.value)

    for text in in_threads(3, body):
        assert "an odd list of costs" in text, text


@pytest.mark.parametrize("schedule", [*SCHEDULES])
def test_states_of_other_schedules_are_loaded(schedule: str) -> None:
    """What a schedule alone needs begins anew; weights and the optimizer's state go on."""

    def body(mail: Any) -> None:
        import paceline.torch as hvd

        first = hvd.Pipeline(net(), momentum, mse, N, "pipemare", mail=mail, correction=0.3)
        for step in range(5):
            first.step(*data(step, 10))
        first.drain()
        state = first.state_dict()
        second = hvd.Pipeline(net(), momentum, mse, N, schedule, mail=mail)
        second.load_state_dict(state)
        found = second.state_dict()
        assert all(torch.equal(one, state["model"][name]) for name, one in found["model"].items())
        for number, kept in found["optimizer"]["state"].items():
            assert torch.equal(kept["momentum_buffer"], state["optimizer"]["state"][number]["momentum_buffer"])
        second.step(*data(5, 10))
        second.drain()

    in_threads(3, body)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda state: state.pop("model"), "lacks 'model'"),
        (lambda state: state["model"].pop("2.weight"), "lacks 1 tensors of this stage, 2.weight"),
        (lambda state: state["model"].update({"2.weight": torch.zeros(2, 2)}), "2.weight"),
        (lambda state: state["optimizer"]["param_groups"].clear(), "lacks 2.weight, a parameter of this stage"),
        (lambda state: state["optimizer"].pop("state"), "lacks 'state'"),
    ],
)
def test_states_that_lack_something_change_nothing(spoil: Callable[[Any], Any], said: str) -> None:
    def body(mail: Any) -> None:
        import paceline.torch as hvd

        pipeline = hvd.Pipeline(net(), momentum, mse, N, mail=mail, stages=[2])
        pipeline.step(*data(0, 10))
        before = {name: one.clone() for name, one in pipeline.state_dict()["model"].items()}
        state = pipeline.state_dict()
        if mail.rank == 1:
            state["model"] = {name: one + 1 for name, one in state["model"].items()}
            spoil(state)
            with pytest.raises(UsageError) as caught:
                pipeline.load_state_dict(state)
            assert said in str(caught.value)
        for name, one in pipeline.state_dict()["model"].items():
            assert torch.equal(one, before[name]), name
        pipeline.step(*data(1, 10))
        pipeline.close()

    in_threads(2, body)


@pytest.mark.parametrize(("optimizer", "own"), [(momentum, "SGD(momentum=0.9)"), (adam, "Adam(betas=(0.9, 0.999))")])
def test_two_momenta_are_refused(optimizer: Any, own: str) -> None:
    chosen = {"schedule": "pipemare", "nesterov": 0.9}
    all_hear(2, net, optimizer, said=f"nesterov= was given with {own}, which has a momentum of its own", **chosen)
