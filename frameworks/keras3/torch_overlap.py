"""Messages that begin during the backward pass, for Keras on PyTorch.

Keras' own `train_step` changes no gradient between the backward pass and the optimizer's `apply`. So there a message
can begin as soon as its gradients are complete. Training loops and `train_step`s of users may clip or scale gradients
in between: they begin their messages in `apply`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from paceline.errors import UsageError

Indices = tuple[int, ...]  # of the variables of one message, in the optimizer's list
# Starts the message of these variables' gradients; the result waits for it.
Start = Callable[[Indices, list[Any]], Callable[[], Any]]


class Overlap:
    """Messages of one optimizer in the current step; each has the variables that it had in the last `apply`."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._messages: dict[int, Indices] = {}  # by index of a variable
        self._hooked: dict[int, tuple[Any, Any]] = {}  # by index: the parameter, and the handle of its hook
        self._inside = False  # True in Keras' train_step
        self._complete: dict[int, Any] = {}  # gradients of this step, by index
        self._begun: dict[Indices, tuple[list[int], Callable[[], Any]]] = {}  # versions of the gradients, and the wait

    def follow(self, messages: Sequence[Indices]) -> None:
        """Note the messages of an `apply`."""
        self._messages = {index: message for message in messages for index in message}

    @contextmanager
    def inside(self, parameter_of: Callable[[int], Any]) -> Iterator[None]:
        """Context of Keras' train_step. `parameter_of` returns the parameter of an index."""
        self._complete.clear()
        self._begun.clear()  # of a step that failed
        self._hook(parameter_of)
        self._inside = True
        try:
            yield
        finally:
            self._inside = False

    def _hook(self, parameter_of: Callable[[int], Any]) -> None:
        for index in [one for one in self._hooked if one not in self._messages]:
            self._hooked.pop(index)[1].remove()
        for index in self._messages:
            parameter = parameter_of(index)
            if index in self._hooked:
                if self._hooked[index][0] is parameter:
                    continue
                self._hooked.pop(index)[1].remove()
            handle = parameter.register_post_accumulate_grad_hook(self._hook_of(index))
            self._hooked[index] = parameter, handle

    def _hook_of(self, index: int) -> Callable[[Any], None]:
        own = weakref.ref(self)  # Python's garbage collection does not see a cycle through a hook

        def hook(parameter: Any) -> None:
            overlap = own()
            if overlap is not None and overlap._inside:
                overlap._completed(index, parameter.grad)

        return hook

    def _completed(self, index: int, grad: Any) -> None:
        if index in self._complete:
            raise UsageError(
                f"The gradient of variable {index} was computed twice in one step of Keras' train_step.",
                "Train with a train_step of your own, whose gradients are sent by optimizer.apply.",
            )
        self._complete[index] = grad
        message = self._messages[index]
        grads: list[Any] = [self._complete.get(one) for one in message]
        if all(one is not None and not one.is_sparse for one in grads):
            self._begun[message] = [one._version for one in grads], self._start(message, grads)

    def take(self, message: Indices, grads: Sequence[Any]) -> Callable[[], Any] | None:
        """Return the wait for a message that has begun with `grads`; None if it has not.

        Raises UsageError if other gradients were sent.
        """
        if message not in self._begun:
            return None
        versions, wait = self._begun.pop(message)
        for index, grad, version in zip(message, grads, versions):
            if grad is not self._complete[index] or grad._version != version:
                raise UsageError(
                    f"The gradient of variable {index} was changed after the backward pass of Keras' train_step, when "
                    "its message had begun.",
                    "Change gradients in a train_step of your own, or in the optimizer (clipnorm=, clipvalue=).",
                )
        return wait

    def end(self) -> None:
        """Wait for messages that nobody has taken, so that their names are free."""
        while self._begun:
            self._begun.popitem()[1][1]()
