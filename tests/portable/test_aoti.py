"""C++ around the kernels: ``config.cpp_wrapper`` and AOTInductor's packages, in Python and in a program without it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._inductor import config
from torch._inductor.utils import run_and_get_code

import torch_backplane
from torch_backplane import _backend, compiler, paths
from torch_backplane.compat import inductor
from torch_backplane.inductor import config as ours

needs_cpp_wrapper = pytest.mark.skipif(not inductor.has_cpp_wrapper(), reason="torch before 2.13")
# Long, because a package is compiled, with its wrapper in C++.
pytestmark = [pytest.mark.long, needs_cpp_wrapper, pytest.mark.usefixtures("each_compiles")]


class Net(nn.Module):
    """Extern products with and without a bias, a convolution, attention, fused kernels between them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 32), nn.Linear(64, 4, bias=False)
        self.convolution = nn.Conv1d(1, 2, 3, padding=1)
        self.register_buffer("scale", torch.linspace(0.5, 2, 32))

    def forward(self, x):
        y = (self.first(x) * self.scale).softmax(-1)
        y = self.convolution(y.unsqueeze(1)).flatten(1)
        heads = y.view(-1, 1, 2, 32)
        y = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads).flatten(1)
        return self.second(y).tanh()


@pytest.fixture(scope="module")
def package(device, tmp_path_factory):
    """The net, and the path of a package of it for batches of any size."""
    torch.manual_seed(0)
    net = Net().eval()
    batch = torch.export.Dim("batch", min=2, max=64)
    with torch.no_grad(), config.patch(force_disable_caches=True):
        program = torch.export.export(net.to(device), (torch.ones(8, 64, device=device),), dynamic_shapes=({0: batch},))
        path = tmp_path_factory.mktemp("aoti") / "net.pt2"
        torch._inductor.aoti_compile_and_package(program, package_path=str(path))
    return net.cpu(), path


def test_F17_cpp_wrapper_computes_what_eager_does(device):
    net = Net()
    x = torch.randn(6, 64)
    with config.patch(cpp_wrapper=True):
        same = Net().to(device)
        same.load_state_dict(net.state_dict())
        y = torch.compile(same)(x.to(device))
        y.sum().backward()
    wanted = net(x)
    wanted.sum().backward()
    torch.testing.assert_close(y.cpu(), wanted, rtol=1e-4, atol=1e-5)
    for got, parameter in zip(same.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(got.grad.cpu(), parameter.grad, rtol=1e-4, atol=1e-4)


def test_cpp_wrapper_takes_other_shapes_without_compiling(device):
    with config.patch(cpp_wrapper=True):
        f = torch.compile(lambda x: (x * 2).softmax(-1) + x.sum(), dynamic=True)
        before = None
        for shape in ((4, 8), (5, 19), (33, 129)):
            x = torch.randn(shape)
            torch.testing.assert_close(f(x.to(device)).cpu(), (x * 2).softmax(-1) + x.sum(), rtol=1e-4, atol=1e-4)
            compiled = torch._dynamo.utils.counters["stats"]["unique_graphs"]
            assert before in (None, compiled)
            before = compiled


def test_cpp_wrapper_has_no_path_of_the_environment(device):
    """Inductor keeps the program under the user's name, and another environment of his finds it there."""
    from torch._inductor import config

    with config.patch(cpp_wrapper=True):
        _, (code,) = run_and_get_code(torch.compile(lambda x: x.sin() + 1), torch.ones(3, device=device))
    assert "struct Api" in code
    assert sys.prefix not in code
    for path in (*paths.include_paths(), paths.package_dir(), Path(torch_backplane.__file__).parents[1]):
        assert str(path) not in code


def test_cpp_wrapper_checks_for_nan(device):
    def computed(x):
        return torch.compile(lambda x: (x.log().half(), x.long() + 1))(x)[1].tolist()

    with config.patch(cpp_wrapper=True, nan_asserts=True):
        assert computed(torch.ones(3, device=device)) == [2, 2, 2]
        with pytest.raises(RuntimeError, match="check_inf_and_nan"):
            computed(-torch.ones(3, device=device))


def test_F17_a_package_is_loaded_and_computes(package, device):
    net, path = package
    model = torch._inductor.aoti_load_package(str(path))
    for rows in (8, 3, 50):
        x = torch.randn(rows, 64)
        torch.testing.assert_close(model(x.to(device)).cpu(), net(x), rtol=1e-4, atol=1e-5)


@pytest.mark.requires("multi_device")
def test_F17_a_package_is_loaded_on_another_device(package, device):
    net, path = package
    other = torch.device(_backend.device, 1)
    model = torch._inductor.aoti_load_package(str(path), device_index=1)
    x = torch.randn(8, 64)
    y = model(x.to(other))
    assert y.device == other
    torch.testing.assert_close(y.cpu(), net(x), rtol=1e-4, atol=1e-5)


def test_F17_a_package_takes_new_constants(package, device):
    net, path = package
    model = torch._inductor.aoti_load_package(str(path))
    torch.manual_seed(1)
    other = Net().eval()
    other.convolution.bias = net.convolution.bias  # Inductor folds it into the graph, for any device
    names = model.get_constant_fqns()
    assert len(names) == 5
    model.load_constants({name: other.state_dict()[name].to(device) for name in names}, check_full_update=True)
    x = torch.randn(8, 64)
    torch.testing.assert_close(model(x.to(device)).cpu(), other(x), rtol=1e-4, atol=1e-5)


class Fused(nn.Module):
    def forward(self, x):
        return (x * 2).softmax(-1) + x


def test_F17_a_package_brings_its_kernels(device, run_in_process, tmp_path):
    program = torch.export.export(Fused(), (torch.ones(8, 64, device=device),))
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "fused.pt2"))
    code = f"""
        import torch
        from torch_backplane import compiler
        x = torch.arange(512.0).reshape(8, 64)
        y = torch._inductor.aoti_load_package({path!r})(x.to("{device.type}")).cpu()
        torch.testing.assert_close(y, (x * 2).softmax(-1) + x)
        print(compiler.counts().compiled, compiler.counts().from_cache)
    """
    ran = run_in_process(code, env={"MYDEVICE_CACHE_DIR": str(tmp_path / "cache")})
    assert ran.stdout.split() == ["0", "1"]


