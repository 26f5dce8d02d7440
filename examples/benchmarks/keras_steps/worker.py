"""A rank that trains the Keras network when the controller orders steps."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from paceline.examples.benchmarks.harness import connections
from paceline.examples.benchmarks.harness.place import Place
from paceline.examples.benchmarks.harness.system import load
from paceline.examples.benchmarks.keras_steps import network
from paceline.examples.benchmarks.steps import plans
from paceline.examples.benchmarks.steps.plans import Merging
from paceline.examples.benchmarks.steps.worker import WARM_UP_STEPS, TrainingWorker


class KerasWorker(TrainingWorker):
    """Trains the network.

    `options`: "training" is "module:function", "batch" the images of a rank, "library" Horovod's; "equal" means that
    all ranks have equal weights after each step, which is then checked. Their batches differ, so equal weights prove
    that each update used all ranks' gradients.
    """

    def __init__(self, place: Place, options: dict[str, Any]) -> None:
        super().__init__(options.get("planned", False))
        if options["library"] == "torch":
            import torch

            torch.set_num_threads(1)
        self._place, self._equal, self._library = place, options.get("equal", True), options["library"]
        self._checks = 0
        self._model = network.resnet20()
        connect: Any = load(options["training"])
        self._training = connect(self._model, place, network.batch(place.rank, options["batch"]))
        self.checked_step()
        self.hello = self.warm_up(WARM_UP_STEPS)

    def merging(self) -> Merging | None:
        """Return the state of merging by plan, for a system that plans."""
        return plans.of_this_rank(self._library) if self._planned else None

    def checked_step(self) -> None:
        """Make a step and compare the weights with rank 0's. Raises RuntimeError if they differ."""
        self.step()
        if not self._equal:
            return
        import keras

        self._checks += 1
        weights = [keras.ops.convert_to_numpy(one).tobytes() for one in self._model.trainable_variables]
        own = hashlib.sha256(b"".join(weights)).hexdigest()
        path = Path(self._place.folder) / f"weights{self._checks}"
        if self._place.rank == 0:
            connections.publish(path, own)
        elif (first := connections.published(path)) != own:
            raise RuntimeError(f"weights of rank {self._place.rank} have digest {own}, expected rank 0's, {first}")
