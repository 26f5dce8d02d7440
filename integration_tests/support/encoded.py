"""Hand-made allreduces that are encoded as gradients are: wrappers announce theirs, a test does it by itself."""

from __future__ import annotations


def announce(*names: str) -> None:
    """On all ranks, after init(): PyTorch's allreduces of these names travel as the variables say."""
    from paceline.arguments import choice_asked
    from paceline.codecs.naming import tell
    from paceline.native.library import loaded

    tell(loaded("torch"), 0, [f"allreduce.{name}" for name in names], choice_asked())
