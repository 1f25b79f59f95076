"""torch_backplane.fallback: its switch, by call, block and environment, and who may add to it (D07-D09, E33)."""

import ctypes
import sys
import warnings

import pytest
import torch

from torch_backplane import _backend, fallback

# void backplane::fallback::set_hook(bool (*)(const c10::OperatorHandle&, std::vector<c10::IValue>*))
SET_HOOK = "_ZN9backplane8fallback8set_hookEPFbRKN3c1014OperatorHandleEPSt6vectorINS1_6IValueESaIS6_EEE"
OP = "aten::erfinv"  # an operator that no backend of the tests has a kernel for


def run(device):
    return torch.tensor([0.5], device=device).erfinv()


@pytest.fixture(autouse=True)
def general_policy_kept():
    before = fallback.get_policy()
    yield
    fallback.policy(before)
    fallback.policy(before, OP).__exit__()


def test_E33_error_names_the_operator_and_what_to_write_and_the_block_restores(device):
    before = fallback.get_policy()
    with fallback.policy("error"):
        assert fallback.get_policy() == "error"
        with pytest.raises(NotImplementedError) as caught:
            run(device)
    text = str(caught.value)
    assert "aten::erfinv.out has no kernel for Float" in text
    assert 'TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("erfinv.out", TORCH_FN(erfinv_out)); }' in text
    assert "erfinv.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)" in text
    assert f"{__file__}:" in text
    assert fallback.get_policy() == before
    run(device)


def test_E33_error_names_the_key_of_a_sparse_tensor(device):
    s = torch.eye(2, device=device).to_sparse()
    with fallback.policy("error"), pytest.raises(NotImplementedError, match="SparsePrivateUse1"):
        s.sqrt()


def test_E33_one_operator_can_be_switched(device):
    with fallback.policy("error", OP):
        assert fallback.get_policy(OP) == "error"
        with pytest.raises(NotImplementedError, match="erfinv"):
            run(device)
        torch.tensor([0.5], device=device).digamma()
    with fallback.policy("error"), fallback.policy("cpu", OP):
        run(device)
    assert fallback.get_policy(OP) == fallback.get_policy()


def test_E33_warn_names_the_operator_once_and_the_line_that_called_it(device):
    with fallback.policy("warn"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x = torch.ones(2, device=device)
        for _ in range(3):
            torch.nn.functional.multilabel_margin_loss(x, torch.tensor([0, -1], device=device))
        line = sys._getframe().f_lineno - 1
    texts = [str(w.message) for w in caught if "multilabel_margin_loss" in str(w.message)]
    assert len(texts) == 1
    assert "has no kernel for Float, Long" in texts[0]
    assert f"Called at {__file__}:{line} (test_E33_warn" in texts[0]  # not torch/nn/functional.py
    with fallback.policy("warn"), pytest.warns(UserWarning, match="multilabel_margin_loss"):  # set and reported again
        torch.nn.functional.multilabel_margin_loss(x, torch.tensor([0, -1], device=device))


def test_E33_warn_in_a_backward_pass_names_the_node(device):
    x = torch.ones(2, device=device, requires_grad=True)
    loss = torch.digamma(x).sum()
    with fallback.policy("warn"), pytest.warns(UserWarning, match="backward of DigammaBackward0"):
        loss.backward()


@pytest.mark.parametrize("op", ["sinc", "aten::sincc", "aten::sinc.outt", "::sinc"])
def test_an_operator_that_does_not_exist_is_refused(op):
    with pytest.raises(ValueError, match=op):
        fallback.policy("error", op)
    with fallback.policy("error", "library_of_tomorrow::op"):  # it may still be loaded
        pass


@pytest.mark.once
def test_E33_the_environment_sets_policies_by_operator(printed):
    code = """
        from torch_backplane import fallback
        x = torch.ones(2, device=d)
        torch.digamma(x)
        try:
            torch.sinc(x)
        except NotImplementedError:
            print("sinc refused")
        print(fallback.get_policy(), fallback.get_policy("aten::sinc"), fallback.get_policy("aten::erfc.out"))
    """
    found = printed(code, FALLBACK="cpu,aten::sinc=error,aten::erfc.out=warn").splitlines()
    assert found == ["sinc refused", "cpu error warn"]


@pytest.mark.long_after_first
@pytest.mark.once
@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("gpu", "the policies are cpu, warn, error"),
        ("cpu,none", "the policies are cpu, warn, error"),
        ("aten::sinc=none", "the policies are cpu, warn, error"),
        ("aten::sincc=error", "no operator 'aten::sincc'"),
    ],
)
def test_E33_a_wrong_setting_in_the_environment_is_an_error(run_in_process, backend_package, name, setting, says):
    code = f"""
        try:
            import {backend_package.__name__}
        except ImportError as error:
            print(error)
    """
    variable = f"{name.upper()}_FALLBACK"
    found = run_in_process(code, env={variable: setting, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}).stdout
    assert f"{variable}={setting}" in found
    assert says in found


