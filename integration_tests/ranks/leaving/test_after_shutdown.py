"""Error of training after hvd.shutdown()."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import paceline.keras as hvd
from integration_tests.support.ranks import ranks


@ranks(2, env={"KERAS_BACKEND": "tensorflow"}, fresh=True)
def test_fit_after_shutdown_names_the_remedy(rank: int, size: int) -> None:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    x = np.ones((4, 1))
    model.fit(x, x, verbose=0)
    hvd.shutdown()
    with pytest.raises(Exception, match=r"After hvd\.shutdown\(\) an optimizer, a tape and fit\(\) need another"):
        model.fit(x, x, verbose=0)
