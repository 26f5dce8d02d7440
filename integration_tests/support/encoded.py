"""Names of hand-made allreduces that are encoded as gradients are: wrappers make theirs, a test does it by itself."""

from __future__ import annotations


def encoded(name: str) -> str:
    """Return the name of an operation that is sent as the variables specify."""
    from paceline.arguments import choice_asked

    return choice_asked().mark + name
