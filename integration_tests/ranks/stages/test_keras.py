"""hvd.Pipeline of Keras, on TensorFlow and on PyTorch.

It equals one process, and training with the weights of the schedule.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import torch

import paceline.keras as hvd
from integration_tests.support import stage_keras as nets
from integration_tests.support.keras_worlds import keras_ranks, mostly_on_torch
from integration_tests.support.ranks import ranks
from integration_tests.support.stage_keras import Arrays, N, accumulate, assert_close, keras_net, mse, named, tensors
from integration_tests.support.stage_reference import train_with_old_weights
from integration_tests.support.stage_training import data, net
from paceline.stages import schedules
from paceline.stages.delays import delays
from paceline.stages.flow import program
from paceline.stages.versions import activations, copies, versions

CUTS = {1: [0], 2: [0, 4], 3: [0, 3, 6]}
RATE = 0.125  # learning rates are float32 variables


def _weights() -> list[np.ndarray[Any, Any]]:
    return [one.detach().numpy().T.copy() for one in net().parameters()]


def _batches(steps: int, rows: int = 10) -> list[tuple[Any, Any]]:
    return [(batch.numpy(), target.numpy()) for batch, target in (data(step, rows) for step in range(steps))]


def _exact() -> float:
    """Tolerance with TensorFlow.

    TensorFlow's optimizer of graphs merges operations differently in different graphs, and a pass of one stage is a
    separate graph: sums are rounded differently.
    """
    return 0.0 if keras.backend.backend() == "torch" else 1e-12


@keras_ranks(3, soak=(1, 2))
def test_synchronous_schedules_equal_one_process(rank: int, size: int) -> None:
    weights, given = _weights(), _batches(30)
    model = keras_net(weights)
    losses = accumulate(model, keras.optimizers.Adam(0.01), mse(), given, N)
    for schedule in ("gpipe", "1f1b"):
        result = nets.train(
            keras_net(weights), keras.optimizers.Adam(0.01), given, schedule=schedule, stages=CUTS[size][1:]
        )
        assert_close(result, named(model), losses, _exact())


@pytest.fixture
def of_one_process(size: int) -> list[tuple[dict[str, Any], Arrays, list[float]]]:
    """Arguments of a pipeline, and the weights and losses that one process has with them."""
    corrections: dict[str, Any] = {"annealing_steps": 9, "correction": 0.4, "warmup_steps": 4, "max_norm": 0.5}
    cases = []
    for schedule in ("pipedream", "2bw", "pipemare"):
        for microbatches, chosen in ((1, corrections), (3, {"correction": 0.4}), (3, {})):
            found, losses = train_with_old_weights(
                schedule,
                size,
                microbatches,
                CUTS[size],
                lambda parameters: torch.optim.SGD(parameters, lr=RATE),
                [data(step, 7) for step in range(20)],
                **chosen,
            )
            expected = {name.replace("weight", "kernel"): one.numpy().T.copy() for name, one in found.items()}
            cases.append(({"schedule": schedule, "n_microbatches": microbatches, **chosen}, expected, losses))
    return cases


@mostly_on_torch(3, soak=(1, 2))
def test_asynchronous_schedules_have_the_weights_and_delays_that_they_say(
    rank: int, size: int, of_one_process: list[tuple[dict[str, Any], Arrays, list[float]]]
) -> None:
    weights, given = _weights(), _batches(20, 7)
    for arguments, expected, losses in of_one_process:
        for recompute in (False, True) if arguments["schedule"] == "pipedream" else (False,):
            result = nets.train(
                keras_net(weights),
                keras.optimizers.SGD(RATE),
                given,
                stages=CUTS[size][1:],
                recompute=recompute,
                **arguments,
            )
            assert_close(result, expected, losses, 1e-12 if nets.dtype() == "float64" else 3e-6)
            made = schedules.make(arguments["schedule"], size, arguments["n_microbatches"])
            assert result["delays"] == delays(made)[rank]
            instructions = program(made, rank, len(given))
            assert result["activations"] == activations(instructions)
            assert result["copies"] == copies(instructions, versions(made, instructions))


def _layers_of_many_kinds() -> Any:
    keras.utils.set_random_seed(4)
    words = keras.Input((6,), dtype="int32")
    value = keras.layers.Embedding(11, 8)(words)
    value = keras.layers.LSTM(7, return_sequences=True)(value)
    value = keras.ops.multiply(value, 0.5)
    value = keras.layers.LayerNormalization()(value)
    value = keras.layers.GlobalAveragePooling1D()(value)
    value = keras.layers.Dense(5, activation="relu")(value)
    value = keras.layers.BatchNormalization()(value)
    return keras.Model(words, keras.layers.Dense(3)(value))


@pytest.mark.soak
@keras_ranks(2, 3)
def test_a_functional_chain_of_many_kinds_of_layers(rank: int, size: int) -> None:
    random = np.random.default_rng(2)
    given = [
        (random.integers(0, 11, (7, 6)).astype("int32"), random.integers(0, 3, 7).astype("int32")) for _ in range(4)
    ]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    plain = _layers_of_many_kinds()
    losses = accumulate(plain, keras.optimizers.SGD(0.1, momentum=0.9), loss, given, 2)
    arguments: dict[str, Any] = {"loss": loss, "n_microbatches": 2, "schedule": "1f1b"}
    result = nets.train(_layers_of_many_kinds(), keras.optimizers.SGD(0.1, momentum=0.9), given, **arguments)
    assert_close(result, named(plain), losses, 5e-5)  # in float32, normed over few rows
    assert np.abs(named(plain)["0.embeddings"] - named(_layers_of_many_kinds())["0.embeddings"]).max() > 1e-3


@keras_ranks(3)
def test_batch_norm_dropout_and_recomputation(rank: int, size: int) -> None:
    def model() -> Any:
        keras.utils.set_random_seed(5)
        layers: list[Any] = [keras.Input((6,))]
        for _ in range(3):
            layers += [keras.layers.Dense(6), keras.layers.BatchNormalization(), keras.layers.Dropout(0.3)]
        return keras.Sequential(layers)

    kept = []
    for recompute in (False, True):
        pipeline = hvd.Pipeline(model(), keras.optimizers.SGD(0.05), "mse", N, "pipedream", recompute=recompute)
        random = np.random.default_rng(1)
        for _ in range(6):
            pipeline.step(random.normal(size=(9, 6)), np.zeros((9, 6)))
        pipeline.drain()
        assert pipeline.evaluate(np.ones((9, 6)), np.zeros((9, 6))) == pipeline.evaluate(
            np.ones((9, 6)), np.zeros((9, 6))
        )
        kept.append(pipeline.state_dict()["model"])
        pipeline.close()
    for name, one in kept[0].items():
        np.testing.assert_allclose(one, kept[1][name], rtol=0, atol=1e-6, err_msg=name)
        if name.endswith("moving_mean"):
            assert np.abs(one).max() > 1e-3


@keras_ranks(3, soak=(1,))
def test_fit_is_that_of_keras(rank: int, size: int) -> None:
    weights, given = _weights(), _batches(4, 10)
    keras.backend.set_floatx(nets.dtype())
    try:
        x, y = (np.concatenate(parts) for parts in zip(*given, strict=True))
        arguments: dict[str, Any] = {"epochs": 5, "batch_size": 8, "verbose": 0, "shuffle": False}

        def slower(epoch: int, rate: float) -> float:
            return rate / 2 if epoch == 1 else rate

        plain = keras_net(weights)
        plain.compile(keras.optimizers.SGD(RATE), loss="mse", metrics=["mae"])
        expected = plain.fit(
            x, y, validation_data=(x[:9], y[:9]), callbacks=[keras.callbacks.LearningRateScheduler(slower)], **arguments
        ).history
        seen: list[str] = []

        class Stops(keras.callbacks.Callback):
            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                seen.append(f"batch {batch}")

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                self.model.stop_training = rank == 0 and epoch == 3

        pipeline = hvd.Pipeline(
            keras_net(weights), keras.optimizers.SGD(RATE), "mse", N, "1f1b", CUTS[size][1:], metrics=["mae"]
        )
        found = pipeline.fit(
            x,
            y,
            validation_data=(x[:9], y[:9]),
            callbacks=[keras.callbacks.LearningRateScheduler(slower), Stops()],
            **arguments,
        ).history
        assert seen == [f"batch {number}" for _ in range(4) for number in range(5)]
        assert set(found) == set(expected)
        within = 1e-9 if nets.dtype() == "float64" else 2e-6
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values[:4], rtol=within, atol=0, err_msg=name)
        evaluated = pipeline.evaluate(x, y, batch_size=8)
        # The last batch has fewer rows than there are micro-batches.
        predicted = pipeline.predict(x[: 8 + N - 1], batch_size=8)
        outputs = hvd.broadcast_object(pipeline.consolidate(), 0, name="test_fit")["model"]
        pipeline.close()
        plain.set_weights(list(outputs.values()))
        loss, mae = plain.evaluate(x, y, verbose=0)
        assert evaluated == pytest.approx({"loss": loss, "mae": mae}, rel=within)
        np.testing.assert_allclose(predicted, plain.predict(x[: 8 + N - 1], verbose=0), rtol=0, atol=10 * within)
        late = hvd.Pipeline(keras_net(weights), "sgd", "mse", N, "pipemare", CUTS[size][1:], metrics=["mae"])
        history = late.fit(x, y, batch_size=8, epochs=6, verbose=0, seed=3).history
        assert history["loss"][-1] < history["loss"][0]
        assert len(history["mae"]) == 6
        assert hvd.allgather_object(history, name="test_fit_history") == [history] * size
        late.close()
    finally:
        keras.backend.set_floatx("float32")


@pytest.mark.more
@keras_ranks(2)
def test_fit_ends_with_the_moving_average_of_the_weights_and_counts_from_nothing(rank: int, size: int) -> None:
    weights, given = _weights(), _batches(4, 10)
    keras.backend.set_floatx(nets.dtype())
    try:
        x, y = (np.concatenate(parts) for parts in zip(*given, strict=True))
        arguments: dict[str, Any] = {"epochs": 2, "batch_size": 8, "verbose": 0, "shuffle": False}
        within = 1e-9 if nets.dtype() == "float64" else 2e-6
        for options in ({}, {"ema_overwrite_frequency": 3}):
            average = {"use_ema": True, "ema_momentum": 0.9, **options}
            metric = keras.metrics.RootMeanSquaredError()
            plain = keras_net(weights)
            plain.compile(keras.optimizers.SGD(RATE, **average), loss="mse", metrics=[metric])
            expected = plain.fit(x, y, **arguments).history
            # The metric object has counted for another model before.
            pipeline = hvd.Pipeline(
                keras_net(weights),
                keras.optimizers.SGD(RATE, **average),
                "mse",
                N,
                stages=CUTS[size][1:],
                metrics=[metric],
            )
            found = pipeline.fit(x, y, **arguments).history
            for name, values in expected.items():
                np.testing.assert_allclose(found[name], values, rtol=within, atol=0, err_msg=f"{name} {options}")
            own = pipeline.state_dict()["model"]
            for name, value in own.items():
                np.testing.assert_allclose(value, named(plain)[name], rtol=0, atol=within, err_msg=f"{name} {options}")
            pipeline.close()
    finally:
        keras.backend.set_floatx("float32")


@keras_ranks(3)
def test_saved_and_loaded(rank: int, size: int) -> None:
    weights, given = _weights(), _batches(6)

    def adam() -> Any:
        return keras.optimizers.Adam(0.01)

    first = hvd.Pipeline(keras_net(weights), adam(), mse(), N, "pipemare", correction=0.3)
    for batch, target in tensors(given[:-1]):
        first.step(batch, target)
    with pytest.raises(hvd.UsageError, match="saved with micro-batches under way"):
        first.state_dict()
    first.drain()
    whole = hvd.broadcast_object(first.consolidate(), 0, name="test_saved")
    first.close()
    assert set(whole["pipeline"]["deltas"]) and list(whole["model"]) == list(named(keras_net(weights)))
    second = hvd.Pipeline(keras_net(weights), adam(), mse(), N, "1f1b", [1, 3])
    with pytest.raises(hvd.UsageError, match="lacks"):
        second.load_state_dict({"model": {}})
    second.load_state_dict(whole)
    found = second.step(*tensors(given)[-1])
    own = second.state_dict()
    second.close()
    plain = keras_net(weights)
    plain.set_weights(list(whole["model"].values()))
    optimizer = adam()
    optimizer.build(plain.trainable_variables)
    names = list(named(plain))
    for one in optimizer.variables:
        for name, value in whole["optimizer"]["shared"].items():
            if one.name == name:
                one.assign(value)
    for attribute in ("_momentums", "_velocities"):
        for name, one in zip(names, getattr(optimizer, attribute), strict=True):
            one.assign(whole["optimizer"]["slots"][name][attribute])
    expected = accumulate(plain, optimizer, mse(), given[-1:], N)
    assert [found] == pytest.approx(expected, rel=0, abs=_exact())
    for name, one in own["model"].items():
        np.testing.assert_allclose(one, named(plain)[name], rtol=0, atol=_exact(), err_msg=name)


@ranks(
    3, fresh=True, timeout_s=120,
    worlds=[{"KERAS_BACKEND": "tensorflow"}, pytest.param({"KERAS_BACKEND": "torch"}, marks=pytest.mark.soak)],
)  # fmt: skip
def test_a_stage_that_raises_ends_all_stages(rank: int, size: int) -> None:
    class Breaks(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if rank == 1 and batch == 2:
                raise ZeroDivisionError("a callback that fails")

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), *(keras.layers.Dense(4) for _ in range(size))])
    pipeline = hvd.Pipeline(model, "sgd", "mse", 2, "pipemare")
    with pytest.raises(Exception) as raised:
        pipeline.fit(np.zeros((24, 4)), np.zeros((24, 4)), batch_size=4, callbacks=[Breaks()], verbose=0)
    with pytest.raises(hvd.UsageError, match="has ended"):
        pipeline.step(np.zeros((4, 4)), np.zeros((4, 4)))
    text = f"{type(raised.value).__name__}: {raised.value}"
    if rank == 1:
        assert text == "ZeroDivisionError: a callback that fails"
    else:
        assert text.startswith("StageFailed: ") and "Stage 1 failed" in text
        assert "ZeroDivisionError: a callback that fails" in text


@keras_ranks(3)
def test_what_is_refused_on_all_ranks(rank: int, size: int) -> None:
    def chain(*layers: Any) -> Any:
        return keras.Sequential([keras.Input((4,)), *layers])

    def dense(**chosen: Any) -> Any:
        return keras.layers.Dense(4, **chosen)

    value = keras.Input((4,))
    inner = dense()(value)
    skipping = keras.Model(value, keras.layers.Add()([dense()(inner), inner]))
    used = keras.optimizers.SGD(0.1)
    used.build(chain(dense()).trainable_variables)

    def three() -> Any:
        return chain(dense(), dense(), dense())

    cases: list[tuple[Any, dict[str, Any], str]] = [
        (skipping, {}, "is not a chain"),
        (keras.Sequential([dense(), dense()]), {}, "has no variables yet"),
        ([dense()], {}, "cannot cut a list"),
        (chain(dense(), dense(kernel_regularizer="l2"), dense()), {}, "has a regularizer"),
        (chain(dense(), dense()), {}, "2 layers, and there are 3 stages"),
        (three(), {"loss": "mistake"}, "loss='mistake' is not known"),
        (three(), {"loss": keras.losses.MeanSquaredError(reduction=None)}, "has the reduction"),
        (three(), {"optimizer": used}, "has been used"),
        (three(), {"optimizer": keras.optimizers.SGD(0.1, global_clipnorm=1.0)}, "global_clipnorm"),
        (three(), {"optimizer": 3}, "optimizer is a int"),
        (three(), {"optimizer": "mistake"}, "optimizer='mistake' is not known"),
        (three(), {"schedule": "x"}, "There is no schedule"),
        (three(), {"schedule": "gpipe" if rank else "1f1b"}, "different pipelines: schedule"),
    ]
    for model, arguments, said in cases:
        with pytest.raises(hvd.UsageError, match=said):
            hvd.Pipeline(model, **{"optimizer": "sgd", "loss": "mse", "n_microbatches": 2, **arguments})
    model = chain(dense(name="first"), dense(name="second"), dense())
    pipeline = hvd.Pipeline(model, "sgd", "mse", 2)
    with pytest.raises(Exception, match="another stage keeps"):  # Keras makes new errors of those in layers
        model.get_layer("second" if rank == 0 else "first")(np.zeros((1, 4)))
    x = np.zeros((9, 4))
    with pytest.raises(hvd.UsageError, match="the last has 1"):
        pipeline.fit(x, x, batch_size=4)
    with pytest.raises(hvd.UsageError, match="8 and 9 rows"):
        pipeline.fit(x, x[:8], batch_size=3)
    with pytest.raises(hvd.UsageError, match="would save one stage"):
        pipeline.fit(x, x, batch_size=3, callbacks=[keras.callbacks.ModelCheckpoint("x.keras")])
    with pytest.raises(
        hvd.UsageError, match=r"different pipelines: epochs is \[0, 1\] on rank 0 and \[0, 2\] on rank 1"
    ):
        pipeline.fit(x, x, batch_size=3, epochs=1 + rank)
    assert len(pipeline.fit(x, x, batch_size=3, verbose=0).history["loss"]) == 1
    pipeline.close()
