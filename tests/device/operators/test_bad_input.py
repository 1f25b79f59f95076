"""Bad input raises torch's messages, as on the CPU or, for mixed devices, as on any accelerator."""

import re

import pytest
import torch
from torch.nn import functional as F


def make(device, text):
    """``"2x3"``: ones of that shape; a letter before it names a dtype other than float32."""
    dtypes = {"i": torch.int64, "b": torch.bool, "d": torch.float64, "c": torch.complex64, "h": torch.float16}
    dtype = dtypes.get(text[0], torch.float32)
    shape = [int(n) for n in text.lstrip("".join(dtypes)).split("x") if n]
    return torch.ones(shape, dtype=dtype).to(device)


# Every call gets a function that makes a tensor on the device in question.
WRONG = {
    "add shapes": lambda t: t("2x3") + t("2x4"),
    "add_ grows": lambda t: t("3").add_(t("2x3")),
    "add_ narrows": lambda t: t("i3").add_(t("3")),
    "add alpha": lambda t: torch.add(t("i2"), 1, alpha=1.5),
    "exp_ of integers": lambda t: t("i2").exp_(),
    "exp out dtype": lambda t: torch.exp(t("2"), out=t("i2")),
    "div_ of integers": lambda t: t("i2").div_(2),
    "neg bool": lambda t: -t("b2"),
    "relu bool": lambda t: t("b2").relu(),
    "power of integers": lambda t: t("i2") ** -1,
    "gelu approximate": lambda t: F.gelu(t("2"), approximate="other"),
    "gelu of integers": lambda t: F.gelu(t("i2")),
    "sub bool": lambda t: t("b3") - t("b3"),
    "mul out dtype": lambda t: torch.mul(t("3"), t("3"), out=t("i3")),
    "mm shapes": lambda t: t("2x3") @ t("2x3"),
    "mm dims": lambda t: torch.mm(t("2x3"), t("3")),
    "mm dtypes": lambda t: torch.mm(t("2x3"), t("d3x2")),
    "bmm batch": lambda t: torch.bmm(t("2x3x4"), t("3x4x5")),
    "addmm": lambda t: torch.addmm(t("7"), t("2x3"), t("3x4")),
    "linear": lambda t: F.linear(t("2x3"), t("4x5")),
    "conv channels": lambda t: F.conv2d(t("1x3x5x5"), t("4x2x3x3")),
    "conv kernel too big": lambda t: F.conv2d(t("1x3x2x2"), t("4x3x3x3")),
    "conv dims": lambda t: F.conv2d(t("3"), t("4x3x3x3")),
    "conv groups": lambda t: F.conv2d(t("1x3x5x5"), t("4x3x3x3"), groups=2),
    "conv bias": lambda t: F.conv2d(t("1x3x5x5"), t("4x3x3x3"), t("5")),
    "conv transposed channels": lambda t: F.conv_transpose2d(t("1x3x5x5"), t("4x2x3x3")),
    "conv integer": lambda t: F.conv2d(t("1x3x5x5"), t("i4x3x3x3")),
    "max_pool": lambda t: F.max_pool2d(t("1x3x2x2"), 5),
    "softmax dim": lambda t: t("2x3").softmax(2),
    "sum dim": lambda t: t("2x3").sum(5),
    "mean of integers": lambda t: t("i3").mean(),
    "max of nothing": lambda t: t("0").max(),
    "argmax of nothing": lambda t: t("0").argmax(),
    "cat shapes": lambda t: torch.cat([t("2x3"), t("2x4")]),
    "cat of nothing": lambda t: torch.cat([]),
    "stack shapes": lambda t: torch.stack([t("2"), t("3")]),
    "view": lambda t: t("2x3").view(4),
    "view of a transposed": lambda t: t("2x3").t().view(6),
    "expand": lambda t: t("2").expand(3),
    "squeeze dim": lambda t: t("2").squeeze(4),
    "index out of range": lambda t: t("3")[5],
    "index by float": lambda t: t("3")[t("2")],
    "mask of another shape": lambda t: t("3")[t("b4")],
    "too many indices": lambda t: t("3")[0, 0],
    "gather dtype": lambda t: t("3").gather(0, t("3")),
    "gather dims": lambda t: t("2x3").gather(0, t("i3")),
    "scatter dtype": lambda t: t("3").scatter(0, t("i3") * 0, t("d3")),
    "index_select dims": lambda t: t("2x3").index_select(0, t("i2x2")),
    "index_add dtype": lambda t: t("3").index_add(0, t("i3") * 0, t("d3")),
    "embedding by float": lambda t: F.embedding(t("2"), t("4x3")),
    "masked_fill": lambda t: t("3").masked_fill(t("3"), 0),
    "where by floats": lambda t: torch.where(t("2"), t("2"), 1.0),
    "where shapes": lambda t: torch.where(t("b2"), t("3"), t("3")),
    "cross_entropy target": lambda t: F.cross_entropy(t("2x3"), t("i4")),
    "cross_entropy class": lambda t: F.cross_entropy(t("2x3"), t("i2") * 7),
    "nll_loss dtype": lambda t: F.nll_loss(t("2x3"), t("2")),
    "mse_loss": lambda t: F.mse_loss(t("2x3"), t("2x4")),
    "layer_norm": lambda t: F.layer_norm(t("2x3"), (4,)),
    "batch_norm": lambda t: F.batch_norm(t("2x3"), t("4"), t("4")),
    "group_norm": lambda t: F.group_norm(t("2x3x4"), 2),
    "attention": lambda t: F.scaled_dot_product_attention(t("1x1x2x3"), t("1x1x2x4"), t("1x1x2x4")),
    "attention dtypes": lambda t: F.scaled_dot_product_attention(t("1x1x2x3"), t("d1x1x2x3"), t("1x1x2x3")),
    "lstm": lambda t: torch.nn.LSTM(3, 4).to(t("1").device)(t("2x1x5")),
    "grid_sample": lambda t: F.grid_sample(t("1x1x4x4"), t("2x2x2x2"), align_corners=False),
    "inverse": lambda t: torch.linalg.inv(t("2x3")),
    "singular": lambda t: torch.linalg.inv(t("2x2")),
    "cholesky": lambda t: torch.linalg.cholesky(-t("2x2")),
    "solve": lambda t: torch.linalg.solve(t("2x2"), t("3x2")),
    "fft": lambda t: torch.fft.fft(t("0")),
    "sort dim": lambda t: t("3").sort(2),
    "topk": lambda t: t("3").topk(5),
    "multinomial": lambda t: torch.multinomial(t("3") * 0, 2),
    "bincount": lambda t: torch.bincount(t("i3") * -1),
    "repeat": lambda t: t("2x3").repeat(2),
    "roll": lambda t: t("2x3").roll(1, 7),
    "cumsum": lambda t: t("3").cumsum(3),
    "tril": lambda t: t("3").tril(),
    "diagonal": lambda t: t("2x3").diagonal(0, 0, 0),
    "unfold": lambda t: t("3").unfold(0, 5, 1),
    "item": lambda t: t("3").item(),
    "item of nothing": lambda t: t("0").item(),
    "scalar of nothing": lambda t: torch.ops.aten._local_scalar_dense(t("0")),
    "bool": lambda t: bool(t("2")),
    "resize of a leaf": lambda t: t("3").requires_grad_().resize_(4),
    "in-place on a leaf": lambda t: t("3").requires_grad_().add_(1),
    "overlap": lambda t: t("1").expand(3).add_(1),
    "partial overlap": lambda t: (lambda x: torch.add(x[:-1], 1, out=x[1:]))(t("4")),
    "partial overlap in place": lambda t: (lambda x: x[1:].mul_(x[:-1]))(t("4")),
    "gradient of integers": lambda t: t("i3").requires_grad_(),
    "backward twice": lambda t: (lambda y: (y.backward(), y.backward()))(t("1").requires_grad_().exp().sum()),
    "backward of a vector": lambda t: t("3").requires_grad_().mul(2).backward(),
    "complex comparison": lambda t: t("c2") < t("c2"),
    "bitwise of floats": lambda t: t("2") & t("2"),
    "negative sizes": lambda t: t("2").new_empty(-1),
    "foreach lengths": lambda t: torch._foreach_add([t("2")], [t("2"), t("2")]),
    "tensor_split": lambda t: torch.tensor_split(t("3"), t("2")),
    "dropout": lambda t: F.dropout(t("2"), 1.5),
    "quantize": lambda t: torch.quantize_per_tensor(t("i2"), 0.1, 0, torch.quint8),
}


