"""A chip whose kernels are its runtime's own, and whose driver runs no host functions: examples/native_kernels, as a
vendor builds it, in a generated project with the vendor's library beside it."""

import textwrap

import pytest
from projects import ROOT

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("live"), pytest.mark.timeout(900)]

EXAMPLE = ROOT / "examples" / "native_kernels"
LIBRARY = """
add_library(acme SHARED vendor/acme.cpp)
target_include_directories(acme PUBLIC vendor)
install(TARGETS acme LIBRARY DESTINATION qpu/lib)
install(FILES vendor/acme.h DESTINATION qpu/lib)
foreach(target q q_driver)
  target_link_libraries(${target} PRIVATE acme)
  set_property(TARGET ${target} APPEND PROPERTY INSTALL_RPATH "$ORIGIN")
endforeach()
"""


@pytest.fixture(scope="module")
def chip(user, tmp_path_factory: pytest.TempPathFactory):
    """``chip(code, **env)``: what a program printed, in an environment with the chip's backend.

    It is the project of the user in test_build.py, whose driver and kernels are replaced, as a vendor does: what was
    compiled there, and has not changed, is not compiled again.
    """
    environment, project, _, _ = user
    folder = tmp_path_factory.mktemp("chip")
    for driver in (project / "backend" / "driver").glob("minimal_driver.*"):
        driver.unlink()
    for own in ("vendor", "backend/kernels"):
        (project / own).mkdir()
    for source in EXAMPLE.rglob("*.*"):
        place = {"kernels": "backend/kernels"}.get(source.parent.name, "vendor")
        place = "backend/driver" if source.name == "driver.cpp" else place
        (project / place / source.name).write_text(source.read_text())
    cmake = project / "CMakeLists.txt"
    text = cmake.read_text().replace("minimal_driver.c", "driver.cpp").replace("minimal_driver.cpp", "driver.cpp")
    cmake.write_text(text + LIBRARY)
    environment.pip("install", "--no-build-isolation", "--no-deps", "-e", project)

    def run(code: str, **env: str) -> str:
        command = [environment.python, "-c", "import torch\n" + textwrap.dedent(code)]
        return environment.run(*command, cwd=folder, OMP_NUM_THREADS="1", **env)

    run.folder, run.environment, run.project = folder, environment, project
    return run


def test_the_projects_own_tests_hold_and_each_kernel_may_run(chip):
    """``tests/test_add.py`` as it was generated, on the kernel that docs/kernels.md shows."""
    said = chip.environment.run(chip.environment.python, "-m", "pytest", "-v", "tests", cwd=chip.project)
    assert "test_add.py::test_the_kernel_runs PASSED" in said
    said = chip(
        """
        from torch_backplane.ops import lint
        print([str(finding) for finding in lint() if finding.rule == "never-runs"])
        """
    )
    assert said == "[]\n"


def test_there_are_no_host_functions(chip):
    said = chip(
        """
        from torch_backplane import testing
        import qpu
        print(sorted({"host_exec", "host_view", "stream_native"} & testing.capabilities()))
        """
    )
    assert said == "['stream_native']\n"


def test_a_file_is_installed_beside_the_driver(chip):
    """docs/driver.md, "Loading, shims, options"."""
    said = chip(
        """
        from pathlib import Path
        from torch_backplane import driver
        print(Path(driver.info().path).with_name("acme.h").is_file())
        """
    )
    assert said == "True\n"


def test_E49_every_form_of_a_structured_kernel_runs_and_agrees(chip):
    """Ten calls that the kernel takes; strides, numbers of the host's and other dtypes are right without it."""
    chip(
        """
        from torch_backplane import testing
        a, b = torch.randn(5, 7), torch.randn(5, 7)
        x, y = a.to("q"), b.to("q")
        before = testing.kernel_calls("add.Tensor")
        out, resized = torch.empty(5, 7, device="q"), torch.empty(0, device="q")
        for got, want in (
            (x + y, a + b),
            (torch.add(x, y, alpha=-2.5), torch.add(a, b, alpha=-2.5)),
            (torch.add(x, y, out=out), a + b),
            (torch.add(x, y, out=resized), a + b),
            (x.t() + y.t(), a.t() + b.t()),
            (x.clone().add_(y), a + b),
        ):
            torch.testing.assert_close(got.cpu(), want)
            assert got.stride() == want.stride()
        assert testing.kernel_calls("add.Tensor") == before + 6
        strided = (x[:, ::2], y[:, 1:5].t().clone().t())
        for left, right in (x, y[0]), (x, 2), (x, y.double()), strided, (x.int(), y.int()), (x + 0j, y):
            on_cpu = right.cpu() if isinstance(right, torch.Tensor) else right
            torch.testing.assert_close((left + right).cpu(), left.cpu() + on_cpu)
        assert testing.kernel_calls("add.Tensor") == before + 6
        assert (torch.empty(0, 3, device="q") + torch.empty(0, 3, device="q")).shape == (0, 3)
        """
    )


