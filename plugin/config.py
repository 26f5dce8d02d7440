"""Every option of Paceline, declared once: those of exchanges with their exchange (paceline.registry.exchanges).

The command line's flags, the `PACELINE_*` variables, the help texts, the tables in docs/reference/options.md and the
checks all derive from `OPTIONS`. Values given by flag travel to the ranks as variables, so there is one place that
parses them: `read`. A name that is not declared here is refused, with the nearest that is.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline import debug_values, renamed, variables
from paceline import option as of
from paceline.codecs.choice import EXACT
from paceline.common_settings import Setting
from paceline.errors import UserError
from paceline.exchange.declaration import ExchangeSettings
from paceline.option import PREFIX as PREFIX
from paceline.option import Option as Option
from paceline.option import as_text as as_text
from paceline.option import nearest as nearest
from paceline.option import whether_given
from paceline.registry.codecs import CODECS, Codec
from paceline.registry.collectives import AUTO, COLLECTIVES, HOROVODS, OF_CODECS
from paceline.registry.exchanges import NAMES, named, options_of_exchanges, summary
from paceline.registry.policies import BUILT_IN, EXCLUDING, OPTIMAL, THRESHOLD

EXCHANGES = NAMES
DEFAULT = "default"
# In the order of Numerics::Mode (bridge/numerics/numerics.h).
CHECKS = ("no", "log", "raise")
# How much a rank counts.
NONE, SAMPLES = "none", "samples"


def _cache_home() -> Path:
    """`paceline` in the user's cache folder."""
    try:
        home = Path.home()
    except RuntimeError:  # a user whom the system does not know, as in containers
        home = Path(tempfile.gettempdir()) / f"paceline-{os.getuid()}"
    return Path(variables.environ().get("XDG_CACHE_HOME") or home / ".cache") / "paceline"


def _listed(known: Mapping[str, tuple[int, str] | Codec]) -> str:
    return ", ".join(f"{name} ({declared[1]})" for name, declared in known.items())


# Scopes: "run" options act in the ranks and are flags of `paceline run`; "horovod" options act when Horovod is built.
OPTIONS: tuple[Option, ...] = (
    Option(
        "record", of.path, "path", "", None,
        "write a trace of every step (arrivals of tensors, times of collectives) to this file, one per rank", "run",
        shared=whether_given,  # recorded gradients do not travel in buckets
    ),
    Option(
        "metrics", of.path, "path", "", None,
        "write numbers of each rank every few seconds into this folder, a file per rank that Prometheus reads "
        "(docs/guides/logging.md)", "run", shared=None,
    ),
    Option(
        "progress", of.boolean, "yes or no", "", True,
        "under `paceline run`, show which hosts are up, and say when the first step is done; other launchers let the "
        "ranks say so themselves where it is set", "run", shared=None,
    ),
    Option(
        "fusion", of.text, "policy", "", THRESHOLD,
        f"how gradients are merged into messages: {', '.join(BUILT_IN)} ({THRESHOLD} is Horovod's own; {OPTIMAL} also "
        "switches on armed steps, coordination by events and buckets), or a policy of your own"
        " (docs/methods/fusion.md); `paceline run` plans where nothing else is asked for", "run",
    ),
    Option(
        "exchange", of.one_of(NAMES), "exchange", "", NAMES[0],
        f"when gradients are used, and whose: {summary()}", "run",
    ),
    *options_of_exchanges(),
    Option(
        "drain_limit_s", of.positive, "whole number", "s", 600,
        "how long a rank that drains or ends waits for ranks that train on, of which nothing is heard", "run",
    ),
    Option(
        "collective", of.one_of(COLLECTIVES), "collective", "", HOROVODS,
        f"how messages move between ranks, those in CPU memory: {_listed(COLLECTIVES)} "
        "(docs/methods/collectives.md)", "run",
    ),
    Option(
        "network_file", of.path, "path", "", None,
        "predict with the network in this file, which `paceline probe` wrote, the same on all ranks, where the "
        f"collective is {AUTO} (docs/methods/collectives.md)", "run",
        shared=whether_given,  # contents: collectives/probed.py
    ),
    Option(
        "codec", of.one_of(CODECS), "codec", "", EXACT,
        f"how floating-point values of allreduces travel in our own collectives: {_listed(CODECS)} "
        f"(docs/methods/codecs.md); without a collective of our own messages go by {OF_CODECS}", "run",
    ),
    Option(
        "reproducible", of.boolean, "yes or no", "", False,
        "add up in the order of ranks, so that every run gives the same bits; refuse what cannot "
        "(docs/guides/reproducible.md)", "run",
    ),
    Option(
        "check_numerics", of.one_of(CHECKS), "word", "", CHECKS[0],
        "look for NaN and infinities in gradients before ranks are added up: log reports rank, tensor and step, once "
        "for each tensor, raise ends the step with that error (docs/guides/logging.md)", "run",
    ),
    Option(
        "weight", of.one_of((NONE, SAMPLES)), "word", "", NONE,
        f"how much the gradients of a rank count in Model.fit of Keras: {NONE} (all ranks alike) or {SAMPLES} (as many "
        "as its batch has); other scripts give weights themselves (docs/guides/weights.md)", "run",
    ),
    Option(
        debug_values.NAME, debug_values.parse, "name=value,...", "", None,
        "values for tests and support (docs/reference/options.md)", "run", shared=None,
    ),
    Option(
        "cache_dir", of.path, "path", "", _cache_home,
        "where Horovod's archive and the wheels built from it are kept", "horovod", shared=None,
    ),
)  # fmt: skip

_BY_NAME = {option.name: option for option in OPTIONS}


