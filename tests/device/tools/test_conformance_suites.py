"""The suites of operators, modules and optimizers: a sample passes, and each check finds what it is for."""

import ctypes
import functools
import json
import random
import subprocess
import sys

import pytest
import torch

from backplane_tools.conformance import checker
from backplane_tools.conformance.case import Case
from backplane_tools.conformance.suites import load

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta"),
    pytest.mark.xdist_group("conformance_suites"),  # torch's samples are imported once
]

# All that the fallback does is among them: lists, views, several outputs, out=, in-place, random numbers, 0-dim values,
# factories, empty tensors, data-dependent shapes.
OPS = """
add:float32 mul:complex64 where:bool sum:uint8 mean:float16 argmax:int64 std_mean:complex64 mm:float64
nn.functional.layer_norm:bfloat16 gather:bool index_put:int32 cat:uint8 nn.functional.embedding:float32 split:int64
view:float32 nonzero:bool topk:bfloat16 normal:float32 nn.functional.dropout:bfloat16 arange:int64
linalg.cholesky:float64 fft.rfft:float32 _foreach_norm:float64
""".split()
MORE = """
add:int64 sub:uint8 div.no_rounding_mode:bool sin:bfloat16 pow:int32 where:float32 amax:bfloat16 softmax:float32
log_softmax:float16 addmm:int32 bmm:float32 nn.functional.linear:float16 nn.functional.conv2d:float32
index_select:complex64 cat:float32 stack:bool transpose:complex64 __getitem__:float32 sort:uint8 cumsum:complex64
multinomial:float64 empty_like:float32 full:complex64 _foreach_add:float32
""".split()
NAMES = [pytest.param(*op.split(":"), marks=[pytest.mark.long] if op in MORE else []) for op in (*OPS, *MORE)]


@pytest.fixture(scope="module")
def suite():
    """Suites by name: each is made once."""
    made = {}
    return lambda name: made.setdefault(name, load(name))


@pytest.fixture(scope="module")
def run(suite, device):
    """``run("ops/add/float32")``: the outcome of a case."""

    def run(case_id):
        name, case = case_id.split("/", 1)
        return suite(name).run(Case(name, *case.rsplit("/", 1)), str(device), 0)

    return run


@pytest.fixture(scope="module")
def passes(run):
    """``passes(case)``: whether it does with torch's kernels and the device's; each case is run once."""
    return functools.cache(lambda case: run(case).status == "pass")


@pytest.mark.parametrize(("name", "dtype"), NAMES, ids=lambda value: value)
def test_operators_are_the_cpus(run, name, dtype):
    outcome = run(f"ops/{name}/{dtype}")
    assert outcome.status == "pass", outcome.message
    assert outcome.checks["forward"] > 0
    assert outcome.route


@pytest.mark.requires("multi_device")
@pytest.mark.parametrize(("name", "dtype"), NAMES[::6], ids=lambda value: value)
def test_operators_on_a_device_that_is_not_current(suite, device, device_module, name, dtype):
    assert device_module.current_device() == 0
    outcome = suite("ops-sample").run(Case("ops-sample", name, dtype), f"{device.type}:1", 0)
    assert outcome.status == "pass", outcome.message
    assert device_module.current_device() == 0


@pytest.mark.long
@pytest.mark.once
@pytest.mark.requires("multi_device")
@pytest.mark.timeout(3600)  # some minutes on two idle cores
def test_all_operators_on_a_device_that_is_not_current(name, tmp_path):
    command = [sys.executable, "-m", "backplane_tools", "conformance", "--suite", "ops-sample", "-j", "2"]
    report = tmp_path / "report.json"
    words = [*command, "--device", f"{name}:1", "--dtype", "float32,int64,bool,complex64", "--json", report]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=3000, check=False)
    cases = json.loads(report.read_text())["cases"]
    assert [case for case in cases if case["status"] not in ("pass", "skip")] == [], done.stdout
    assert len(cases) > 1000


@pytest.mark.parametrize(
    "name", ["nn.Linear", "nn.Conv2d", "nn.BatchNorm2d", "nn.GRUCell", "nn.FractionalMaxPool2d", "nn.LazyConv1d"]
)
def test_modules_are_the_cpus(run, name):
    outcome = run(f"modules/{name}/float32")
    assert outcome.status == "pass", outcome.message
    assert min(outcome.checks[check] for check in ("state_dict", "train", "eval", "noncontiguous")) > 0


OPTIMIZERS = ["SGD/default", "LBFGS/default", "AdamW/foreach", "Adam/fused", "Adam/capturable", "SparseAdam/default"]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_are_the_cpus(run, name):
    outcome = run(f"optimizers/{name}/float32")
    assert outcome.status == "pass", outcome.message
    assert outcome.checks["steps"] == outcome.checks["state_dict"] > 0


