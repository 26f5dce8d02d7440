"""codec= for PyTorch: error bounds, error feedback, exchanges, states, and what is refused."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch

from integration_tests.ranks.codecs.expected import ELEMENTS, LOSSY, bound, gradient, mean
from integration_tests.support.ranks import run_ranks

with_ranks = pytest.mark.parametrize("size", [pytest.param(2, marks=pytest.mark.more), 3])


def _hvd() -> Any:
    import paceline.torch as hvd

    hvd.init()
    return hvd


class _Training:
    """One parameter from 0 on; every update subtracts the mean gradient: -parameter is the sum of what arrived."""

    def __init__(self, hvd: Any, name: str, **choices: Any) -> None:
        self.parameter = torch.nn.Parameter(torch.zeros(ELEMENTS))
        sgd = torch.optim.SGD([self.parameter], lr=1.0)
        self.optimizer = hvd.DistributedOptimizer(sgd, [(name, self.parameter)], **choices)

    def step(self, given: np.ndarray) -> None:
        self.optimizer.zero_grad()
        (self.parameter * torch.from_numpy(given)).sum().backward()
        self.optimizer.step()

    @property
    def arrived(self) -> np.ndarray:
        return -self.parameter.detach().double().numpy()


def _one_update(rank: int, size: int, codec: str) -> bytes:
    hvd = _hvd()
    exact = _Training(hvd, "exact")
    exact.step(gradient(rank))
    np.testing.assert_allclose(exact.arrived, mean(size), rtol=1e-5, atol=1e-6)
    training = _Training(hvd, codec, codec=codec)
    training.step(gradient(rank))
    wrong = np.abs(training.arrived - mean(size))
    assert (wrong <= bound(codec, size)).all(), f"{codec}: {wrong.max()} of {bound(codec, size).max()}"
    assert wrong.max() > np.abs(exact.arrived - mean(size)).max(), "nothing was rounded: the codec is off"
    return training.arrived.tobytes()


@with_ranks
@pytest.mark.parametrize("codec", LOSSY)
def test_an_update_is_within_the_codecs_bound_and_the_same_on_all_ranks(codec: str, size: int) -> None:
    assert len(set(run_ranks(_one_update, size, codec))) == 1


def _many_updates(rank: int, size: int, codec: str) -> None:
    hvd, steps = _hvd(), 40
    fed_back, plain = (
        _Training(hvd, "fed_back", codec=codec),
        _Training(hvd, "plain", codec=codec, error_feedback=False),
    )
    for _ in range(steps):
        fed_back.step(gradient(rank))
        plain.step(gradient(rank))
    wanted = steps * mean(size)
    # What is still to come, and the additions of float32.
    wrong = np.abs(fed_back.arrived - wanted)
    assert (wrong <= 2 * bound(codec, size) + 1e-5 * steps).all(), wrong.max()
    assert np.abs(plain.arrived - wanted).mean() > 3 * wrong.mean()


@with_ranks
@pytest.mark.parametrize("codec", LOSSY)
def test_error_feedback_makes_up_for_what_was_lost(codec: str, size: int) -> None:
    run_ranks(_many_updates, size, codec)


def _exchanges(rank: int, size: int) -> None:
    hvd = _hvd()
    for number, exchange in enumerate((hvd.Pipelined(k=2), hvd.Partial(quorum=size))):
        training = _Training(hvd, f"exchange{number}", codec="q8", error_feedback=False, exchange=exchange)
        for _ in range(3):
            training.step(gradient(rank))
        training.optimizer.drain()
        wrong = np.abs(training.arrived - 3 * mean(size))
        assert (wrong <= 3 * bound("q8", size)).all(), f"{exchange}: {wrong.max()}"
        assert wrong.max() > 1e-4, f"{exchange}: the codec is off"


@with_ranks
def test_exchanges_carry_encoded_gradients(size: int) -> None:
    run_ranks(_exchanges, size)


def _warm_up(rank: int, size: int) -> None:
    hvd = _hvd()
    training = _Training(hvd, "warm", codec="bf16", error_feedback=False, exchange=hvd.Pipelined(warmup_steps=2))
    for step in range(1, 3):
        training.step(gradient(rank))
        np.testing.assert_allclose(training.arrived, step * mean(size), rtol=1e-5, atol=1e-6)
    training.step(gradient(rank))
    training.optimizer.drain()
    wrong = np.abs(training.arrived - 3 * mean(size))
    assert wrong.max() > 1e-4 and (wrong <= bound("bf16", size) + 1e-5).all()


@with_ranks
def test_warm_up_travels_without_the_codec(size: int) -> None:
    run_ranks(_warm_up, size)


def _states(rank: int, size: int) -> None:
    hvd = _hvd()
    first = _Training(hvd, "state", codec="q8")
    for step in range(3):
        first.step(gradient(rank, step))
    file = io.BytesIO()
    torch.save([first.parameter.detach(), first.optimizer.state_dict()], file)
    for step in range(3, 6):
        first.step(gradient(rank, step))

    def resumed(with_residuals: bool) -> np.ndarray:
        file.seek(0)
        parameter, state = torch.load(file)
        assert state["paceline_in_flight"]["residuals"]["rank"] == rank
        if not with_residuals:
            del state["paceline_in_flight"]
        other = _Training(hvd, "state", codec="q8")
        with torch.no_grad():
            other.parameter.copy_(parameter)
        other.optimizer.load_state_dict(state)
        for step in range(3, 6):
            other.step(gradient(rank, step))
        return other.arrived

    assert np.array_equal(resumed(True), first.arrived), "a run that goes on from a state has other bits"
    assert not np.array_equal(resumed(False), first.arrived), "the residuals of before were not dropped"
    assert "paceline_in_flight" not in first.optimizer.state_dict(), "another model has its names now"
    file.seek(0)
    _, state = torch.load(file)
    plain = torch.optim.SGD([torch.nn.Parameter(torch.zeros(ELEMENTS))], lr=1.0)
    plain.load_state_dict(state)
    # Of another number of elements: dropped.
    state["paceline_in_flight"]["residuals"]["values"] = {"state": torch.ones(7)}
    other = _Training(hvd, "state", codec="q8")
    other.optimizer.load_state_dict(state)
    other.step(gradient(rank))
    assert (np.abs(other.arrived - mean(size)) <= bound("q8", size)).all()


@with_ranks
def test_residuals_are_saved_with_the_optimizer(size: int) -> None:
    run_ranks(_states, size)


def _small(rank: int, size: int) -> None:
    hvd = _hvd()
    parameter = torch.nn.Parameter(torch.zeros(255))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), [("small", parameter)], codec="q8")
    (parameter * torch.from_numpy(gradient(rank)[:255])).sum().backward()
    optimizer.step()
    np.testing.assert_allclose(-parameter.detach().numpy(), mean(size)[:255], rtol=1e-5, atol=1e-6)
    assert "paceline_in_flight" not in optimizer.state_dict()


def test_small_gradients_travel_as_they_are() -> None:
    run_ranks(_small, 2)


def _not_finite(rank: int, size: int) -> None:
    hvd = _hvd()
    training = _Training(hvd, "not_finite", codec="q8")
    given = gradient(rank)
    given[5], given[700] = (np.inf, np.nan) if rank == size - 1 else given[[5, 700]]
    training.step(given)
    assert not np.isfinite(training.arrived[[5, 700]]).any(), "an infinity or NaN has become a number"


@with_ranks
def test_infinities_and_nan_stay_visible(size: int) -> None:
    run_ranks(_not_finite, size)


def _collectives(rank: int, size: int) -> None:
    hvd = _hvd()
    for collective in ("linear", "ring", "direct", "doubling", "auto"):
        training = _Training(hvd, collective, collective=collective)
        for _ in range(2):
            training.step(gradient(rank))
        np.testing.assert_allclose(training.arrived, 2 * mean(size), rtol=1e-5, atol=1e-6)
        coded = _Training(hvd, f"{collective}.q8", collective=collective, codec="q8", error_feedback=False)
        coded.step(gradient(rank))
        # Partial sums are encoded by every rank on the way.
        assert (np.abs(coded.arrived - mean(size)) <= size * bound("q8", size)).all(), collective


@with_ranks
def test_collectives_of_one_optimizer(size: int) -> None:
    run_ranks(_collectives, size)


PLAIN: list[dict[str, Any]] = [
    {"codec": "q8", "error_feedback": False},
    {},
    {"codec": "bf16", "error_feedback": False},
]


def _groups_and_many(rank: int, size: int) -> None:
    """Optimizers of one model with different codecs, gradients that travel together, and a process set."""
    hvd = _hvd()
    for _ in range(2):
        for choices in PLAIN:
            parameters = [torch.nn.Parameter(torch.zeros(ELEMENTS)) for _ in range(3)]
            named = [(f"p{n}", one) for n, one in enumerate(parameters)]
            sgd = torch.optim.SGD(parameters, lr=1.0)
            optimizer = hvd.DistributedOptimizer(sgd, named, groups=2, **choices)
            for step, one in enumerate(parameters):
                (one * torch.from_numpy(gradient(rank, step))).sum().backward()
            optimizer.step()
            for step, one in enumerate(parameters):
                wrong = np.abs(-one.detach().double().numpy() - mean(size, step))
                limit = bound(choices["codec"], size, step) if choices else np.full(ELEMENTS, 1e-6)
                assert (wrong <= limit).all() and (wrong.max() > 1e-5 or not choices)
    two = hvd.add_process_set([0, 1])
    if two.included():
        training = _Training(hvd, "two", codec="q8", error_feedback=False, process_set=two)
        training.step(gradient(rank))
        assert (np.abs(training.arrived - mean(2)) <= bound("q8", 2)).all()
    hvd.remove_process_set(two)


def test_groups_other_codecs_and_process_sets() -> None:
    run_ranks(_groups_and_many, 3, env={"HOROVOD_DYNAMIC_PROCESS_SETS": "1"})


def _differing(rank: int, size: int) -> None:
    hvd = _hvd()
    choices: list[dict[str, Any]] = [{"codec": "q8"}, {"codec": "q8", "error_feedback": False}, {"collective": "ring"}]
    for number, choice in enumerate(choices):
        training = _Training(hvd, f"differing{number}", **(choice if rank == 0 else {}))
        word = "collective's number" if "collective" in choice else "codec's number"
        with pytest.raises(hvd.UsageError, match=rf"different exchanges, codecs or collectives(.|\n)*{word} from"):
            training.step(gradient(rank))


def test_ranks_with_other_choices_are_refused() -> None:
    run_ranks(_differing, 2)


def _refused(rank: int, size: int) -> None:
    hvd = _hvd()
    with pytest.raises(hvd.UsageError, match=r"codec='q7' is not known(.|\n)*q8"):
        _Training(hvd, "refused", codec="q7")
    with pytest.raises(hvd.UsageError, match=r"codec=q8 was given together with compression=FP16Compressor"):
        _Training(hvd, "refused", codec="q8", compression=hvd.Compression.fp16)
    with pytest.raises(hvd.UsageError, match=r"codec=q8 was given together with collective=horovod"):
        _Training(hvd, "refused", codec="q8", collective="horovod")
    with pytest.raises(hvd.UsageError, match=r"the exchange local, under which no gradients travel"):
        _Training(hvd, "refused", codec="q8", exchange="local")
    training = _Training(hvd, "refused")  # nothing of the refused ones is left behind
    training.step(gradient(rank))
    np.testing.assert_allclose(training.arrived, mean(size), rtol=1e-5, atol=1e-6)


def test_refused() -> None:
    run_ranks(_refused, 2)
