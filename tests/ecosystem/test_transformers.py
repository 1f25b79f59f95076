"""Transformers on the device: pipelines, placement, the Trainer, generation, against the same on the CPU."""

from pathlib import Path

import pytest
import tiny
import torch
import transformers
from packaging.version import Version
from transformers import (
    ContinuousBatchingConfig,
    GenerationConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
    pipeline,
)
from transformers.generation.continuous_batching.cache import get_device_and_memory_breakdown

HALVES = {"fp32": {}, "fp16": {"fp16": True}, "bf16": {"bf16": True}}
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@pytest.mark.sample
def test_I05_a_pipeline_runs_on_the_device(device):
    texts, tokenizer = tiny.sentences(3), tiny.tokenizer()
    pipe = pipeline("feature-extraction", model=tiny.bert(), tokenizer=tokenizer)
    assert pipe.device == device
    assert {parameter.device for parameter in pipe.model.parameters()} == {device}
    seen = []
    pipe.model.register_forward_hook(lambda module, inputs, output: seen.append(output.last_hidden_state.device))
    found = pipe(texts, batch_size=2)
    expected = pipeline("feature-extraction", model=tiny.bert(), tokenizer=tokenizer, device="cpu")(texts)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), atol=1e-5, rtol=1e-4)
    assert set(seen) == {device}


@pytest.mark.requires("multi_device")
def test_I05_a_pipeline_leaves_a_model_where_it_is(device, device_module):
    second = torch.device(device.type, 1)
    pipe = pipeline("text-generation", model=tiny.llama().to(device), tokenizer=tiny.tokenizer())
    assert pipe.model.device == device
    pipe = pipeline("text-generation", model=tiny.llama(), tokenizer=tiny.tokenizer(), device=1)
    assert pipe.device == pipe.model.device == second
    assert pipeline("text-generation", model=tiny.llama(), tokenizer=tiny.tokenizer(), device=-1).device.type == "cpu"
    with pipe.device_placement():
        assert device_module.current_device() == 1
    greedy = {"max_new_tokens": 6, "do_sample": False}
    found = pipe("a cat sat", **greedy)
    expected = pipeline("text-generation", model=tiny.llama(), tokenizer=tiny.tokenizer(), device="cpu")
    assert found == expected("a cat sat", **greedy)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("experts", ["eager", "batched_mm", "grouped_mm"])
def test_a_mixture_of_experts_trains(device, experts, dtype):
    """Tokens are counted by expert (histc of whole numbers), and multiplied group by group."""
    ids = torch.randint(32, (2, 9), generator=torch.Generator().manual_seed(0))
    exact = tiny.mixture("eager")
    expected = exact(ids, labels=ids).loss
    expected.backward()
    model = tiny.mixture(experts).to(device, dtype)
    found = model(ids.to(device), labels=ids.to(device)).loss
    found.backward()
    wide = 1e-5 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(found.float().cpu(), expected, rtol=wide, atol=wide)
    for ours, theirs in zip(model.parameters(), exact.parameters(), strict=True):
        assert ours.grad.device == device
        distance = (ours.grad.cpu().float() - theirs.grad).norm() / theirs.grad.norm()
        assert distance < wide


@pytest.mark.requires("multi_device")
def test_I05_device_map(device, tmp_path):
    tiny.llama(4).save_pretrained(tmp_path)
    x = torch.tensor([[4, 5, 6, 7]])
    expected = tiny.llama(4)(x).logits
    model = LlamaForCausalLM.from_pretrained(tmp_path, device_map="auto")
    assert {parameter.device.type for parameter in model.parameters()} == {device.type}
    torch.testing.assert_close(model(x.to(device)).logits.cpu(), expected, atol=1e-5, rtol=1e-4)

    for text in (device.type, f"{device.type}:1"):
        model = LlamaForCausalLM.from_pretrained(tmp_path, device_map=text, dtype=torch.bfloat16)
        assert model.device == torch.device(text if ":" in text else f"{text}:0")
        assert model.dtype == torch.bfloat16

    memory = {0: 90_000, 1: 50_000, "cpu": 10_000_000}
    folder = str(tmp_path / "offload")
    model = LlamaForCausalLM.from_pretrained(tmp_path, device_map="auto", max_memory=memory, offload_folder=folder)
    assert set(model.hf_device_map.values()) == {0, 1, "cpu"}
    assert {parameter.device.type for parameter in model.parameters()} == {device.type, "meta"}
    torch.testing.assert_close(model(x).logits.cpu(), expected, atol=1e-5, rtol=1e-4)