def test_an_optimizer_is_compared_with_the_implementation_that_torch_chooses(run):
    """RAdam's foreach gives NaN where a float16 square underflows: the CPU's does, and its for-loop does not."""
    outcome = run("optimizers/RAdam/capturable_foreach/float16")
    assert outcome.status == "pass", outcome.message


def test_the_ops_are_all_of_torchs_database_in_the_dtypes_of_the_cpu(suite):
    from torch.testing._internal.common_methods_invocations import op_db

    cases = {case.id for case in suite("ops").cases(None)}
    assert {f"ops/{op.full_name}/float32" for op in op_db if torch.float32 in op.dtypes} <= cases
    assert {case.rsplit("/", 1)[1] for case in cases} == {
        "float32", "float64", "bfloat16", "float16", "int64", "int32", "uint8", "bool", "complex64"
    }  # fmt: skip
    assert [case.dtype for case in suite("ops").cases(["int16"]) if case.name == "add"] == ["int16"]


@pytest.mark.long
def test_operators_run_on_sparse_tensors_too(run):
    outcome = run("ops/mul/float32")
    assert outcome.status == "pass", outcome.message
    assert min(outcome.checks[check] for check in ("sparse", "sparse_backward")) > 20


def test_the_way_of_an_operator_is_reported(run):
    assert run("ops/arange/float32").route in ("fallback", "portable", "native")
    assert run("ops/view/float32").route == "native"
    assert run("ops/tensor_split/float32").route in ("composite", "native")
    assert run("modules/nn.GRUCell/float32").route in ("composite", "fallback")
    assert run("optimizers/SGD/default/float32").route in ("composite", "fallback")


def test_an_operator_that_differs_has_a_way_too(run, monkeypatch):
    monkeypatch.setattr(checker, "compare_observations", lambda *_: 1 / 0)
    outcome = run("ops/add/float32")
    assert (outcome.status, bool(outcome.route)) == ("fail", True)


def test_compilation_is_not_in_the_devices_time(device, monkeypatch):
    """A call that makes a kernel takes the compiler's time: the next call's time counts, and the first's results."""
    seconds = {"cpu": iter([1.0, 1.0]), device.type: iter([9.0, 2.0, 3.0])}

    def observe(function, arguments, where, seed):
        seen = observed(function, arguments, where, seed)
        seen.seconds = next(seconds[torch.device(where).type])
        return seen

    observed, made = checker.observe, iter([0, 1, 1, 1])
    monkeypatch.setattr(checker, "observe", observe)
    monkeypatch.setattr(checker, "_kernels_made", lambda: next(made))
    one = checker.Checker(torch.device(device), 0)
    for _ in range(2):
        one.check("forward", "ones", lambda: one.both(torch.neg, (torch.ones(3),)))
    assert (one.outcome().device_seconds, one.outcome().cpu_seconds) == (5.0, 2.0)


# Wrong kernels. Each is right except for what its name describes.


def right(x):
    return x.cpu().sinc().to(x.device)


SIMPLE = {
    "off_by_little": lambda x: right(x) * (1 + 0.01),
    "always_contiguous": lambda x, y: torch.fmax(x.cpu(), y.cpu()).to(x.device).contiguous(),
    "bit_by_bit": lambda x: (x.view(torch.uint8) ^ 1).view(torch.bool) if x.dtype is torch.bool else -1 - x,
    "other_dtype": lambda x: right(x).double(),
    "on_the_cpu": lambda x: right(x).cpu(),
    "right_if_contiguous": lambda x: right(x) if x.is_contiguous() else right(x) + 1,
    "moves_its_input": lambda x: x.set_(right(x)),
    "out_replaced": lambda x, *, out: out.set_(right(x)),
    "ignores_the_lazy_bit": lambda x: torch.sinc(x.resolve_neg()) + (0 if x.is_cpu else 1),
    "accepts_all": lambda x: x.cpu().trace().to(x.device) if x.dim() == 2 else x.new_zeros(()),
    "wrong_if_sparse": lambda x: (2 * x.cpu().sin()).to(x.device),
    "of_another_distribution": lambda x, low=0.0, high=1.0, *, generator=None: x.copy_(
        torch.rand(x.shape) ** 4 * (high - low) + low
    ),
}


def writes_behind_the_lazy_clone(x):
    torch.accelerator.synchronize()
    result = right(x).cpu()
    ctypes.memmove(torch._C._data_address(x), result.data_ptr(), result.nbytes)
    return x


def materializes_its_input(x):
    x.data_ptr()
    return right(x)


