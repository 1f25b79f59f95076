"""torchvision: operators with gradients and in float16, models that learn, a detector, transforms, against the CPU."""

import copy

import pytest
import torch
from beside import Stays, assert_computes, assert_learns, assert_same
from torchvision import models, ops, tv_tensors
from torchvision.transforms import v2

from torch_backplane import fallback


def drawn(*shape, learns=True):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).requires_grad_(learns)


def boxes(count=40, size=32.0):
    corners = torch.rand(count, 2, 2, generator=torch.Generator().manual_seed(1)) * size
    return torch.cat([corners.amin(1), corners.amax(1) + 1], 1)


@pytest.mark.sample
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_boxes_that_overlap_are_dropped(device, dtype):
    scores = torch.rand(40, generator=torch.Generator().manual_seed(2)).to(dtype)
    fallback.reset_calls()
    found = ops.nms(boxes().to(device, dtype), scores.to(device), 0.3)
    assert fallback.calls()["torchvision::nms"] == 1
    exact = boxes().to(dtype).float(), scores.float()
    assert_same(found, ops.nms(*exact, 0.3), device)
    assert 0 < len(found) < 40
    assert_computes(device, lambda *args: ops.batched_nms(*args, 0.3), *exact, torch.arange(40) % 3)


@pytest.mark.parametrize("pool", [ops.roi_align, ops.roi_pool, ops.ps_roi_align, ops.ps_roi_pool])
def test_regions(device, pool):
    rois = torch.cat([torch.arange(6).float()[:, None] % 2, boxes(6, 12.0)], 1)
    assert_computes(device, lambda x, rois: pool(x, rois, 2), drawn(2, 8, 14, 14), rois)


def test_deformable_convolution(device):
    x, weight, offset, mask = drawn(2, 4, 9, 9), drawn(6, 4, 3, 3), drawn(2, 18, 7, 7), drawn(2, 9, 7, 7)
    assert_computes(device, lambda x, o, w, m: ops.deform_conv2d(x, o, w, mask=m), x, offset, weight, mask)


MODELS = {
    "resnet": lambda: models.resnet18(num_classes=5),
    "mobilenet": lambda: models.mobilenet_v3_small(num_classes=5, dropout=0.0),
    "swin": lambda: models.SwinTransformer([4, 4], 16, [2, 2], [2, 2], [2, 2], stochastic_depth_prob=0.0),
    "maxvit": lambda: models.MaxVit((32, 32), 16, 2, [16], [1], 8, stochastic_depth_prob=0.0, num_classes=5),
}


@pytest.mark.parametrize("kind", [pytest.param("resnet", marks=pytest.mark.sample), *list(MODELS)[1:]])
def test_models_learn(device, kind):
    assert_learns(device, MODELS[kind], drawn(8, 3, 32, 32, learns=False), atol=1e-3, rtol=1e-2)


def test_a_detector_trains_and_detects(device):
    torch.manual_seed(3)
    options = {"weights": None, "weights_backbone": None, "min_size": 64, "max_size": 64, "num_classes": 3}
    reference = models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(**options)
    model = copy.deepcopy(reference).to(device)
    images = [drawn(3, 64, 64, learns=False).abs() for _ in range(2)]
    targets = [{"boxes": boxes(3, 40.0), "labels": torch.tensor([1, 2, 1])} for _ in range(2)]
    on_device = [{key: value.to(device) for key, value in target.items()} for target in targets]
    expected = reference(images, targets)
    with Stays(device):
        found = model([image.to(device) for image in images], on_device)
    assert_same(found, expected, device, atol=1e-4, rtol=1e-3)
    sum(found.values()).backward()
    assert {parameter.grad.device for parameter in model.parameters() if parameter.grad is not None} == {device}
    with torch.no_grad():
        detected = model.eval()([image.to(device) for image in images])
    assert {tensor.device for one in detected for tensor in one.values()} == {device}


@pytest.mark.sample
def test_transforms(device):
    steps = v2.Compose(
        [
            v2.ToDtype(torch.float32, scale=True),
            v2.Resize((20, 24), antialias=True),
            v2.CenterCrop(16),
            v2.RandomHorizontalFlip(1.0),
            v2.GaussianBlur(3, 1.0),
            v2.Normalize([0.5] * 3, [0.2] * 3),
        ]
    )
    image = torch.randint(0, 256, (3, 30, 40), dtype=torch.uint8, generator=torch.Generator().manual_seed(4))
    corners = tv_tensors.BoundingBoxes(boxes(5, 28.0), format="XYXY", canvas_size=(30, 40))
    expected = steps(tv_tensors.Image(image), corners)
    with Stays(device):
        found = steps(tv_tensors.Image(image.to(device)), corners.to(device))
    assert [type(one) for one in found] == [tv_tensors.Image, tv_tensors.BoundingBoxes]
    plain = [[one.as_subclass(torch.Tensor) for one in ones] for ones in (found, expected)]
    assert_same(*plain, device)
    bytes_ = v2.functional.resize(image.to(device), (20, 24))  # in float32 everywhere but on the CPU
    assert_same(bytes_, v2.functional.resize(image, (20, 24)), device, atol=1, rtol=0)
