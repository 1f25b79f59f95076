"""Whisper of Transformers: features on the device, training and transcription, against the CPU."""

import pytest
import torch
from beside import assert_learns, assert_same
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

from torch_backplane import fallback

LIBRARIES = ("transformers",)
SECONDS = 2


def made():
    torch.manual_seed(7)
    config = WhisperConfig(
        vocab_size=40,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_mel_bins=20,
        max_source_positions=SECONDS * 50,
        max_target_positions=24,
        init_std=0.3,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=3,
        suppress_tokens=[],
        begin_suppress_tokens=[],
    )
    return WhisperForConditionalGeneration(config).eval()


def features(place):
    """By torch's Fourier transform, on the place."""
    generator = torch.Generator().manual_seed(8)
    waves = [torch.randn(SECONDS * 16000, generator=generator).numpy() for _ in range(2)]
    extractor = WhisperFeatureExtractor(feature_size=20, chunk_length=SECONDS)
    return extractor(waves, sampling_rate=16000, return_tensors="pt", device=str(place)).input_features


def test_features(device):
    """The extractor gives what it has computed on the device as tensors of the CPU's."""
    fallback.reset_calls()
    torch.testing.assert_close(features(device), features("cpu"), atol=1e-4, rtol=1e-3)
    assert fallback.calls()["aten::_fft_r2c"] == 1


@pytest.mark.sample
def test_it_learns(device):
    labels = torch.tensor([[5, 6, 7, 2], [8, 9, 2, -100]])
    assert_learns(
        device, made, features("cpu"), labels,
        loss=lambda model, x, labels: model(x, labels=labels).loss, atol=1e-4, rtol=1e-3,
    )  # fmt: skip


@pytest.mark.parametrize("beams", [1, 3])
def test_it_transcribes(device, beams):
    options = {"max_new_tokens": 8, "num_beams": beams, "do_sample": False}
    expected = made().generate(features("cpu"), **options)
    found = made().to(device).generate(features("cpu").to(device), **options)
    assert_same(found, expected, device)
    assert len(expected.unique()) > 1