def other_strides(x, diagonal=0):
    result = x.cpu().triu(diagonal).to(x.device)
    return torch.empty_like(result.mT, memory_format=torch.contiguous_format).mT.copy_(result)


def contiguous_convolution(x, weight, bias, *options):
    bias = None if bias is None else bias.cpu()
    return torch.convolution(x.cpu(), weight.cpu(), bias, *options).contiguous().to(x.device)


def as_the_cpu(input, weight, bias, mean, variance, *options):
    parts = [None if t is None else t.cpu() for t in (input, weight, bias, mean, variance)]
    results = torch.native_batch_norm(*parts, *options)
    for part, given in zip(parts[3:], (mean, variance), strict=True):
        if given is not None:
            given.copy_(part)
    return tuple(result.to(input.device) for result in results)


def norm_as_the_cpu(input, shape, weight, bias, eps):
    parts = [None if t is None else t.cpu() for t in (weight, bias)]
    return tuple(t.to(input.device) for t in torch.native_layer_norm(input.cpu(), shape, *parts, eps))


def changes_its_input(x):
    result = right(x)
    x.zero_()
    return result


def out_with_gaps_is_not_written(x, *, out):
    torch._resize_output_(out, x.shape, x.device)
    return out.copy_(right(x)) if out.is_contiguous() else out


def detached(x):
    with torch._C._AutoDispatchBelowAutograd():
        return torch.sinc(x)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return right(x)

    @staticmethod
    def backward(ctx, grad):
        x = ctx.saved_tensors[0].cpu().requires_grad_()
        with torch.enable_grad():
            return 2 * torch.autograd.grad(x.sinc(), x, grad.cpu())[0].to(grad.device)


def unseeded(x, low=0.0, high=1.0, *, generator=None):
    return x.copy_(torch.tensor([random.random() for _ in range(x.numel())]).reshape(x.shape) * (high - low) + low)


def places_of(x, values, dim):
    """For each value along dim its first place in x."""
    places = x.movedim(dim, -1).unsqueeze(-2) == values.movedim(dim, -1).unsqueeze(-1)
    return places.int().argmax(-1).movedim(-1, dim)


def the_next_place(x, k, dim=-1, keepdim=False):
    values, places = x.cpu().kthvalue(k, dim, keepdim)
    return values.to(x.device), ((places + 1) % max(x.size(dim) if x.dim() else 1, 1)).to(x.device)


def the_last_place(x, k, dim=-1, keepdim=False):
    values, places = x.cpu().kthvalue(k, dim, True)
    if x.dim() > 0:
        places = x.size(dim) - 1 - places_of(x.cpu().flip(dim), values, dim)
    results = (values, places) if keepdim or x.dim() == 0 else (values.squeeze(dim), places.squeeze(dim))
    return tuple(result.to(x.device) for result in results)


def one_place_twice(x, k, dim=-1, largest=True, sorted=True):
    values, places = x.cpu().topk(k, dim, largest, sorted)
    places = places_of(x.cpu(), values, dim) if x.dim() > 0 else places
    return values.to(x.device), places.contiguous().to(x.device)


WRONG = [
    ("kthvalue:int64", "kthvalue", "PrivateUse1", the_next_place, "forward", "values differ"),
    ("topk:int64", "topk", "PrivateUse1", one_place_twice, "forward", "True expected, False found"),
    ("sinc", "sinc", "PrivateUse1", "off_by_little", "forward", "values differ"),
    ("triu", "triu", "PrivateUse1", other_strides, "forward", "strides"),
    ("sinc", "sinc", "PrivateUse1", "other_dtype", "forward", "dtype"),
    ("sinc", "sinc", "PrivateUse1", "on_the_cpu", "forward", "device"),
    ("sinc", "sinc", "PrivateUse1", changes_its_input, "forward", "argument 0 after the call"),
    ("sinc", "sinc", "PrivateUse1", "right_if_contiguous", "noncontiguous", "values differ"),
    ("sinc", "sinc_", "PrivateUse1", "moves_its_input", "inplace", "data_ptr"),
    ("sinc", "sinc", "PrivateUse1", materializes_its_input, "copy_on_write", "materialized argument 0"),
    ("sinc", "sinc.out", "PrivateUse1", out_with_gaps_is_not_written, "out", "values differ"),
    ("sinc", "sinc.out", "PrivateUse1", "out_replaced", "out", "data_ptr"),
    ("sinc", "sinc", "Negative", "ignores_the_lazy_bit", "conj_neg", "values differ"),
    ("sinc", "sinc", "AutogradPrivateUse1", detached, "backward", "expected True, found False"),
    ("sinc", "sinc", "AutogradPrivateUse1", Doubled.apply, "backward", "values differ"),
    ("trace", "trace", "PrivateUse1", "accepts_all", "errors", "accepted what the CPU refuses"),
    ("sin", "sin", "SparsePrivateUse1", "wrong_if_sparse", "sparse", "values differ"),
    ("sin", "sin", "SparseCsrPrivateUse1", "wrong_if_sparse", "sparse", "values differ"),
    ("fmax", "fmax", "PrivateUse1", "always_contiguous", "reordered", "strides"),
    *(
        ("nn.functional.conv2d", "convolution_overrideable", "PrivateUse1", contiguous_convolution, check, "strides")
        for check in ("reordered", "fake")
    ),
    ("triu", "triu", "PrivateUse1", other_strides, "fake", "its fake says float32"),
    ("native_layer_norm:bfloat16", "native_layer_norm", "PrivateUse1", norm_as_the_cpu, "fake", "found bfloat16"),
    ("native_batch_norm", "native_batch_norm", "PrivateUse1", as_the_cpu, "fake", "found float32[0]"),
    ("bitwise_not:bool", "bitwise_not", "PrivateUse1", "bit_by_bit", "odd_bools", "values differ"),
    ("uniform", "uniform_", "PrivateUse1", "of_another_distribution", "forward", "distribution"),
    ("uniform", "uniform_", "PrivateUse1", unseeded, "forward", "two calls with one seed differ"),
]


