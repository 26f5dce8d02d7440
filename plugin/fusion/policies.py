"""Fusion policies: the built-in ones, and those that users register (resolve.py finds one by its name).

A policy is a function from gradients and the cost of a message to groups: a sequence of sequences of gradient names or
of indices in the sequence that it was given.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, overload

from paceline.errors import UserError
from paceline.fusion import fingerprint
from paceline.fusion.gradient import Gradient
from paceline.registry.policies import BUILT_IN, THRESHOLD

if TYPE_CHECKING:
    from paceline.core._core import CostModel

    PolicyFunction = Callable[[Sequence[Gradient], CostModel], Iterable[Iterable[str | int]]]
    F = TypeVar("F", bound=PolicyFunction)

ENTRY_POINTS = "paceline.fusion"
FILE = "file:"
PICKLE = "pickle:"
HOW_TO_REGISTER = (
    "Write your own as a function and name it with @paceline.fusion.register(...), as an entry point of group "
    f"{ENTRY_POINTS}, or as module:function; a plan that was written is {FILE}PLAN.json."
)

_registered: dict[str, PolicyFunction] = {}


@dataclass(frozen=True)
class Policy:
    """A resolved policy.

    Attributes:
        name: name for users.
        digest: number below 2**52, equal on ranks with the same policy and different otherwise.
        function: the function; None for built-in policies.
        keeps_order: groups and their members stay in the order in which the function returns them.
        text: text that identifies the policy in any other process; None if the function itself must be sent
            (serialize.to_text).
    """

    name: str
    digest: int
    function: PolicyFunction | None = None
    keeps_order: bool = False
    text: str | None = None

    @property
    def makes_plans(self) -> bool:
        """True if the policy makes plans; Horovod's own merging needs none."""
        return self.name != THRESHOLD or self.function is not None


def digest_of(identity: str) -> int:
    """Return a number below 2**52, which a double represents exactly; it differs for different texts."""
    return int.from_bytes(hashlib.sha256(identity.encode()).digest()[:8], "big") >> 12


@overload
def register(name: str) -> Callable[[F], F]: ...
@overload
def register(name: str, function: F) -> F: ...
def register(name: str, function: F | None = None) -> F | Callable[[F], F]:
    """Register a fusion policy, as a call or as a decorator.

        register("mine", function)
        @register("mine")

    Args:
        name: name for the option `fusion`, without spaces, commas and colons.
        function: returns groups for (gradients, cost of a message): sequences of gradient names, or of indices in the
            gradients. None: return a decorator.

    Raises:
        UserError: for a name that is built in, invalid, or registered for another function.
    """
    if function is None:
        return lambda decorated: register(name, decorated)
    if not name or any(character in name for character in ":, \t\n"):
        raise UserError(f"A fusion policy cannot be called {name!r}.", "Use letters, digits, dashes and underscores.")
    if name in BUILT_IN:
        raise UserError(f"The fusion policy {name} is built in.", "Register yours under another name.")
    if not callable(function):
        raise UserError(f"The fusion policy {name} is {function!r}, no function.", HOW_TO_REGISTER)
    known = _registered.get(name)
    if known is not None and _described(known) != _described(function):  # a notebook may run a cell repeatedly
        raise UserError(
            f"The fusion policy {name} is registered already: it is {_described(known)}.",
            f"Register {_described(function)} under another name.",
        )
    _registered[name] = function
    return function


def _described(function: PolicyFunction) -> str:
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{getattr(function, '__module__', '?')}:{name}"


def of_function(function: PolicyFunction, name: str | None = None) -> Policy:
    """Return a function as a policy, by default under its own name."""
    shown = name or getattr(function, "__name__", None) or type(function).__name__
    if shown in BUILT_IN:  # unique in tables
        shown = _described(function)
    return Policy(shown, digest_of(fingerprint.of(function)), function)


def known_names() -> list[str]:
    """Return the names of all policies: built in, registered, and of installed packages."""
    installed = [entry.name for entry in importlib.metadata.entry_points(group=ENTRY_POINTS)]
    return list(dict.fromkeys([*BUILT_IN, *_registered, *installed]))


def registered(name: str) -> PolicyFunction | None:
    """Return the function registered under this name, or None."""
    return _registered.get(name)
