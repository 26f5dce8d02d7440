"""What is chosen for gradients of one optimizer or tape: how values travel, and by which collective."""

from __future__ import annotations

from dataclasses import dataclass

EXACT = "none"  # the codec that changes nothing
PLAIN = "plain"  # without error feedback
# What the numbers of `Choice.numbers` are.
AGREED = ("codec's number", "error_feedback", "collective's number")


@dataclass(frozen=True)
class Choice:
    """Names as users write them, and their numbers in core (paceline.registry.codecs, .collectives).

    `own_codec`, `own_collective`: whether it is not what the variables say. `bfloat16`: the choice for gradients of
    that type; None: this one.
    """

    codec: str = EXACT
    codec_number: int = 0
    error_feedback: bool = False
    collective: str = ""
    collective_number: int = -1
    own_codec: bool = False
    own_collective: bool = False
    bfloat16: Choice | None = None

    @property
    def lossy(self) -> bool:
        """Whether values may change on their way."""
        return self.codec != EXACT

    @property
    def own(self) -> bool:
        """True if this choice differs from the environment variables."""
        return self.own_codec or self.own_collective

    @property
    def mark(self) -> str:
        """The part of an operation's name from which the library reads how it travels (core/naming/travel_mark.h).

        Every rank that hears of the operation knows it from there, also a rank that has joined. Operations without a
        mark (""), as a script's own, travel without a codec and by the collective of the variables.
        """
        if not self.lossy and not self.own_collective:
            return ""
        words = [self.codec] + [PLAIN] * (self.lossy and not self.error_feedback)
        return f">{'_'.join(words + [self.collective] * self.own_collective)}>"

    @property
    def numbers(self) -> tuple[int, int, int]:
        """What must be the same on all ranks; `AGREED` says what they are."""
        return self.codec_number, int(self.error_feedback), self.collective_number

    def __str__(self) -> str:
        feedback = f", error_feedback={self.error_feedback}" if self.lossy else ""
        return f"codec={self.codec!r}{feedback}, collective={self.collective!r}"
