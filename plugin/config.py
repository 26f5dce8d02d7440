"""Declarations of all options; those of exchanges are declared with their exchange (paceline.registry.exchanges).

The command line's flags, the `PACELINE_*` variables, the help texts, the tables in docs/reference/options.md and the
checks all derive from `OPTIONS`. Values given by flag reach the ranks as variables, so `read` alone parses them. A name
that is not declared here is refused, with the nearest declared name.
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
# Weights of ranks.
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
        "write a trace of every step (submission of tensors, times of collectives) to this file, one per rank", "run",
        shared=whether_given,  # recorded gradients are not put into buckets
    ),
    Option(
        "metrics", of.path, "path", "", None,
        "every few seconds each rank writes its metrics to a file in this folder, in the format of Prometheus "
        "(docs/guides/logging.md)", "run", shared=None,
    ),
    Option(
        "history", of.path, "path", "", None,
        "each rank writes checksums of all gradients that it submits and receives to a file in this folder, which "
        "`paceline doctor --history` checks (docs/guides/history.md)", "run", shared=whether_given,
    ),
    Option(
        "progress", of.boolean, "yes or no", "", True,
        "`paceline run` shows which hosts are up and reports the first step; under another launcher the ranks report "
        "them themselves if this is set", "run", shared=None,
    ),
    Option(
        "fusion", of.text, "policy", "", THRESHOLD,
        f"policy that merges gradients into messages: {', '.join(BUILT_IN)}, or your own. {THRESHOLD} is Horovod's "
        f"policy; {OPTIMAL} includes armed steps, coordination by events and buckets, and is the default of "
        "`paceline run` (docs/methods/fusion.md)", "run",
    ),
    Option(
        "exchange", of.one_of(NAMES), "exchange", "", NAMES[0],
        f"which gradients an update uses, and when: {summary()}", "run",
    ),
    *options_of_exchanges(),
    Option(
        "drain_limit_s", of.positive, "whole number", "s", 600,
        "time limit of a rank that drains or ends, for a rank that still trains and sends nothing", "run",
    ),
    Option(
        "collective", of.one_of(COLLECTIVES), "collective", "", HOROVODS,
        f"algorithm of collectives in CPU memory: {_listed(COLLECTIVES)} (docs/methods/collectives.md)", "run",
    ),
    Option(
        "network_file", of.path, "path", "", None,
        f"with collective {AUTO}: predict with the network that `paceline probe` wrote to this file; the file must be "
        "equal on all ranks (docs/methods/collectives.md)", "run",
        shared=whether_given,  # contents: collectives/probed.py
    ),
    Option(
        "codec", of.one_of(CODECS), "codec", "", EXACT,
        f"format of floating-point values in Paceline's collectives: {_listed(CODECS)} (docs/methods/codecs.md); a "
        f"codec without a collective selects {OF_CODECS}", "run",
    ),
    Option(
        "reproducible", of.boolean, "yes or no", "", False,
        "add in the order of ranks, so that every run gives the same bits, and refuse settings that cannot "
        "(docs/guides/reproducible.md)", "run",
    ),
    Option(
        "check_numerics", of.one_of(CHECKS), "word", "", CHECKS[0],
        "find NaN and infinity in gradients before they are added: log reports rank, tensor and step once per tensor, "
        "raise ends the step with that error (docs/guides/logging.md)", "run",
    ),
    Option(
        "weight", of.one_of((NONE, SAMPLES)), "word", "", NONE,
        f"weight of a rank's gradients in Model.fit of Keras: {NONE} (equal) or {SAMPLES} (size of its batch); other "
        "scripts pass weights as arguments (docs/guides/weights.md)", "run",
    ),
    Option(
        debug_values.NAME, debug_values.parse, "name=value,...", "", None,
        "values for tests and support (docs/reference/options.md)", "run", shared=None,
    ),
    Option(
        "cache_dir", of.path, "path", "", _cache_home,
        "folder of Horovod's archive and of the wheels built from it", "horovod", shared=None,
    ),
)  # fmt: skip

_BY_NAME = {option.name: option for option in OPTIONS}


class Settings:
    """Parsed values by the names of options and debug values; `settings.origin(name)` is the source of a value."""

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
        """Return (variable, value, default) of options that must be equal on all ranks and are not at the default."""
        values = self._values
        compared = [
            (one.variable, one.shared(values[one.name]), one.shared(one.default_among(values)))
            for one in OPTIONS
            if one.shared is not None
        ]
        compared.append((_BY_NAME[debug_values.NAME].variable, debug_values.shared(values), ""))
        return [one for one in compared if one[1] != one[2]]

    def without_effect(self) -> list[str]:
        """Return a sentence for each given option that has no effect because of another option's value."""
        return [
            f"{option.variable}={as_text(getattr(self, name))} has no effect: {_belonging(option, self)}."
            for name in self.given()
            for option in [_BY_NAME[name]]
            if option.needs is not None and not self._asks_for(*option.needs)
            if getattr(self, name) and not (option.is_switch and option.default)  # 0 and off ask for nothing
        ]

    def _asks_for(self, name: str, values: tuple[str, ...]) -> bool:
        return getattr(self, name) in values if values else name in self.given()


