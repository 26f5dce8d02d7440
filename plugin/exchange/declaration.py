"""How an exchange is declared: once, in its own room. Options, checks, agreement and texts follow from it.

`paceline.registry.exchanges` lists the declarations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from paceline import option, renamed
from paceline.errors import UserError
from paceline.option import Option


def whole(value: Any, low: int, high: float = float("inf")) -> bool:
    """Whether `value` is a whole number from `low` to `high`."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


class ExchangeSettings:
    """What a user chooses of one exchange; subclasses are frozen dataclasses whose fields are made by `setting`."""

    # What a saved state has under "k", which says whose it is.
    tag: ClassVar[Any]
    # Whether an update waits for all ranks, in this step or a later one, so that none runs ahead.
    ranks_meet: ClassVar[bool] = True
    # Whether what is saved of this exchange differs from rank to rank: every rank saves and loads its own.
    states_differ: ClassVar[bool] = False
    # Whether ranks make updates of their own, and models are averaged.
    averages_models: ClassVar[bool] = False
    # Whether gradients leave their rank.
    gradients_travel: ClassVar[bool] = True
    # Whether results wait in Horovod's library, as they travelled: in types that NumPy has.
    results_wait: ClassVar[bool] = False
    # Whether updates use the gradients of their own step, of all ranks.
    in_step: ClassVar[bool] = False
    # Whether one rank alone is given the mean of a parameter's gradients, updates it and keeps the optimizer's state.
    sharded: ClassVar[bool] = False
    # Whether results do not depend on which ranks come in time.
    reproducible: ClassVar[bool] = True
    # Whether every contribution has a weight, 1 where the script gives none.
    weighs: bool = False
    # Whether it is PyTorch's alone.
    torch_alone: ClassVar[bool] = False

    def __new__(cls, *_: Any, **given: Any) -> ExchangeSettings:
        """Raise UsageError for a keyword argument of Paceline 0.1 that has another name now."""
        renamed.refuse_keywords(cls.__name__, given)
        return super().__new__(cls)

    def _require(self, *rules: tuple[str, bool, str]) -> None:
        """Raise UserError for the first field that is not as it must be: its name, whether it is, and the remedy."""
        for name, right, remedy in rules:
            if not right:
                raise UserError(f"{type(self).__name__}({name}={getattr(self, name)!r}) cannot be used.", remedy)

    def check_environment(self) -> None:
        """Raise UserError where a variable of Horovod's asks for what this exchange cannot work with."""

    @property
    def synchronous(self) -> bool:
        """Whether gradients are used in the step they belong to, those of all ranks: as with plain Horovod."""
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


def sync_every(default: int) -> Any:
    """The field of exchanges under which models drift apart: how often all ranks average them."""
    return setting(
        default, option="sync_every", parse=option.count, kind="whole number", unit="updates",
        meaning="where models drift apart (local, majority, solo), average those of all ranks after this many updates; "
        "0: never", agreed="sync_every",
    )  # fmt: skip


@dataclass(frozen=True)
class Declaration:
    """One exchange.

    `settings`: the class that users may give; `word`: its name in small letters. `short`: the names and what they mean
    in a few words, for the option; `text`: what becomes of gradients, a sentence for docstrings. `in_flight(tag)`: what
    a saved state with this tag has in flight; "" for tags of other exchanges. Unless given follow from the word:
    `names`, what users may call it and the fields that each name stands for; `page`, in docs/methods/;
    `implementation`, its class (paceline.exchange.base) as "module:name": who reads options need not load it.
    """

    settings: type[ExchangeSettings]
    short: str
    text: str
    in_flight: Callable[[int], str] = lambda tag: ""
    names: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    page: str = ""
    implementation: str = ""

    def __post_init__(self) -> None:
        for name, value in (
            ("names", {self.word: {}}),
            ("page", f"docs/methods/{self.word}.md"),
            ("implementation", f"paceline.{self.word}.exchange:{self.settings.__name__}Exchange"),
        ):
            object.__setattr__(self, name, getattr(self, name) or value)

    @property
    def word(self) -> str:
        """What stands in the names of its operations, so that none of another exchange has the same."""
        return self.settings.__name__.lower()

    @property
    def example(self) -> str:
        """One call of the class."""
        first = [f"{name}={default!r}, ..." for name, default, _ in self.fields()][:1]
        return f"hvd.{self.settings.__name__}({', '.join(first)})"

    def fields(self) -> list[tuple[str, Any, Setting]]:
        """Name, default and declaration of every setting."""
        return [
            (field.name, field.default, field.metadata["setting"])
            for field in dataclasses.fields(self.settings)  # type: ignore[arg-type]
        ]

    def options(self) -> list[Option]:
        """The options that settings have."""
        return [
            Option(
                one.option, one.parse, one.kind, one.unit, default, one.meaning, "run", ("exchange", tuple(self.names))
            )
            for _, default, one in self.fields()
            if one.option and one.parse is not None
        ]

    def of_options(self, name: str, values: Any) -> ExchangeSettings:
        """The settings of `name`, with what `values` (paceline.config.Settings) has of the options."""
        given = {field: getattr(values, one.option) for field, _, one in self.fields() if one.option}
        chosen = {field: value for field, value in given.items() if value is not None}
        return self.settings(**{**chosen, **self.names[name]})

    def agreed(self) -> list[tuple[str, str, Setting]]:
        """Field, word in errors and declaration of the settings that ranks must have equal values of."""
        return [(name, one.agreed, one) for name, _, one in self.fields() if one.agreed]

    def listed(self) -> str:
        """The names and what becomes of gradients, as docstrings of wrappers list it."""
        names = ", ".join(f'"{name}"' for name in self.names)
        return f"{names} or hvd.{self.settings.__name__}(...): {self.text} ({self.page})"
