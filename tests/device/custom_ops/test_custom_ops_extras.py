"""torch_backplane.ops: host kernels, autocast, vmap and effects of operators on the device."""

import pytest
import torch
from torch import Tensor

from torch_backplane import ops

pytestmark = pytest.mark.once


@pytest.fixture
def x(device):
    return torch.tensor([3.0, 1.0, 2.0]).to(device)


# Host kernels


def test_C74_results_of_numpy_come_back_to_the_callers_device(made, x):
    import numpy

    @ops.custom_op("bp_host::sorted", mutates_args=(), device_types="default")
    @ops.host_kernel
    def sorted_(x: Tensor) -> tuple[Tensor, Tensor]:
        assert x.device.type == "cpu"
        return numpy.sort(x.numpy()), torch.from_numpy(numpy.argsort(x.numpy()))

    made(sorted_)
    for given in (x, x.cpu()):
        values, order = sorted_(given)
        assert (values.device, order.device) == (given.device, given.device)
        assert (values.tolist(), order.tolist()) == ([1, 2, 3], [1, 2, 0])


def test_C74_its_writes_are_copied_to_the_devices_tensor(made, x):
    @ops.custom_op("bp_host::sort_", mutates_args={"x"})
    @ops.host_kernel
    def sort_(scale: float, x: list[Tensor], other: Tensor) -> None:
        for one in x:
            one.numpy().sort()
            one.mul_(scale)
        other.zero_()  # not declared, so not brought back

    rows = torch.stack([x, x]).t()  # not contiguous
    other = x.clone()
    made(sort_)(2.0, [x, rows[:, 1]], other)
    assert x.tolist() == [2, 4, 6]
    assert rows.tolist() == [[3, 2], [1, 4], [2, 6]]
    assert other.tolist() == [3, 1, 2]


def test_C74_an_inplace_operator_returns_its_argument(made, x):
    @ops.custom_op("bp_host::neg_", mutates_args={"x"}, schema="(Tensor(a!) x) -> Tensor(a!)", tags=torch.Tag.inplace)
    @ops.host_kernel
    def neg_(x):
        return x.neg_()

    assert made(neg_)(x) is x
    assert x.tolist() == [-3, -1, -2]


def test_C74_a_factory_and_a_function_without_an_operator(made, device, x):
    @ops.custom_op("bp_host::new", mutates_args=())
    @ops.host_kernel
    def new(n: int, *, device: torch.device) -> Tensor:
        assert device.type == "cpu"
        return torch.arange(n)

    assert made(new)(3, device=device).device == device

    @ops.host_kernel(mutates_args=["x"])
    def plain(x, y):
        x.numpy()[0] = 9
        return x, y * 2

    first, second = plain(x, x)
    assert first is x
    assert x.tolist() == [9, 1, 2]
    assert second.device == device
    assert second.tolist() == [18, 2, 4]  # one tensor, given twice, is one on the host


def test_C74_a_wrong_declaration_is_refused():
    with pytest.raises(ValueError, match=r"names \['z'\], and the function has \['x'\]"):
        ops.host_kernel(lambda x: None, mutates_args=["z"])
    with pytest.raises(ValueError, match="differ: leave it out"):
        ops.custom_op("bp_host::wrong", ops.host_kernel(written, mutates_args=["x"]), mutates_args=())
    assert "bp_host::wrong" not in torch._C._dispatch_get_all_op_names()


def written(x: Tensor) -> Tensor:
    return x + 1


# Autocast


@pytest.fixture
def dtypes_of(made):
    """An operator that returns its argument's dtype as text, by its size."""

    @ops.custom_op("bp_cast::seen", mutates_args=())
    def seen(x: Tensor, y: list[Tensor], *, scale: float = 1.0) -> Tensor:
        return torch.stack([x * scale, *y])

    return made(seen)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, None])
def test_C76_a_rule_casts_the_devices_tensors_once_keywords_allowed(dtypes_of, name, x, dtype):
    dtypes_of.register_autocast(name, dtype)
    with torch.autocast(name, dtype=torch.bfloat16):
        assert dtypes_of(x, [x]).dtype == (dtype or torch.bfloat16)
        scaled = dtypes_of(x, [x.half()], scale=2.0)
        assert scaled.dtype == (dtype or torch.bfloat16)
        assert scaled.tolist() == [[6, 2, 4], [3, 1, 2]]
        assert torch.ops.bp_cast.seen(x.double(), [x.double()]).dtype == torch.float64
    assert dtypes_of(x, [x], scale=2.0).dtype == torch.float32


def test_C76_torchs_own_rule_refuses_keywords_and_keeps_the_first_dtype(name, x):
    stock = torch.library.custom_op("bp_cast::stock", seen_by_torch, mutates_args=(), device_types=name)
    try:
        stock.register_autocast(name, torch.float16)
        stock.register_autocast(name, torch.bfloat16)
        with torch.autocast(name, dtype=torch.bfloat16):
            assert stock(x).dtype == torch.float16
            with pytest.raises(AssertionError, match="kwargs"):
                stock(x, scale=2.0)
        with pytest.raises(ValueError, match=r"has a rule for autocast on \w+ already, registered at"):
            ops.get(stock).register_autocast(name, torch.float16)
    finally:
        ops.get(stock).destroy()


