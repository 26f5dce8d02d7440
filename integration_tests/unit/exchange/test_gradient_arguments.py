"""The arguments that all wrappers share: what help() shows of them, and what is refused."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

from paceline.errors import UsageError
from paceline.exchange.sync_settings import Sync
from paceline.gradient_arguments import NAMES, GradientArguments, asked, takes_gradient_arguments
from paceline.pipelined.settings import Pipelined

if TYPE_CHECKING:
    from typing_extensions import Unpack


def test_signatures_name_them() -> None:
    @takes_gradient_arguments
    def alone(optimizer: Any, name: str = "x", **gradients: Unpack[GradientArguments]) -> None:
        """Wrap.

        {exchanges}
        """

    @takes_gradient_arguments
    def among_others(optimizer: Any, *args: Any, **kwargs: Any) -> None:
        """Wrap.

        {exchanges}
        """

    assert list(inspect.signature(alone).parameters) == ["optimizer", "name", *NAMES]
    assert list(inspect.signature(among_others).parameters) == ["optimizer", "args", *NAMES, "kwargs"]
    assert "pipelined" in (alone.__doc__ or "")


def test_what_they_ask_for() -> None:
    found = asked("Wrapper", {"exchange": "pipelined", "codec": "q8", "error_feedback": False, "fusion": "optimal"})
    assert found.fusion == "optimal" and isinstance(found.exchange, Pipelined)
    assert (found.choice.codec, found.choice.error_feedback, found.choice.own_codec) == ("q8", False, True)
    nothing = asked("Wrapper", {"exchange": None, "codec": None})
    assert nothing.fusion is None and nothing.exchange == Sync() and not nothing.choice.own_codec


def test_wrong_names_and_a_codec_beside_a_compression_are_refused() -> None:
    with pytest.raises(TypeError, match=r"Wrapper\(\) got an unexpected keyword argument 'exchang'"):
        asked("Wrapper", {"exchang": "sync"})
    none, other = object(), object()
    found = asked("Wrapper", {"codec": "q8"})
    found.check(none, none)
    with pytest.raises(UsageError, match="codec=q8"):
        found.check(other, none)
