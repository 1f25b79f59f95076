"""vLLM on the device: sampling, wrong and cancelled requests, memory that does not grow, and what is refused"""

import gc
import random
from dataclasses import replace
from importlib.metadata import entry_points
from types import SimpleNamespace

import pytest
import tiny_models
import torch
from engines import OPTIONS, engine, generated, tokens
from packaging.version import Version
from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.exceptions import VLLMValidationError

from torch_backplane import _backend
from torch_backplane.vllm import platform, releases

LIBRARIES = ("vllm",)
COUNT = 12
PROMPTS = tiny_models.prompts(4, seed=9)


@pytest.fixture(scope="module")
def llm(folder):
    with engine(folder("llama"), max_logprobs=VOCABULARY, seed=3) as made:
        yield made


VOCABULARY = tiny_models.VOCABULARY


def test_S05_probabilities_are_those_of_the_cpu(llm):
    parameters = SamplingParams(temperature=0, max_tokens=1, logprobs=VOCABULARY)
    model = tiny_models.made("llama")
    for prompt, one in zip(PROMPTS, generated(llm, PROMPTS, parameters), strict=True):
        with torch.no_grad():
            want = model(torch.tensor([prompt])).logits[0, -1].log_softmax(-1)
        found = one.outputs[0].logprobs[0]
        torch.testing.assert_close(torch.tensor([found[token].logprob for token in range(VOCABULARY)]), want)


def test_S05_samples_follow_the_probabilities(llm):
    """Of 400 draws: none beyond top_k and top_p, frequencies near the probabilities; a seed repeats them."""
    parameters = {"temperature": 1.5, "max_tokens": 1, "top_k": 6, "top_p": 0.9}
    with torch.no_grad():
        logits = tiny_models.made("llama")(torch.tensor([PROMPTS[0]])).logits[0, -1] / 1.5
    best = logits.topk(6)
    chances = best.values.softmax(-1)
    kept = int((chances.cumsum(-1) - chances < 0.9).sum())
    chances = dict(zip(best.indices[:kept].tolist(), (chances[:kept] / chances[:kept].sum()).tolist(), strict=True))
    (one,) = generated(llm, PROMPTS[:1], SamplingParams(n=400, seed=11, **parameters))
    drawn = [output.token_ids[0] for output in one.outputs]
    assert set(drawn) <= chances.keys()
    for token, chance in chances.items():
        assert abs(drawn.count(token) / 400 - chance) < 0.12
    (again,) = generated(llm, PROMPTS[:1], SamplingParams(n=400, seed=11, **parameters))
    assert [output.token_ids[0] for output in again.outputs] == drawn
    (other,) = generated(llm, PROMPTS[:1], SamplingParams(n=400, seed=12, **parameters))
    assert len(chances) == 1 or [output.token_ids[0] for output in other.outputs] != drawn


def test_S05_penalties_and_forbidden_tokens(llm, expected):
    first = expected("llama", PROMPTS, COUNT)[0][0]
    (row,) = tokens(llm, PROMPTS[:1], COUNT, logit_bias={first: -100})
    assert first not in row
    (row,) = tokens(llm, PROMPTS[:1], COUNT, logit_bias={77: 100})
    assert row == [77] * COUNT
    (row,) = tokens(llm, PROMPTS[:1], COUNT, logit_bias={77: 100}, frequency_penalty=2.0, presence_penalty=2.0)
    assert row == [77] * COUNT
    (row,) = tokens(llm, PROMPTS[:1], COUNT, logit_bias={77: 30, 78: 30}, repetition_penalty=50.0)
    assert {77, 78} <= set(row)
    (row,) = tokens(llm, PROMPTS[:1], 6, allowed_token_ids=[40, 41], min_p=0.0)
    assert set(row) <= {40, 41}


@pytest.mark.parametrize(
    "wrong",
    [{"temperature": -1.0}, {"top_p": 0.0}, {"top_k": -5}, {"max_tokens": 0}, {"n": 0}, {"repetition_penalty": 0.0}],
    ids=str,
)
def test_S05_wrong_sampling_parameters(wrong):
    with pytest.raises((ValueError, VLLMValidationError), match=next(iter(wrong))):
        SamplingParams(**wrong)


