"""The arguments that all wrappers share: their signatures, and what is refused."""

from __future__ import annotations

import inspect

import pytest

from paceline.errors import UsageError
from paceline.exchange.sync_settings import Sync
from paceline.gradient_arguments import asked
from paceline.pipelined.settings import Pipelined

SHARED = list(inspect.signature(asked).parameters)
NOTHING = (None,) * len(SHARED)


def test_every_wrapper_of_tensorflow_has_them_and_horovods() -> None:
    import paceline.tensorflow as hvd
    from paceline.horovod.shims.unmodified import original
    from paceline.tensorflow.horovod import horovod_tensorflow

    for name, own in (("DistributedOptimizer", []), ("DistributedGradientTape", ["name"])):
        parameters = inspect.signature(getattr(hvd, name)).parameters
        horovods = inspect.signature(original(getattr(horovod_tensorflow, name))).parameters
        assert list(parameters) == [*horovods, *own, *SHARED]
        for word, one in horovods.items():
            assert parameters[word].default == one.default, word


def test_the_wrappers_of_torch_and_keras_have_them() -> None:
    import paceline.keras
    import paceline.torch

    for module in (paceline.torch, paceline.keras):
        wrapper = module.DistributedOptimizer
        assert set(SHARED) <= set(inspect.signature(wrapper).parameters)
        assert "hvd.Pipelined" in (wrapper.__doc__ or "")


def test_what_they_ask_for() -> None:
    found = asked("optimal", "pipelined", "q8", False, None)
    assert found.fusion == "optimal" and isinstance(found.exchange, Pipelined)
    assert (found.choice.codec, found.choice.error_feedback, found.choice.own_codec) == ("q8", False, True)
    nothing = asked(*NOTHING)
    assert nothing.fusion is None and nothing.exchange == Sync() and not nothing.choice.own_codec


def test_a_codec_beside_a_compression_is_refused() -> None:
    none, other = object(), object()
    found = asked(None, None, "q8", None, None)
    found.check(none, none)
    with pytest.raises(UsageError, match="codec=q8"):
        found.check(other, none)
