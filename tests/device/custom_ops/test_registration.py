"""Kernels registered from C++: a wrong one is an ImportError that names its line, before anything runs."""

from pathlib import Path

import pytest

pytestmark = [pytest.mark.once, pytest.mark.long]


@pytest.fixture
def bad_kernels(compiled):
    return compiled(Path(__file__).parents[1] / "cpp" / "bad_kernels.cpp")


def test_a_wrong_kernel_is_an_import_error_with_its_line(bad_kernels, run_in_process):
    code = f"""
        import torch_backplane.ops
        try:
            torch_backplane.ops.load_library({str(bad_kernels)!r})
        except ImportError as error:
            print(error)
        from torch_backplane.ops import lint
        for finding in lint():
            print("lint", finding.rule, finding.op, finding.where.rpartition("/")[2])
    """
    printed = run_in_process(code).stdout
    assert "bad_kernels.cpp:9: there is no operator aten::addd.Tensor in this torch" in printed
    assert "bad_kernels.cpp:11:" in printed
    assert "aten::mul.Tensor" in printed
    findings = [line.split()[1:] for line in printed.splitlines() if line.startswith("lint ")]
    assert findings == [
        ["unknown-op", "aten::addd.Tensor", "bad_kernels.cpp:9"],
        ["signature", "aten::mul.Tensor", "bad_kernels.cpp:11"],
    ]


def test_a_wrong_kernel_of_the_package_itself_is_an_import_error(bad_kernels, run_in_process, name):
    """The kernels are loaded before the package's native module, as those of a package are."""
    from torch_backplane.paths import library_paths

    (folder,) = map(Path, library_paths())
    (native,) = folder.parent.glob("_C.*.so")
    code = f"""
        import ctypes
        from importlib.util import module_from_spec, spec_from_file_location
        import torch
        for library in ({str(folder / f"lib{name}.so")!r}, {str(bad_kernels)!r}):
            ctypes.CDLL(library)
        try:
            module_from_spec(spec_from_file_location("_C", {str(native)!r}))
        except ImportError as error:
            print(error)
    """
    printed = run_in_process(code, env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}).stdout
    assert f"kernels of {name} could not be registered:" in printed
    assert "bad_kernels.cpp:9: there is no operator aten::addd.Tensor in this torch" in printed
