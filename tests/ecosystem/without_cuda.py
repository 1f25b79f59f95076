"""Lets the package index's wheels of torchvision and torchaudio load beside a torch without CUDA.

They are linked with CUDA's libraries, of which they need nothing on other devices. Where torch has none, empty ones
are made, with every name that the wheels ask for, and a ``.pth`` file that loads them when Python starts:
``python without_cuda.py``, in the environment that has the wheels.
"""

import os
import subprocess
import sysconfig
from pathlib import Path

import torch

NEEDED = "libcudart.so.13", "libc10_cuda.so", "libtorch_cuda.so"
WHEELS = "torchvision/*.so", "torchaudio/lib/*.so", "torchao/*.so"


def names(library, which):
    """The symbols that a library defines, or that it leaves undefined, without versions."""
    done = subprocess.run(["nm", "-D", which, library], capture_output=True, text=True, check=True)
    return {line.split()[-1].split("@")[0] for line in done.stdout.splitlines()}


def main():
    packages = Path(sysconfig.get_path("purelib"))
    libraries = Path(torch.__file__).parent / "lib"
    if (libraries / "libtorch_cuda.so").exists():
        return
    asked = {name for wheel in WHEELS for path in packages.glob(wheel) for name in names(path, "--undefined-only")}
    there = {name for path in libraries.glob("*.so") for name in names(path, "--defined-only")}
    missing = sorted(name for name in asked - there if "cuda" in name.lower())
    folder = packages / "without_cuda"
    folder.mkdir(exist_ok=True)
    (folder / "empty.c").write_text("".join(f"void *{name}(void) {{ return 0; }}\n" for name in missing))
    for needed in NEEDED:
        (folder / "versions").write_text(f"{needed} {{ global: *; }};\n" if "cudart" in needed else "{ global: *; };\n")
        command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-w", f"-Wl,-soname,{needed}"]
        subprocess.run([*command, "-Wl,--version-script=versions", "empty.c", "-o", needed], cwd=folder, check=True)
    paths = [str(folder / needed) for needed in NEEDED]
    (packages / "without_cuda.pth").write_text(f"import ctypes; list(map(ctypes.CDLL, {paths}))\n")


if __name__ == "__main__":
    main()
