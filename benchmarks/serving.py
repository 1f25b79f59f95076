"""vLLM on the device against Transformers' ``generate`` on the CPU, for a Llama of 4 layers of 512, random weights.

In the environment of ``make test-vllm``: ``build/vllm-env/bin/python -m benchmarks.serving``. Each figure is of one
process with one thread. Tokens per second of processor time are comparable on a machine that does other work, too.
``--bench`` adds ``vllm bench throughput`` and ``vllm bench latency``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

BATCH, LENGTH, ROUNDS = 8, 64, 4
VOCABULARY = 10240  # vllm bench latency draws tokens below 10,000
ENGINE = {
    "max_model_len": 256,
    "max_num_seqs": BATCH,
    "kv_cache_memory_bytes": 64 << 20,
    "enable_prefix_caching": False,
}
SIDES = {
    "transformers": {},
    "vllm, eager": {"enforce_eager": True},
    "vllm, graphs": {"compilation_config": {"mode": 0, "cudagraph_capture_sizes": [1, BATCH]}},
    "vllm, compiled": {"compilation_config": {"cudagraph_capture_sizes": [1, BATCH]}},
}
BENCH = {
    "throughput": ["--num-prompts", "32", "--random-input-len", str(LENGTH), "--random-output-len", str(LENGTH)],
    "latency": [
        *("--batch-size", str(BATCH), "--input-len", str(LENGTH), "--output-len", str(LENGTH)),
        *("--num-iters-warmup", "1", "--num-iters", str(ROUNDS)),
    ],
}


def save(folder: Path) -> None:
    """The model, and a tokenizer whose words are numbers."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    sizes = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 4, "vocab_size": VOCABULARY}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 1024}
    LlamaForCausalLM(LlamaConfig(**sizes, **heads, tie_word_embeddings=False)).save_pretrained(folder)
    words = Tokenizer(WordLevel({str(number): number for number in range(VOCABULARY)}, unk_token="0"))
    words.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="0", eos_token="1").save_pretrained(folder)


def generator(side: str, folder: str, dtype: str) -> Callable[[], object]:
    """A function that generates LENGTH tokens for each of BATCH prompts."""
    import torch

    torch.set_num_threads(1)
    prompts = torch.randint(2, VOCABULARY, (BATCH, LENGTH), generator=torch.Generator().manual_seed(0))
    if side == "transformers":
        from transformers import LlamaForCausalLM

        model = LlamaForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
        words = {"attention_mask": torch.ones_like(prompts), "max_new_tokens": LENGTH, "min_new_tokens": LENGTH}
        return lambda: model.generate(prompts, do_sample=False, **words)
    from vllm import LLM, SamplingParams

    llm = LLM(folder, dtype=dtype, **ENGINE, **SIDES[side])
    sampling = SamplingParams(temperature=0, max_tokens=LENGTH, ignore_eos=True)
    requests = [{"prompt_token_ids": one} for one in prompts.tolist()]
    return lambda: llm.generate(requests, sampling, use_tqdm=False)


def measure(side: str, folder: str, dtype: str) -> str:
    """The best of some rounds."""
    run, best = generator(side, folder, dtype), [float("inf")] * 2
    run()
    for _ in range(ROUNDS):
        before = time.perf_counter(), time.process_time()
        run()
        best = [min(best[0], time.perf_counter() - before[0]), min(best[1], time.process_time() - before[1])]
    wall, processor = (BATCH * LENGTH / one for one in best)
    return f"{side}, {dtype}: {wall:.0f} tokens/s, {processor:.0f} per second of processor time"


def bench(kind: str, folder: str, dtype: str) -> None:
    """Run the command of vLLM, which prints its result."""
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "bench", kind, "--model", folder, "--dtype", dtype]
    limits = ["--max-model-len", "256", "--max-num-seqs", str(BATCH), "--kv-cache-memory-bytes", str(64 << 20)]
    subprocess.run([*command, *limits, "-cc.mode=0", *BENCH[kind]], check=True)


def main() -> None:
    """Print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--bench", action="store_true")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(measure(*given.one, given.dtype))
        return
    quiet = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    os.environ.update({"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **quiet})
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder))
        for side in SIDES:
            command = [sys.executable, "-m", "benchmarks.serving", "--dtype", given.dtype, "--one", side, folder]
            run = subprocess.run(command, check=False, capture_output=True, text=True)
            if run.returncode:
                raise SystemExit(f"{side} ended with {run.returncode}:\n{run.stderr[-4000:]}")
            print(run.stdout.splitlines()[-1], flush=True)
        for kind in BENCH if given.bench else ():
            bench(kind, folder, given.dtype)


if __name__ == "__main__":
    main()
