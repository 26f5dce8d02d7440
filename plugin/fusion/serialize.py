"""Policies as text, by value, which a launcher can send to ranks that lack the module or file of the function."""

from __future__ import annotations

import base64
import binascii
import inspect
import pickle
import sys
import zlib
from typing import TYPE_CHECKING, Any

from paceline.errors import UserError
from paceline.fusion.policies import ENTRY_POINTS, PICKLE, Policy

if TYPE_CHECKING:
    from paceline.fusion.policies import PolicyFunction

# Horovod's launcher writes all variables of a rank into one argument of a command line, at most 128 KiB on Linux.
MOST_TEXT_BYTES = 60_000
_PYTHON = sys.version_info[:2]
_ON_EVERY_HOST = f"install it on every host as an entry point of group {ENTRY_POINTS} and give its name."


def to_text(policy: Policy) -> str:
    """Return text from which `resolve` makes an equal policy in another process of the same Python version.

    Raises UserError if the function cannot be pickled or is too large.
    """
    if policy.text is not None:
        return policy.text
    assert policy.function is not None
    try:
        function = _by_value(policy.function)
    except Exception as error:  # pickling runs code of arbitrary objects
        raise UserError(
            f"The fusion policy {policy.name} cannot be sent to the ranks: {type(error).__name__}: {error}.",
            f"Use no locks, files or generators in it, or {_ON_EVERY_HOST}",
        ) from error
    payload = pickle.dumps((_PYTHON, policy.name, policy.digest, policy.keeps_order, function))
    text = PICKLE + base64.urlsafe_b64encode(zlib.compress(payload, 9)).decode()
    if len(text) > MOST_TEXT_BYTES:
        raise UserError(
            f"The fusion policy {policy.name} takes {len(text):,} bytes as text; {MOST_TEXT_BYTES:,} can be sent.",
            f"Keep data out of its globals, defaults and closure, or {_ON_EVERY_HOST}",
        )
    return text


def _by_value(function: PolicyFunction) -> bytes:
    import cloudpickle

    module = inspect.getmodule(function) or inspect.getmodule(type(function))
    name = None if module is None else module.__name__
    # Paceline's modules are installed on every rank, and __main__ is always pickled by value.
    foreign = module is not None and name != "__main__" and str(name).partition(".")[0] not in ("paceline", "builtins")
    lend = foreign and name not in cloudpickle.list_registry_pickle_by_value()
    if lend:
        cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(function))
    finally:
        if lend:
            cloudpickle.unregister_pickle_by_value(module)


def from_text(text: str) -> Policy:
    """Return the policy that `to_text` wrote. Raises UserError if it is damaged or of another Python version."""
    remedy = "Start the run again, with one version of Python and the same packages on all hosts."
    version: Any
    try:
        payload = zlib.decompress(base64.urlsafe_b64decode(text.removeprefix(PICKLE)))
        version, name, digest, keeps_order, function = pickle.loads(payload)
    except (binascii.Error, zlib.error, pickle.UnpicklingError, EOFError, ValueError, TypeError) as error:
        raise UserError(
            f"The text of a fusion policy ({len(text)} characters) is damaged: {type(error).__name__}: {error}.",
            remedy,
        ) from None
    if version != _PYTHON:
        there, here = (".".join(map(str, each)) for each in (version, _PYTHON))
        raise UserError(f"The fusion policy {name} was made by Python {there}, this rank runs Python {here}.", remedy)
    try:
        loaded = pickle.loads(function)
    except Exception as error:  # unpickling imports the function's modules
        raise UserError(
            f"The fusion policy {name} cannot be loaded here: {type(error).__name__}: {error}.",
            "Install what it imports on every host.",
        ) from error
    return Policy(name, digest, loaded, keeps_order, text)
