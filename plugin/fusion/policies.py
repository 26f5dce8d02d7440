"""Fusion policies: the built-in ones, those that users register, and the ways to name one.

A policy is a function from gradients and the cost of a message to groups: a sequence of sequences of gradient names or
of indices in the sequence it was given. `resolve` turns a name, a function, or text from a variable into a `Policy`.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, overload

from paceline.config import nearest
from paceline.errors import UserError
from paceline.fusion import fingerprint
from paceline.fusion.gradient import Gradient

if TYPE_CHECKING:
    from paceline.core._core import CostModel

    PolicyFunction = Callable[[Sequence[Gradient], CostModel], Iterable[Iterable[str | int]]]
    F = TypeVar("F", bound=PolicyFunction)

THRESHOLD = "threshold"
# Name -> what it does, for messages and documents.
BUILT_IN: dict[str, str] = {
    THRESHOLD: "Horovod's own merging of what happens to be ready",
    "none": "every tensor alone",
    "single": "all tensors in one message",
    "mgwfbp": "the greedy rule of MG-WFBP",
    "optimal": "the plan that ends first, by dynamic programming",
}
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
    """A policy that was found.

    `digest` is below 2**52, equal on ranks that ask for the same policy and different otherwise. Built-in policies have
    no `function`. `keeps_order`: groups and their members stay in the order in which the function gives them. `text`
    names the policy to any other process; None where the function itself must travel (serialize.to_text).
    """

    name: str
    digest: int
    function: PolicyFunction | None = None
    keeps_order: bool = False
    text: str | None = None

    @property
    def makes_plans(self) -> bool:
        """Whether plans are made at all: Horovod's own merging needs none."""
        return self.name != THRESHOLD or self.function is not None


def digest_of(identity: str) -> int:
    """A number below 2**52, so that a double can carry it, which differs for different texts."""
    return int.from_bytes(hashlib.sha256(identity.encode()).digest()[:8], "big") >> 12


@overload
def register(name: str) -> Callable[[F], F]: ...
@overload
def register(name: str, function: F) -> F: ...
def register(name: str, function: F | None = None) -> F | Callable[[F], F]:
    """Make a policy known as `name`: `register("mine", function)`, or `@register("mine")` above the function.

    Raises UserError for a name that is built in, cannot be a name, or belongs to another function already.
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
    if known is not None and _described(known) != _described(function):  # a notebook runs its cells again
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
    """A function as a policy, by default under its own name."""
    shown = name or getattr(function, "__name__", None) or type(function).__name__
    if shown in BUILT_IN:  # tables tell them apart
        shown = _described(function)
    return Policy(shown, digest_of(fingerprint.of(function)), function)


def resolve(spec: str | PolicyFunction | Policy) -> Policy:
    """The policy that `spec` asks for: a built-in, registered or entry point's name, `module:function`,
    `file:PLAN.json` from `paceline plan --output`, text from serialize.to_text, a function, or a Policy.

    Raises UserError that names the nearest known policy, or says why the named one cannot be used.
    """
    if isinstance(spec, Policy):
        return spec
    if not isinstance(spec, str):
        if not callable(spec):
            raise UserError(f"A fusion policy cannot be {spec!r}.", _known_names() + " " + HOW_TO_REGISTER)
        return of_function(spec)
    spec = spec.strip()
    if spec in BUILT_IN:
        return Policy(spec, digest_of(f"built in:{spec}"), text=spec)
    if spec.startswith(PICKLE):
        from paceline.fusion import serialize

        return serialize.from_text(spec)
    if spec.startswith(FILE):
        from paceline.fusion import plan_file

        return plan_file.policy(Path(spec.removeprefix(FILE)))
    if spec in _registered:
        return of_function(_registered[spec], spec)
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS, name=spec):
        return of_function(_loaded(entry), spec)
    if ":" in spec:
        return of_function(_named(spec), spec)
    raise UserError(f"There is no fusion policy {spec!r}.", f"{nearest(spec, known_names())} {HOW_TO_REGISTER}")


def known_names() -> list[str]:
    """The names of all policies that can be asked for by name: built in, registered, and of installed packages."""
    installed = [entry.name for entry in importlib.metadata.entry_points(group=ENTRY_POINTS)]
    return list(dict.fromkeys([*BUILT_IN, *_registered, *installed]))


def _known_names() -> str:
    return f"Known: {', '.join(known_names())}."


def _loaded(entry: importlib.metadata.EntryPoint) -> PolicyFunction:
    package = f" of {entry.dist.name}" if entry.dist else ""
    try:
        found = entry.load()
    except Exception as error:  # a package's import runs its code
        raise UserError(
            f"The fusion policy {entry.name}{package} cannot be loaded from {entry.value}: "
            f"{type(error).__name__}: {error}.",
            "Repair or remove that package, or choose another policy. " + _known_names(),
        ) from error
    return _callable(found, f"{entry.name}{package} ({entry.value})")


def _named(spec: str) -> PolicyFunction:
    module_name, _, attribute = spec.partition(":")
    remedy = "Name it as module:function, with the module in the present folder, on PYTHONPATH or installed."
    try:
        with _present_folder():
            module = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's module raises
        raise UserError(
            f"The fusion policy {spec} cannot be loaded: importing {module_name!r} raises "
            f"{type(error).__name__}: {error}.",
            remedy,
        ) from error
    try:
        found = operator.attrgetter(attribute)(module)
    except AttributeError:
        present = [name for name, held in vars(module).items() if callable(held) and not name.startswith("_")]
        raise UserError(
            f"The fusion policy {spec} cannot be loaded: {module_name} has no {attribute!r}.",
            f"{nearest(attribute, present, '')} {remedy}".strip(),
        ) from None
    return _callable(found, spec)


def _callable(found: object, spec: str) -> PolicyFunction:
    if not callable(found):
        raise UserError(f"The fusion policy {spec} is {found!r}, no function.", HOW_TO_REGISTER)
    return found


@contextmanager
def _present_folder() -> Iterator[None]:
    """Let modules be found in the present folder, last, as they are for `python script.py` there."""
    folder = str(Path.cwd())
    if folder in sys.path or "" in sys.path:
        yield
        return
    sys.path.append(folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