def seen_by_torch(x: Tensor, *, scale: float = 1.0) -> Tensor:
    return x * scale


def test_C76_a_keyword_only_tensor_is_cast_too(name, x):
    with torch.library._scoped_library("bp_cast", "FRAGMENT") as library:
        library.define("keyword(Tensor x, *, Tensor y) -> Tensor")
        op = ops.get("bp_cast::keyword")
        op.register_kernel(None, lambda x, *, y: y + 1)
        op.register_autocast(name, torch.float16)
        with torch.autocast(name, dtype=torch.bfloat16):
            assert op(x, y=x).dtype == torch.float16
        op.destroy()


def test_C76_one_rule_for_an_operator_and_a_device(made, dtypes_of, name, x):
    dtypes_of.register_autocast(None, torch.float16)
    dtypes_of.register_autocast(name, torch.float16)
    with pytest.raises(ValueError, match=f"rule for autocast on {name} already: it casts to torch.float16"):
        dtypes_of.register_autocast(name, torch.bfloat16)
    dtypes_of.register_autocast("cpu", torch.bfloat16)
    dtypes_of.reference(lambda x, y, *, scale=1.0: torch.stack([x, *y]))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert dtypes_of(x.cpu(), [x.cpu()]).dtype == torch.bfloat16
        assert dtypes_of(x, [x]).dtype == torch.float32  # the device's autocast is off

    @ops.custom_op("bp_cast::writes", mutates_args={"x"})
    def writes(x: Tensor) -> None:
        x.zero_()

    with pytest.raises(ValueError, match="writes x: autocast would cast it"):
        made(writes).register_autocast(name)
    with pytest.raises(ValueError, match="no autocast for the device type 'meta'"):
        dtypes_of.register_autocast("meta")


def test_C76_a_rule_holds_under_compilation(dtypes_of, name, x):
    dtypes_of.register_autocast(name, torch.float16)
    dtypes_of.register_fake(lambda x, y, *, scale=1.0: x.new_empty((1 + len(y), *x.shape)))
    compiled = torch.compile(lambda x: dtypes_of(x, [x], scale=2.0), backend="aot_eager", fullgraph=True)
    with torch.autocast(name, dtype=torch.bfloat16):
        assert compiled(x).dtype == torch.float16


def test_C76_gradients_pass_through_the_cast(made, name, x):
    @ops.custom_op("bp_cast::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor:
        return x * 2

    made(twice).register_autograd(lambda ctx, gradient: gradient * 2)
    twice.register_autocast()
    leaf = x.requires_grad_()
    with torch.autocast(name, dtype=torch.bfloat16):
        y = twice(leaf)
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    assert leaf.grad.dtype == torch.float32
    assert leaf.grad.tolist() == [2, 2, 2]


# vmap, effects, verification


def test_C75_vmap_uses_the_rule_of_an_operator_from_python_and_from_elsewhere(made, device):
    x = torch.ones(4, 3, device=device)
    with torch.library._scoped_library("bp_vmap", "FRAGMENT") as library:
        library.define("elsewhere(Tensor x) -> Tensor")
        op = made(ops.custom_op("bp_vmap::rule", written, mutates_args=()))
        other = made(ops.get("bp_vmap::elsewhere"))
        other.register_kernel(None, lambda x: x + 1)
        for each in (op, other):

            @each.register_vmap
            def batched(info, in_dims, x, each=each):
                return each(x) + info.batch_size, in_dims[0]

            assert torch.equal(torch.vmap(each)(x), x + 5)
            assert torch.equal(torch.vmap(each, in_dims=1, out_dims=1)(x), x + 4)
        other.destroy()


def test_an_operator_with_an_effect_is_kept_by_a_compiler(made, x):
    calls = []

    @ops.custom_op("bp_effect::log", mutates_args=())
    def log(x: Tensor) -> None:
        calls.append(x.shape)

    made(log).register_fake(lambda x: None)
    log.register_effect()

    def step(x):
        log(x)
        return x + 1

    assert torch.equal(torch.compile(step, backend="aot_eager", fullgraph=True)(x), x + 1)
    assert calls == [x.shape]


def test_an_operator_is_compiled_through_its_object(made, x):
    op = made(ops.custom_op("bp_effect::plus", written, mutates_args=()))
    op.register_fake(torch.empty_like)
    graphs = []

    def backend(graph, inputs):
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return graph

    assert torch.equal(torch.compile(lambda x: op(x) * 2, backend=backend, fullgraph=True)(x), (x + 1) * 2)
    assert graphs[0][0] == "bp_effect.plus.default"