def test_S05_the_engine_goes_on_after_a_wrong_request(llm, expected):
    for prompt, parameters in [
        ([5] * 200, SamplingParams(max_tokens=4)),
        ([5, 100_000], SamplingParams(max_tokens=4)),
        ([5], SamplingParams(max_tokens=4, logit_bias={100_000: 1.0})),
    ]:
        with pytest.raises((ValueError, VLLMValidationError)):
            generated(llm, [prompt], parameters)
    assert tokens(llm, PROMPTS, COUNT) == expected("llama", PROMPTS, COUNT)


def test_S05_a_cancelled_request_leaves_the_others(llm, expected):
    inner = llm.llm_engine
    parameters = SamplingParams(temperature=0, max_tokens=COUNT, ignore_eos=True)
    for index, prompt in enumerate(PROMPTS):
        inner.add_request(str(index), {"prompt_token_ids": prompt}, parameters.clone())
    inner.step()
    inner.step()
    inner.abort_request(["1"])
    found = {}
    while inner.has_unfinished_requests():
        for one in inner.step():
            if one.finished:
                found[one.request_id] = list(one.outputs[0].token_ids)
    want = expected("llama", PROMPTS, COUNT)
    assert found == {str(index): want[index] for index in (0, 2, 3)}
    assert tokens(llm, PROMPTS, COUNT) == want


def test_S05_memory_does_not_grow(llm, device_module):
    prompts = tiny_models.prompts(60, seed=10)
    parameters = [SamplingParams(temperature=0.8, max_tokens=1 + index % 5, seed=index) for index in range(60)]
    generated(llm, prompts, parameters)
    before = device_module.memory_allocated()
    for _ in range(2):
        assert len(generated(llm, prompts, parameters)) == 60
    assert device_module.memory_allocated() <= before


@pytest.mark.long
def test_S05_a_thousand_requests(folder, expected, device_module):
    """32 at once, of random lengths, some cancelled, some wrong: each ends, with the tokens that it has alone."""
    chance = random.Random(4)
    prompts = tiny_models.prompts(24, seed=14, longest=60)
    want = expected("llama", prompts, 24)
    with engine(folder("llama"), max_num_seqs=32, enable_prefix_caching=True) as llm:
        allocated = []
        for numbers in (range(100), range(100, 1000)):
            serve(llm.llm_engine, prompts, want, numbers, chance)
            assert tokens(llm, prompts[:1], 4) == [want[0][:4]]  # the engine lives, and ends with the same step
            gc.collect()
            torch.accelerator.synchronize()
            allocated.append(device_module.memory_allocated())
        assert allocated[0] == allocated[1]


def serve(inner, prompts, want, numbers, chance):
    waiting, running, ended, cancelled = list(numbers), {}, {}, set()
    while waiting or running:
        while waiting and len(running) < 32:
            number, count = waiting.pop(), chance.randint(1, 24)
            if chance.random() < 0.02:
                wrong = chance.choice([([5] * 200, {}), ([5, 100_000], {}), ([5], {"logit_bias": {100_000: 1.0}})])
                with pytest.raises((ValueError, VLLMValidationError)):
                    inner.add_request("wrong", {"prompt_token_ids": wrong[0]}, SamplingParams(max_tokens=4, **wrong[1]))
            parameters = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
            inner.add_request(str(number), {"prompt_token_ids": prompts[number % len(prompts)]}, parameters)
            running[number] = count
        if chance.random() < 0.2:
            gone = chance.choice(list(running))
            inner.abort_request([str(gone)])
            cancelled.add(gone)
            del running[gone]
        for one in inner.step():
            number, row = int(one.request_id), list(one.outputs[0].token_ids)
            assert row == want[number % len(prompts)][: len(row)]
            if one.finished and number not in cancelled:
                assert len(row) == running.pop(number)
                ended[number] = row
    assert not inner.has_unfinished_requests()
    assert ended.keys() | cancelled == set(numbers)
    assert 0 < len(cancelled) < len(ended)


def made(folder, **options):
    return EngineArgs(str(folder), **{**OPTIONS, **options}).create_engine_config()