def test_F17_a_package_brings_kernels_of_the_targets_that_are_named(device, run_in_process, tmp_path):
    own, oldest = compiler.target().name, compiler.targets()[-1]
    seen = {}
    for named in ([], [oldest]):
        torch._dynamo.reset()
        program = torch.export.export(Fused(), (torch.ones(8, 64, device=device),))
        with ours.patch(aot_targets=named):
            path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / f"{len(named)}.pt2"))
        for target in (own, oldest):
            code = f"""
                import torch
                from torch_backplane import compiler
                assert compiler.target().name == {target!r}
                x = torch.arange(512.0).reshape(8, 64)
                y = torch._inductor.aoti_load_package({path!r})(x.to("{device.type}")).cpu()
                torch.testing.assert_close(y, (x * 2).softmax(-1) + x)
                print(compiler.counts().compiled)
            """
            options = ",".join(filter(None, (os.environ.get("MYDEVICE_OPTIONS"), f"target={target}")))
            cache = tmp_path / f"{len(named)}-{target}"
            ran = run_in_process(code, env={"MYDEVICE_CACHE_DIR": str(cache), "MYDEVICE_OPTIONS": options})
            seen[(target, *named)] = int(ran.stdout)
    assert seen == {(own,): 0, (oldest,): int(own != oldest), (own, oldest): 0, (oldest, oldest): 0}


def test_an_operator_that_a_package_cannot_call_is_refused_by_name(device, tmp_path):
    class Product(torch.nn.Module):
        def forward(self, x):
            return torch._int_mm(x, x) + 1

    program = torch.export.export(Product(), (torch.ones(32, 32, dtype=torch.int8, device=device),))
    with pytest.raises(
        Exception, match=f"the operator _int_mm_out on {device.type} cannot be generated.* it supports mm_out"
    ):
        torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "refused.pt2"))


def test_a_target_that_the_compiler_does_not_have_is_refused(device, tmp_path):
    program = torch.export.export(Fused(), (torch.ones(8, 64, device=device),))
    path = str(tmp_path / "none.pt2")
    refused = f"aot_targets names 'z80', .* It supports {compiler.targets()[0]}"
    with ours.patch(aot_targets=["z80"]), pytest.raises(Exception, match=refused):
        torch._inductor.aoti_compile_and_package(program, package_path=path)
    assert not os.path.exists(path)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """``program(path)``: the sum that a program without Python prints of the package's result for ones, 8 by 64."""
    built = tmp_path_factory.mktemp("program") / "aoti_program"
    torch_dir = Path(torch.__file__).parent
    compiler = os.environ.get("CXX") or shutil.which("c++") or "g++"
    command = [compiler, "-std=c++20", "-O0", "-DTORCH_ASSERT_ONLY_METHOD_OPERATORS"]
    command += ["-isystem", torch_dir / "include", Path(__file__).parent / "cpp" / "aoti_program.cpp", "-o", built]
    command += ["-L", torch_dir / "lib", "-Wl,--no-as-needed", "-ltorch_cpu", "-ltorch", "-lc10", "-ldl"]
    subprocess.run([*command, f"-Wl,-rpath,{torch_dir / 'lib'}"], check=True)
    [folder] = paths.library_paths()

    def run(path):
        arguments = [built, Path(folder) / f"lib{_backend.device}.so", path, _backend.device]
        result = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, result.stderr
        return float(result.stdout)

    return run


def test_F17_a_package_runs_in_a_program_without_python(package, program):
    net, path = package
    with torch.no_grad():
        assert program(path) == pytest.approx(float(net(torch.ones(8, 64)).sum()), rel=1e-4, abs=1e-4)


def test_F20_a_packages_random_numbers_are_eagers(program, run_in_process, device, tmp_path):
    """In a process that has compiled nothing before, and in a program without Python."""
    path = str(tmp_path / "net.pt2")
    code = f"""
        import torch

        class Net(torch.nn.Module):
            def forward(self, x):
                return torch.nn.functional.dropout(x + torch.rand_like(x), 0.25)

        net, x = Net(), torch.ones(8, 64, device="{device.type}")
        path = torch._inductor.aoti_compile_and_package(torch.export.export(net, (x,)), package_path={path!r})
        results = []
        for run in (net, torch._inductor.aoti_load_package(path)):
            torch.{device.type}.manual_seed(7)
            results += [run(x).cpu(), torch.rand(5, device="{device.type}").cpu()]
        print(results[0].equal(results[2]), results[1].equal(results[3]), float(results[0].sum()))
    """
    values, next_ones, total = run_in_process(code).stdout.split()
    assert (values, next_ones) == ("True", "True")
    assert program(path) == pytest.approx(float(total), rel=1e-5)


def test_an_operator_that_cpp_cannot_call_is_named(device):
    a = torch.ones(32, 32, dtype=torch.int8, device=device)
    with config.patch(cpp_wrapper=True), pytest.raises(Exception, match=r"_int_mm.*mm_out, bmm_out"):
        torch.compile(torch._int_mm)(a, a)
