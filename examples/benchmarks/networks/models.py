"""The models by name: layers and the time of one backward pass.

The backward times belong to one imagined accelerator. ResNet-50 takes 300 ms for a batch of 32. The times of BERT-base
(32 sequences of 128 tokens), VGG-16 (32 images) and the LSTM (64 sequences of 35 words) are in proportion to their
MACs, rounded to 100 ms. ResNet-20 is far too small to fill an accelerator; its 30 ms are mostly kernel launches. A
forward pass takes half as long as a backward pass. Within a pass, a layer's share of the time is its share of the MACs:
the backward of a layer is twice its forward (gradients of inputs and of weights), a factor that cancels in the shares.

A name that ends in -real means a network that computes on the processor (computing.py), in its actual time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from paceline.config import nearest
from paceline.errors import UserError
from paceline.examples.benchmarks.networks.bert import bert_base
from paceline.examples.benchmarks.networks.layers import Layer
from paceline.examples.benchmarks.networks.lstm import lstm
from paceline.examples.benchmarks.networks.many import many
from paceline.examples.benchmarks.networks.mini import mini
from paceline.examples.benchmarks.networks.resnet import resnet20, resnet50
from paceline.examples.benchmarks.networks.vgg import vgg16

FORWARD_OVER_BACKWARD = 0.5
BYTES_PER_ELEMENT = 4


@dataclass(frozen=True)
class Model:
    """Layers in the order of the forward pass, and the milliseconds that they sleep in one backward pass.

    `computes`: they compute instead of sleeping.
    """

    name: str
    layers: tuple[Layer, ...]
    backward_ms: float
    computes: bool = False

    @property
    def tensors(self) -> int:
        """Number of gradients per step."""
        return sum(len(layer.tensors) for layer in self.layers)

    @property
    def parameters(self) -> int:
        """Number of elements of all gradients."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def gradient_bytes(self) -> int:
        """Size of all gradients in bytes (float32)."""
        return BYTES_PER_ELEMENT * self.parameters

    @property
    def forward_ms(self) -> float:
        """Time of one forward pass in milliseconds."""
        return FORWARD_OVER_BACKWARD * self.backward_ms

    @property
    def compute_ms(self) -> float:
        """Time of both passes in milliseconds."""
        return self.forward_ms + self.backward_ms

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of a pass that each layer takes; the sum is 1."""
        total = sum(layer.macs for layer in self.layers)
        return tuple(layer.macs / total for layer in self.layers)


# Name -> (layers, milliseconds of one backward pass).
MODELS: dict[str, tuple[Callable[[], tuple[Layer, ...]], float]] = {
    "resnet20": (resnet20, 30.0),
    "resnet50": (resnet50, 300.0),
    "bert-base": (bert_base, 800.0),
    "vgg16": (vgg16, 1100.0),
    "lstm": (lstm, 500.0),
    "many": (many, 30.0),
    "mini": (mini, 4.0),
}
# Networks that compute, which have the layers of the model they are named after.
COMPUTING: dict[str, Callable[[], tuple[Layer, ...]]] = {"resnet20-real": resnet20}


def find(name: str) -> Model:
    """Return the model `name`, such as "resnet50", "resnet50-x0.1" or "bert-base-x0.02-t0.5".

    The suffix -x<factor> scales the sizes of all tensors; -t<factor> after it scales the time of the passes.

    Raises UserError for an unknown model and for a factor that is not a number above 0 and at most 10.
    """
    if name in COMPUTING:
        return Model(name, COMPUTING[name](), 0.0, computes=True)
    match = re.fullmatch(r"(.+?)(?:-x([0-9.]+))?(?:-t([0-9.]+))?", name)
    if match is None or match[1] not in MODELS:
        raise UserError(
            f"There is no model {name!r}.",
            nearest(name, [*MODELS, *COMPUTING])
            + " A factor may follow that scales all tensors, and one that scales the time: resnet50-x0.1-t0.5.",
        )
    layers, backward_ms = MODELS[match[1]]
    made = layers()
    if match[2] is not None:
        size = _factor(match[2], name)
        made = tuple(layer.scaled(size) for layer in made)
    time = 1.0 if match[3] is None else _factor(match[3], name)
    return Model(name, made, time * backward_ms)


def _factor(text: str, name: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor <= 10:
        raise UserError(
            f"The factor {text!r} of model {name!r} cannot be used.",
            "Give a number above 0 and at most 10, for example resnet50-x0.1.",
        )
    return factor
