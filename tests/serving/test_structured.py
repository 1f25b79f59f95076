"""vLLM on the device: structured output, against the CPU's best token among those that a pattern allows"""

import json

import pytest
import regex
import tiny_models
import torch
from engines import engine, generated
from vllm import SamplingParams
from vllm.sampling_params import StructuredOutputsParams

LIBRARIES = ("vllm", "xgrammar", "llguidance")
COUNT = 48
PROMPTS = tiny_models.prompts(3, seed=12)
SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["device", "host", "7"]}, "ready": {"type": "boolean"}},
    "required": ["name", "ready"],
    "additionalProperties": False,
}
CONSTRAINTS = {  # with the pattern that says the same
    "choice": (["device", "host memory", "dev"], "device|host memory|dev"),
    "regex": ("[a-f]{3}-(1|22)+!", "[a-f]{3}-(1|22)+!"),
    "json": (SCHEMA, r'\{"name":"(device|host|7)","ready":(true|false)\}'),
}


def best(model, characters, prompt, pattern):
    """The greedy text that the pattern matches; of nothing but the model and the pattern."""
    ids, text = list(prompt), ""
    while True:
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -1]
        allowed = [token for token, one in characters.items() if regex.fullmatch(pattern, text + one, partial=True)]
        if regex.fullmatch(pattern, text):
            allowed.append(tiny_models.END)
        token = max(allowed, key=lambda one: logits[one].item())
        if token == tiny_models.END or len(ids) - len(prompt) == COUNT:
            return text
        ids, text = [*ids, token], text + characters[token]


@pytest.mark.long_after_first
@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
def test_S07_structured_output(folder, tmp_path, backend):
    """One batch of requests with each constraint and with none."""
    tiny_models.save("llama", tmp_path)
    characters = tiny_models.save_characters(tmp_path)
    model = tiny_models.made("llama")
    cases = [(prompt, kind) for prompt in PROMPTS for kind in (None, *CONSTRAINTS)]
    constraints = [kind and StructuredOutputsParams(**{kind: CONSTRAINTS[kind][0]}) for _, kind in cases]
    parameters = [SamplingParams(temperature=0, max_tokens=COUNT, structured_outputs=one) for one in constraints]
    options = {"backend": backend, "disable_any_whitespace": True}
    with engine(tmp_path, structured_outputs_config=options) as llm:
        out = generated(llm, [prompt for prompt, _ in cases], parameters)
    for (prompt, kind), one in zip(cases, out, strict=True):
        if kind is None:
            continue
        text = "".join(characters[token] for token in one.outputs[0].token_ids if token != tiny_models.END)
        assert text == best(model, characters, prompt, CONSTRAINTS[kind][1]), kind
        assert kind != "json" or json.loads(text)["name"] in SCHEMA["properties"]["name"]["enum"]
    free = [list(one.outputs[0].token_ids) for (_, kind), one in zip(cases, out, strict=True) if kind is None]
    want = tiny_models.greedy(model, PROMPTS, COUNT)
    assert [row[: row.index(tiny_models.END) + 1] if tiny_models.END in row else row for row in want] == free