@pytest.mark.once
@pytest.mark.fresh
def test_E33_a_wrong_setting_in_the_environment_leaves_torch_usable(run_in_process, name):
    """As any failure to load the device: one warning of torch's autoload."""
    code = "import torch; print(torch.ones(2).sum().item())"
    result = run_in_process(code, env={f"{name.upper()}_FALLBACK": "gpu"})
    assert result.stdout == "2.0\n"
    assert f"{name.upper()}_FALLBACK=gpu: 'gpu' is not a fallback policy" in result.stderr


def test_D08_a_hook_sees_every_call_first(device):
    seen = []

    def function(op, args, kwargs):
        seen.append(op)
        if op is torch.ops.aten.sinc.out:
            return kwargs["out"].fill_(7.0)
        if op is torch.ops.aten.max.dim:
            return args[0].clone(), torch.zeros(2, dtype=torch.int64, device=device)
        if op is torch.ops.aten.digamma.out:
            raise LookupError("digamma")
        return NotImplemented

    x = torch.tensor([0.5, 0.25], device=device)
    with fallback.hook(function):
        assert torch.sinc(x).tolist() == [7.0, 7.0]
        assert run(device).item() == pytest.approx(torch.tensor(0.5).erfinv().item())
        with pytest.raises(LookupError, match="digamma"):
            torch.digamma(x)
        y = x.clone().requires_grad_()
        torch.sinc(y).sum().backward()  # autograd is above
        assert y.grad is not None
    count = len(seen)
    assert torch.ops.aten.erfinv.out in seen
    assert torch.sinc(x).tolist() != [7.0, 7.0]
    assert len(seen) == count


def test_D08_a_hook_of_another_number_of_results_is_refused(device):
    with (
        fallback.hook(lambda op, args, kwargs: (1, 2, 3)),
        pytest.raises(RuntimeError, match="3 results for aten::sort"),
    ):
        torch.sort(torch.ones(2, device=device))


def test_D08_a_hook_in_cpp_stays_beside_one_in_python(device):
    """C++ has a separate hook, which a block in Python does not replace."""
    seen = []
    kind = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p)
    hook = kind(lambda op, stack: bool(seen.append(op is not None)))
    set_hook = ctypes.CDLL(_backend.C.__file__)[SET_HOOK]
    set_hook(hook)
    try:
        run(device)
        with fallback.hook(lambda op, args, kwargs: NotImplemented):
            run(device)
        with fallback.hook(lambda op, args, kwargs: kwargs["out"].fill_(7.0)):
            assert run(device).item() == 7.0  # Python's first
        assert run(device).item() == pytest.approx(torch.tensor(0.5).erfinv().item())
    finally:
        set_hook(None)
    run(device)
    assert seen == [True] * 3


@pytest.mark.once
def test_D09_the_autograd_fallback_is_torchs_own_whatever_is_switched(printed):
    code = """
        import gc
        from torch_backplane import fallback
        with fallback.policy("warn"), fallback.hook(lambda op, args, kwargs: NotImplemented), fallback.budget(calls=9):
            torch.sinc(torch.ones(2, device=d))
        gc.collect()
        library = torch.library.Library("d09", "DEF")
        library.define("f(Tensor x) -> Tensor")
        library.impl("f", lambda x: x + 1, "PrivateUse1")
        x = torch.ones(2, device=d, requires_grad=True)
        print(torch.ops.d09.f(x).tolist())
        theirs = torch.library.Library("_", "IMPL")
        theirs.fallback(lambda op, *args, **kwargs: None, "AutogradPrivateUse1")
        theirs._destroy()
        try:
            torch.ops.d09.f(x)
        except NotImplementedError:
            print("without it nothing works")
    """
    assert printed(code).splitlines() == ["[2.0, 2.0]", "without it nothing works"]
