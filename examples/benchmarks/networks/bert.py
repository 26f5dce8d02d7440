"""BERT-base, uncased (Devlin et al., "BERT", NAACL 2019): embeddings, 12 encoder layers, pooler."""

from __future__ import annotations

from paceline.examples.benchmarks.networks.layers import Layer, dense, norm

VOCABULARY = 30522
POSITIONS = 512
SEGMENTS = 2
HIDDEN = 768
INTERMEDIATE = 3072
LAYERS = 12
TOKENS = 128  # length of a training sequence


def bert_base() -> tuple[Layer, ...]:
    """Return BERT-base on sequences of 128 tokens (199 tensors; the word table's dense gradient comes last)."""
    tables = (
        ("word.weight", (VOCABULARY, HIDDEN)),
        ("position.weight", (POSITIONS, HIDDEN)),
        ("segment.weight", (SEGMENTS, HIDDEN)),
    )
    layers = [Layer("embeddings", tables, 3 * TOKENS * HIDDEN), norm("embeddings.norm", HIDDEN, TOKENS)]
    for index in range(LAYERS):
        prefix = f"encoder.{index}."
        layers += [dense(f"{prefix}{part}", HIDDEN, HIDDEN, TOKENS) for part in ("query", "key", "value")]
        # Scores and weighted sums: two matrix products, no parameters.
        layers.append(Layer(f"{prefix}attention", (), 2 * TOKENS * TOKENS * HIDDEN))
        layers.append(dense(f"{prefix}attention.output", HIDDEN, HIDDEN, TOKENS))
        layers.append(norm(f"{prefix}attention.norm", HIDDEN, TOKENS))
        layers.append(dense(f"{prefix}intermediate", HIDDEN, INTERMEDIATE, TOKENS))
        layers.append(dense(f"{prefix}output", INTERMEDIATE, HIDDEN, TOKENS))
        layers.append(norm(f"{prefix}output.norm", HIDDEN, TOKENS))
    return (*layers, dense("pooler", HIDDEN, HIDDEN))
