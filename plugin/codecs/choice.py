"""What is chosen for gradients of one optimizer or tape: how values travel, and by which collective."""

from __future__ import annotations

from dataclasses import dataclass

EXACT = "none"  # the codec that changes nothing
# What the numbers of `Choice.numbers` are.
AGREED = ("codec's number", "error_feedback", "collective's number")


@dataclass(frozen=True)
class Choice:
    """Names as users write them, and their numbers in core (paceline.registry.codecs, .collectives).

    `own_codec`, `own_collective`: whether it is not what the variables say, so that operations must be told.
    `bfloat16`: the choice for gradients of that type; None: this one. `named`: whether a user chose it.
    """

    codec: str = EXACT
    codec_number: int = 0
    error_feedback: bool = False
    collective: str = ""
    collective_number: int = -1
    own_codec: bool = False
    own_collective: bool = False
    bfloat16: Choice | None = None
    named: bool = True

    @property
    def lossy(self) -> bool:
        """Whether values may change on their way."""
        return self.codec != EXACT

    @property
    def own(self) -> bool:
        """Whether operations must be told."""
        return self.own_codec or self.own_collective

    @property
    def word(self) -> str:
        """What stands in the names of operations that a user chose it for, so that no others have the same; else "".

        So a name never has two choices, and ranks that chose differently do not take each other's bytes for theirs.
        """
        if not self.named:
            return ""
        codec = self.codec if self.error_feedback or not self.lossy else f"{self.codec}_plain"
        return "_".join([codec] * self.own_codec + [self.collective] * self.own_collective)

    @property
    def numbers(self) -> tuple[int, int, int]:
        """What must be the same on all ranks; `AGREED` says what they are."""
        return self.codec_number, int(self.error_feedback), self.collective_number

    def __str__(self) -> str:
        feedback = f", error_feedback={self.error_feedback}" if self.lossy else ""
        return f"codec={self.codec!r}{feedback}, collective={self.collective!r}"


# For what must arrive as it was, under names that nothing else has: counts, models.
AS_IT_IS = Choice(own_codec=True, named=False)