def _belonging(option: Option, settings: Settings) -> str:
    """Describe the option that `option` needs, and its actual value."""
    assert option.needs is not None
    other, values = _BY_NAME[option.needs[0]], option.needs[1]
    if not values:
        return f"it belongs to {other.variable} ({other.flag}), which was not given"
    return (
        f"it belongs to {other.variable}={' or '.join(values)} ({other.flag}), and that is "
        f"{as_text(getattr(settings, other.name))}"
    )


def parse(option: Option, text: str, given_as: str) -> Any:
    """Return the value of `text`. Raises UserError that names `given_as` (a variable or flag) and shows the value."""
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
    """Read all options from `flags` (text by option name), then `environ` (os.environ if None), then the defaults.

    An empty variable counts as unset. Raises UserError for a PACELINE_ name that no option declares and for a value
    that does not parse, even in a variable that a flag overrides.
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
        if not environ[name]:  # shells and job files export an empty value for an unset one
            continue
        values[option.name], origins[option.name] = parse(option, environ[name], name), name
    for name, text in (flags or {}).items():
        option = _BY_NAME[name]
        value = parse(option, text, option.flag)
        values[name], origins[name] = value, option.flags[-1] if value is False else option.flag
    if "fusion" not in values and environ.get(variables.PLANS) and _nothing_against_plans(values, environ):
        values["fusion"] = OPTIMAL
    for option in OPTIONS:  # an option precedes those whose default depends on it (Option.along)
        if option.name not in values:
            values[option.name] = option.default_among(values)
    return Settings({**debug_values.defaults(values), **(values[debug_values.NAME] or {}), **values}, origins)


def _nothing_against_plans(values: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    switches = (name for name in EXCLUDING if variables.switched_on(name, environ))
    return values.get("exchange", NAMES[0]) == NAMES[0] and not values.get("record") and not any(switches)


_current: Settings | None = None


def begin() -> Settings:
    """Read the variables for a new world of ranks; `settings()` returns the result. Raises UserError as `read`."""
    global _current
    _current = read()
    return _current


def settings() -> Settings:
    """Return the options of this process's ranks. Changed variables take effect at the next init()."""
    return begin() if _current is None else _current


def exchange_of_variables() -> ExchangeSettings:
    """Return the exchange settings of the variables. Raises UserError as `read`."""
    values = settings()
    return named(values.exchange).of_options(values.exchange, values)


def beside(policy: str | None, name: str) -> Any:
    """Return the debug value `name` if a script asks for a fusion `policy`; None: the variables decide.

    Raises UserError as `read`.
    """
    values = settings()
    if policy is None or name in (values.debug or {}):
        return getattr(values, name)
    return debug_values.defaults({"fusion": policy})[name]


def buckets_beside(policy: str | None) -> int:
    """Return the size limit in bytes of gradients in buckets; 0 disables buckets. `policy`: as in `beside`.

    Buckets are off while steps are recorded, because a plan may merge any gradient of a trace with any other, and while
    gradients are checked, because errors name the gradient.
    """
    values = settings()
    recorded = values.record and not values.record_buckets
    return 0 if recorded or values.check_numerics != CHECKS[0] else int(beside(policy, "bucket_bytes"))
