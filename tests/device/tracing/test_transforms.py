"""torch.func over device tensors: values equal the CPU's.

The conformance suite ``autograd`` has grad, jacrev, jacfwd and hessian; test_conformance_kit.py runs it.
"""

import pytest
import torch
from answers import same
from torch.func import functional_call, functionalize, grad, jvp, linearize, vjp, vmap

W = torch.linspace(-1, 1, 12).view(3, 4)
X = torch.linspace(0, 2, 20).view(5, 4)


def f(w, x):
    return torch.tanh(x @ w.mT).square().sum(-1)


def loss(w, x):
    return f(w, x).mean()


def in_place(w):
    y = w.clone()
    y[0].mul_(2)
    return y.t().cos_()


def of_a_module(on):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3, track_running_stats=False)).to(on)
    parameters = {k: v.detach() * 2 for k, v in model.named_parameters()}
    return grad(lambda p, x: functional_call(model, p, x).square().mean())(parameters, X.to(on))


def ensemble(on):
    torch.manual_seed(0)
    models = [torch.nn.Linear(4, 3).to(on) for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(models)
    return vmap(lambda p, b: functional_call(models[0], (p, b), X.to(on)))(parameters, buffers)


TRANSFORMS = {
    "grad of grad": lambda on: grad(lambda w: grad(loss)(w, X.to(on)).sum())(W.to(on)),
    "grad with aux": lambda on: grad(lambda w: (loss(w, X.to(on)), w * 2), has_aux=True)(W.to(on)),
    "vmap": lambda on: vmap(f, (None, 0))(W.to(on), X.to(on)),
    "vmap of in-place": lambda on: vmap(in_place)(torch.stack([W, W + 1]).to(on)),
    "vmap of a reduction": lambda on: vmap(lambda x: x.sort(descending=True).values[:2].logsumexp(0))(X.to(on)),
    "vmap in chunks": lambda on: vmap(f, (None, 0), chunk_size=2)(W.to(on), X.to(on)),
    "vmap over indexing": lambda on: vmap(lambda x, i: x[i])(X.to(on), torch.tensor([0, 3, 1, 2, 0], device=on)),
    "jvp": lambda on: jvp(lambda w: f(w, X.to(on)), (W.to(on),), (torch.ones(3, 4, device=on),)),
    "jvp through dot": lambda on: jvp(lambda x: torch.ones(4, device=on) @ x, (X.to(on)[0],), (X.to(on)[1],)),
    "jvp through inner": lambda on: jvp(lambda x: torch.inner(x, torch.ones(4, device=on)), *[(X.to(on)[0],)] * 2),
    "jvp through vdot": lambda on: jvp(
        lambda x: torch.vdot(torch.full((4,), 2j, device=on), x.to(torch.complex64)), *[(X.to(on)[0],)] * 2
    ),
    "vjp": lambda on: vjp(lambda w: f(w, X.to(on)), W.to(on))[1](torch.ones(5, device=on)),
    "linearize": lambda on: linearize(lambda w: f(w, X.to(on)), W.to(on))[1](torch.ones(3, 4, device=on)),
    "functionalize": lambda on: functionalize(in_place)(W.to(on)),
    "functional_call": of_a_module,
    "stack_module_state": ensemble,
    "convolution": lambda on: vmap(lambda x, w: torch.conv1d(x, w))(
        torch.arange(30.0, device=on).view(5, 1, 6), torch.ones(5, 2, 1, 3, device=on)
    ),
    "dropout off": lambda on: vmap(lambda x: torch.dropout(x, 0.5, train=False))(X.to(on)),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS.keys())
def test_D36_transforms_equal_the_cpus(device, transform):
    same(transform(device), transform("cpu"), device, strides=False, tolerance=(1e-4, 1e-5))


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_D36_vmap_draws_from_the_devices_generator(device, device_module, randomness):
    x = torch.ones(4, 100, device=device)
    device_module.manual_seed(3)
    cpu_state = torch.get_rng_state()
    dropped = vmap(lambda t: torch.nn.functional.dropout(t, 0.5), randomness=randomness)(x).cpu()
    assert torch.equal(torch.get_rng_state(), cpu_state)
    assert (dropped[0] == 0).any()
    assert torch.equal(dropped[0], dropped[1]) == (randomness == "same")


def test_D36_make_fx_traces_a_gradient(device):
    from torch.fx.experimental.proxy_tensor import make_fx

    w, x = W.to(device), X.to(device)
    traced = make_fx(grad(loss))(w, x)
    torch.testing.assert_close(traced(w * 2, x).cpu(), grad(loss)(W * 2, X))
