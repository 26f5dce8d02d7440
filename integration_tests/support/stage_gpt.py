"""A minimal language model in GPT-2's manner: its head is its embedding."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from integration_tests.support import stage_training

VOCABULARY, WIDTH, HEADS, LENGTH = 11, 8, 2, 6


class Embedding(nn.Module):
    """Takes what Hugging Face's models take."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.drop = nn.Dropout(dropout)

    def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
        ids = batch["input_ids"]
        hidden = self.drop(self.tokens(ids) + self.positions(torch.arange(ids.shape[1])))
        return {"hidden": hidden, "attention_mask": batch["attention_mask"], "past": None}


class Block(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        # Without a bias: a key's has no gradient but rounding, which Adam makes as large as any other.
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)
        )
        self.drop = nn.Dropout(dropout)

    def forward(self, state: dict[str, Any]) -> dict[str, Any]:
        hidden = state["hidden"]
        rows, length, _ = hidden.shape
        split = self.qkv(self.norm(hidden)).view(rows, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        seen = torch.ones(length, length, dtype=torch.bool).tril() & state["attention_mask"][:, None, None, :].bool()
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, seen)
        hidden = hidden + self.drop(self.out(mixed.transpose(1, 2).reshape(rows, length, WIDTH)))
        return {**state, "hidden": hidden + self.drop(self.mlp(hidden))}


class Head(nn.Module):
    def __init__(self, tied: nn.Parameter) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.logits = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.logits.weight = tied

    def forward(self, state: dict[str, Any]) -> dict[str, Tensor]:
        return {"logits": self.logits(self.norm(state["hidden"]))}


def gpt(dropout: float = 0.0, blocks: int = 2, seed: int = 6) -> nn.Sequential:
    """In float64; the same wherever it is built."""
    generator = torch.Generator().manual_seed(seed)
    embedding = Embedding(dropout)
    head = Head(embedding.tokens.weight)
    model = nn.Sequential(embedding, *(Block(dropout) for _ in range(blocks)), head).double()
    head.logits.weight = embedding.tokens.weight
    with torch.no_grad():
        for one in model.parameters():
            one.copy_(torch.randn(one.shape, generator=generator, dtype=torch.float64) / 3)
    return model


def text(step: int, rows: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    random = torch.Generator().manual_seed(step)
    ids = torch.randint(VOCABULARY, (rows, LENGTH + 1), generator=random)
    mask = torch.ones(rows, LENGTH, dtype=torch.int64)
    mask[::3, -2:] = 0
    return {"input_ids": ids[:, :-1], "attention_mask": mask}, {"labels": ids[:, 1:]}


def cross_entropy(output: dict[str, Tensor], target: dict[str, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(output["logits"].flatten(0, 1), target["labels"].flatten())


def accumulate(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    steps: range,
    rows: int,
    count: int,
    max_norm: float | None = None,
) -> list[float]:
    """One process that accumulates the gradients of micro-batches in order: the losses. Changes `model`."""
    batches = (text(step, rows) for step in steps)
    return stage_training.accumulate(model, lambda _: optimizer, batches, count, max_norm, cross_entropy)