def failure(call, on):
    """Its type, and its message with the CPU's names."""
    with pytest.raises(Exception) as caught:  # noqa: PT011
        call(lambda text: make(on, text))
    name = torch.device(on).type
    text = str(caught.value).replace(f"{name}FloatType", "torch.FloatTensor")
    return caught.type, re.sub(rf"{name}(:\d)?", "cpu", text, flags=re.IGNORECASE)


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG.keys())
def test_wrong_input_raises_the_cpus_error(device, call):
    assert failure(call, device) == failure(call, "cpu")


SAME_DEVICE = "Expected all tensors to be on the same device"
MIXED = {
    "add": lambda x, y: x + y,
    "add host first": lambda x, y: y + x,
    "mul_": lambda x, y: x.mul_(y),
    "comparison": lambda x, y: x < y,
    "where": lambda x, y: torch.where(x > 0, x, y),
    "mm": lambda x, y: x.view(1, -1) @ y.view(-1, 1),
    "linear": lambda x, y: F.linear(x, y.view(1, -1)),
    "cat": lambda x, y: torch.cat([x, y]),
    "stack": lambda x, y: torch.stack([y, x]),
    "out on the host": lambda x, y: torch.exp(x, out=y),
    "out on the device": lambda x, y: torch.exp(y, out=x),
    "conv": lambda x, y: F.conv1d(x.view(1, 1, -1), y[:2].view(1, 1, -1)),
    "batch_norm": lambda x, y: F.batch_norm(x.view(1, -1), y, y),
    "layer_norm": lambda x, y: F.layer_norm(x, (4,), y),
    "embedding": lambda x, y: F.embedding(y.long(), x.view(2, 2)),
    "embedding on the host": lambda x, y: F.embedding(x.long(), y.view(2, 2)),
    "index_select": lambda x, y: x.index_select(0, y.long()),
    "gather": lambda x, y: x.gather(0, y.long()),
    "masked_select": lambda x, y: x.masked_select(y > 0),
    "mse_loss": lambda x, y: F.mse_loss(x, y),
    "cross_entropy": lambda x, y: F.cross_entropy(x.view(1, -1), y[:1].long()),
    "attention": lambda x, y: F.scaled_dot_product_attention(*(t.view(1, 1, 2, 2) for t in (x, y, y))),
    "lstm": lambda x, y: torch.nn.LSTM(4, 2)(x.view(1, 1, 4)),
    "solve": lambda x, y: torch.linalg.solve(x.view(2, 2), y.view(2, 2)),
    "lerp": lambda x, y: torch.lerp(x, x, y),
    "addcmul": lambda x, y: torch.addcmul(x, x, y),
    "foreach": lambda x, y: torch._foreach_add([x], [y]),
    "sort out": lambda x, y: torch.sort(x, out=(y, y.long())),
    "dot": torch.dot,
    "equal": torch.equal,
    "index_copy": lambda x, y: x.index_copy(0, torch.zeros(4, dtype=torch.int64), y),
}


