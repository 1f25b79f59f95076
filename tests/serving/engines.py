"""Engines of vLLM in this process, one after the other."""

import gc
from contextlib import contextmanager

import torch
from vllm import LLM, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory

OPTIONS = {
    "dtype": "float32",
    "enforce_eager": True,
    "max_model_len": 128,
    "max_num_batched_tokens": 128,
    "max_num_seqs": 8,
    "kv_cache_memory_bytes": 8 << 20,
    "gpu_memory_utilization": 0.5,
    "disable_log_stats": True,
}


@contextmanager
def engine(folder, **options):
    llm = None
    try:
        llm = LLM(str(folder), **{**OPTIONS, **options})
        yield llm
    finally:
        if llm is not None:
            llm.llm_engine.engine_core.shutdown()
        del llm
        torch._dynamo.reset()
        cleanup_dist_env_and_memory()
        gc.collect()


def tokens(llm, prompts, count, **options):
    """Greedily, unless options say else."""
    parameters = SamplingParams(**{"temperature": 0, "max_tokens": count, "ignore_eos": True, **options})
    return [list(one.outputs[0].token_ids) for one in generated(llm, prompts, parameters)]


def generated(llm, prompts, parameters, **options):
    return llm.generate([{"prompt_token_ids": one} for one in prompts], parameters, use_tqdm=False, **options)
