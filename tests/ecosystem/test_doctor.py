"""``torch-backplane doctor`` reports what is done to each library that is installed, and in which version."""

from importlib.metadata import version

import pytest

from backplane_tools.cli import doctor
from torch_backplane import integrations

LIBRARIES = ()  # no row of the table: each is tested elsewhere

# What of it the user meets first.
DONE = {
    "accelerate": "mixed_precision fp16 and bf16",
    "deepspeed": "the accelerator is mydevice",
    "diffusers": "the default device is mydevice",
    "fla": "losses take tensors of mydevice",
    "flag_gems": "the vendor backplane is mydevice",
    "liger_kernel": "the device is mydevice",
    "lightning": "Trainer has the accelerator mydevice",
    "lightning_fabric": "Fabric has the accelerator mydevice",
    "litgpt": "commands take every device",
    "pytorch_lightning": "Trainer has the accelerator mydevice",
    "ray": "ray.init() counts the devices as GPU",
    "safetensors": "safe_open takes mydevice",
    "sentence_transformers": "models go to mydevice",
    "stable_baselines3": "device='auto' is mydevice",
    "ultralytics": "device='' is mydevice",
    "transformers": "pipeline() runs on the device",
    "whisper": "load_model() selects mydevice",
    "trl": "the trainers of TRL",
}
PACKAGES = {"fla": "fla-core", "whisper": "openai-whisper"}


@pytest.fixture(scope="module")
def reported():
    return {one.what: one for one in doctor.check_integrations("mydevice")}


def test_all_are_here():
    assert set(DONE) == set(integrations.LIBRARIES)


@pytest.mark.parametrize("library", DONE)
def test_a_library_is_reported(reported, library):
    one = reported[f"with {library}"]
    # One version, whichever of its packages it is; one that is not named as its package.
    package = "lightning" if "lightning" in library else PACKAGES.get(library, library)
    assert (one.state, one.cure) == ("ok", "")
    assert one.found.startswith(f"{version(package)}: ")
    assert DONE[library] in one.found
