"""Names select encoding and collective of operations; residuals live as long as their owner, and are saved by owner."""

from __future__ import annotations

import ctypes
import gc
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from paceline.codecs.choice import Choice
from paceline.codecs.encoding import Encoding
from paceline.codecs.naming import unmarked
from paceline.errors import UsageError
from paceline.exchange.in_flight_state import with_residuals, without_residuals

_handles = itertools.count(-1, -1)


class Library:
    """Fake of a library: received names, and their residuals."""

    def __init__(self) -> None:
        self._handle = next(_handles)
        self.residuals: dict[tuple[str, int], np.ndarray] = {}

    def horovod_paceline_residual_get(self, name: bytes, process_set: int, values: int | None, count: int) -> int:
        found = self.residuals.get((name.decode(), process_set))
        if found is None:
            return -1
        if values is not None and count >= found.size:
            ctypes.memmove(values, found.ctypes.data, found.nbytes)
        return int(found.size)

    def horovod_paceline_residual_put(self, name: bytes, process_set: int, values: int | None, count: int) -> None:
        array = np.empty(count, np.float32)
        if values is not None:
            ctypes.memmove(array.ctypes.data, values, array.nbytes)
        self.residuals[name.decode(), process_set] = array
        if not array.size:
            del self.residuals[name.decode(), process_set]


class ProcessSet:
    def __init__(self, process_set_id: int = 0, rank: int = 0) -> None:
        self.process_set_id = process_set_id
        self._rank = rank

    def rank(self) -> int:
        return self._rank


Q8 = Choice("q8", 3, True, "direct", 2, own_codec=True)
BY_VARIABLE = Choice("q8", 3, True, "direct", 2)
BF16 = Choice("bf16", 1, False, "direct", 2, own_codec=True, own_collective=True)


def _begin(encoding: Encoding, name: str, dtype: str = "float32", members: Sequence[Any] = ()) -> None:
    members = members or [name]
    tensors = [np.zeros(1, dtype)] * len(members)
    encoding.begin(name, lambda: [f"allreduce.{one}" for one in members], members, tensors)


@pytest.mark.parametrize("choice", [Q8, BF16, Choice("none", 0, False, "ring", 1, own_collective=True)])
def test_a_name_contains_its_encoding_unless_it_is_sent_unencoded(choice: Choice) -> None:
    assert choice.mark and unmarked(f"allreduce.net.{choice.mark}fc.weight") == "allreduce.net.fc.weight"
    assert unmarked("a>b>c d") == "ac d" and unmarked("a>B>c") == "a>B>c"  # a user's own, which is only read here


def test_whole_numbers_are_refused_and_bfloat16_has_a_choice_of_its_own() -> None:
    encoding = Encoding(Library(), ProcessSet(), Q8)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"'steps' is of int32, which codec='q8' does not take(.|\n)*codec=\"none\""):
        _begin(encoding, "steps", dtype="int32")
    by_variable = Encoding(Library(), ProcessSet(), BY_VARIABLE)  # type: ignore[arg-type]
    _begin(by_variable, "steps", dtype="int32")  # the library sends them unencoded
    # Bfloat16 has a separate choice.
    encoding = Encoding(Library(), ProcessSet(), Choice("none", 0, False, "ring", 1, bfloat16=BF16))  # type: ignore[arg-type]

    class Half:
        dtype = "torch.bfloat16"

    assert encoding.choice_of([Half()]) is BF16
    assert encoding.choice_of([Half(), np.zeros(1, "float32")]) is encoding.choice


def test_another_model_under_the_same_names_begins_with_nothing() -> None:
    library: Any = Library()
    first = Encoding(library, ProcessSet(), Q8)
    _begin(first, "w")
    library.residuals["allreduce.w", 0] = np.ones(2, np.float32)
    _begin(first, "w")
    assert ("allreduce.w", 0) in library.residuals
    second = Encoding(library, ProcessSet(), Q8)
    _begin(second, "w")
    assert library.residuals == {}
    library.residuals["allreduce.w", 0] = np.ones(2, np.float32)
    del first
    gc.collect()
    assert ("allreduce.w", 0) in library.residuals, "it is the second one's"
    del second
    gc.collect()
    assert library.residuals == {}, "nobody goes on with it"


def test_residuals_go_on_where_they_were_saved() -> None:
    library: Any = Library()
    encoding = Encoding(library, ProcessSet(rank=1), Q8)
    assert encoding.state() is None
    _begin(encoding, "group", members=["a", "b"])
    library.residuals["allreduce.a", 0] = np.arange(3, dtype=np.float32)
    state = encoding.state()
    assert state is not None and state["rank"] == 1 and list(state["values"]) == ["a"]

    other: Any = Library()
    loaded = Encoding(other, ProcessSet(rank=1), Q8)
    loaded.load(state)
    saved = loaded.state()  # nothing was submitted yet
    assert saved is not None
    np.testing.assert_array_equal(saved["values"]["a"], [0, 1, 2])
    _begin(loaded, "group", members=["a", "b"])
    np.testing.assert_array_equal(other.residuals["allreduce.a", 0], [0, 1, 2])
    assert ("allreduce.b", 0) not in other.residuals
    # Residuals made since are dropped when another state is loaded.
    loaded.load(None)
    assert other.residuals == {} and loaded.state() is None


def test_a_rank_takes_no_residuals_of_another() -> None:
    library: Any = Library()
    encoding = Encoding(library, ProcessSet(rank=0), Q8)
    encoding.load({"rank": 1, "values": {"w": np.ones(2, np.float32)}})
    _begin(encoding, "w")
    assert library.residuals == {} and encoding.state() is None


def test_residuals_are_a_part_of_what_is_in_flight() -> None:
    residuals: Any = {"rank": 0, "values": {}}
    assert with_residuals(None, None, 1) is None
    assert without_residuals({"k": 2, "in_flight": []}) == ({"k": 2, "in_flight": []}, None)
    alone = with_residuals(None, residuals, 1)
    assert alone is not None and alone["in_flight"] == []
    assert without_residuals(alone) == (None, residuals)
    both = with_residuals({"k": 2, "warm": 3, "in_flight": []}, residuals, 2)
    assert both is not None
    assert without_residuals(both) == ({"k": 2, "warm": 3, "in_flight": []}, residuals)


def test_one_line_says_what_is_not_as_the_variables_say(capsys: pytest.CaptureFixture[str]) -> None:
    for rank, choice in itertools.product((0, 1), (Q8, BY_VARIABLE)):
        encoding = Encoding(Library(), ProcessSet(rank=rank), choice)  # type: ignore[arg-type]
        encoding.announce("w")
        encoding.announce("w")
    assert capsys.readouterr().err == "Paceline: codec='q8', error_feedback=True, collective='direct' for w.\n"
