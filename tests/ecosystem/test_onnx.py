"""ONNX: a model of the device is exported, by torch.export and by tracing, and computes the CPU's results elsewhere."""

import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from torch import nn

LIBRARIES = "onnx", "onnxscript"


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.convolution, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.attention, self.last = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 4)

    def forward(self, images):
        found = self.norm(self.convolution(images)).relu().flatten(2).transpose(1, 2)
        found = found + self.attention(found, found, found)[0]
        return self.last(found.mean(1))


def images(count):
    return torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("traced", [pytest.param(False, marks=pytest.mark.sample), True])
def test_export(device, tmp_path, traced):
    path = str(tmp_path / "model.onnx")
    model = Model().eval()
    expected = model(images(5)).detach()
    model.to(device)
    if traced:
        sizes = {"dynamic_axes": {"images": {0: "count"}}, "input_names": ["images"]}
    else:
        sizes = {"dynamic_shapes": ({0: torch.export.Dim("count")},)}
    torch.onnx.export(model, (images(2).to(device),), path, dynamo=not traced, **sizes)
    assert {parameter.device for parameter in model.parameters()} == {device}
    loaded = onnx.load(path)
    onnx.checker.check_model(loaded)
    (given,) = loaded.graph.input
    (found,) = ReferenceEvaluator(loaded).run(None, {given.name: images(5).numpy()})
    torch.testing.assert_close(torch.from_numpy(found), expected, atol=1e-5, rtol=1e-4)
