"""vLLM on the device: ``make test-vllm``, in an environment of its own. Nothing is downloaded: models are made here."""

import os
from pathlib import Path

# Before torch and vLLM. One process has many engines, one after the other; a test that says so starts more processes.
os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_NO_USAGE_STATS="1", VLLM_DO_NOT_TRACK="1")
os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1")
os.environ["MYDEVICE_KERNELS"] = os.environ.get("SERVING_KERNELS", "wait")  # "off": quicker, and without Triton
os.environ.setdefault("MYDEVICE_INTEGRATIONS", "none")  # the plugin needs none of them
os.environ.setdefault("VLLM_CACHE_ROOT", str(Path(__file__).parents[2] / "build" / "vllm-cache"))

import pytest
import tiny_models
import torch

torch.set_num_threads(1)


def pytest_configure(config):
    config.addinivalue_line("markers", "sample: quick, and stands by itself: what CI may run of this folder")


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """``folder("llama")``: where a model of :mod:`tiny_models` is saved."""
    root, saved = tmp_path_factory.mktemp("models"), set()

    def save(name):
        if name not in saved:
            tiny_models.save(name, root / name)
            saved.add(name)
        return root / name

    return save


@pytest.fixture(scope="session")
def expected():
    """``expected("llama", prompts, count)``: the tokens of Transformers on the CPU in float32, greedily."""
    found = {}

    def generate(name, prompts, count):
        key = name, str(prompts), count
        if key not in found:
            found[key] = tiny_models.greedy(tiny_models.made(name), prompts, count)
        return found[key]

    return generate
