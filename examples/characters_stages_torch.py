"""A character-level transformer cut into stages, one on each rank.

    horovodrun -np 4 python examples/characters_stages_torch.py --schedule pipemare --correction 0.135

No rank has the whole model; micro-batches pass through the stages, and gradients back. `--schedule gpipe` or `1f1b`
trains as one process would. `pipemare` keeps all stages busy all the time, but its gradients are late. Options select
the remedies (docs/methods/stages.md). Comments (1) to (5) mark the lines that the pipeline needs.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import nn

import paceline.torch as hvd
from paceline.examples import characters
from paceline.examples.characters import CONTEXT, HEADS, VOCABULARY, WIDTH
from paceline.stages.schedules import SCHEDULES

BLOCKS = 4  # one for each stage of four
SHOW_EVERY = 50


class Embedding(nn.Module):
    """Embed characters (n, CONTEXT) as vectors (n, CONTEXT, WIDTH) that include their position."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.02)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return the sum of both embeddings."""
        found: torch.Tensor = self.characters(text) + self.places
        return found


class Block(nn.Module):
    """Causal self-attention and a dense layer, each with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT), persistent=False)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the same shape."""
        found: torch.Tensor = self.layer(vectors, src_mask=self.mask, is_causal=True)
        return found


class Next(nn.Module):
    """Logits (n, VOCABULARY, CONTEXT) of the next character at each position."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.dense = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return logits for vectors (n, CONTEXT, WIDTH)."""
        found: torch.Tensor = self.dense(self.norm(vectors))
        return found.transpose(1, 2)


def net() -> nn.Sequential:
    """Build the whole model as a sequence of layers, each with one input and one output: 237,000 parameters."""
    return nn.Sequential(Embedding(), *(Block() for _ in range(BLOCKS)), Next())


def pipeline_of(chosen: argparse.Namespace) -> hvd.Pipeline:
    """Build this rank's stage of the model."""
    torch.manual_seed(chosen.seed)  # (1) all ranks build the same model, and keep their own stage
    return hvd.Pipeline(  # (2)
        net(),
        # Adam without momentum: late gradients already act like momentum.
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=chosen.learning_rate, betas=(0.0, 0.999)),
        loss=nn.functional.cross_entropy,
        schedule=chosen.schedule,
        n_microbatches=chosen.microbatches,
        annealing_steps=chosen.annealing_steps,
        correction=chosen.correction,
        warmup_steps=chosen.warmup_steps,
        nesterov=chosen.nesterov,
        update_every=chosen.update_every,
    )


def train(pipeline: hvd.Pipeline, chosen: argparse.Namespace) -> list[float]:
    """Train; return the losses of all mini-batches, the same on all ranks."""
    steps = chosen.steps
    windows = characters.training(0, 1, steps * chosen.batch_size, chosen.seed)
    losses = []
    for step in range(steps):
        inputs, targets = (torch.from_numpy(part).long() for part in windows.batch(step, chosen.batch_size))
        for group in pipeline.optimizer.param_groups:
            group["lr"] = chosen.learning_rate * characters.rate_factor(step, steps)
        loss = pipeline.step(inputs, targets)  # (3) asynchronous schedules return the loss of an earlier mini-batch
        losses.append(loss.item())
        if hvd.rank() == 0 and (step + 1) % SHOW_EVERY == 0:
            characters.show(step + 1, steps, loss.item())
    late = pipeline.drain()  # (4) apply updates in flight, and return the remaining losses
    begin = chosen.warmup_steps
    return losses[:begin] + losses[begin + len(late) :] + [loss.item() for loss in late]


def test(whole: dict[str, Any]) -> tuple[float, float]:
    """Loss and accuracy on held-out text of the state that `consolidate` returned, in a plain model."""
    model = net()
    model.load_state_dict(whole["model"])
    model.eval()
    held_out = characters.held_out()
    targets = torch.from_numpy(held_out.targets).long()
    with torch.no_grad():
        logits = model(torch.from_numpy(held_out.inputs).long())
        loss = nn.functional.cross_entropy(logits, targets).item()
        return loss, (logits.argmax(1) == targets).float().mean().item()


def arguments_of(description: str) -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(description=description)
    characters.add_arguments(parser)
    parser.add_argument("--schedule", choices=tuple(SCHEDULES), default="pipemare")
    parser.add_argument("--microbatches", type=int, default=1, help="into how many a batch is cut (default: 1)")
    parser.add_argument("--annealing-steps", type=int, default=0, help="T1: lower learning rates for so many updates")
    parser.add_argument("--correction", type=float, help="T2: D, such as 0.135, of corrected backward passes")
    parser.add_argument("--warmup-steps", type=int, default=0, help="T3: so many steps first are synchronous")
    parser.add_argument("--nesterov", type=float, help="Nesterov's momentum on the last stage, such as 0.9")
    parser.add_argument("--update-every", type=int, default=1, help="mini-batches that an update takes (default: 1)")
    return parser


def main() -> None:
    """Train, and test on text that no rank has seen."""
    chosen = arguments_of("A character-level transformer, cut into stages.").parse_args()
    hvd.init()
    pipeline = pipeline_of(chosen)
    train(pipeline, chosen)
    whole = pipeline.consolidate()  # (5) on rank 0: one ordinary model, whatever its cut was
    pipeline.close()
    if whole is not None:
        loss, accuracy = test(whole)
        characters.conclude(f"PyTorch {torch.__version__}", loss, accuracy, equal=True)  # each weight exists once
    hvd.barrier()  # rank 0 may still wait for messages of others
    hvd.shutdown()


if __name__ == "__main__":
    main()