@pytest.mark.parametrize(
    ("name", "model", "options"),
    [
        ("prefill_context_parallel_size", "llama", {"prefill_context_parallel_size": 2}),
        ("cpu_offload_gb", "llama", {"cpu_offload_gb": 1.0}),
        ("speculation", "llama", {"speculative_config": {"method": "ngram_gpu", "num_speculative_tokens": 2}}),
        ("4 workers on 2 devices", "llama", {"tensor_parallel_size": 4}),
        ("4 workers on 2 devices", "llama", {"tensor_parallel_size": 2, "data_parallel_size": 2}),
        ("several nodes", "llama", {"nnodes": 2, "tensor_parallel_size": 2}),
    ],
)
def test_S03_what_is_not_served_is_refused_by_name(folder, name, model, options):
    with pytest.raises((NotImplementedError, ValueError), match=f"not served on mydevice: .*{name}"):
        made(folder(model), **options)


def test_S03_quantization_that_is_not_served_is_refused_by_name(folder):
    for name in ("mxfp4", "experts_int8", "modelopt"):
        with pytest.raises((NotImplementedError, ValueError), match=f"{name}.* not supported in mydevice"):
            made(folder("llama"), quantization=name, dtype="bfloat16")


def test_S03_latent_attention_is_refused_by_name(folder, monkeypatch):
    monkeypatch.setattr("vllm.envs.VLLM_MLA_DISABLE", False, raising=False)  # read once
    with pytest.raises(NotImplementedError, match=r"not served on mydevice: .*MLA.*VLLM_MLA_DISABLE"):
        made(folder("deepseek2"))


def test_S03_attention_that_is_not_computed_is_refused_by_name(folder):
    with (
        pytest.raises(Exception, match="kv_cache_dtype not supported"),
        engine(folder("llama"), kv_cache_dtype="int4_per_token_head"),
    ):
        pass


def test_S03_a_cache_whose_scales_do_not_fit_between_heads_is_refused():
    from torch_backplane.vllm.attention import PagedAttention

    with pytest.raises(NotImplementedError, match="int8_per_token_head with heads of 30 is not served on mydevice"):
        PagedAttention(2, 30, 1.0, kv_cache_dtype="int8_per_token_head")


@pytest.mark.parametrize("kib", [32, 65])
def test_S03_little_local_memory_sorts_logits(monkeypatch, kib):
    from vllm.v1.sample.ops import topk_topp_sampler
    from vllm.v1.worker.block_table import ComputeSlotMappingKernel

    from torch_backplane import compiler
    from torch_backplane.vllm import kernels

    target = replace(compiler.target(), local_bytes=kib << 10)
    monkeypatch.setattr(compiler, "target", lambda: target)
    monkeypatch.setattr(topk_topp_sampler, "HAS_TRITON", True)
    monkeypatch.setattr(ComputeSlotMappingKernel, "kernel", SimpleNamespace(arg_names=()))
    kernels.register()
    assert (kib == 65) == topk_topp_sampler.HAS_TRITON


def test_S03_the_key_of_the_cache_of_graphs_has_the_plugins_version(folder, monkeypatch):
    first = made(folder("llama"))
    assert made(folder("llama")).compute_hash() == first.compute_hash()
    assert first.additional_config["torch_backplane"] == releases.cache_key()
    monkeypatch.setattr(releases, "cache_key", lambda: "another")
    assert made(folder("llama")).compute_hash() != first.compute_hash()


def test_S03_another_release_is_refused_with_what_to_install():
    for version in ("0.32.0", "0.32.1", "0.32.0+empty", "0.32.1rc1"):
        assert Version(version)
        releases.check(version)
    for version in ("0.31.4", "0.33.0", "0.33.0+cpu"):
        with pytest.raises(ImportError, match=r'pip install "torch-backplane\[vllm\]"') as raised:
            releases.check(version)
        assert str(raised.value).startswith(f"vLLM {version} is installed")


def test_S03_there_is_no_platform_without_a_device(monkeypatch):
    """Also after the platform's module has been imported."""
    (point,) = [one for one in entry_points(group="vllm.platform_plugins") if one.value.startswith("torch_backplane")]
    assert point.load()() == "torch_backplane.vllm.platform.BackplanePlatform"
    monkeypatch.setattr(_backend.C.devices, "count", lambda: 0)
    assert point.load()() is None


def test_S03_the_platform_is_the_devices(device_module):
    from vllm.platforms import current_platform

    assert isinstance(current_platform, platform.BackplanePlatform)
    assert current_platform.device_type == "mydevice"
    assert current_platform.get_device_total_memory() == device_module.get_device_properties(0).total_memory
    with pytest.raises(ValueError, match="float64"):
        current_platform.check_if_supports_dtype(torch.float64)
