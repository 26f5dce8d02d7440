"""Warnings about gradient options under hvd.Pipeline, whose stages exchange no gradients without replicas."""

from __future__ import annotations

from paceline import config
from paceline.registry import making
from paceline.telling import tell

_OF_GRADIENTS = ("codec", "collective", "exchange", "fusion", "record")


def tell_without_effect() -> None:
    """Report each given option that has an effect only on allreduces."""
    making.explain()
    settings, defaults = config.settings(), config.read({})
    for name in _OF_GRADIENTS:
        if name in settings.given() and getattr(settings, name) != getattr(defaults, name):
            given = f"{config.PREFIX}{name.upper()}={config.as_text(getattr(settings, name))}"
            tell(
                f"{given} has no effect on hvd.Pipeline without replicas=: its stages send activations, and average no "
                "gradients."
            )
