"""The kinds of device that programs run on, by the environment that makes each."""

import os
import platform
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MINIMAL = ROOT / "build" / "demo" / "minimal" / "libminimal_driver.so"

# Small memory, so that what is too much is refused by the driver; each fifth allocation is refused once, which is no
# error; work takes longer at random, so that a missing order shows; one kind maps nothing but live memory.
_SIM = "memory=512MiB,fault.alloc=5"
_COMPILED = {"KERNELS": "strict", "CACHE_DIR": str(ROOT / "build" / "kernels")}
KINDS = {
    "unified-async": {"OPTIONS": f"kind=unified,stream=async,delay=40,{_SIM}"},
    "unified-inline": {"OPTIONS": f"kind=unified,stream=inline,{_SIM}"},
    "discrete-async": {"OPTIONS": f"kind=discrete,stream=async,delay=40,strict=on,{_SIM}"},
    "discrete-inline": {"OPTIONS": f"kind=discrete,stream=inline,{_SIM}"},
    "minimal": {"OPTIONS": "devices=2,fault.alloc=5", "DRIVER": str(MINIMAL), "SHIMS": "fault,emulate"},
    "compiled-async": {"OPTIONS": f"kind=discrete,stream=async,delay=40,strict=on,{_SIM}", **_COMPILED},
    "compiled-inline": {"OPTIONS": f"kind=unified,stream=inline,{_SIM}", **_COMPILED},
}

# Of random functions under torch.compile: groups of one item and of 64, an older level of the processor; and kernels
# under AddressSanitizer, which sees an access beside a tensor's bytes, since the driver has each allocation by itself.
# The compiler checks no vector's gather: the oldest level has none.
_X86 = platform.machine() == "x86_64"
GRAPHS = {
    "item": {"SHIMS": "", **_COMPILED},
    "items": {"SHIMS": "", "OPTIONS": "items=64", **_COMPILED},
    **({"avx2": {"SHIMS": "", "OPTIONS": "target=x86-64-v3", **_COMPILED}} if _X86 else {}),
    "address": {
        "SHIMS": "",
        "OPTIONS": "compiler=cc -fsanitize=address,strict=on" + (",target=x86-64" if _X86 else ""),
        "NO_MEMORY_CACHING": "1",
        **_COMPILED,
    },
}


def environment(kind: str, device: str) -> dict[str, str]:
    """The environment of a process on a kind of device."""
    prefix = f"{device.upper()}_"
    ours = {key: value for key, value in os.environ.items() if not key.startswith(prefix)}
    chosen = {"SHIMS": "fault", "KERNELS": "off"} | (KINDS | GRAPHS)[kind]
    chosen = {f"{prefix}{key}": value for key, value in chosen.items()}
    if kind == "address":
        words = [["cc", f"-print-file-name={name}.so"] for name in ("libasan", "libstdc++")]
        found = [subprocess.run(one, capture_output=True, text=True, check=True).stdout.strip() for one in words]
        chosen |= {"LD_PRELOAD": ":".join(found), "ASAN_OPTIONS": "detect_leaks=0"}
    return {**ours, "OMP_NUM_THREADS": "1", **chosen}
