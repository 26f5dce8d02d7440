"""The large LSTM language model of Zaremba et al. ("Recurrent Neural Network Regularization", 2014), with tied weights.

Its gradients appear all at once at the end of the backward pass. Every word of a sequence adds to the recurrent layers'
gradients (on GPUs PyTorch computes them in one node of the graph). The table of words is used first, and last as the
matrix of the decoder (Press and Wolf, "Using the Output Embedding to Improve Language Models", EACL 2017).
"""

from __future__ import annotations

from paceline.examples.benchmarks.networks.layers import Layer

VOCABULARY = 10_000
HIDDEN = 1500
LAYERS = 2
WORDS = 35  # length of a training sequence
GATES = 4


def lstm() -> tuple[Layer, ...]:
    """The model on sequences of 35 words: 10 tensors."""
    recurrent = tuple(
        (f"{part}_l{layer}", (GATES * HIDDEN, HIDDEN) if part.startswith("weight") else (GATES * HIDDEN,))
        for layer in range(LAYERS)
        for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    return (
        Layer("words", (("weight", (VOCABULARY, HIDDEN)),), WORDS * HIDDEN),
        Layer("lstm", recurrent, WORDS * LAYERS * 2 * GATES * HIDDEN * HIDDEN),
        Layer("decoder", (("bias", (VOCABULARY,)),), WORDS * VOCABULARY * HIDDEN),
    )
