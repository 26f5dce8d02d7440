"""Names of hand-made allreduces that are encoded as gradients are: wrappers make theirs, a test does it by itself."""

from __future__ import annotations


def encoded(name: str) -> str:
    """The name of an operation that travels as the variables say."""
    from paceline.arguments import choice_asked

    return choice_asked().mark + name
