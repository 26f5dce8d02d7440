"""Costs of each setting besides time: staleness, memory, bytes on the wire, accuracy as the pages measured it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from paceline import config
from paceline.local.settings import Local
from paceline.registry.codecs import CODECS
from paceline.registry.policies import THRESHOLD

NONE = "none"


@dataclass(frozen=True)
class Effect:
    """`staleness`, `memory`, `accuracy`: in words; `wire`: bytes sent, relative to stock Horovod; `page`: in docs/."""

    staleness: str = NONE
    memory: str = NONE
    wire: float = 1.0
    accuracy: str = NONE
    page: str = ""


STOCK = Effect()
EFFECTS: dict[tuple[str, str], Effect] = {
    ("fusion", "optimal"): Effect(memory="a buffer as large as the largest message", page="methods/armed.md"),
    ("fusion", "single"): Effect(memory="a buffer as large as all gradients", page="methods/fusion.md"),
    ("exchange", "pipelined"): Effect(
        "gradients are one step late", "1 copy of the gradients", accuracy="97.61 % became 95.72 % at worst",
        page="methods/pipelined.md",
    ),
    ("exchange", "majority"): Effect(
        "late gradients join a later step", "up to 2 copies of the gradients",
        accuracy="98.22 % became 97.72 % at worst", page="methods/partial.md",
    ),
    ("exchange", "local"): Effect(
        f"models are averaged after every {Local().sync_every} updates", wire=1 / Local().sync_every,
        accuracy="none on digits", page="methods/local.md",
    ),
    ("exchange", "split"): Effect(memory="the optimizer's state is divided by the ranks", page="methods/split.md"),
    **{
        ("codec", name): Effect(
            memory="2 copies of the gradients", wire=codec.wire_share, accuracy="none measured",
            page="methods/codecs.md",
        )
        for name, codec in CODECS.items()
        if codec.wire_share < 1
    },
}  # fmt: skip


def options(setting: str) -> dict[str, str]:
    """Options by name from the flags of `paceline run` in `setting`; Horovod's own merging is the default."""
    words = shlex.split(setting)
    given: dict[str, str] = {}
    for at, word in enumerate(words):
        if word.startswith("--"):
            value = words[at + 1] if at + 1 < len(words) and not words[at + 1].startswith("--") else "yes"
            given[word.removeprefix("--").replace("-", "_")] = value
    return {name: value for name, value in given.items() if (name, value) != ("fusion", THRESHOLD)}


def shown(given: Mapping[str, str]) -> str:
    """Options as variables in front of a command; "" without options."""
    return " ".join(f"{config.PREFIX}{name.upper()}={value}" for name, value in given.items())


def code(given: Mapping[str, str]) -> str:
    """Options as a line of a script; "" without options."""
    if not given:
        return ""
    arguments = ", ".join(f'{name}="{value}"' for name, value in given.items())
    return f"optimizer = hvd.DistributedOptimizer(optimizer, ..., {arguments})"


def effect(given: Mapping[str, str]) -> Effect:
    """Combined effect of the options."""
    found = [EFFECTS[one] for one in given.items() if one in EFFECTS]
    wire = 1.0
    for one in found:
        wire *= one.wire
    return Effect(
        _joined(found, "staleness"),
        _joined(found, "memory"),
        wire,
        _joined(found, "accuracy"),
        ", ".join(one.page for one in found if one.page),
    )


def _joined(found: list[Effect], name: str) -> str:
    return "; ".join(text for one in found if (text := getattr(one, name)) != NONE) or NONE
