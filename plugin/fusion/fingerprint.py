"""Identity of a function as text, equal in every process that loaded the same function.

Ranks compare fingerprints to check that they request the same policy. A fingerprint covers the function's module, name,
code, default values and the plain values in its closure; not the globals that it reads.
"""

from __future__ import annotations

import functools
import types
from typing import Any


def of(value: Any) -> str:
    """Return the fingerprint of a function, a partial, a callable object, or a plain value."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, type(...))):
        return repr(value)
    if isinstance(value, (tuple, list)):
        return f"[{','.join(map(of, value))}]"
    if isinstance(value, (set, frozenset)):  # their order differs from process to process
        return f"{{{','.join(sorted(map(of, value)))}}}"
    if isinstance(value, dict):
        return f"{{{','.join(sorted(f'{of(key)}:{of(held)}' for key, held in value.items()))}}}"
    if isinstance(value, types.CodeType):
        code = (value.co_code, value.co_names, value.co_varnames, value.co_freevars, value.co_consts)
        return f"code({of(code)})"
    if isinstance(value, types.FunctionType):
        held = [_cell(cell) for cell in value.__closure__ or ()]
        parts = (value.__code__, value.__defaults__, value.__kwdefaults__)
        return f"{_place(value)}({of(parts)};{','.join(held)})"
    if isinstance(value, types.MethodType):
        return f"method({of(value.__func__)},{of(value.__self__)})"
    if isinstance(value, functools.partial):
        return f"partial({of(value.func)},{of(value.args)},{of(value.keywords)})"
    if isinstance(value, (type, types.ModuleType, types.BuiltinFunctionType)):
        return _place(value)
    call = getattr(type(value), "__call__", None)  # noqa: B004 - the method itself is wanted
    return f"{_place(type(value))}({of(call) if isinstance(call, types.FunctionType) else ''},{_held_by(value)})"


def _place(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', getattr(value, '__name__', ''))}"


def _cell(cell: types.CellType) -> str:
    try:
        held = cell.cell_contents
    except ValueError:
        return "empty"
    # A recursive function's closure contains the function: identify functions by name, and expand only other values.
    return _place(held) if isinstance(held, types.FunctionType) else of(held)


def _held_by(value: Any) -> str:
    plain = (bool, int, float, str, bytes, tuple, type(None))
    return of({name: held for name, held in getattr(value, "__dict__", {}).items() if isinstance(held, plain)})
