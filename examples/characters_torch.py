"""A character-level transformer with PyTorch: `horovodrun -np 2 python examples/characters_torch.py --steps 300`.

It learns to predict the next character of Python's standard library. With `--exchange pipelined`, gradients are in
flight while the next step computes (docs/methods/pipelined.md). `--exchange majority` or `solo` does not wait for late
ranks (docs/methods/partial.md). (*) marks the lines that these exchanges need.
"""

from __future__ import annotations

import torch
from torch import nn

import paceline.torch as hvd
from paceline.examples import characters, replicas_torch
from paceline.examples.characters import CONTEXT, HEADS, LAYERS, VOCABULARY, WIDTH

SHOW_EVERY = 50


class Net(nn.Module):
    """A decoder: embeddings, causal self-attention, and a dense layer to the next character; 137,000 parameters.

    `context`: maximum number of characters that a prediction sees.
    """

    def __init__(self, context: int = CONTEXT) -> None:
        super().__init__()
        self.characters = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Parameter(torch.randn(context, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.next = nn.Linear(WIDTH, VOCABULARY)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context), persistent=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return logits (n, VOCABULARY, length) of the character after each of `text` (n, length <= context)."""
        length = text.shape[1]
        mask = self.mask[:length, :length]
        found = self.layers(self.characters(text) + self.places[:length], mask=mask, is_causal=True)
        return self.next(found).transpose(1, 2)


def main() -> None:
    """Train, and test on text that no rank has seen."""
    chosen = characters.arguments("A character-level transformer with PyTorch on all ranks.")
    hvd.init()
    torch.manual_seed(chosen.seed)
    windows = characters.training(hvd.rank(), hvd.size(), chosen.steps * chosen.batch_size, chosen.seed)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=chosen.learning_rate)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), exchange=characters.exchange(chosen)
    )  # (*)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: characters.rate_factor(step, chosen.steps))
    loss_of = nn.CrossEntropyLoss()

    for step in range(chosen.steps):
        inputs, targets = (torch.from_numpy(part).long() for part in windows.batch(step, chosen.batch_size))
        optimizer.zero_grad()
        loss = loss_of(model(inputs), targets)
        loss.backward()
        optimizer.step()
        schedule.step()
        if hvd.rank() == 0 and (step + 1) % SHOW_EVERY == 0:
            characters.show(step + 1, chosen.steps, loss.item())
    optimizer.drain()  # (*) the last update, whose gradients are still in flight
    if hvd.exchange_stats().rounds:
        replicas_torch.average(model)  # (*) replicas drift apart with an exchange that does not wait

    test = characters.held_out()
    targets = torch.from_numpy(test.targets).long()
    model.eval()
    with torch.no_grad():
        logits = model(torch.from_numpy(test.inputs).long())
        loss, accuracy = loss_of(logits, targets).item(), (logits.argmax(1) == targets).float().mean().item()
    equal = replicas_torch.equal(model)
    if hvd.rank() == 0:
        characters.conclude(f"PyTorch {torch.__version__}", loss, accuracy, equal)
    hvd.shutdown()


if __name__ == "__main__":
    main()