def trained(folder, use_cpu=False, steps=6, batch=4, resume=None, **options):
    """A Trainer after some steps, and the losses."""
    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=steps, per_device_train_batch_size=batch, learning_rate=0.01, logging_steps=1,
        optim="sgd", report_to=[], use_cpu=use_cpu, seed=3, disable_tqdm=True, save_strategy="steps", save_steps=3,
        **options,
    )  # fmt: skip
    trainer = Trainer(tiny.llama(), arguments, train_dataset=tiny.token_rows(), data_collator=collated)
    trainer.train(resume_from_checkpoint=resume)
    return trainer, [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def collated(rows):
    return {key: torch.tensor([row[key] for row in rows]) for key in rows[0]}


@pytest.mark.parametrize("precision", [pytest.param("fp32", marks=pytest.mark.sample), "fp16", "bf16"])
def test_I05_trainer(device, tmp_path, precision):
    inner, classes = set(), HALVES[precision]
    hook = torch.nn.modules.module.register_module_forward_hook(
        lambda module, inputs, output: inner.add(output.dtype) if isinstance(module, torch.nn.Linear) else None
    )
    trainer, losses = trained(tmp_path / "ours", **classes)
    hook.remove()
    assert trainer.args.device == device
    assert trainer.args.n_gpu == 1
    assert {parameter.device for parameter in trainer.model.parameters()} == {device}
    assert {parameter.dtype for parameter in trainer.model.parameters()} == {torch.float32}
    assert inner == {DTYPES[precision]}
    reference, expected = trained(tmp_path / "cpu", use_cpu=True)
    tolerance = {"atol": 1e-4, "rtol": 1e-4} if precision == "fp32" else {"atol": 0.05, "rtol": 0.05}
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected), **tolerance)
    if precision == "fp32":
        for ours, theirs in zip(trainer.model.parameters(), reference.model.parameters(), strict=True):
            torch.testing.assert_close(ours.cpu(), theirs, atol=1e-4, rtol=1e-4)


def test_a_trainer_goes_on_from_a_checkpoint(device, tmp_path):
    whole, losses = trained(tmp_path / "run")
    state = torch.load(tmp_path / "run" / "checkpoint-3" / "rng_state.pth", weights_only=False)
    assert device.type in state
    torch.rand(3, device=device)  # which the checkpoint undoes
    again, rest = trained(tmp_path / "run", resume=str(tmp_path / "run" / "checkpoint-3"))
    assert losses[3:] == rest[-3:]
    for ours, theirs in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_evaluation_and_memory_metrics(device, tmp_path):
    arguments = TrainingArguments(
        output_dir=str(tmp_path), report_to=[], skip_memory_metrics=False, disable_tqdm=True, eval_accumulation_steps=1
    )
    trainer = Trainer(tiny.llama().to(device), arguments, eval_dataset=tiny.token_rows(), data_collator=collated)
    metrics = trainer.evaluate()
    with torch.no_grad():
        expected = tiny.llama()(**collated(tiny.token_rows())).loss.item()
    assert metrics["eval_loss"] == pytest.approx(expected, rel=1e-4)
    assert metrics["eval_mem_gpu_peaked_delta"] > 0


@pytest.mark.parametrize("cache", ["dynamic", "static", "offloaded", "offloaded_static"])
def test_I05_generate_with_each_cache(device, cache):
    x = torch.tensor([[4, 5, 6, 7], [9, 8, 7, 6]])
    options = {"max_new_tokens": 8, "do_sample": False, "disable_compile": True}
    expected = tiny.llama().generate(x, **options)
    found = tiny.llama().to(device).generate(x.to(device), cache_implementation=cache, **options)
    assert found.device == device
    assert found.tolist() == expected.tolist()


COMPILED = """
import json, sys
sys.path.insert(0, {folder!r})
import tiny, torch
from torch._dynamo.utils import counters
device = torch.device("mydevice")
x = torch.tensor([[4, 5, 6, 7]])
options = {{"max_new_tokens": 6, "do_sample": False, "cache_implementation": "static"}}
expected = tiny.llama(1).generate(x, **options).tolist()
before = counters["stats"]["unique_graphs"]
found = tiny.llama(1).to(device).generate(x.to(device), **options)
graphs = counters["stats"]["unique_graphs"]
print(json.dumps([found.tolist() == expected, str(found.device), before, graphs > 0]))
"""


from_5_17 = pytest.mark.skipif(
    Version(transformers.__version__) < Version("5.17"),
    reason="Transformers 5.16 fails in turns if it starts before its first request",
)
BATCHING = {
    "default": {},
    "in order": {"use_cuda_graph": False, "use_async_batching": False},
    "in turns": pytest.param({"use_async_batching": True}, marks=from_5_17),
    "graphs": {"use_cuda_graph": True},
    "graphs that sample": {"use_cuda_graph": True, "do_sample": True, "top_k": 1},  # the only token that may come
}


def batched(device, options):
    """Tokens of four runs, those of generate() on the CPU, and the device and memory that the cache was sized for."""
    prompts = [[2, 5, 6, 7], [9, 4], [3, 8, 5, 1, 1, 6, 2]]
    greedy = {"max_new_tokens": 5, "do_sample": False}
    sampling = {name: value for name, value in options.items() if name in ("do_sample", "top_k")}
    options = {name: value for name, value in options.items() if name not in sampling}
    reference = tiny.llama()
    expected = [reference.generate(torch.tensor([prompt]), **greedy)[0, len(prompt) :].tolist() for prompt in prompts]
    model = tiny.llama().to(device)
    runs = []
    for _ in range(4):
        found = model.generate_batch(
            prompts,
            generation_config=GenerationConfig(**{**greedy, **sampling}),
            continuous_batching_config=ContinuousBatchingConfig(num_blocks=64, max_batch_tokens=64, **options),
        )
        runs.append([output.generated_tokens for output in found.values()])
    where, total, _, _ = get_device_and_memory_breakdown()
    return runs, expected, where.type, total


