"""Warnings about gradient options under hvd.Pipeline, whose stages exchange no gradients without replicas."""

from __future__ import annotations

from paceline import config
from paceline.log import log
from paceline.registry import making

_OF_GRADIENTS = ("codec", "collective", "exchange", "fusion", "record")


def warn_without_effect() -> None:
    """Report each given option that has an effect only on allreduces."""
    making.explain()
    settings, defaults = config.settings(), config.read({})
    for name in _OF_GRADIENTS:
        if name in settings.given() and getattr(settings, name) != getattr(defaults, name):
            given = f"{config.PREFIX}{name.upper()}={config.as_text(getattr(settings, name))}"
            log(
                f"{given} has no effect on hvd.Pipeline without replicas=: its stages send activations, and average no "
                "gradients."
            )
