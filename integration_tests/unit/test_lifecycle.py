"""What is said before a world begins (paceline.lifecycle)."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from paceline import lifecycle
from paceline.errors import UserError


class _Library:
    """Horovod's library for TensorFlow, as far as it is asked before anything is changed."""

    _name = "/somewhere/horovod/tensorflow/mpi_lib.so"
    _handle = 0

    def __getattr__(self, name: str) -> Any:
        return lambda *_: 0


@pytest.mark.parametrize("exchange", ["pipelined", "majority", "solo"])
def test_keras_2_is_refused_with_the_exchange_that_was_set(monkeypatch: pytest.MonkeyPatch, exchange: str) -> None:
    for module in ("paceline.fusion.control", "paceline.exchange.worlds"):  # they would talk to the library
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setenv("PACELINE_EXCHANGE", exchange)
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    with pytest.raises(UserError, match=f"PACELINE_EXCHANGE={exchange} is set together with TF_USE_LEGACY_KERAS"):
        lifecycle.before_init(_Library())  # type: ignore[arg-type]
