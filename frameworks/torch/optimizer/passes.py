"""Counting backward passes and step() calls until an update is due."""

from __future__ import annotations


class Passes:
    """Decides which call of step() makes the update when gradients of several backward passes are accumulated.

    Two styles of training loop are understood, with N = `per_update`:

    - step() after every backward pass: calls 1 to N-1 only accumulate, call N updates;
    - N backward passes, then one step(): that call updates. Right after such an update one step() may come early
      (the rest of an epoch) and updates with the passes there are.

    With N = 1 every call updates. A call is also the N-th if this rank had no gradient in some of the passes, so that
    ranks with unused parameters stay in step with the others.
    """

    def __init__(self, per_update: int) -> None:
        self.per_update = per_update
        self.backwards = 0
        self.calls = 0
        self._counted_by_caller = False

    def saw_gradient(self, number: int) -> None:
        """A parameter received its `number`-th gradient since the last update."""
        self.backwards = max(self.backwards, number)

    def count_call(self) -> bool:
        """Count one call of step(); return True if this call is to make the update."""
        due = self.next_call_updates()
        self.calls += 1
        return due

    def next_call_updates(self) -> bool:
        """Return True if the next call of step() is to make the update."""
        if max(self.backwards, self.calls + 1) >= self.per_update:
            return True
        return self._counted_by_caller and self.calls == 0

    def accumulating(self) -> bool:
        """Return True if an update has begun and is not due yet: its gradients must be kept."""
        if max(self.backwards, self.calls) >= self.per_update:
            return False
        return self.backwards + self.calls > 0

    def updated(self) -> None:
        """Restart the count after an update, in the style of training loop that this update showed."""
        self._counted_by_caller = self.calls == 1 and self.backwards >= self.per_update
        self.restart()

    def restart(self) -> None:
        """Restart the count."""
        self.backwards = self.calls = 0
