"""Lightning trains through the strategy of examples/digits_lightning.py; docs/guides/lightning.md has all of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from integration_tests.support.examples import printed, results
from integration_tests.support.packages import ROOT
from integration_tests.support.ranks import ranks, run_ranks
from integration_tests.support.torch_training import assert_replicas_equal, parameters


def _said(rank: int, size: int, exchange: str) -> list[str]:
    return printed("digits_lightning", ["--epochs", "3", "--exchange", exchange])


@pytest.mark.parametrize("exchange", ["sync", "pipelined", "majority"])
def test_digits_are_learnt_and_replicas_stay_equal(exchange: str) -> None:
    (first,), (second,) = run_ranks(_said, 2, exchange)
    (result,) = results(first)
    assert result["equal"] is True and result["accuracy"] > 0.8
    assert not results(second), "rank 0 speaks"


BATCH = 32  # 36 batches: equally many for each of 2, 3 and 4 ranks


def _trained(rank: int, size: int, strategy: Any, **choices: Any) -> Any:
    """The model after two epochs of batches that `size` ranks together have the same, however many there are."""
    import lightning.pytorch as pl

    from paceline.examples import digits_lightning, digits_torch

    images, labels, *_ = digits_torch.data(0, 1)
    whole = TensorDataset(images[: 36 * BATCH].double(), labels[: 36 * BATCH])
    pl.seed_everything(3, verbose=False)
    model = digits_lightning.Digits().double()
    quiet = dict.fromkeys(("enable_checkpointing", "enable_model_summary", "enable_progress_bar", "logger"), False)
    trainer = pl.Trainer(strategy=strategy, accelerator="cpu", devices=1, max_epochs=2, **choices, **quiet)
    # A sampler of ours, because Lightning's shuffles.
    sampler = DistributedSampler(whole, trainer.world_size, rank, shuffle=False)
    trainer.fit(model, DataLoader(whole, BATCH * size // trainer.world_size, sampler=sampler))
    return model


@ranks(2, more=(3, 4))
def test_synchronous_training_equals_one_process(rank: int, size: int) -> None:
    """Also with accumulated gradients whose last update of an epoch has fewer passes, and clipping."""
    from paceline.examples import digits_lightning

    for name, choices in {"plain": {}, "both": {"accumulate_grad_batches": 4, "gradient_clip_val": 0.1}}.items():
        together = _trained(rank, size, digits_lightning.HorovodStrategy(), **choices)
        alone = _trained(0, size, "auto", **choices)
        apart = (parameters(together) - parameters(alone)).abs().max()
        assert apart < 1e-9 * parameters(alone).abs().max(), f"{name}: {apart:.1e}"
        assert_replicas_equal(together, f"lightning.{name}")


@ranks(2)
def test_logged_values_are_those_of_all_ranks(rank: int, size: int) -> None:
    """Metrics of torchmetrics count the samples of all ranks; values of several types are logged in each step."""
    import lightning.pytorch as pl
    from torchmetrics.classification import BinaryAccuracy

    from paceline.examples import digits_lightning

    class Logging(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))
            self.accuracy = BinaryAccuracy()

        def training_step(self, batch: Any, number: int) -> Any:
            self.log("single", torch.tensor(float(rank)), on_step=True, on_epoch=True, sync_dist=True)
            self.log("double", torch.tensor(2.0 * rank).double(), on_step=True, on_epoch=True, sync_dist=True)
            self.accuracy(torch.tensor([float(rank)] * 3), torch.ones(3, dtype=torch.int64))
            self.log("accuracy", self.accuracy, on_step=False, on_epoch=True)
            return self.weight.sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    quiet = dict.fromkeys(("enable_checkpointing", "enable_model_summary", "enable_progress_bar", "logger"), False)
    strategy = digits_lightning.HorovodStrategy()
    trainer = pl.Trainer(strategy=strategy, accelerator="cpu", devices=1, max_epochs=2, **quiet)
    trainer.fit(Logging(), DataLoader(TensorDataset(torch.zeros(12, 1)), 3))
    found = {name: value.item() for name, value in trainer.callback_metrics.items()}
    assert found["accuracy"] == 0.5 and found["single_epoch"] == 0.5 and found["double_epoch"] == 1.0


@ranks(2)
def test_shares_of_different_lengths_are_refused(rank: int, size: int) -> None:
    import lightning.pytorch as pl

    from paceline.examples import digits_lightning, digits_torch

    images, labels, *_ = digits_torch.data(rank, size)
    share = TensorDataset(images[: 320 - 96 * rank], labels[: 320 - 96 * rank])
    quiet = dict.fromkeys(("enable_checkpointing", "enable_model_summary", "enable_progress_bar", "logger"), False)
    strategy = digits_lightning.HorovodStrategy()
    trainer = pl.Trainer(
        strategy=strategy, accelerator="cpu", devices=1, max_epochs=2, use_distributed_sampler=False, **quiet
    )
    with pytest.raises(ValueError, match="equally many batches") as raised:
        trainer.fit(digits_lightning.Digits(), DataLoader(share, BATCH))
    said = str(raised.value)
    assert "rank 0 has 10, rank 1 has 7" in said and "limit_train_batches=7" in said


@pytest.mark.parametrize("passes", [1, 3])
@ranks(2, more=(3,))
def test_shares_of_different_lengths_equal_one_process(rank: int, size: int, passes: int) -> None:
    """10 batches on the first rank and 7 on the next, the last ones shorter, with validation between epochs."""
    import lightning.pytorch as pl

    from paceline.examples import digits_lightning, digits_torch

    images, labels, *_ = digits_torch.data(0, 1)
    counts = [10, 7, 9][:size]

    def share(of: int) -> tuple[Any, Any]:
        begin = sum(counts[:of]) * BATCH
        end = begin + counts[of] * BATCH - 5 * of
        return images[begin:end].double(), labels[begin:end]

    pl.seed_everything(3, verbose=False)
    model, alone = digits_lightning.Digits().double(), digits_lightning.Digits().double()
    alone.load_state_dict(model.state_dict())
    quiet = dict.fromkeys(("enable_checkpointing", "enable_model_summary", "enable_progress_bar", "logger"), False)
    trainer = pl.Trainer(
        strategy=digits_lightning.HorovodStrategy(uneven=True), accelerator="cpu", devices=1, max_epochs=2,
        use_distributed_sampler=False, accumulate_grad_batches=passes, **quiet,
    )  # fmt: skip
    trainer.fit(model, DataLoader(TensorDataset(*share(rank)), BATCH))

    optimizer = alone.configure_optimizers()
    for _ in range(2):
        for first in range(0, max(counts), passes):
            rows = [slice(BATCH * first, BATCH * (first + passes))] * size
            parts = [tuple(one[here] for one in share(of)) for of, here in enumerate(rows)]
            optimizer.zero_grad()
            batch: Any = tuple(torch.cat(many) for many in zip(*parts, strict=True))
            alone.training_step(batch, 0).backward()
            optimizer.step()
    apart = (parameters(model) - parameters(alone)).abs().max()
    assert apart < 1e-9 * parameters(alone).abs().max(), f"{apart:.1e}"
    assert_replicas_equal(model, f"lightning.uneven.{passes}")


def test_the_page_shows_the_strategy_that_is_tested() -> None:
    source = (ROOT / "examples" / "digits_lightning.py").read_text()
    strategy = source[source.index("class HorovodStrategy") : source.index("class Digits")].rstrip()
    assert strategy in (ROOT / "docs" / "guides" / "lightning.md").read_text()
