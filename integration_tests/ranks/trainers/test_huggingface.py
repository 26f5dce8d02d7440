"""Hugging Face's Trainer trains through examples/digits_huggingface.py; with its defaults it clips gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import SequentialSampler

from integration_tests.support.examples import printed, results
from integration_tests.support.more import more
from integration_tests.support.ranks import ranks, run_ranks
from integration_tests.support.torch_training import assert_replicas_equal, parameters


def _said(rank: int, size: int, exchange: str) -> list[str]:
    return printed("digits_huggingface", ["--epochs", "3", "--exchange", exchange])


@pytest.mark.parametrize("exchange", ["pipelined", more("sync"), more("majority")])
def test_digits_are_learnt_and_replicas_stay_equal(exchange: str) -> None:
    (first,), (second,) = run_ranks(_said, 2, exchange)
    (result,) = results(first)
    assert result["equal"] is True and result["accuracy"] > 0.8
    assert not results(second), "rank 0 speaks"


def _trained(trainer: Any) -> Any:
    trainer._get_train_sampler = lambda dataset=None: SequentialSampler(trainer.train_dataset)
    trainer.train()
    return trainer.model


@ranks(2, more=(3, 4), hvd="paceline.torch")
def test_synchronous_training_equals_one_process(rank: int, size: int, hvd: Any) -> None:
    """The default max_grad_norm=1 clips; with accumulation the last update of an epoch has fewer passes."""
    from transformers import Trainer, TrainingArguments

    from paceline.examples import digits_huggingface as example
    from paceline.examples import digits_torch

    images, labels, *_ = digits_torch.data(0, 1)
    images, labels = 10 * images[:1080].double(), labels[:1080]  # gradients of a norm far above 1
    for passes in (1, 4):
        choices = {"num_train_epochs": 2, "gradient_accumulation_steps": passes, "report_to": "none", "use_cpu": True}
        choices |= {"save_strategy": "no", "disable_tqdm": True}
        torch.manual_seed(rank)
        together, share = example.Digits().double(), example.Images(images[rank::size], labels[rank::size])
        trainer, _ = example.trainer_of(together, share, 1e-3, "sync", per_device_train_batch_size=12, **choices)
        torch.manual_seed(0)
        alone = example.Digits().double()
        held = torch.optim.AdamW(alone.parameters(), lr=1e-3)
        arguments = TrainingArguments(learning_rate=1e-3, per_device_train_batch_size=12 * size, **choices)
        both = (
            trainer,
            Trainer(alone, arguments, train_dataset=example.Images(images, labels), optimizers=(held, None)),
        )
        for one in both:
            _trained(one)
        assert trainer.state.global_step == both[1].state.global_step
        apart = (parameters(together) - parameters(alone)).abs().max()
        assert apart < 1e-9 * parameters(alone).abs().max(), f"{passes} passes: {apart:.1e}"
        assert_replicas_equal(together, f"huggingface.{passes}")
