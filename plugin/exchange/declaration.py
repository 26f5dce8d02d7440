"""How an exchange is declared: once, in its own room. Options, checks, agreement and texts follow from it.

`paceline.registry.exchanges` lists the declarations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from paceline.option import Option


class ExchangeSettings:
    """What a user chooses of one exchange; subclasses are frozen dataclasses whose fields are made by `setting`."""

    @property
    def tag(self) -> int:
        """What a saved state has under "k", which says whose it is."""
        raise NotImplementedError

    @property
    def synchronous(self) -> bool:
        """Whether gradients are used in the step they belong to, those of all ranks: as with plain Horovod."""
        return False

    @property
    def ranks_meet(self) -> bool:
        """Whether an update waits for all ranks, in this step or a later one, so that none runs ahead."""
        return True

    @property
    def states_differ(self) -> bool:
        """Whether what is saved of this exchange differs from rank to rank: every rank saves and loads its own."""
        return False

    @property
    def results_wait(self) -> bool:
        """Whether results wait in Horovod's library, as they travelled: in types that NumPy has."""
        return False

    @property
    def expected(self) -> str:
        """What saved states may have in flight, as errors say it."""
        return "no gradients in flight"

    @property
    def needs_optimizer(self) -> tuple[str, str] | None:
        """The problem and the remedy where gradients are exchanged without an optimizer, as tapes do; None: works."""
        return None


@dataclass(frozen=True)
class Setting:
    """One field of an ExchangeSettings.

    `option`: the option that gives it a value, "" if there is none; `parse`, `kind`, `unit` and `meaning` are the
    option's. `agreed`: what errors call it if ranks must have equal values, else "". `number(settings, ranks)` is the
    value in whole numbers, int(value) unless given; `otherwise(ranks)` that of ranks with another exchange.
    """

    parse: Callable[[str], Any] | None = None
    kind: str = ""
    unit: str = ""
    meaning: str = ""
    option: str = ""
    agreed: str = ""
    number: Callable[[Any, int], int] | None = None
    otherwise: Callable[[int], int] = lambda ranks: 0


def setting(default: Any, **words: Any) -> Any:
    """A field of an ExchangeSettings with this default; `words` are those of Setting."""
    return dataclasses.field(default=default, metadata={"setting": Setting(**words)})


@dataclass(frozen=True)
class Declaration:
    """One exchange. `names`: what users may call it, and the fields that each name stands for.

    `settings`: the class that users may give instead, for which `example` is one call. `short`: the names and what
    they mean in a few words, for the option; `text`: what becomes of gradients, a sentence for docstrings. `page`: in
    docs/. `implementation`: its class (paceline.exchange.base) as "module:name": who reads options need not load it.
    `in_flight(tag)`: what a saved state with this tag has in flight; "" for tags of other exchanges.
    """

    names: Mapping[str, Mapping[str, Any]]
    settings: type[ExchangeSettings]
    example: str
    short: str
    text: str
    page: str
    implementation: str
    in_flight: Callable[[int], str] = lambda tag: ""

    @property
    def word(self) -> str:
        """What stands in the names of its operations, so that none of another exchange has the same."""
        return self.settings.__name__.lower()

    def fields(self) -> list[tuple[str, Any, Setting]]:
        """Name, default and declaration of every setting."""
        return [
            (field.name, field.default, field.metadata["setting"])
            for field in dataclasses.fields(self.settings)  # type: ignore[arg-type]
        ]

    def options(self) -> list[Option]:
        """The options that settings have."""
        return [
            Option(one.option, one.parse, one.kind, one.unit, default, one.meaning, "run")
            for _, default, one in self.fields()
            if one.option and one.parse is not None
        ]

    def of_options(self, name: str, values: Any) -> ExchangeSettings:
        """The settings of `name`, with what `values` (paceline.config.Settings) has of the options."""
        given = {field: getattr(values, one.option) for field, _, one in self.fields() if one.option}
        return self.settings(**{**given, **self.names[name]})

    def agreed(self) -> list[tuple[str, str, Setting]]:
        """Field, word in errors and declaration of the settings that ranks must have equal values of."""
        return [(name, one.agreed, one) for name, _, one in self.fields() if one.agreed]

    def listed(self) -> str:
        """The names and what becomes of gradients, as docstrings of wrappers list it."""
        names = ", ".join(f'"{name}"' for name in self.names)
        return f"{names} or hvd.{self.settings.__name__}(...): {self.text} ({self.page})"
