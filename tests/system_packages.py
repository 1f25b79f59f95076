"""What the tests marked ``system`` need and pip does not bring: clang, the system's PoCL, spirv-val, Mesa's lavapipe,
Vulkan's validation layers. They are parts of their own in tests/run.py, left out where it is missing. As a program it
prints the packages that .ci/run then installs.

pip has a PoCL, too, an old one: it knows no newer processor, and makes wrong code of some kernels.
"""

from __future__ import annotations

import shutil
from pathlib import Path

POCL = Path("/etc/OpenCL/vendors/pocl.icd")
VULKAN = Path("/usr/share/vulkan")
LAYERS = VULKAN / "explicit_layer.d" / "VkLayer_khronos_validation.json"
PACKAGES = "clang ocl-icd-libopencl1 pocl-opencl-icd libvulkan1 mesa-vulkan-drivers vulkan-validationlayers spirv-tools"


def missing() -> str:
    """What this machine lacks, and what installs it; empty if it lacks nothing."""
    found = {"clang": shutil.which("clang") is not None, str(POCL): POCL.exists(), str(LAYERS): LAYERS.exists()}
    found[str(VULKAN / "icd.d/lvp_icd.*.json")] = any(VULKAN.glob("icd.d/lvp_icd.*.json"))
    found["spirv-val"] = shutil.which("spirv-val") is not None
    lacks = [name for name, there in found.items() if not there]
    return f"there is no {' and no '.join(lacks)} (apt-get install {PACKAGES})" if lacks else ""


if __name__ == "__main__":
    print(PACKAGES if missing() else "")
