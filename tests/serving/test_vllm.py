"""vLLM on the device: greedy tokens of nine kinds of models, caches, adapters, quantized weights, against the CPU"""

import pytest
import tiny_models
import torch
from engines import engine, tokens
from vllm.triton_utils import HAS_TRITON

LIBRARIES = ("vllm", "transformers")
COUNT = 16
PROMPTS = tiny_models.prompts()


@pytest.mark.sample
def test_S01_greedy_tokens_are_those_of_transformers_on_the_cpu(folder, expected):
    want = expected("llama", PROMPTS, COUNT)
    assert len({token for row in want for token in row}) > 10
    with engine(folder("llama")) as llm:
        assert tokens(llm, PROMPTS, COUNT) == want


@pytest.mark.long_after_first
@pytest.mark.parametrize("name", ["qwen3_moe", "gemma3", "qwen2", "gemma2", "bloom", "deepseek2", "deepseek3"])
def test_S01_models(folder, expected, name):
    want = expected(name, PROMPTS, COUNT)
    with engine(folder(name)) as llm:
        assert tokens(llm, PROMPTS, COUNT) == want


def test_S01_embeddings_of_an_encoder(folder):
    model = tiny_models.made("bert")
    with torch.no_grad():
        want = [model(torch.tensor([one])).last_hidden_state[0, 0] for one in PROMPTS]
    with engine(folder("bert"), runner="pooling") as llm:
        found = llm.embed([{"prompt_token_ids": one} for one in PROMPTS], use_tqdm=False)
    for one, row in zip(found, want, strict=True):
        torch.testing.assert_close(torch.tensor(one.outputs.embedding), torch.nn.functional.normalize(row, dim=0))


@pytest.mark.parametrize(
    "options",
    [
        {"enable_prefix_caching": True, "block_size": 16},
        {"enable_prefix_caching": False, "max_num_batched_tokens": 8, "max_num_seqs": 4},
        {"async_scheduling": False, "max_num_seqs": 2},
    ],
    ids=["prefixes", "chunks", "synchronous"],
)
def test_S02_ways_to_schedule(folder, expected, options):
    """A prompt that was seen before, one that takes several steps, more requests than run at once."""
    prompts = [*PROMPTS, PROMPTS[0], [*PROMPTS[0], 9], [*PROMPTS[0][:20], 11, 12]]
    with engine(folder("llama"), **options) as llm:
        assert tokens(llm, prompts, COUNT) == expected("llama", prompts, COUNT)
        assert tokens(llm, prompts[:2], COUNT) == expected("llama", prompts[:2], COUNT)


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_S02_a_full_cache_preempts_requests(folder, expected, name):
    """A cache that holds two of eight requests of 48 tokens each."""
    prompts = tiny_models.prompts(8, seed=6, longest=20)
    options = {"num_gpu_blocks_override": 10, "block_size": 16, "max_model_len": 64, "disable_log_stats": False}
    with engine(folder(name), **options) as llm:
        assert tokens(llm, prompts, 28) == expected(name, prompts, 28)
        metrics = {one.name: one for one in llm.get_metrics()}
    assert metrics["vllm:num_preemptions"].value > 0


def test_S02_attention_that_is_not_compiled_is_computed_in_pieces(folder, expected, monkeypatch):
    from torch_backplane import compiler, paged

    pieces = []
    original = paged._attended

    def attended(query, *operands, **options):
        pieces.append(len(query))
        return original(query, *operands, **options)

    monkeypatch.setattr(paged, "LIMIT", 1 << 8)
    monkeypatch.setattr(paged, "_attended", attended)
    with compiler.using("off"):
        for name in ("llama", "gemma2"):
            with engine(folder(name)) as llm:
                assert tokens(llm, PROMPTS, COUNT) == expected(name, PROMPTS, COUNT)
    assert 1 < max(pieces) < max(map(len, PROMPTS))


@pytest.mark.parametrize("kind", ["fp8", "fp8_e5m2", "fp8_per_token_head", "int8_per_token_head"])
def test_S02_a_cache_of_8_bits(folder, expected, kind):
    """The tokens are those of the CPU with keys and values that are rounded likewise, and are not the exact ones."""
    dtype = {"fp8_e5m2": torch.float8_e5m2, "int8_per_token_head": torch.int8}.get(kind, torch.float8_e4m3fn)
    most = (torch.iinfo if dtype == torch.int8 else torch.finfo)(dtype).max

    def rounded(lines):
        scale = lines.abs().amax(-1, keepdim=True) / most if kind.endswith("_head") else 1.0
        found = (lines / scale).round() if dtype == torch.int8 else (lines / scale).to(dtype).float()
        return found * scale

    count = 60 if dtype == torch.int8 else COUNT  # the first that int8 changes is the 40th
    want = tiny_models.greedy(tiny_models.made("llama"), PROMPTS, count, rounded)
    assert want != expected("llama", PROMPTS, count)
    with engine(folder("llama"), kv_cache_dtype=kind) as llm:
        assert tokens(llm, PROMPTS, count) == want


@pytest.mark.skipif(not HAS_TRITON, reason="speculation needs Triton, and a driver that compiles")
@pytest.mark.parametrize("method", ["ngram", "draft_model"])
def test_S02_draft_tokens(folder, expected, method):
    options = {"method": method, "num_speculative_tokens": 3}
    if method == "ngram":
        options |= {"prompt_lookup_max": 3, "prompt_lookup_min": 1}
    else:
        options |= {"model": str(folder("draft"))}
    prompts = [[5, 6, 7, 8] * 6, *PROMPTS[:2]]
    with engine(folder("llama"), speculative_config=options, disable_log_stats=False) as llm:
        assert tokens(llm, prompts, COUNT) == expected("llama", prompts, COUNT)
        drafts = {one.name: one.value for one in llm.get_metrics() if one.name.startswith("vllm:spec_decode_num_dr")}
    assert drafts["vllm:spec_decode_num_draft_tokens"] > 0
