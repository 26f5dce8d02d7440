"""Choice of codec and collective for the gradients of one optimizer or tape."""

from __future__ import annotations

from dataclasses import dataclass

EXACT = "none"  # the lossless codec
PLAIN = "plain"  # without error feedback
# Meaning of `Choice.numbers`.
AGREED = ("codec's number", "error_feedback", "collective's number")


@dataclass(frozen=True)
class Choice:
    """Codec and collective, by name and by number in core (paceline.registry.codecs, .collectives).

    Attributes:
        codec: name that users write.
        codec_number: the codec's number in core.
        error_feedback: residuals are added to the next gradients.
        collective: name that users write.
        collective_number: the collective's number in core.
        own_codec: True if the codec or its error feedback differs from the environment variables.
        own_collective: True if the collective differs from the environment variables.
        bfloat16: the choice for bfloat16 gradients; None if it is this one.
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
        """True if the codec may change values."""
        return self.codec != EXACT

    @property
    def own(self) -> bool:
        """True if this choice differs from the environment variables."""
        return self.own_codec or self.own_collective

    @property
    def mark(self) -> str:
        """Part of an operation's name with its codec and collective, for the library.

        core/naming/name_mark.h has the format. All ranks, including those that have joined, read the choice from it.
        Operations without a mark (""), such as a script's own, use no codec and the collective of the variables.
        """
        if not self.lossy and not self.own_collective:
            return ""
        words = [self.codec] + [PLAIN] * (self.lossy and not self.error_feedback)
        return f">{'_'.join(words + [self.collective] * self.own_collective)}>"

    @property
    def numbers(self) -> tuple[int, int, int]:
        """Numbers that must be equal on all ranks; `AGREED` has their meaning."""
        return self.codec_number, int(self.error_feedback), self.collective_number

    def __str__(self) -> str:
        feedback = f", error_feedback={self.error_feedback}" if self.lossy else ""
        return f"codec={self.codec!r}{feedback}, collective={self.collective!r}"
