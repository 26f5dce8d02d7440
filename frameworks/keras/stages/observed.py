"""The stage as seen by Keras' callbacks and metrics."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from paceline.keras.backend import keras
from paceline.keras.stages.stage import Stage


class StageModel(keras.Model):
    """The layers of one stage as a model: its weights, its optimizer, its metrics (of the last stage)."""

    def __init__(self, stage: Stage, optimizer: Any, metrics: Any) -> None:
        super().__init__(name=f"stage_from_{stage.layers[0].name}")
        self.stage_layers = [layer.operation for layer in stage.layers if isinstance(layer.operation, keras.Layer)]
        self._stage_calls = [stage]
        self.built = True
        self.compile(optimizer=optimizer, metrics=metrics)

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Return the output of this stage for its own inputs."""
        return self._stage_calls[0](inputs, training)


class Scores:
    """Metrics of the last stage: means over the rows since `reset`. Outputs count only within `watching`.

    `metrics`: as given to `model`. Keras knows them from the first output on; until then reset_metrics() skips them.
    """

    def __init__(self, model: Any, metrics: Any) -> None:
        self._model = model
        self._given = [one for one in keras.tree.flatten(metrics) if isinstance(one, keras.Metric)]
        self._watching = False

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Count the outputs of the passes within this context."""
        self._watching = True
        try:
            yield
        finally:
            self._watching = False

    def observe(self, target: Any, output: Any) -> None:
        """Add the outputs of a micro-batch."""
        if self._watching:
            self._model.compute_metrics(None, target, output, None)

    def reset(self) -> None:
        """Reset all metrics, including metric objects with state from another model."""
        for metric in self._given:
            metric.reset_state()
        self._model.reset_metrics()

    def result(self) -> dict[str, float]:
        """Return the metrics by name, without the loss, which the pipeline knows itself."""
        found = self._model.get_metrics_result()
        return {name: float(keras.ops.convert_to_numpy(one)) for name, one in found.items() if name != "loss"}
