"""Exchanges: declarations, the table of events, arguments of wrappers, saved state in flight, statistics."""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from integration_tests.support import events_page
from integration_tests.support.events import COLUMNS, EVENTS, KERAS, NOTHING, PYTORCH, REFUSED, WORKS
from paceline import config
from paceline.arguments import exchange_asked
from paceline.errors import UsageError, UserError
from paceline.exchange.declaration import ExchangeSettings
from paceline.exchange.in_flight_file import load_in_flight, save_in_flight
from paceline.exchange.sync_settings import Sync
from paceline.gradient_arguments import asked
from paceline.local.settings import Local
from paceline.partial.calls import calls
from paceline.partial.settings import Partial
from paceline.partial.stats import ExchangeStats
from paceline.pipelined.settings import Pipelined
from paceline.registry.agreement import FIELDS, agreement, differing
from paceline.registry.exchanges import DECLARATIONS, NAMES, SETTINGS, declaration_of, described, lists_exchanges


@pytest.mark.parametrize("name", NAMES)
def test_every_name_stands_for_settings_of_its_own_exchange(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("PACELINE_EXCHANGE", name)
    chosen = exchange_asked(name)
    assert exchange_asked(None) == chosen
    assert name in declaration_of(chosen).names
    assert type(chosen) is declaration_of(chosen).settings
    assert SETTINGS[type(chosen).__name__] is type(chosen)


def test_every_setting_with_an_option_is_one_of_the_options() -> None:
    declared = {option.name: option for option in config.OPTIONS}
    for declaration in DECLARATIONS:
        for option in declaration.options():
            shown = declared[option.name]
            assert (shown.meaning, shown.kind, shown.parse) == (option.meaning, option.kind, option.parse)
            assert option.needs is not None and set(option.needs[1]) <= set(shown.needs[1] if shown.needs else ())
        values = config.read({})
        for name in declaration.names:
            assert declaration.of_options(name, values) == declaration.settings(**declaration.names[name])


def test_what_ranks_differ_in_is_reported_by_its_name() -> None:
    exchanges: list[ExchangeSettings] = [
        Sync(), Pipelined(), Pipelined(k=3), Pipelined(correction=0.25),
        Partial(), Partial(3), Partial(missed="latest"), Partial(sync_every=5),
    ]  # fmt: skip
    for one in exchanges:
        for other in exchanges:
            mine, theirs = agreement(one, 3), agreement(other, 3)
            assert len(mine) == len(FIELDS)
            assert (mine == theirs) == (one == other), (one, other)
            assert bool(differing(mine, theirs, mine)) == (one != other)
    sync, late = agreement(Sync(), 3), agreement(Pipelined(k=4), 3)
    assert differing(sync, late, sync).startswith("K from 1 to 4 (1 here)")
    # One is the synchronous exchange.
    assert exchange_asked(Pipelined(k=1)) == exchange_asked("sync") == Sync()
    assert declaration_of(Pipelined(k=1)) is declaration_of(Sync())
    assert agreement(Pipelined(k=1, warmup_steps=3), 4) == agreement(Sync(), 4)
    # States contain their owner.
    assert described(Pipelined(k=3).tag) == "those of k=3"
    assert described(Partial().tag) == "send buffers of a partial exchange"
    assert len({declaration.settings().tag for declaration in DECLARATIONS}) == len(DECLARATIONS)


def test_docstrings_list_all_exchanges() -> None:
    @lists_exchanges
    def wrapper() -> None:
        """Wrap.

        - `exchange`: as follows.
          {exchanges}
        """

    text = wrapper.__doc__ or ""
    assert "{" not in text and max(map(len, text.splitlines())) <= 120
    for declaration in DECLARATIONS:
        assert all(f'"{name}"' in text for name in declaration.names)
        assert f"hvd.{declaration.settings.__name__}" in text and declaration.page in text


@pytest.mark.parametrize("wrong", ["pipelind", 2, {"k": 2}])
def test_what_is_no_exchange_is_refused_with_all_that_are(wrong: object) -> None:
    with pytest.raises(UserError) as caught:
        exchange_asked(wrong)  # type: ignore[arg-type]
    assert repr(wrong) in caught.value.problem
    assert all(name in caught.value.remedy for name in (*NAMES, "hvd.Pipelined", "hvd.Partial"))


@pytest.mark.parametrize(
    ("settings", "old", "new"), [(Local, "every", "sync_every"), (Pipelined, "anneal_steps", "annealing_steps")]
)
def test_arguments_of_0_1_are_refused_with_the_new_name(settings: Any, old: str, new: str) -> None:
    with pytest.raises(UsageError, match=rf"hvd.{settings.__name__} has no argument {old}.\nUse {new}=5."):
        settings(**{old: 5})
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        settings(other=5)
    made = settings(**{new: 5})
    assert pickle.loads(pickle.dumps(made)) == copy.copy(made) == made


TESTS = Path(__file__).resolve().parents[2]
PAGE = TESTS.parent / "docs" / "developers" / "events.md"


def _tests_of(path: Path) -> set[str]:
    return {one.name for one in ast.parse(path.read_text()).body if isinstance(one, ast.FunctionDef)}


def test_the_table_of_events_has_all_exchanges_an_answer_for_each_and_tests_that_exist() -> None:
    assert {one.settings.__name__.lower() for one in DECLARATIONS} <= set(COLUMNS)
    # Every event has an answer of every exchange.
    for event in EVENTS:
        assert set(event.cells) == set(COLUMNS), event.name
        for column, cell in event.cells.items():
            assert cell, (event.name, column)
            for one in cell:
                assert one.outcome in (WORKS, REFUSED, NOTHING) and one.what and one.tests, (event.name, column)
                assert one.on in ("", PYTORCH, KERAS), (event.name, column)
    # Every test exists.
    named = {test for event in EVENTS for cell in event.cells.values() for one in cell for test in one.tests}
    known = {path: _tests_of(TESTS / path) for path in {test.partition("::")[0] for test in named}}
    missing = [test for test in named if (parts := test.partition("::"))[2] not in known[parts[0]]]
    assert not missing


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text() == events_page.events_page(), (
        "python -m integration_tests.support.events_page > docs/developers/events.md"
    )


SHARED = list(inspect.signature(asked).parameters)
NONE_GIVEN = (None,) * len(SHARED)


def test_every_wrapper_has_the_shared_arguments_and_those_of_tensorflow_horovods() -> None:
    import paceline.tensorflow as hvd
    from paceline.horovod.shims.unmodified import original
    from paceline.tensorflow.horovod import horovod_tensorflow

    for name, own in (("DistributedOptimizer", []), ("DistributedGradientTape", ["name"])):
        parameters = inspect.signature(getattr(hvd, name)).parameters
        horovods = inspect.signature(original(getattr(horovod_tensorflow, name))).parameters
        assert list(parameters) == [*horovods, *own, *SHARED, "weight"]
        for word, one in horovods.items():
            assert parameters[word].default == one.default, word
    # The wrappers of torch and keras have them.
    import paceline.keras
    import paceline.torch

    for module in (paceline.torch, paceline.keras):
        wrapper = module.DistributedOptimizer
        assert set(SHARED) <= set(inspect.signature(wrapper).parameters)
        assert "hvd.Pipelined" in (wrapper.__doc__ or "")


def test_what_arguments_ask_for_and_that_a_codec_beside_a_compression_is_refused() -> None:
    found = asked("optimal", "pipelined", "q8", False, None)
    assert found.fusion == "optimal" and isinstance(found.exchange, Pipelined)
    assert (found.choice.codec, found.choice.error_feedback, found.choice.own_codec) == ("q8", False, True)
    nothing = asked(*NONE_GIVEN)
    assert nothing.fusion is None and nothing.exchange == Sync() and not nothing.choice.own_codec
    # A codec in addition to a compression is refused.
    none, other = object(), object()
    found = asked(None, None, "q8", None, None)
    found.check(none, none)
    with pytest.raises(UsageError, match="codec=q8"):
        found.check(other, none)


def test_flush_refuses_arguments_that_it_does_not_use() -> None:
    horovod = SimpleNamespace(Average=0, global_process_set=None, rank=lambda: 2)
    *_, flush = calls(horovod, lambda *args, **_: args)
    assert flush(None, "sums", quorum=3, missed="latest", max_lag=1, seed=5)[2] == Partial(3, "latest", 1, seed=5)
    for wrong in ({"sync_every": 3}, {"quorum": 3, "mean": "contributed"}, {"op_": 1}):
        with pytest.raises(UsageError, match=rf"Rank 2: flush_partial of 'sums' .* {[*wrong][-1]}, .*\nGive only"):
            flush(None, "sums", **wrong)


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "new" / "model.in_flight.npz"
    half = np.arange(6, dtype=np.float16).reshape(2, 3)
    state = {"k": 3, "warm": 0, "in_flight": [({0: half, 7: np.full((), 2.5)}, 0.5)], "staleness": None}
    save_in_flight(path, state)
    found = load_in_flight(path)
    assert found is not None and list(found) == list(state)
    assert (found["k"], found["warm"], found["staleness"]) == (3, 0, None)
    ((results, scale),) = found["in_flight"]
    assert scale == 0.5 and list(results) == [0, 7]
    assert results[0].dtype == np.float16 and results[7].shape == () and results[7] == 2.5
    np.testing.assert_array_equal(results[0], half)
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    save_in_flight(path, None)
    assert load_in_flight(path) is None


def test_other_files_are_distinguished(tmp_path: Path) -> None:
    path = tmp_path / "other.npz"
    with pytest.raises(FileNotFoundError):
        load_in_flight(path)
    np.savez(path, weights=np.ones(3))
    with pytest.raises(UserError, match="Expected gradients in flight"):
        load_in_flight(path)
    for content in (b"", b"no archive", path.read_bytes()[:40]):
        path.write_bytes(content)
        with pytest.raises(UserError, match="InFlightCheckpoint"):
            load_in_flight(path)
    with path.open("wb") as file:
        np.save(file, np.ones(3))
    with pytest.raises(UserError, match="Expected gradients in flight"):
        load_in_flight(path)


def test_difference_is_what_was_added() -> None:
    earlier = ExchangeStats(1, 10, 8, 2, 2, 1, (8, 1, 1, 0))
    now = ExchangeStats(2, 25, 20, 5, 4, 3, (20, 4, 1, 0))
    added = now.since(earlier)
    assert added == ExchangeStats(2, 15, 12, 3, 2, 2, (12, 3, 0, 0))
    assert added.in_time == 0.8 and added.most_late == 1 and now.most_late == 2
    assert str(added) == "15 rounds of 2 tensors: in time 80.0%, carried over 2, missed 2, at most 1 rounds late"
    nothing = ExchangeStats(0, 0, 0, 0, 0, 0, (0, 0))
    assert nothing.in_time == 1 and nothing.most_late == 0
    assert str(nothing) == "no tensor is exchanged partially"
