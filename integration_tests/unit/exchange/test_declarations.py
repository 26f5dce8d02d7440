"""Exchanges are declared once: names, options, agreement and texts follow from the declarations."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from paceline import config
from paceline.arguments import exchange_asked
from paceline.errors import UsageError, UserError
from paceline.exchange.declaration import ExchangeSettings
from paceline.exchange.sync_settings import Sync
from paceline.local.settings import Local
from paceline.partial.settings import Partial
from paceline.pipelined.settings import Pipelined
from paceline.registry.agreement import FIELDS, agreement, differing
from paceline.registry.exchanges import DECLARATIONS, NAMES, SETTINGS, declaration_of, described, lists_exchanges


@pytest.mark.parametrize("name", NAMES)
def test_every_name_stands_for_settings_of_its_own_exchange(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    chosen = exchange_asked(name)
    monkeypatch.setenv("PACELINE_EXCHANGE", name)
    assert exchange_asked(None) == chosen
    assert name in declaration_of(chosen).names
    assert type(chosen) is declaration_of(chosen).settings
    assert SETTINGS[type(chosen).__name__] is type(chosen)


def test_one_is_the_synchronous_exchange() -> None:
    assert exchange_asked(Pipelined(k=1)) == exchange_asked("sync") == Sync()
    assert declaration_of(Pipelined(k=1)) is declaration_of(Sync())
    assert agreement(Pipelined(k=1, warmup_steps=3), 4) == agreement(Sync(), 4)


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


def test_what_ranks_differ_in_is_told_by_its_name() -> None:
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


def test_states_say_whose_they_are() -> None:
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
