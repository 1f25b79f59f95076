"""Removes the files that the answers leave out, and what pip compiled of an installed template."""

from pathlib import Path
from shutil import rmtree

for answer, driver in (("minimal", "minimal_driver.c"), ("minimal_cpp", "minimal_driver.cpp")):
    if answer != "{{ cookiecutter.driver }}":
        Path("backend/driver", driver).unlink()
if "{{ cookiecutter.kernels }}" != "portable":
    rmtree("backend/operators")
    Path("python/{{ cookiecutter.package_name }}/ops.py").unlink()
    Path("tests", "test_swiglu.py").unlink()
# The portable kernels have an add; and of the drivers the simulated one alone runs host functions, which add.cpp is.
if ("{{ cookiecutter.kernels }}", "{{ cookiecutter.driver }}") != ("add", "sim"):
    rmtree("backend/kernels")
if "{{ cookiecutter.kernels }}" == "none":
    Path("tests", "test_add.py").unlink()
if "{{ cookiecutter.ci }}" != "github":
    rmtree(".github")
for folder in ("backend", "python", "tests"):  # no others: an older project may have an environment in it
    for compiled in list(Path(folder).rglob("__pycache__")):
        rmtree(compiled)
