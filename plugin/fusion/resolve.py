"""Resolution of fusion policies: by name, as `module:function`, from a file or a variable's text, or as a function."""

from __future__ import annotations

import importlib
import importlib.metadata
import operator
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.config import nearest
from paceline.errors import UserError
from paceline.fusion import plan_file, serialize
from paceline.fusion.policies import (
    ENTRY_POINTS,
    FILE,
    HOW_TO_REGISTER,
    PICKLE,
    Policy,
    digest_of,
    known_names,
    of_function,
    registered,
)
from paceline.registry.policies import BUILT_IN

if TYPE_CHECKING:
    from paceline.fusion.policies import PolicyFunction


def resolve(spec: str | PolicyFunction | Policy) -> Policy:
    """Return the policy of `spec`.

    `spec` is a built-in, registered or entry point's name, `module:function`, `file:PLAN.json` from `paceline plan
    --output`, text from serialize.to_text, a function, or a Policy. Raises UserError that names the nearest known
    policy, or the reason that the named one cannot be used.
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
        return serialize.from_text(spec)
    if spec.startswith(FILE):
        return plan_file.policy(Path(spec.removeprefix(FILE)))
    function = registered(spec)
    if function is not None:
        return of_function(function, spec)
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS, name=spec):
        return of_function(_loaded(entry), spec)
    if ":" in spec:
        return of_function(_named(spec), spec)
    raise UserError(f"There is no fusion policy {spec!r}.", f"{nearest(spec, known_names())} {HOW_TO_REGISTER}")


def for_ranks(spec: str) -> str:
    """Return a replacement of `spec` for ranks on any host: `module:function` and `file:PLAN.json` by their value.

    Names pass unchanged, known here or not, because the script may register them. Raises UserError if the function or
    the plan cannot be used or sent.
    """
    return serialize.to_text(resolve(spec)) if ":" in spec else spec


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
    """Allow imports from the current folder, with the lowest priority."""
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
