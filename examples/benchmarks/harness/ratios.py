"""Which step times are compared."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """How much longer a step of `system` takes than one of the slowest of `references`, within the same turn."""

    name: str
    system: str
    references: tuple[str, ...]

    @property
    def shown(self) -> str:
        """The name for the eye."""
        return shown(self.name)


def over(system: str, reference: str) -> Ratio:
    """One system over another: "ddp_over_horovod"."""
    return Ratio(f"{system}_over_{reference}", system, (reference,))


def shown(name: str) -> str:
    """A ratio's name for the eye: "ddp / horovod"."""
    return name.replace("_over_", " / ")