def test_E49_a_function_runs_and_has_its_gradient(chip):
    chip(
        """
        from torch_backplane import testing
        a = torch.randn(4, 6)
        x = a.to("q").requires_grad_()
        y = a.clone().requires_grad_()
        before = testing.kernel_calls("relu")
        torch.relu(x).square().sum().backward()
        torch.relu(y).square().sum().backward()
        assert testing.kernel_calls("relu") == before + 1
        torch.testing.assert_close(x.grad.cpu(), y.grad)
        torch.testing.assert_close(torch.relu(x.t()).cpu(), torch.relu(a.t()))  # not contiguous: by the fallback
        assert testing.kernel_calls("relu") == before + 1
        """
    )


def test_E50_strided_copies_are_the_chips_own(chip):
    """contiguous, clone, copy_ and both directions of strided copies: right, and by the kernel."""
    chip(
        """
        from torch_backplane import testing
        a = torch.arange(120.0).view(4, 5, 6)
        x = a.to("q")
        before = testing.kernel_calls("copy_")
        for get in (
            lambda t: t.permute(2, 0, 1).contiguous(),
            lambda t: t[1:, ::2].clone(),
            lambda t: t.expand(2, 4, 5, 6).contiguous(),
            lambda t: torch.zeros(6, 5, 4, device=t.device).copy_(t.permute(2, 1, 0)),
            lambda t: torch.zeros(4, 5, 12, device=t.device)[..., ::2].copy_(t),
        ):
            assert torch.equal(get(x).cpu(), get(a))
        assert testing.kernel_calls("copy_") >= before + 5
        before = testing.kernel_calls("copy_")
        assert torch.equal(x[:, :, 1].cpu(), a[:, :, 1])
        y = torch.zeros(4, 12, device="q")
        y[:, ::3].copy_(a[0, :4, :4])
        assert torch.equal(y.cpu()[:, ::3], a[0, :4, :4]) and y.sum().item() == a[0, :4, :4].sum().item()
        assert testing.kernel_calls("copy_") >= before + 2
        for dtype in (torch.bool, torch.int16, torch.complex64, torch.float64):
            got, want = (t.to(dtype).permute(2, 0, 1).contiguous() for t in (x, a))
            assert torch.equal(got.cpu(), want)
        z = torch.view_as_complex(torch.randn(3, 4, 2))
        assert torch.equal(z.to("q").conj().t().contiguous().cpu(), z.conj().t().contiguous())
        """
    )


def test_E50_strided_copies_do_not_go_through_the_host(chip):
    """Every copy of the driver's would fail here: the kernel alone moves the elements."""
    said = chip(
        """
        import os, pathlib
        x = torch.arange(24.0, device="q").view(4, 6)
        torch.q.synchronize()
        pathlib.Path(os.environ["ARMED"]).touch()
        y = x.t().contiguous()
        y[::2].copy_(x[:, ::2].t())
        torch.q.synchronize()
        print("queued")
        try:
            y.cpu()
        except RuntimeError as error:
            print("was aborted" in str(error))
        """,
        Q_SHIMS="fault",
        Q_OPTIONS=f"fault.copy=@1+,fault.armed_by={chip.folder}/armed_copy",
        ARMED=f"{chip.folder}/armed_copy",
    )
    assert said == "queued\nTrue\n"


def test_E50_a_fill_is_replaced_for_the_layouts_that_it_supports(chip):
    said = chip(
        """
        import warnings
        warnings.simplefilter("error")
        from torch_backplane import testing
        x = torch.zeros(4, 8, device="q")
        before = testing.kernel_calls("fill_.Scalar")
        x[:, 2:5].fill_(3)
        assert testing.kernel_calls("fill_.Scalar") == before + 1
        x[:, ::2].fill_(2)
        x.double()[:, 1:3].fill_(7)
        torch.ones(3, device="q").fill_(5)
        assert testing.kernel_calls("fill_.Scalar") == before + 1
        print(x[0].tolist())
        """
    )
    assert said == "[2.0, 0.0, 2.0, 3.0, 2.0, 0.0, 2.0, 0.0]\n"


