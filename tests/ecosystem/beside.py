"""The same on the device and on the CPU: equal values, gradients and weights, and what is computed stays there."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only


class Stays(TorchDispatchMode):
    """An error where more than a number goes from the device to the CPU."""

    def __init__(self, device):
        super().__init__()
        self.device = device

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if any(self._is_here(tensor) for tensor in tensors((args, kwargs))):
            away = [tensor for tensor in tensors(found) if tensor.device.type == "cpu" and tensor.numel() > 1]
            assert not away, f"{func} takes {tuple(away[0].shape)} to {away[0].device}"
        return found

    def _is_here(self, tensor):
        return tensor.device.type == self.device.type


def tensors(values):
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def moved(values, place):
    """Copies of the tensors in ``values``: separate leaves."""
    return tree_map_only(
        torch.Tensor, lambda tensor: tensor.detach().clone().to(place).requires_grad_(tensor.requires_grad), values
    )


def assert_same(found, expected, device, **tolerance):
    """``found`` is ``expected`` with its tensors on the device."""
    ours, theirs = tensors(found), tensors(expected)
    assert theirs
    assert {tensor.device for tensor in ours} == {device}
    assert {tensor.device.type for tensor in theirs} == {"cpu"}
    torch.testing.assert_close([tensor.detach().cpu() for tensor in ours], theirs, **tolerance)


def assert_computes(device, function, *arguments, **tolerance):
    """The results of a function and the gradients of the arguments that require one."""

    def results(place):
        given = moved(arguments, place)
        found = function(*given)
        smooth = [tensor.float().square().mean() for tensor in tensors(found) if tensor.requires_grad]
        if smooth:
            sum(smooth).backward()
        return found, [tensor.grad for tensor in tensors(given) if tensor.requires_grad]

    expected = results("cpu")
    with Stays(device):
        found = results(device)
    assert_same(found, expected, device, **tolerance)


def assert_learns(device, make, *batch, loss=lambda model, *batch: model(*batch).square().mean(), steps=2, **tolerance):
    """The losses of two steps, the gradients of the last, and then the model's weights and buffers."""

    def results(place):
        torch.manual_seed(7)
        model, given = make().to(place), moved(batch, place)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            losses.append(loss(model, *given))
            losses[-1].backward()
            optimizer.step()
        return losses, {key: value.grad for key, value in model.named_parameters()}, model.state_dict()

    expected = results("cpu")
    assert any(gradient.any() for gradient in tensors(expected[1]))
    with Stays(device):
        found = results(device)
    assert_same(found, expected, device, **tolerance)