@pytest.mark.parametrize("options", BATCHING.values(), ids=BATCHING)
def test_I05_continuous_batching(answer, device, device_module, options):
    """Prompts of several lengths, each as generate() continues it on the CPU; the cache takes the device's memory."""
    code = f"""
import sys, json
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_transformers import batched
print(json.dumps(batched({device.type!r}, {options!r})))
"""
    runs, expected, where, total = answer(code, MYDEVICE_KERNELS="wait")  # a graph holds no call of the CPU
    assert runs == [expected] * 4
    assert (where, total) == (device.type, device_module.get_device_properties(device).total_memory)


def test_a_static_cache_is_compiled_as_on_cuda(answer, tmp_path):
    here = str(Path(__file__).parent)
    code = COMPILED.format(folder=here)
    assert answer(code, MYDEVICE_KERNELS="wait") == [True, "mydevice:0", 0, True]


def test_trainer_compiles(answer, tmp_path):
    code = f"""
import sys, json
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_transformers import trained
trainer, losses = trained({str(tmp_path)!r}, steps=2, torch_compile=True)
_, expected = trained({str(tmp_path)!r}, steps=2, use_cpu=True)
print(json.dumps([str(trainer.args.device), losses, expected]))
"""
    device, losses, expected = answer(code, MYDEVICE_KERNELS="wait")
    assert device == "mydevice:0"
    assert losses == pytest.approx(expected, rel=1e-3)


RANKS = """
import sys, json
sys.path.insert(0, {folder!r})
from test_transformers import trained
import torch
inner = set()
torch.nn.modules.module.register_module_forward_hook(
    lambda module, inputs, output: inner.add(str(output.dtype)) if isinstance(module, torch.nn.Linear) else None
)
trainer, losses = trained({out!r}, steps=3, batch=2, **{options!r})
places = sorted({{str(parameter.device) for parameter in trainer.model.parameters()}})
weights = {{key: value.float().cpu().flatten().tolist()[:50] for key, value in trainer.model.state_dict().items()}}
line = json.dumps([places, trainer.args.world_size, sorted(inner), losses, weights])
if trainer.args.process_index == 0:
    print(line, flush=True)
"""


@pytest.mark.requires("multi_device")
@pytest.mark.parametrize("precision", HALVES)
def test_I05_trainer_with_two_processes(answer, tmp_path, precision):
    code = RANKS.format(folder=str(Path(__file__).parent), out=str(tmp_path / "out"), options=HALVES[precision])
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    places, world, inner, losses, weights = answer(code, launcher=launcher)
    assert (places, world) == (["mydevice:0"], 2)
    assert inner == [str(DTYPES[precision])]
    reference, expected = trained(tmp_path / "cpu", use_cpu=True, steps=3)
    tolerance = 1e-3 if precision == "fp32" else 0.05
    assert losses == pytest.approx(expected, rel=tolerance)
    if precision == "fp32":
        for key, value in reference.model.state_dict().items():
            torch.testing.assert_close(torch.tensor(weights[key]), value.flatten()[:50], atol=1e-4, rtol=1e-3)


SPLIT = """
import json, torch
from transformers import LlamaForCausalLM
from transformers.distributed import DistributedConfig
model = LlamaForCausalLM.from_pretrained({folder!r}, distributed_config=DistributedConfig(tp_size=2))
logits = model(torch.tensor([[4, 5, 6, 7]], device=model.device)).logits
part = model.model.layers[0].self_attn.q_proj.weight.to_local()
line = json.dumps([torch.distributed.get_backend(), str(model.device), list(part.shape), logits.tolist()])
if torch.distributed.get_rank() == 0:
    print(line, flush=True)
torch.distributed.destroy_process_group()
"""


@pytest.mark.requires("multi_device")
def test_a_model_is_split_over_processes(answer, tmp_path):
    model = tiny.llama()
    model.save_pretrained(tmp_path)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    group, place, shape, logits = answer(SPLIT.format(folder=str(tmp_path)), launcher=launcher)
    assert (group, place, shape) == ("mydeviceccl", "mydevice:0", [16, 32])
    torch.testing.assert_close(torch.tensor(logits), model(torch.tensor([[4, 5, 6, 7]])).logits, atol=1e-4, rtol=1e-4)


def test_an_image_processor_takes_the_device(device):
    from transformers.utils.type_validators import device_validator

    device_validator(device.type)
    device_validator(torch.device(device.type, 0))
    with pytest.raises(ValueError, match="must be one of"):
        device_validator("nodevice")
