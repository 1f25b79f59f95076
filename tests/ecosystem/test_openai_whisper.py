"""Whisper of OpenAI: the model is loaded to the device, and transcribes with times of words, against the CPU."""

import dataclasses

import numpy as np
import pytest
import torch
import whisper

LIBRARIES = ("openai_whisper",)
DIMENSIONS = whisper.ModelDimensions(
    n_mels=80, n_audio_ctx=1500, n_audio_state=32, n_audio_head=2, n_audio_layer=1, n_vocab=51865, n_text_ctx=448,
    n_text_state=32, n_text_head=2, n_text_layer=2,
)  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    torch.manual_seed(1)
    model = whisper.Whisper(DIMENSIONS)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    path = tmp_path_factory.mktemp("whisper") / "tiny.pt"
    torch.save({"dims": dataclasses.asdict(DIMENSIONS), "model_state_dict": model.state_dict()}, path)
    return str(path)


@pytest.mark.sample
def test_I14_transcription(device, saved):
    model = whisper.load_model(saved)
    assert model.device == device
    sound = np.sin(np.arange(16000 * 3) * 0.05).astype(np.float32)
    whatever = dict.fromkeys(("no_speech_threshold", "logprob_threshold", "compression_ratio_threshold"))
    said = {"language": "en", "temperature": 0.0, "sample_len": 12, "without_timestamps": True}
    options = {**whatever, **said, "fp16": False, "word_timestamps": True}
    found = model.transcribe(sound, **options)["segments"]
    expected = whisper.load_model(saved, device="cpu").transcribe(sound, **options)["segments"]
    assert len({token for one in expected for token in one["tokens"]}) > 2
    assert [one["tokens"] for one in found] == [one["tokens"] for one in expected]
    ours, theirs = ([word for one in segments for word in one["words"]] for segments in (found, expected))
    assert [one.pop("word") for one in ours] == [one.pop("word") for one in theirs]
    assert [list(one.values()) for one in ours] == [pytest.approx(list(one.values()), rel=1e-2) for one in theirs]


@torch.no_grad()
def test_I14_halves(device, saved):
    """As on cuda, features and results are of float16 and weights of float32."""
    features = torch.randn(1, 80, 3000, generator=torch.Generator().manual_seed(3))
    tokens = torch.arange(50, 60)[None]
    expected = whisper.load_model(saved, device="cpu")(features, tokens)
    found = whisper.load_model(saved)(features.to(device, torch.float16), tokens.to(device))
    assert found.device == device
    torch.testing.assert_close(found.cpu().float(), expected, atol=0.05, rtol=0.05)
