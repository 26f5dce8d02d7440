"""Environment of the ranks: options as variables, and one line about them for the user."""

from __future__ import annotations

import os
from collections.abc import Mapping

import paceline
from paceline import config
from paceline.horovod import check, gpu
from paceline.launch import console, flags
from paceline.registry.policies import OPTIMAL, THRESHOLD


def announce(settings: config.Settings, starts: bool = True) -> None:
    """Print on standard error every option that a flag or variable set, its value and origin.

    With a framework that can use GPUs also how their gradients are exchanged. `starts`: as for `remark`.
    """
    given = [f"{name}={config.as_text(getattr(settings, name))} ({settings.origin(name)})" for name in settings.given()]
    if settings.fusion == OPTIMAL and "fusion" not in settings.given():
        given.insert(0, f"gradients are merged by plan (--fusion {THRESHOLD}: as Horovod does)")
    built = check.built_from()
    of_gpus = gpu.modes(built) if built is not None else ""
    note = f"paceline {paceline.__version__}: {', '.join(given) or 'all options at their defaults'}"
    console.note(f"{note}; {of_gpus}" if of_gpus else note)
    remark(settings, starts)


def remark(settings: config.Settings, starts: bool) -> None:
    """Warn about a fusion policy unknown on this host, and about options without effect.

    `starts`: the command starts ranks; then rank 0 reports options without effect.
    """
    from paceline.fusion import policies

    if not starts:
        for sentence in settings.without_effect():
            console.note(sentence)
    if "fusion" not in settings.given() or ":" in settings.fusion:
        return
    known = policies.known_names()
    if settings.fusion not in known:
        console.note(
            f"No fusion policy {settings.fusion} is known here. {config.nearest(settings.fusion, known)} "
            "It will do if the script registers it before hvd.init()."
        )


def environment(settings: config.Settings, given: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with the flags as variables; horovodrun forwards all of it to the ranks.

    A fusion policy that only this host may know is sent by value. Raises UserError if it cannot be used or sent.
    """
    environ = {**os.environ, **flags.environment(given)}
    if "fusion" in settings.given():
        from paceline.fusion import resolve

        environ |= flags.environment({"fusion": resolve.for_ranks(settings.fusion)})
    return environ
