"""The benchmark's networks have the published numbers of tensors and parameters, and times that follow the work."""

from __future__ import annotations

import pytest

from paceline.errors import UserError
from paceline.examples.benchmarks.networks.models import MODELS, Model, find


@pytest.mark.parametrize(
    ("name", "tensors", "parameters"),
    [
        ("resnet20", 65, 272_474),
        ("resnet50", 161, 25_557_032),
        ("bert-base", 199, 109_482_240),
        ("vgg16", 32, 138_357_544),
        ("lstm", 10, 51_034_000),
    ],
)
def test_tensors_and_parameters_are_the_published_ones(name: str, tensors: int, parameters: int) -> None:
    model = find(name)
    assert (model.tensors, model.parameters) == (tensors, parameters)
    assert model.gradient_bytes == 4 * parameters


@pytest.mark.parametrize(
    ("name", "macs"), [("resnet20", 40_813_184), ("resnet50", 4_089_184_256), ("vgg16", 15_470_264_320)]
)
def test_matrix_products_are_the_published_work(name: str, macs: int) -> None:
    layers = find(name).layers
    assert sum(layer.macs for layer in layers if "bn" not in layer.name) == macs


def shapes(model: Model) -> dict[str, tuple[int, ...]]:
    return {f"{layer.name}.{name}": shape for layer in model.layers for name, shape in layer.tensors}


def test_shapes_of_chosen_tensors() -> None:
    resnet = shapes(find("resnet50"))
    assert resnet["conv1.weight"] == (64, 3, 7, 7)
    assert resnet["layer4.0.downsample.conv.weight"] == (2048, 1024, 1, 1)
    assert resnet["layer3.5.bn2.bias"] == (256,)
    assert resnet["fc.weight"] == (1000, 2048)
    assert shapes(find("resnet20"))["layer2.0.shortcut.conv.weight"] == (32, 16, 1, 1)
    assert shapes(find("bert-base"))["encoder.11.intermediate.weight"] == (3072, 768)
    assert shapes(find("vgg16"))["fc6.weight"] == (4096, 25088)
    assert shapes(find("lstm"))["lstm.weight_hh_l1"] == (6000, 1500)


@pytest.mark.parametrize("name", MODELS)
def test_every_tensor_has_a_name_of_its_own(name: str) -> None:
    model = find(name)
    assert len({layer.name for layer in model.layers}) == len(model.layers)
    assert len(shapes(model)) == model.tensors


@pytest.mark.parametrize("name", MODELS)
def test_layers_share_the_time_by_their_work(name: str) -> None:
    model = find(name)
    assert sum(model.shares) == pytest.approx(1)
    first, second = model.shares[0], model.shares[1]
    assert first / second == pytest.approx(model.layers[0].macs / model.layers[1].macs)
    assert model.forward_ms == model.backward_ms / 2


def test_large_models_take_longer_in_proportion_to_their_work() -> None:
    def work(name: str) -> int:
        return sum(layer.macs for layer in find(name).layers)

    for name in ("bert-base", "vgg16"):
        assert find(name).backward_ms == pytest.approx(300 * work(name) / work("resnet50"), abs=50)


def test_a_factor_scales_every_tensor_but_not_the_time() -> None:
    whole, tenth = find("resnet50"), find("resnet50-x0.1")
    assert tenth.tensors == 161 and tenth.backward_ms == whole.backward_ms and tenth.shares == whole.shares
    assert shapes(tenth)["fc.weight"] == (204_800,)
    # Rounding to whole elements moves a tensor by half an element at most.
    assert tenth.parameters == pytest.approx(whole.parameters / 10, abs=161 / 2)
    assert min(shape[0] for shape in shapes(find("mini-x0.001")).values()) == 1


def test_another_factor_scales_the_time_but_no_tensor() -> None:
    whole, quick, both = find("bert-base"), find("bert-base-t0.5"), find("bert-base-x0.02-t0.5")
    assert quick.layers == whole.layers and quick.compute_ms == both.compute_ms == whole.compute_ms / 2
    assert both.layers == find("bert-base-x0.02").layers and both.name == "bert-base-x0.02-t0.5"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("resnet5O", "Did you mean resnet50?"),
        ("alexnet-x0.5", "There is no model 'alexnet-x0.5'"),
        ("mini-x0", "The factor '0' of model 'mini-x0'"),
        ("mini-x1.2.3", "The factor '1.2.3'"),
        ("mini-x11", "above 0 and at most 10"),
        ("mini-t0", "The factor '0' of model 'mini-t0'"),
        ("mini-x0.5-t", "There is no model 'mini-x0.5-t'"),
        ("mini-t0.5-x0.5", "There is no model 'mini-t0.5-x0.5'"),
        ("resnet20-real-t0.5", "There is no model 'resnet20-real-t0.5'"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused_with_a_remedy(name: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        find(name)
    assert said in str(caught.value)
