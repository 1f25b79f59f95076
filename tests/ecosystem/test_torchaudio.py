"""torchaudio: spectrograms, MFCC, resampling, filters, an RNN-T loss, a model that learns by CTC, against the CPU."""

import pytest
import torch
import torchaudio
from beside import assert_computes, assert_learns
from torchaudio import functional, transforms


def waves(learns=True):
    generator = torch.Generator().manual_seed(5)
    return (0.3 * torch.randn(2, 4000, generator=generator)).requires_grad_(learns)


TRANSFORMS = {
    "mel": lambda: transforms.MelSpectrogram(8000, n_fft=256, n_mels=20),
    "mfcc": lambda: transforms.MFCC(8000, n_mfcc=10, melkwargs={"n_fft": 256, "n_mels": 20}),
    "resampled": lambda: transforms.Resample(8000, 6000),
    "inverse": lambda: torch.nn.Sequential(transforms.Spectrogram(256, power=None), transforms.InverseSpectrogram(256)),
    "stretched": lambda: torch.nn.Sequential(
        transforms.Spectrogram(256, power=None), transforms.TimeStretch(n_freq=129, fixed_rate=1.2), Magnitude()
    ),
    "masked": lambda: torch.nn.Sequential(transforms.Spectrogram(256), transforms.AmplitudeToDB()),
}


class Magnitude(torch.nn.Module):
    def forward(self, x):
        return x.abs()


@pytest.mark.sample
@pytest.mark.parametrize("kind", TRANSFORMS)
def test_transforms(device, kind):
    made = TRANSFORMS[kind]()
    assert_computes(device, lambda x: made.to(x.device)(x), waves(), atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("kind", ["lfilter", "biquad"])
def test_filters(device, kind):
    """Their recursion is the library's own C++ for the CPU."""

    def filtered(x):
        if kind == "biquad":
            return functional.lowpass_biquad(x, 8000, 1000.0)
        return functional.lfilter(
            x, torch.tensor([1.0, -0.5], device=x.device), torch.tensor([0.4, 0.2], device=x.device)
        )

    assert_computes(device, filtered, waves(), atol=1e-5, rtol=1e-4)


def test_an_rnnt_loss(device):
    logits = torch.randn(2, 6, 4, 5, generator=torch.Generator().manual_seed(6)).requires_grad_()
    targets = torch.tensor([[1, 2, 3], [3, 1, 2]], dtype=torch.int32)
    lengths = torch.tensor([6, 6], dtype=torch.int32), torch.tensor([3, 3], dtype=torch.int32)
    assert_computes(device, lambda *args: functional.rnnt_loss(*args, blank=0), logits, targets, *lengths)


@pytest.mark.sample
def test_a_model_learns_by_ctc(device):
    def loss(model, x, targets):
        scores, _ = model(x)
        scores = scores.log_softmax(-1).transpose(0, 1)
        return torch.nn.functional.ctc_loss(scores, targets, (len(scores),) * 2, (3, 3))

    options = {"encoder_embed_dim": 16, "encoder_num_layers": 1, "encoder_num_heads": 2, "aux_num_out": 5}
    options |= {"encoder_ff_interm_features": 32, "encoder_pos_conv_kernel": 8, "encoder_pos_conv_groups": 2}
    options |= {"encoder_projection_dropout": 0.0, "encoder_attention_dropout": 0.0, "encoder_ff_interm_dropout": 0.0}
    options |= {"encoder_dropout": 0.0, "encoder_layer_drop": 0.0, "encoder_layer_norm_first": False}
    options |= {"extractor_mode": "group_norm", "extractor_conv_bias": False}
    layers = [(16, 10, 5), (16, 3, 2), (16, 3, 2)]

    def made():
        return torchaudio.models.wav2vec2_model(extractor_conv_layer_config=layers, **options)

    assert_learns(
        device, made, waves(learns=False), torch.tensor([[1, 2, 3], [3, 1, 2]]), loss=loss, atol=1e-4, rtol=1e-3
    )