@pytest.mark.parametrize("call", MIXED.values(), ids=MIXED.keys())
def test_tensors_of_device_and_host_do_not_mix(device, call):
    with pytest.raises(RuntimeError, match="device") as caught:
        call(torch.ones(4, device=device), torch.ones(4))
    assert device.type in str(caught.value)
    assert "cpu" in str(caught.value).lower()


def test_a_host_tensor_is_not_indexed_by_the_device(device):
    with pytest.raises(RuntimeError, match="indices should be either on cpu or on the same device"):
        torch.ones(4)[torch.ones(4, dtype=torch.int64, device=device)]


def test_scalars_of_the_host_do_mix(device):
    x = torch.arange(4.0, device=device)
    two = torch.tensor(2.0)
    results = x * two, two * x, x.pow(two), torch.where(x > 0, x, two), x.clone().fill_(two), torch.add(x, two, alpha=3)
    assert {result.device.type for result in results} == {device.type}
    assert (x[torch.tensor(1)].item(), x[torch.tensor([1, 2])].tolist()) == (1, [1, 2])
    x[torch.tensor([True, False, False, False])] = two
    assert x.tolist() == [2, 1, 2, 3]


@pytest.mark.requires("multi_device")
def test_two_devices_do_not_mix(device):
    x, y = torch.ones(3, device=device), torch.ones(3, device=f"{device.type}:1")
    for call in (torch.add, torch.dot, lambda a, b: torch.cat([a, b]), lambda a, b: torch.mm(a[None], b[:, None])):
        with pytest.raises(RuntimeError, match=SAME_DEVICE):
            call(x, y)
    assert (x + y.sum().cpu()).tolist() == [4, 4, 4]


def test_an_index_out_of_range_is_an_error(printed):
    """Each in a child: a kernel finds it when it runs, and the device is in error from then on; the CPU at once."""
    code = """
        import os
        for call in (
            "x.gather(0, i)",
            "x.index_select(0, i)",
            "torch.nn.functional.embedding(i, x[:, None])",
            "torch.nn.functional.nll_loss(x.expand(1, 3), i)",
        ):
            if os.fork() == 0:
                x, i = torch.ones(3, device=d), torch.tensor([9], device=d)
                try:
                    eval(call).cpu()
                except (IndexError, RuntimeError):
                    print("refused", flush=True)
                os._exit(0)
            os.wait()
    """
    assert printed(code).split() == ["refused"] * 4


def test_an_index_into_no_elements_is_an_index_error(device):
    """Some operators view such a tensor with other strides, over memory that its storage must have."""
    for on in ("cpu", device):
        x, i = torch.ones(5, device=on).resize_(0), torch.tensor([7], device=on).as_strided([1], [0])
        with pytest.raises(IndexError, match="index 7 is out of"):
            x.index_fill_(0, i, 2)
