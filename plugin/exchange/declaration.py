"""Declaration of an exchange, from which options, checks, agreement and texts follow.

Each exchange has its declaration in its own package; `paceline.registry.exchanges` lists them.
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
    """Return True if `value` is an integer from `low` to `high`."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


class ExchangeSettings:
    """Settings of one exchange; subclasses are frozen dataclasses whose fields are made by `setting`."""

    # Value under "k" in a saved state, which identifies the exchange.
    tag: ClassVar[Any]
    # True if an update waits for all ranks, in this step or a later one, so that none runs ahead.
    ranks_meet: ClassVar[bool] = True
    # True if the saved state differs between ranks: every rank saves and loads its own.
    states_differ: ClassVar[bool] = False
    # True if each rank updates with its own gradients, and models are averaged.
    averages_models: ClassVar[bool] = False
    # True if gradients leave their rank.
    exchanges_gradients: ClassVar[bool] = True
    # True if results wait in Horovod's library, in the type that was sent, which must be one of NumPy's.
    results_wait: ClassVar[bool] = False
    # True if updates use the gradients of their own step, of all ranks.
    in_step: ClassVar[bool] = False
    # True if only one rank gets the mean gradient of a parameter, updates it and keeps the optimizer's state.
    sharded: ClassVar[bool] = False
    # True if results do not depend on which ranks arrive in time.
    reproducible: ClassVar[bool] = True
    # True if every contribution has a weight, which is 1 unless the script sets it.
    weighs: bool = False

    def __new__(cls, *_: Any, **given: Any) -> ExchangeSettings:
        """Raise UsageError for a keyword argument of Paceline 0.1 that has been renamed."""
        renamed.refuse_keywords(cls.__name__, given)
        return super().__new__(cls)

    def _require(self, *rules: tuple[str, bool, str]) -> None:
        """Raise UserError for the first invalid field. A rule has the field's name, its validity, and the remedy."""
        for name, right, remedy in rules:
            if not right:
                raise UserError(f"{type(self).__name__}({name}={getattr(self, name)!r}) cannot be used.", remedy)

    def check_environment(self) -> None:
        """Raise UserError if a variable of Horovod's conflicts with this exchange."""

    @property
    def synchronous(self) -> bool:
        """True if updates use all ranks' gradients of their own step, as with plain Horovod."""
        return False

    @property
    def expected(self) -> str:
        """Description, for errors, of the in-flight gradients that a saved state may have."""
        return "no gradients in flight"

    @property
    def needs_optimizer(self) -> tuple[str, str] | None:
        """Problem and remedy for use without an optimizer, as in tapes; None if tapes can use it."""
        return None


@dataclass(frozen=True)
class Setting:
    """One field of an ExchangeSettings.

    Attributes:
        parse, kind, unit, meaning: as in `Option`.
        option: name of the option that sets the field; "" if there is none.
        agreed: name in errors if ranks must have equal values, else "".
        number: function of (settings, ranks) that returns the value as an integer; by default int(value).
        otherwise: function of the number of ranks that returns this number for ranks with another exchange.
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
    """Return a field of an ExchangeSettings with this default; `words` are the fields of Setting."""
    return dataclasses.field(default=default, metadata={"setting": Setting(**words)})


def sync_every(default: int) -> Any:
    """Return the field of exchanges whose models diverge: updates between two averages over all ranks."""
    return setting(
        default, option="sync_every", parse=option.count, kind="whole number", unit="updates",
        meaning="number of updates after which models that diverge (local, majority, solo) are averaged; 0 disables it",
        agreed="sync_every",
    )  # fmt: skip


@dataclass(frozen=True)
class Declaration:
    """One exchange.

    Attributes:
        settings: class that users construct.
        short: names and their meanings in a few words, for the option.
        text: a sentence on the gradients of an update, for docstrings.
        in_flight: function that describes the in-flight gradients of a saved state with this tag; "" for other tags.
        names: names for users -> fields that each name sets; by default only `word`.
        page: its page in docs/methods/; by default `word`.md.
        implementation: its class (paceline.exchange.base) as "module:name", which readers of options need not import;
            by default derived from `word`.
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
        """Name of the exchange in lower case, which makes the names of its operations unique."""
        return self.settings.__name__.lower()

    @property
    def example(self) -> str:
        """Example of a call of the class."""
        first = [f"{name}={default!r}, ..." for name, default, _ in self.fields()][:1]
        return f"hvd.{self.settings.__name__}({', '.join(first)})"

    def fields(self) -> list[tuple[str, Any, Setting]]:
        """Return name, default and declaration of every setting."""
        return [
            (field.name, field.default, field.metadata["setting"])
            for field in dataclasses.fields(self.settings)  # type: ignore[arg-type]
        ]

    def options(self) -> list[Option]:
        """Return the options of the settings."""
        return [
            Option(
                one.option, one.parse, one.kind, one.unit, default, one.meaning, "run", ("exchange", tuple(self.names))
            )
            for _, default, one in self.fields()
            if one.option and one.parse is not None
        ]

    def of_options(self, name: str, values: Any) -> ExchangeSettings:
        """Return the settings of `name` with the options' values in `values` (paceline.config.Settings)."""
        given = {field: getattr(values, one.option) for field, _, one in self.fields() if one.option}
        chosen = {field: value for field, value in given.items() if value is not None}
        return self.settings(**{**chosen, **self.names[name]})

    def agreed(self) -> list[tuple[str, str, Setting]]:
        """Return (field, name in errors, declaration) of the settings that must be equal on all ranks."""
        return [(name, one.agreed, one) for name, _, one in self.fields() if one.agreed]

    def listed(self) -> str:
        """Return the names and the text, as listed in docstrings of wrappers."""
        names = ", ".join(f'"{name}"' for name in self.names)
        return f"{names} or hvd.{self.settings.__name__}(...): {self.text} ({self.page})"
