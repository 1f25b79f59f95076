"""Removes the files that the answers leave out."""

from pathlib import Path
from shutil import rmtree

if "{{ cookiecutter.driver }}" != "minimal":
    Path("backend/driver/minimal_driver.c").unlink()
if "{{ cookiecutter.kernels }}" == "add":
    for kernel in Path("backend/kernels").iterdir():
        if kernel.name != "add.cpp":
            kernel.unlink()
    Path("tests/test_elementwise.py").unlink()
if "{{ cookiecutter.ci }}" != "github":
    rmtree(".github")
