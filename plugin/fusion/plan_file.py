"""The plan file, which `paceline plan --output PLAN.json` writes and the policy `file:PLAN.json` follows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.errors import UserError
from paceline.fusion.gradient import Gradient
from paceline.fusion.parts import with_parts
from paceline.fusion.policies import FILE, Policy, digest_of

if TYPE_CHECKING:
    from paceline.core._core import CostModel

FORMAT = "paceline-plan"
VERSION = 1


class FixedPlan:
    """A policy that always returns the same groups of names, in the same order."""

    def __init__(self, groups: Sequence[Sequence[str]]) -> None:
        self.groups = [list(group) for group in groups]

    def __call__(self, gradients: Sequence[Gradient], costs: CostModel) -> list[list[str]]:
        """Return the groups, for any gradients and costs."""
        return self.groups


def write(path: Path, policy: str, groups: Sequence[Sequence[str]]) -> None:
    """Write groups of tensor names. Raises UserError if the file cannot be written."""
    value = {"format": FORMAT, "version": VERSION, "policy": policy, "groups": [list(group) for group in groups]}
    try:
        path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"The plan {path} cannot be written: {error.strerror}.", "Name a file in a folder you may write to."
        ) from None


def read(path: Path) -> list[list[str]]:
    """Read the groups of names in `path`. Raises UserError that describes the error in the file."""
    remedy = "Name a file that `paceline plan TRACE --output PLAN.json` wrote."
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"The plan {path} cannot be read: {error.strerror}.", remedy) from None
    except ValueError as error:  # not JSON, not text
        raise UserError(f"The plan {path} cannot be used: it is cut short or not JSON ({error}).", remedy) from None
    problem = _problem(value)
    if problem:
        raise UserError(f"The plan {path} cannot be used: {problem}.", remedy)
    groups: list[list[str]] = value["groups"]
    return groups


def _problem(value: Any) -> str | None:
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        return "it is not a plan of Paceline"
    if value.get("version") != VERSION:
        return f"its format has version {value.get('version')!r}, this Paceline reads version {VERSION}"
    groups = value.get("groups")
    if not isinstance(groups, list) or not groups:
        return "it has no groups"
    for number, group in enumerate(groups):
        if not isinstance(group, list) or not group or not all(isinstance(name, str) for name in group):
            return f"group {number} must be a list of tensor names"
    seen: dict[str, int] = {}
    number = 0
    for group, parts in with_parts(groups):
        for name in group:
            if name in seen:
                return f"the tensor {name} is in group {seen[name]} and in group {number}"
            seen[name] = number
        number += parts
    return None


def policy(path: Path) -> Policy:
    """Return the policy that follows the plan in `path`. Its digest depends only on the plan, not on the path."""
    groups = read(path)
    identity = "plan:" + json.dumps(groups)
    return Policy(FILE + path.name, digest_of(identity), FixedPlan(groups), keeps_order=True)
