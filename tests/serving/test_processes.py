"""vLLM on the device: several devices, compiled graphs, draft tokens, and a server, in processes of their own"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psutil
import pytest
import tiny_models
from engines import engine, tokens
from vllm.v1.engine.exceptions import EngineDeadError

LIBRARIES = ("vllm",)
COUNT = 12
PROMPTS = tiny_models.prompts(3, seed=11)


@pytest.mark.long_after_first
@pytest.mark.parametrize(
    ("options", "transport"),
    [
        ({"tensor_parallel_size": 2}, "native"),
        ({"tensor_parallel_size": 2}, "staged"),
        ({"pipeline_parallel_size": 2}, "native"),
        ({"pipeline_parallel_size": 2}, "staged"),
        ({"tensor_parallel_size": 2, "enable_expert_parallel": True}, "native"),
    ],
    ids=["tensors", "tensors staged", "pipeline", "pipeline staged", "experts"],
)
def test_S06_two_devices(folder, expected, options, transport, monkeypatch):
    monkeypatch.setenv("MYDEVICE_DIST", transport)
    name = "qwen3_moe" if "enable_expert_parallel" in options else "llama"
    with engine(folder(name), **options) as llm:
        assert tokens(llm, PROMPTS, COUNT) == expected(name, PROMPTS, COUNT)


@pytest.mark.long
def test_S06_loss_of_a_worker(folder, monkeypatch):
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    with engine(folder("llama"), tensor_parallel_size=2) as llm:
        assert len(tokens(llm, PROMPTS, 2)) == len(PROMPTS)
        workers = [one for one in psutil.Process().children(recursive=True) if "Worker" in " ".join(one.cmdline())]
        assert len(workers) == 2, workers
        workers[1].kill()
        with pytest.raises(EngineDeadError):
            tokens(llm, PROMPTS, 64)


def test_S06_models_of_transformers(folder, expected, monkeypatch):
    """By Transformers' own code, which vLLM changes: in another process."""
    want = expected("llama", PROMPTS, COUNT)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    with engine(folder("llama"), model_impl="transformers") as llm:
        assert tokens(llm, PROMPTS, COUNT) == want


@pytest.mark.parametrize("mode", [2, 3])
def test_S06_compiled_graphs(folder, expected, mode):
    """The second engine reads what the first has compiled."""
    for _ in range(2):
        with engine(folder("llama"), enforce_eager=False, compilation_config={"mode": mode}) as llm:
            assert tokens(llm, PROMPTS, COUNT) == expected("llama", PROMPTS, COUNT)


@pytest.mark.skipif(os.environ["MYDEVICE_KERNELS"] == "off", reason="graphs hold compiled kernels")
@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_S06_steps_that_decode_replay_graphs(folder, expected, monkeypatch, name):
    """Five requests by the graph of eight, then one by that of one."""
    from torch_backplane.device.graphs import CUDAGraph

    replayed, replay = [], CUDAGraph.replay
    monkeypatch.setattr(CUDAGraph, "replay", lambda graph: (replayed.append(graph), replay(graph))[1])
    prompts = tiny_models.prompts(5)
    options = {"mode": 0, "cudagraph_capture_sizes": [1, 8]}
    with engine(folder(name), enforce_eager=False, compilation_config=options) as llm:
        assert tokens(llm, prompts, COUNT) == expected(name, prompts, COUNT)
        assert len(replayed) >= COUNT - 1
        assert tokens(llm, prompts[:1], COUNT) == expected(name, prompts[:1], COUNT)
    assert len({id(graph) for graph in replayed}) == 2
    assert len(replayed) >= 2 * COUNT - 2


def asked(port, path, body=None):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method="POST" if body else "GET")
    request.add_header("Content-Type", "application/json")
    data = json.dumps(body).encode() if body else None
    try:
        with urllib.request.urlopen(request, data, timeout=240) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@contextmanager
def served(folder, log, *words):
    """``vllm serve`` in a process: the process, and its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(folder), *words]
    command += ["--dtype", "float32", "--enforce-eager", "--max-model-len", "128"]
    command += ["--kv-cache-memory-bytes", str(8 << 20), "--host", "127.0.0.1", "--port", str(port)]
    env = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    with log.open("w") as out:
        server = subprocess.Popen(
            [*command, "--served-model-name", "tiny"], stdout=out, stderr=subprocess.STDOUT, env=env, cwd=log.parent
        )
    try:
        for _ in range(540):
            time.sleep(1)
            assert server.poll() is None, log.read_text()[-4000:]
            try:
                if asked(port, "/health")[0] == 200:
                    break
            except OSError:
                continue
        yield server, port
        server.send_signal(signal.SIGINT)
        assert server.wait(120) == 0, log.read_text()[-2000:]
    finally:
        server.kill()
        server.wait()


def complete(port, prompt, **options):
    body = {"model": "tiny", "prompt": prompt, "temperature": 0, "ignore_eos": True, "max_tokens": COUNT, **options}
    return asked(port, "/v1/completions", body)


def answered(port, prompt):
    status, text = complete(port, prompt, return_token_ids=True)
    assert status == 200, text
    return json.loads(text)["choices"][0]["token_ids"]


def test_S06_a_server(folder, expected, tmp_path):
    """Tokens, errors of a client, a client that goes away, and its end by a signal."""
    want = expected("llama", PROMPTS, COUNT)
    with served(folder("llama"), tmp_path / "log") as (_, port):
        assert [answered(port, prompt) for prompt in PROMPTS] == want
        for wrong in ({"temperature": -1}, {"max_tokens": -1}, {"top_p": 3}, {"prompt": [7] * 500}):
            status, text = complete(port, **{"prompt": PROMPTS[0], **wrong})
            assert 400 <= status < 500, (wrong, text)
        with socket.create_connection(("127.0.0.1", port)) as client:  # which asks, and is gone
            body = {"model": "tiny", "prompt": PROMPTS[0], "max_tokens": 80, "stream": True, "ignore_eos": True}
            body = json.dumps(body)
            head = "POST /v1/completions HTTP/1.1", "Host: x", "Content-Type: application/json"
            client.sendall("\r\n".join((*head, f"Content-Length: {len(body)}", "", body)).encode())
            assert client.recv(16)
        assert answered(port, PROMPTS[1]) == want[1]
        messages = [{"role": "user", "content": "5 6"}]
        status, text = asked(port, "/v1/chat/completions", {"model": "tiny", "messages": messages, "max_tokens": 4})
        assert status == 200, text
        assert "vllm:prompt_tokens_total" in asked(port, "/metrics")[1]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "words"),
    [("llama", ()), ("qwen3_moe", ()), ("qwen3_moe", ("--enable-expert-parallel",))],
    ids=["dense", "experts in parts", "whole experts"],
)
def test_S06_a_server_of_two_replicas(folder, expected, tmp_path, name, words):
    """Each on a device: both have computed tokens, at the same time and then one of them alone."""
    prompts = tiny_models.prompts(8, seed=13)
    with served(folder(name), tmp_path / "log", "--data-parallel-size", "2", *words) as (_, port):
        with ThreadPoolExecutor(8) as clients:
            found = list(clients.map(lambda prompt: answered(port, prompt), prompts))
        assert answered(port, prompts[0]) == found[0]
        metrics = asked(port, "/metrics")[1]
    assert found == expected(name, prompts, COUNT)
    counts = re.findall(r'^vllm:generation_tokens_total{engine="(.)".* (\S+)$', metrics, re.M)
    assert {engine for engine, count in counts if float(count) > 0} == {"0", "1"}, counts
