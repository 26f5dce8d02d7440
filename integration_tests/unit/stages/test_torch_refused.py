"""Cuts of models; models, arguments and activations that hvd.Pipeline cannot take: all stages have one error."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage

from integration_tests.support.more import first_of
from integration_tests.support.stage_gpt import cross_entropy, gpt, text
from integration_tests.support.stage_threads import in_threads
from integration_tests.support.stage_training import N, adam, data, momentum, mse, net, sgd
from integration_tests.unit.stages.pipelines import all_hear, made, piped
from integration_tests.unit.stages.test_torch_traced import CUTS, SAMPLE, WIDTH, Net, torch_distributed
from integration_tests.unit.stages.test_torch_traced import data as of_traced
from paceline.errors import UserError
from paceline.stages.execution.cut import balanced, first_layers
from paceline.stages.execution.settings import Settings
from paceline.stages.execution.sharing import refuse_shared
from paceline.stages.schedules import SCHEDULES
from paceline.torch.errors import UsageError
from paceline.torch.stages.layers import Stage, free, layers_of


def names(model: object) -> list[str]:
    return [layer.name for layer in layers_of(model)]


def nested() -> nn.Sequential:
    features = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Sequential(nn.Linear(3, 3), nn.Tanh()))
    model = nn.Sequential()
    model.add_module("features", features)
    model.add_module("head", nn.Linear(3, 1))
    return model


def test_layers_keep_their_names_and_cuts_are_by_parameters_costs_numbers_or_names() -> None:
    model = nested()
    assert names(model) == ["features.0", "features.1", "features.2.0", "features.2.1", "head"]
    assert names([nn.Linear(1, 1), nn.Sequential(nn.ReLU(), nn.Tanh())]) == ["0", "1.0", "1.1"]
    model[0][2].register_forward_hook(lambda *_: None)
    assert names(model) == ["features.0", "features.1", "features.2", "head"]
    # Cuts are by parameters by costs or at numbers or names.
    layers = layers_of([nn.Linear(9, 9), nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)])
    assert first_layers(layers, 2, "auto") == [0, 1]
    assert first_layers(layers, 2, "auto", [1, 1, 1, 1]) == [0, 2]
    assert first_layers(layers, 2, "auto", [1, 1, 1, 9]) == [0, 3]
    layers = layers_of(nested())
    assert first_layers(layers, 3, [1, 4]) == [0, 1, 4]
    assert first_layers(layers, 3, ["features.2", "head"]) == [0, 2, 4]


def most(costs: list[int], firsts: tuple[int, ...] | list[int]) -> int:
    return max(sum(costs[begin:end]) for begin, end in itertools.pairwise([*firsts, len(costs)]))


def test_the_most_costly_stage_costs_as_little_as_it_can() -> None:
    numbers = random.Random(3)
    for _ in range(60):
        costs = [numbers.randrange(9) for _ in range(numbers.randrange(1, 8))]
        for stages in range(1, len(costs) + 1):
            found = balanced(costs, stages)
            assert found[0] == 0
            assert len(found) == stages
            assert found == sorted(set(found))
            cuts = itertools.combinations(range(1, len(costs)), stages - 1)
            assert most(costs, found) == min(most(costs, (0, *one)) for one in cuts), (costs, stages, found)


@pytest.mark.parametrize(
    ("stages", "asked", "costs", "said"),
    [
        (6, "auto", None, "5 layers, and there are 6 stages"),
        (2, "Auto", None, "stages='Auto' is not known"),
        (2, ["haed"], None, "Did you mean head?"),
        (2, [0], None, "expected a number from 1 to 4"),
        (2, [5], None, "expected a number from 1 to 4"),
        (2, [True], None, "expected a number from 1 to 4"),
        (2, [1, 2], None, "makes 3 stages, expected 2"),
        (3, [2, 2], None, "expected them to rise"),
        (3, ["head", 1], None, "expected them to rise"),
        (2, "auto", [1, 2], "costs= has 2 values: expected 5"),
        (2, "auto", [1, 2, 3, 4, -1], "costs= has 5 values"),
    ],
)
def test_what_cannot_be_cut_so(stages: int, asked: object, costs: list[float] | None, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        first_layers(layers_of(nested()), stages, asked, costs)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no layers"):
        layers_of([])


def test_tensors_of_two_stages_are_refused_and_terms_are_compared_as_they_were_given() -> None:
    first, last = nn.Linear(2, 2), nn.Linear(2, 2)
    last.weight = first.weight
    layers = layers_of([first, nn.ReLU(), last])
    refuse_shared("tensor", (layer.tensors() for layer in layers), [0])
    with pytest.raises(UsageError, match=r"2\.weight of stage 1 is the same tensor as 0\.weight of stage 0"):
        refuse_shared("tensor", (layer.tensors() for layer in layers), [0, 1])
    # Arguments are compared as they were given.
    assert Settings(**GIVEN).terms() == GIVEN
    assert Settings(**{**GIVEN, "stages": ("1", 3)}).terms()["stages"] == ["1", 3]


def test_a_stage_has_its_layers_alone_under_the_names_of_the_whole() -> None:
    model, plain = net(), net()
    layers = layers_of(model)
    stage = Stage([one.built() for one in layers[2:5]])
    free([*layers[:2], *layers[5:]])
    assert stage.names == ["2.weight", "2.bias", "4.weight", "4.bias"]
    assert [one.device.type for one in model.parameters()] == ["meta"] * 2 + ["cpu"] * 4 + ["meta"] * 4
    for name, one in stage.state_dict().items():
        assert torch.equal(one, plain.state_dict()[name])
    changed = {name: one + 1 for name, one in plain.state_dict().items()}
    stage.load_state_dict(changed)
    assert torch.equal(stage.parameters[2], changed["4.weight"])
    with pytest.raises(UsageError, match=r"lacks 1 tensors of this stage, 4\.bias"):
        stage.load_state_dict({name: one for name, one in changed.items() if name != "4.bias"})


GIVEN: dict[str, Any] = {
    **{"schedule": "pipemare", "n_microbatches": 4, "stages": "auto", "costs": None, "warmup_steps": 3},
    **{"annealing_steps": 5, "correction": 0.5, "max_norm": 1.0, "loss_reduction": "mean", "recompute": False},
    **{"nesterov": 0.9, "update_every": 2, "replicas": 1},
}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"schedule": "1f2b"}, "no schedule '1f2b'"),
        ({"warmup_steps": -1}, "warmup_steps=-1: expected a whole number"),
        ({"annealing_steps": 1.5}, "annealing_steps=1.5: expected a whole number"),
        ({"correction": 1.0}, "correction=1.0: expected a number between 0 and 1"),
        ({"nesterov": 1.0}, "nesterov=1.0: expected a number between 0 and 1"),
        ({"update_every": 0}, "update_every=0: expected a whole number"),
        ({"max_norm": 0.0}, "max_norm=0.0: expected a positive number"),
        ({"loss_reduction": "max"}, "loss_reduction='max' is not known"),
        ({"replicas": 0}, "replicas=0: expected a whole number"),
        ({"schedule": "gpipe"}, "warmup_steps=3 was given with schedule='gpipe', where no gradient is late"),
        ({"schedule": "1f1b", "warmup_steps": 0}, "annealing_steps=5 was given"),
        ({"schedule": "1f1b", "warmup_steps": 0, "annealing_steps": 0}, "correction=0.5 was given"),
        ({"schedule": "1f1b", "warmup_steps": 0, "annealing_steps": 0, "correction": None}, "nesterov=0.9 was given"),
    ],
)
def test_what_cannot_be(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Settings(**{**GIVEN, **changed})


MOMENTUM = {"schedule": "pipemare", "nesterov": 0.9}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"optimizer": torch.optim.Adam(net().parameters())}, "optimizer is a Adam: expected a function"),
        ({"optimizer": None}, "optimizer is a NoneType: expected a function"),
        ({"optimizer": lambda parameters: None}, "optimizer returned a NoneType: expected a torch.optim.Optimizer"),
        ({"optimizer": momentum, **MOMENTUM}, "nesterov= was given with SGD(momentum=0.9), which has a momentum of"),
        ({"optimizer": adam, **MOMENTUM}, "nesterov= was given with Adam(betas=(0.9, 0.999)), which has a momentum of"),
        ({"loss": "mse"}, "loss='mse': expected a function"),
        ({"loss": lambda output, target: output}, "loss returned a tensor of shape (2, 3): expected one number"),
        ({"metrics": "accuracy"}, "metrics='accuracy': expected functions of output and target, by name"),
        ({"metrics": {"accuracy": 3}}, "metrics={'accuracy': 3}: expected functions of output and target, by name"),
        ({"metrics": {"loss": mse}}, "loss"),
        ({"micro_batches": 2}, "no argument micro_batches. Did you mean n_microbatches?"),
        ({"optimiser": sgd}, "no argument optimiser."),
        ({"n_microbatches": 0}, "cannot have 0 micro-batches"),
        ({"n_microbatches": "4"}, "n_microbatches='4': expected a whole number"),
        ({"n_microbatches": 2.0}, "n_microbatches=2.0: expected a whole number"),
        ({"n_microbatches": True}, "n_microbatches=True: expected a whole number"),
        ({"n_microbatches": 5}, "has 4 rows: expected one number, of 5 (n_microbatches) at least"),
        ({"stages": 5}, "stages=5: expected"),
        ({"stages": [2.5]}, "stages=[2.5]: expected"),
        ({"stages": [None]}, "stages=[None]: expected"),
        ({"schedule": None}, "schedule=None: expected a name"),
        ({"schedule": ["1f1b"]}, "schedule=['1f1b']: expected a name"),
        ({"discrepancy": 0.3}, "hvd.Pipeline has no argument discrepancy.\nUse correction=0.3."),
        ({"schedule": "pipemare", "correction": "0.3"}, "correction='0.3': expected a number"),
        ({"max_norm": "1"}, "max_norm='1': expected a positive number"),
        ({"max_norm": float("nan")}, "max_norm=nan: expected a positive number"),
        ({"costs": [1, "2", 3, 4, 5, 6, 7, 8, 9]}, "costs="),
        ({"costs": 3}, "costs="),
        # Cuts by time.
        ({"stages": "time"}, 'stages="time" was given with no sample='),
        ({"stages": "time", "sample": torch.ones(3, 6).double()}, "Layer 0 (Linear) cannot be timed on sample=: Runt"),
        ({"stages": "time", "sample": "x"}, "Layer 0 (Linear) cannot be timed on sample=: UsageError: What it is giv"),
        ({"stages": "time", "sample": torch.ones(3, 5).double(), "costs": [1] * 9}, "was given with costs="),
        ({"stages": "time", "sample": torch.ones(3, 5), "model": lambda: [nn.Tanh, nn.Tanh]}, "layers that are built"),
    ],
)
def test_arguments_that_cannot_be(changed: dict[str, Any], said: str) -> None:
    all_hear(said, 2, **changed)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (lambda: nn.Linear(5, 3), "cannot cut a Linear"),
        (lambda: [nn.Linear(5, 3), len], "Layer 1 of the model is a builtin_function_or_method"),
        (lambda: [nn.Linear(5, 3)], "1 layers, and there are 2 stages"),
        (lambda: [nn.Tanh(), lambda: nn.Tanh()], "Layer 1 of the model is a function"),
        (lambda: [lambda: nn.Tanh(), lambda: 3], "What builds layer 1 returned a int: expected an nn.Module"),
        (lambda: [lambda: nn.Tanh(), lambda value: value], "missing 1 required positional argument"),
        (lambda: [nn.Linear(6, 5).double(), nn.Linear(5, 3).double()], "mat1 and mat2 shapes cannot be"),
        (lambda: [nn.Linear(5, 5).double(), nn.Linear(6, 3).double()], "mat1 and mat2 shapes cannot be"),
    ],
)
def test_models_that_cannot_be(model: Callable[[], Any], said: str) -> None:
    all_hear(said, 2, model)


class Made(nn.Module):
    def __init__(self, made: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.made = made

    def forward(self, value: Tensor) -> Any:
        return self.made(value)


def local(value: Tensor) -> Any:
    @dataclasses.dataclass
    class Local:
        value: Tensor

    return Local(value)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda value: value.tolist, "is a builtin_function_or_method: expected tensors, numbers, strings or None"),
        (lambda value: (value, {3}), "has a set at [1]: expected tensors"),
        (lambda value: {"a": value, "b": [object()]}, "has a object at ['b'][0]: expected"),
        (lambda value: value.to_sparse(), "is a torch.sparse_coo tensor"),
        (lambda value: {"a": value.to_sparse()}, "has a torch.sparse_coo tensor at ['a']: expected"),
        (lambda value: {"a": value, "b": 1 << 70}, "has an int of more than 64 bits at ['b']: expected"),
        (local, "has a Local, which other ranks cannot import"),
    ],
)
def test_what_no_tree_is_made_of_cannot_be_sent(made: Callable[[Tensor], Any], said: str) -> None:
    all_hear(said, 2, lambda: [Made(made), nn.Tanh()])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"stages": ["middle", "lsat"]}, "stages= names 'lsat': expected a submodule of the Net"),
        ({"stages": ["middle"]}, "makes 2 stages, expected 3"),
        ({"stages": [1, 2]}, "by which it is traced"),
        ({"stages": "auto"}, "stages='auto' was given with a Net and sample="),
        ({"sample": torch.ones(2, 3)}, "torch.distributed.pipelining could not trace the Net"),
        ({"sample": None}, "cannot cut a Net"),
        ({"batch": of_traced(1, 2 * N + 1)}, "A micro-batch has the shapes [(3, 5)]: the model was traced"),
    ],
)
def test_what_cannot_be_traced(arguments: dict[str, Any], said: str) -> None:
    all_hear(said, 3, **{"model": Net, "stages": CUTS, "sample": SAMPLE, "n_microbatches": N, **arguments})


def test_names_that_two_stages_share() -> None:
    with torch_distributed():
        stages = [PipelineStage(nn.Linear(WIDTH, WIDTH), number, 2, torch.device("cpu")) for number in range(2)]

    def body(communicator: Any) -> str:
        with pytest.raises(UsageError) as caught:
            made(communicator, stages[communicator.rank])
        return str(caught.value)

    for said in in_threads(2, body):
        assert "A parameter of stage 1 has the name of one of stage 0, weight" in said


@pytest.mark.parametrize("schedule", first_of((one for one in SCHEDULES if one not in ("gpipe", "1f1b")), "pipemare"))
def test_asynchronous_schedules_refuse_ties(schedule: str) -> None:
    arguments: dict[str, Any] = {"loss": cross_entropy, "schedule": schedule, "batch": text(0, 4)}
    all_hear("3.logits.weight of stage 1 is the same tensor as 0.tokens.weight of stage 0", 2, gpt, **arguments)
    all_hear('or use schedule="1f1b" or "gpipe"', 2, gpt, **arguments)


def test_a_rank_that_cannot_say_what_it_wants_ends_all() -> None:
    class Odd(list):  # type: ignore[type-arg]
        def __len__(self) -> int:
            raise ZeroDivisionError("an odd list of costs")

    def body(communicator: Any) -> str:
        with pytest.raises((ZeroDivisionError, UsageError)) as caught:
            made(communicator, costs=Odd() if communicator.rank == 1 else None)
        return str(caught.value)

    for said in in_threads(3, body):
        assert "an odd list of costs" in said, said


def test_a_scaler_does_not_step_the_optimizer_of_a_stage() -> None:
    def use(pipeline: Any) -> None:
        scaler = torch.amp.GradScaler("cpu")
        for number in range(2):
            pipeline.step(*data(number, 4))
            scaler.scale(torch.ones(1))
            with pytest.raises(UsageError, match="GradScaler was given the optimizer of a stage"):
                scaler.step(pipeline.optimizer)

    piped(2, use)


def test_a_pipeline_is_not_called() -> None:
    def use(pipeline: Any) -> None:
        with pytest.raises(UsageError, match="called like a model"):
            pipeline(data(0, 4)[0])
        pipeline.step(*data(0, 4))

    piped(2, use)