class Settings:
    """Parsed values by the names of options and debug values; `settings.origin(name)`: where an option's came from."""

    def __init__(self, values: Mapping[str, Any], origins: Mapping[str, str] | None = None) -> None:
        self._values = dict(values)
        self._origins = dict(origins or {})

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            raise AttributeError(name) from None

    def origin(self, name: str) -> str:
        """The flag or the variable that gave the option its value, or "default"."""
        return self._origins.get(name, DEFAULT)

    def given(self) -> list[str]:
        """The names of the options that a flag or a variable set, in the order of declaration."""
        return [option.name for option in OPTIONS if option.name in self._origins]

    def shared(self) -> list[Setting]:
        """The options that must be equal on all ranks and are not at their defaults: variable, value and default."""
        values = self._values
        compared = [
            (one.variable, one.shared(values[one.name]), one.shared(one.default_among(values)))
            for one in OPTIONS
            if one.shared is not None
        ]
        compared.append((_BY_NAME[debug_values.NAME].variable, debug_values.shared(values), ""))
        return [one for one in compared if one[1] != one[2]]

    def without_effect(self) -> list[str]:
        """A sentence for each option that was given in vain: it says more about what another one did not ask for."""
        return [
            f"{option.variable}={as_text(getattr(self, name))} has no effect: {_belonging(option, self)}."
            for name in self.given()
            for option in [_BY_NAME[name]]
            if option.needs is not None and not self._asks_for(*option.needs)
            if getattr(self, name) and not (option.is_switch and option.default)  # what is 0 or off asks for nothing
        ]

    def _asks_for(self, name: str, values: tuple[str, ...]) -> bool:
        return getattr(self, name) in values if values else name in self.given()


def _belonging(option: Option, settings: Settings) -> str:
    """What the option needs, and what it found."""
    assert option.needs is not None
    other, values = _BY_NAME[option.needs[0]], option.needs[1]
    if not values:
        return f"it belongs to {other.variable} ({other.flag}), which was not given"
    return (
        f"it belongs to {other.variable}={' or '.join(values)} ({other.flag}), and that is "
        f"{as_text(getattr(settings, other.name))}"
    )


def parse(option: Option, text: str, given_as: str) -> Any:
    """The value of `text`; raises UserError that names `given_as` (a variable or flag) and shows the value."""
    try:
        return option.parse(text)
    except ValueError as error:
        unit = f" ({option.unit})" if option.unit else ""
        raise UserError(
            f"{given_as}={text!r} cannot be used: it {error}{unit}.",
            renamed.value(option.name, text)
            or f"{option.variable}: {option.meaning}. Correct the value or leave it out.",
        ) from None


def read(environ: Mapping[str, str] | None = None, flags: Mapping[str, str] | None = None) -> Settings:
    """All options: from `flags` (text by option name) first, then from the environment (os.environ unless given),
    then the defaults.

    An empty variable is one that is not set. Raises UserError for a PACELINE_ name that no option declares and for a
    value that does not parse, in a variable also where a flag would override it.
    """
    environ = variables.environ() if environ is None else environ
    known = {option.variable: option for option in OPTIONS}
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name in sorted(environ):
        if not name.startswith(PREFIX):
            continue
        if name not in known:
            raise UserError(
                f"The environment variable {name} is not an option of Paceline.",
                renamed.variable(name)
                or nearest(name, list(known)) + " `paceline doctor --options` lists all of them.",
            )
        option = known[name]
        if not environ[name]:  # as shells and job files leave it where nothing was given
            continue
        values[option.name], origins[option.name] = parse(option, environ[name], name), name
    for name, text in (flags or {}).items():
        option = _BY_NAME[name]
        value = parse(option, text, option.flag)
        values[name], origins[name] = value, option.flags[-1] if value is False else option.flag
    if "fusion" not in values and environ.get(variables.PLANS) and _nothing_against_plans(values, environ):
        values["fusion"] = OPTIMAL
    for option in OPTIONS:  # those that others go along with come first
        if option.name not in values:
            values[option.name] = option.default_among(values)
    return Settings({**debug_values.defaults(values), **(values[debug_values.NAME] or {}), **values}, origins)


def _nothing_against_plans(values: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    switches = (name for name in EXCLUDING if variables.switched_on(name, environ))
    return values.get("exchange", NAMES[0]) == NAMES[0] and not values.get("record") and not any(switches)


_current: Settings | None = None


def begin() -> Settings:
    """What variables say to a world of ranks that begins: `settings()` from here on. Raises UserError as `read`."""
    global _current
    _current = read()
    return _current


def settings() -> Settings:
    """The options of this process's ranks. Variables that change count from the next init() on."""
    return begin() if _current is None else _current


def exchange_of_variables() -> ExchangeSettings:
    """The exchange that the variables ask for. Raises UserError as `read`."""
    values = settings()
    return named(values.exchange).of_options(values.exchange, values)


def beside(policy: str | None, name: str) -> Any:
    """The debug value `name` where a script asks for a fusion policy; None: it leaves that to the variables.

    Raises UserError as `read`.
    """
    values = settings()
    if policy is None or name in (values.debug or {}):
        return getattr(values, name)
    return debug_values.defaults({"fusion": policy})[name]


def buckets_beside(policy: str | None) -> int:
    """The most bytes of a gradient that travels in a bucket; 0: none. `policy`: as in `beside`.

    0 where steps are recorded: each gradient of a trace is one that a plan may merge with others; and where gradients
    are checked, which errors are to name.
    """
    values = settings()
    recorded = values.record and not values.record_buckets
    return 0 if recorded or values.check_numerics != CHECKS[0] else int(beside(policy, "bucket_bytes"))