def raises(x):
    raise RuntimeError("no kernel today")


@pytest.mark.once
@pytest.mark.filterwarnings("ignore:.*overridden|.*Overriding:UserWarning")
def test_what_stays_on_the_device_is_counted(run):
    """A kernel's samples stay; those of the fallback and those that fail leave; what the CPU refuses is not counted."""
    found = {}
    for kernel in (right, raises, None):
        with torch.library._scoped_library("aten", "IMPL") as library:
            if kernel is not None:
                library.impl("sinc", kernel, "PrivateUse1")
            found[kernel] = run("device-share/sinc/int64")
    count = found[right].checks["stays"]
    assert count > 0
    assert found[right].checks["leaves"] == 0
    assert found[raises].checks == {"stays": 0, "leaves": count}
    assert "RuntimeError" in found[raises].message
    assert found[None].checks == {"stays": 0, "leaves": count}
    assert "aten::sinc" in found[None].message


@pytest.mark.once
def test_one_sample_of_an_operator_is_compared_with_the_cpu(run):
    """The suite ops-sample: the same checks as in ops."""
    whole, one = run("ops/sinc/float32"), run("ops-sample/sinc/float32")
    assert whole.checks["forward"] > one.checks["forward"] == one.checks["backward"] == 1
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("sinc", SIMPLE["off_by_little"], "PrivateUse1")
        assert "values differ" in run("ops-sample/sinc/float32").message


@pytest.mark.once
@pytest.mark.requires("zero_copy")
@pytest.mark.filterwarnings("ignore:.*overridden|.*Overriding:UserWarning")
def test_a_kernel_that_writes_into_shared_memory_is_seen(run):
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("sinc_", writes_behind_the_lazy_clone, "PrivateUse1")
        outcome = run("ops/sinc/float32")
    assert outcome.status == "fail"
    assert "copy_on_write" in outcome.message
    assert "wrote into memory that an argument, a copy-on-write clone, shares" in outcome.message
    assert run("ops/sinc/float32").checks["copy_on_write"] > 0


@pytest.mark.once
@pytest.mark.filterwarnings("ignore:.*overridden|.*Overriding:UserWarning")
def test_any_place_of_equal_values_is_right(run):
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("kthvalue", the_last_place, "PrivateUse1")
        outcome = run("ops/kthvalue/int64")
    assert outcome.status == "pass", outcome.message


@pytest.mark.once
@pytest.mark.filterwarnings("ignore:.*overridden|.*Overriding:UserWarning")
@pytest.mark.parametrize(("op", "schema", "key", "kernel", "check", "text"), WRONG, ids=lambda value: str(value)[:20])
def test_a_wrong_kernel_is_seen_by_the_check_for_it(run, passes, op, schema, key, kernel, check, text):
    name, _, dtype = op.partition(":")
    case = f"ops/{name}/{dtype or 'float32'}"
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl(schema, SIMPLE.get(kernel, kernel), key)
        outcome = run(case)
    assert outcome.status == "fail"
    failed = {part.split(" ")[0]: part for part in outcome.message.split(" | ")}
    assert text in failed[check], outcome.message
    assert outcome.trace
    if check not in ("forward", "fake"):
        assert "forward" not in failed
    assert passes(case)