def test_E56_native_work_is_in_a_profile(chip):
    """By name, between events that emulate records: the driver has no records."""
    said = chip(
        """
        from torch.profiler import ProfilerActivity as A, profile
        x = torch.randn(64, 64).to("q")
        x + x
        with profile(activities=[A.CPU, A.PrivateUse1]) as p:
            y = torch.relu(x + x)
        events = [e for e in p.events() if e.device_type == torch.autograd.DeviceType.PrivateUse1]
        linked = {o.name: [k.name for k in o.kernels] for o in p.events() if o.kernels}
        print([e.name for e in events], linked)
        assert torch.equal(y.cpu(), torch.relu(x.cpu() + x.cpu()))
        """,
        Q_SHIMS="emulate",
    )
    kernels = ["acme_add", "acme_relu"]
    said = "".join(line for line in said.splitlines(keepends=True) if not line.startswith("USDT:"))  # torch's own
    assert said == f"{kernels} {dict(zip(('aten::add', 'aten::relu'), ([name] for name in kernels), strict=True))}\n"


def test_work_is_ordered_with_the_streams_of_pytorch(chip):
    """Kernels on a stream, another one that waits by an event, and the second device, whatever the current one is."""
    chip(
        """
        import torch.q
        x = torch.ones(1 << 20, device="q")
        s, t = torch.q.Stream(), torch.q.Stream()
        s.wait_stream(torch.q.current_stream())
        with s:
            y = x
            for _ in range(20):
                y = y + x
        t.wait_stream(s)
        with t:
            z = torch.relu(y)
            y.record_stream(t)
        t.synchronize()
        assert z.min().item() == z.max().item() == 21
        other = torch.ones(8, device="q:1")
        assert (other + other).tolist() == [2.0] * 8 and torch.q.current_device() == 0
        """
    )


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            {"Q_LAUNCH_BLOCKING": "1"},
            "The failed work is the kernel acme_add queued by aten::add.Tensor on the default stream of q:0",
        ),
        (
            {},
            "-> FAULT: a vendor's kernel failed: bad address (injected by fault.kernel=@1)",
        ),
    ],
)
def test_E51_faults_of_native_work_are_seen(chip, env, message):
    """A fault is injected into the vendor's own launch; with LAUNCH_BLOCKING it is raised where the work was queued."""
    said = chip(
        """
        import os, pathlib
        x = torch.ones(8, device="q")
        y = torch.ones(8, device="q")
        torch.q.synchronize()
        pathlib.Path(os.environ["ARMED"]).touch()
        try:
            z = x + y
            where = "later"
            torch.q.current_stream().synchronize()
        except torch.AcceleratorError as error:
            where = "at the call" if "z" not in globals() else "later"
            print(where, error)
        os._exit(0)
        """,
        Q_SHIMS="fault",
        Q_OPTIONS=f"fault.kernel=@1,fault.armed_by={chip.folder}/armed{len(env)}",
        ARMED=f"{chip.folder}/armed{len(env)}",
        **env,
    )
    assert message in said
    assert said.startswith("at the call" if env else "later")


def test_E51_the_watchdog_names_native_work(chip):
    said = chip(
        """
        import os, pathlib
        x = torch.ones(8, device="q")
        torch.q.synchronize()
        pathlib.Path(os.environ["ARMED"]).touch()
        torch.relu(x)
        try:
            torch.q.synchronize()
        except RuntimeError as error:
            print(error, flush=True)
        os._exit(0)
        """,
        Q_SHIMS="fault",
        Q_WATCHDOG_SECONDS="0.5",
        Q_OPTIONS=f"fault.hang=@1,fault.armed_by={chip.folder}/armed_hang",
        ARMED=f"{chip.folder}/armed_hang",
    )
    assert "the latest work is a kernel acme_relu queued by aten::relu" in said


def test_streams_that_emulate_supplies_are_no_streams_of_the_vendors(chip):
    """Their handles are never given to the vendor's API."""
    said = chip(
        """
        x = torch.ones(3).to("q")
        try:
            x + x
        except NotImplementedError as error:
            print(error)
        print((x * x).tolist())
        """,
        Q_DRIVER=str(ROOT / "build" / "demo" / "minimal" / "libminimal_driver.so"),
    )
    assert (
        "The streams of q have no object of the vendor's runtime (BP_DRIVER_OWN_STREAMS, which the emulate shim" in said
    )
    assert said.endswith("[1.0, 1.0, 1.0]\n")


def test_the_page_shows_the_kernel(chip):
    page = (ROOT / "docs" / "kernels.md").read_text()
    kernel = (EXAMPLE / "kernels" / "add.cpp").read_text().split("\n", 1)[1]
    without_comments = "\n".join(line for line in kernel.splitlines() if not line.lstrip().startswith("//"))
    assert without_comments.strip() in page
