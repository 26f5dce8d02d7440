"""What ranks are told: options as variables, and one line about them for who starts the ranks."""

from __future__ import annotations

import os
from collections.abc import Mapping

import paceline
from paceline import config
from paceline.launch import console, flags


def announce(settings: config.Settings) -> None:
    """One line on standard error: every option that a flag or a variable set, its value and who set it."""
    given = [f"{name}={config.as_text(getattr(settings, name))} ({settings.origin(name)})" for name in settings.given()]
    console.note(f"paceline {paceline.__version__}: {', '.join(given) or 'all options at their defaults'}")


def environment(settings: config.Settings, given: Mapping[str, str]) -> dict[str, str]:
    """This process's environment and the flags as variables; horovodrun forwards all of it to the ranks.

    A fusion policy that only this host may have goes by value. Raises UserError if it cannot be used or sent.
    """
    environ = {**os.environ, **flags.environment(given)}
    if "fusion" in settings.given():
        from paceline.fusion import policies, resolve

        environ |= flags.environment({"fusion": resolve.for_ranks(settings.fusion)})
        known = policies.known_names()
        if ":" not in settings.fusion and settings.fusion not in known:
            console.note(
                f"No fusion policy {settings.fusion} is known here. {config.nearest(settings.fusion, known)} "
                "It will do if the script registers it before hvd.init()."
            )
    return environ
