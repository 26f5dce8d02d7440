"""codec= for PyTorch: error bounds, error feedback, exchanges, states, and refused values."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch

import paceline.torch as hvd
from integration_tests.ranks.codecs.expected import ELEMENTS, LOSSY, bound, gradient, mean
from integration_tests.support.ranks import ranks, run_ranks

with_ranks = pytest.mark.parametrize("size", [pytest.param(2, marks=pytest.mark.more), 3])


class _Training:
    """One parameter from 0 on; every update subtracts the mean gradient: -parameter is the sum of what arrived."""

    def __init__(self, name: str, **choices: Any) -> None:
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
    exact = _Training("exact")
    exact.step(gradient(rank))
    np.testing.assert_allclose(exact.arrived, mean(size), rtol=1e-5, atol=1e-6)
    training = _Training(codec, codec=codec)
    training.step(gradient(rank))
    wrong = np.abs(training.arrived - mean(size))
    assert (wrong <= bound(codec, size)).all(), f"{codec}: {wrong.max()} of {bound(codec, size).max()}"
    assert wrong.max() > np.abs(exact.arrived - mean(size)).max(), "nothing was rounded: the codec is off"
    return training.arrived.tobytes()


@with_ranks
@pytest.mark.parametrize("codec", LOSSY)
def test_an_update_is_within_the_codecs_bound_and_the_same_on_all_ranks(codec: str, size: int) -> None:
    assert len(set(run_ranks(_one_update, size, codec))) == 1


@pytest.mark.parametrize("codec", LOSSY)
@ranks(3, more=(2,))
def test_error_feedback_makes_up_for_what_was_lost(rank: int, size: int, codec: str) -> None:
    steps = 40
    fed_back, plain = (
        _Training("fed_back", codec=codec),
        _Training("plain", codec=codec, error_feedback=False),
    )
    for _ in range(steps):
        fed_back.step(gradient(rank))
        plain.step(gradient(rank))
    wanted = steps * mean(size)
    # The residual still to be sent, and rounding of float32 additions.
    wrong = np.abs(fed_back.arrived - wanted)
    assert (wrong <= 2 * bound(codec, size) + 1e-5 * steps).all(), wrong.max()
    assert np.abs(plain.arrived - wanted).mean() > 3 * wrong.mean()


@ranks(3, more=(2,))
def test_exchanges_carry_encoded_gradients(rank: int, size: int) -> None:
    for number, exchange in enumerate((hvd.Pipelined(k=2), hvd.Partial(quorum=size))):
        training = _Training(f"exchange{number}", codec="q8", error_feedback=False, exchange=exchange)
        for _ in range(3):
            training.step(gradient(rank))
        training.optimizer.drain()
        wrong = np.abs(training.arrived - 3 * mean(size))
        assert (wrong <= 3 * bound("q8", size)).all(), f"{exchange}: {wrong.max()}"
        assert wrong.max() > 1e-4, f"{exchange}: the codec is off"


@ranks(3, more=(2,))
def test_warm_up_is_sent_without_the_codec(rank: int, size: int) -> None:
    training = _Training("warm", codec="bf16", error_feedback=False, exchange=hvd.Pipelined(warmup_steps=2))
    for step in range(1, 3):
        training.step(gradient(rank))
        np.testing.assert_allclose(training.arrived, step * mean(size), rtol=1e-5, atol=1e-6)
    training.step(gradient(rank))
    training.optimizer.drain()
    wrong = np.abs(training.arrived - 3 * mean(size))
    assert wrong.max() > 1e-4 and (wrong <= bound("bf16", size) + 1e-5).all()


@ranks(3, more=(2,))
def test_residuals_are_saved_with_the_optimizer(rank: int, size: int) -> None:
    first = _Training("state", codec="q8")
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
        other = _Training("state", codec="q8")
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
    other = _Training("state", codec="q8")
    other.optimizer.load_state_dict(state)
    other.step(gradient(rank))
    assert (np.abs(other.arrived - mean(size)) <= bound("q8", size)).all()


@ranks(2)
def test_small_gradients_are_sent_unencoded(rank: int, size: int) -> None:
    parameter = torch.nn.Parameter(torch.zeros(255))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), [("small", parameter)], codec="q8")
    (parameter * torch.from_numpy(gradient(rank)[:255])).sum().backward()
    optimizer.step()
    np.testing.assert_allclose(-parameter.detach().numpy(), mean(size)[:255], rtol=1e-5, atol=1e-6)
    assert "paceline_in_flight" not in optimizer.state_dict()


@ranks(3, more=(2,))
def test_infinities_and_nan_stay_visible(rank: int, size: int) -> None:
    training = _Training("not_finite", codec="q8")
    given = gradient(rank)
    given[5], given[700] = (np.inf, np.nan) if rank == size - 1 else given[[5, 700]]
    training.step(given)
    assert not np.isfinite(training.arrived[[5, 700]]).any(), "an infinity or NaN has become a number"


@ranks(3, more=(2,))
def test_collectives_of_one_optimizer(rank: int, size: int) -> None:
    for collective in ("linear", "ring", "direct", "doubling", "auto"):
        training = _Training(collective, collective=collective)
        for _ in range(2):
            training.step(gradient(rank))
        np.testing.assert_allclose(training.arrived, 2 * mean(size), rtol=1e-5, atol=1e-6)
        coded = _Training(f"{collective}.q8", collective=collective, codec="q8", error_feedback=False)
        coded.step(gradient(rank))
        # Partial sums are encoded by every rank on the way.
        assert (np.abs(coded.arrived - mean(size)) <= size * bound("q8", size)).all(), collective


PLAIN: list[dict[str, Any]] = [
    {"codec": "q8", "error_feedback": False},
    {},
    {"codec": "bf16", "error_feedback": False},
]


@ranks(3, env={"HOROVOD_DYNAMIC_PROCESS_SETS": "1"})
def test_groups_other_codecs_and_process_sets(rank: int, size: int) -> None:
    """Optimizers of one model with different codecs, gradients in one bucket, and a process set."""
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
        training = _Training("two", codec="q8", error_feedback=False, process_set=two)
        training.step(gradient(rank))
        assert (np.abs(training.arrived - mean(2)) <= bound("q8", 2)).all()
    hvd.remove_process_set(two)


@ranks(2)
def test_ranks_with_other_choices_are_refused(rank: int, size: int) -> None:
    choices: list[dict[str, Any]] = [{"codec": "q8"}, {"codec": "q8", "error_feedback": False}, {"collective": "ring"}]
    for number, choice in enumerate(choices):
        training = _Training(f"differing{number}", **(choice if rank == 0 else {}))
        word = "collective's number" if "collective" in choice else "codec's number"
        with pytest.raises(hvd.UsageError, match=rf"different exchanges, codecs or collectives(.|\n)*{word} from"):
            training.step(gradient(rank))


@ranks(2)
def test_refused(rank: int, size: int) -> None:
    with pytest.raises(hvd.UsageError, match=r"codec='q7' is not known(.|\n)*q8"):
        _Training("refused", codec="q7")
    with pytest.raises(hvd.UsageError, match=r"codec=q8 was given together with compression=FP16Compressor"):
        _Training("refused", codec="q8", compression=hvd.Compression.fp16)
    with pytest.raises(hvd.UsageError, match=r"codec=q8 was given together with collective=horovod"):
        _Training("refused", codec="q8", collective="horovod")
    training = _Training("refused")  # the refused ones leave nothing
    training.step(gradient(rank))
    np.testing.assert_allclose(training.arrived, mean(size), rtol=1e-5, atol=1e-6)
