"""Check of Keras and its backend before anything else is loaded; other modules import Keras from here."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import paceline.lifecycle  # noqa: F401  notified of init() and shutdown() once loaded (shims/glue.py)
from paceline.errors import UserError
from paceline.extras import how_to_install
from paceline.horovod.load import load

BACKENDS = ("tensorflow", "torch")


class NotUsable(UserError, ImportError):
    """Keras is missing, or runs on a backend without a connection to Horovod."""


def _refuse(backend: str) -> NotUsable:
    return NotUsable(
        f"Keras runs on the backend {backend!r}; Paceline connects {' and '.join(BACKENDS)}.",
        "Set KERAS_BACKEND=tensorflow or KERAS_BACKEND=torch in the environment before keras is first imported, or "
        'change "backend" in ~/.keras/keras.json.',
    )


def _keras() -> Any:
    wanted = os.environ.get("KERAS_BACKEND")
    # Loading the backend may fail with an unclear message (jax not installed): check it first.
    if wanted and "keras" not in sys.modules and wanted not in BACKENDS:
        raise _refuse(wanted)
    try:
        module = importlib.import_module("keras")
    except ImportError as error:
        raise NotUsable(
            f"Keras cannot be imported: {error}",
            f"Install Keras 3 and the framework it runs on ({how_to_install('tensorflow')}, or keras and torch with "
            "KERAS_BACKEND=torch).",
        ) from error
    if not str(module.__version__).startswith("3"):
        raise NotUsable(
            f"Keras {module.__version__} is installed, Keras 3 is needed.",
            "Install keras>=3, or use horovod.keras.",
        )
    if module.backend.backend() not in BACKENDS:
        raise _refuse(module.backend.backend())
    return module


keras: Any = _keras()
load(keras.backend.backend())
from paceline.keras3.update import communication  # noqa: E402  it imports Keras

wire: Any = communication()
horovod_module: Any = wire.hvd  # horovod.tensorflow or horovod.torch
