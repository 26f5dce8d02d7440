"""Environments of Horovod's ranks: stock Horovod, and Paceline's settings as a user gives them.

They override the environment of the benchmark. Plans are measured, so no plan has to win a trial first.
"""

from __future__ import annotations

from collections.abc import Mapping

from paceline.codecs.choice import EXACT
from paceline.registry.codecs import CODECS
from paceline.registry.collectives import AUTO, COLLECTIVES, HOROVODS

STOCK = "stock"
_STOCK = {
    "PACELINE_EXCHANGE": "sync",
    "PACELINE_FUSION": "threshold",
    "PACELINE_COLLECTIVE": HOROVODS,
    "PACELINE_CODEC": EXACT,
    "PACELINE_DEBUG": "",
}
_OPTIMAL = {"PACELINE_FUSION": "optimal", "PACELINE_DEBUG": "fusion_trial_steps=0"}
_SYNC_EVERY = "8"

# Exchanges, plans and codecs, for programs that train.
TRAINING: Mapping[str, Mapping[str, str]] = {
    STOCK: _STOCK,
    "optimal": {**_STOCK, **_OPTIMAL},
    "pipelined": {**_STOCK, "PACELINE_EXCHANGE": "pipelined"},
    "majority": {**_STOCK, "PACELINE_EXCHANGE": "majority"},
    "local": {**_STOCK, "PACELINE_EXCHANGE": "local", "PACELINE_SYNC_EVERY": _SYNC_EVERY},
    "split": {**_STOCK, **_OPTIMAL, "PACELINE_EXCHANGE": "split"},
    **{codec: {**_STOCK, "PACELINE_COLLECTIVE": AUTO, "PACELINE_CODEC": codec} for codec in CODECS if codec != EXACT},
}
# Collectives, alone and with codecs, for programs that send messages: "ring", "ring+q8".
MESSAGES: Mapping[str, Mapping[str, str]] = {
    STOCK: _STOCK,
    **{name: {**_STOCK, "PACELINE_COLLECTIVE": name} for name in COLLECTIVES if name != HOROVODS},
    **{
        f"{name}+{codec}": {**_STOCK, "PACELINE_COLLECTIVE": name, "PACELINE_CODEC": codec}
        for name in COLLECTIVES
        for codec in CODECS
        if name != HOROVODS and codec != EXACT
    },
}
