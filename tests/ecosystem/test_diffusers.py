"""diffusers on the device: pipelines from configurations as small as they go, against the same ones on the CPU."""

import logging

import pytest
import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    DDPMPipeline,
    DDPMScheduler,
    StableDiffusionPipeline,
    UNet2DConditionModel,
    UNet2DModel,
)


def ddpm():
    torch.manual_seed(0)
    unet = UNet2DModel(
        sample_size=8,
        layers_per_block=1,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )
    return quiet(DDPMPipeline(unet, DDPMScheduler(num_train_timesteps=10)))


def stable_diffusion():
    from transformers import CLIPTextConfig, CLIPTextModel

    torch.manual_seed(0)
    unet = UNet2DConditionModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        layers_per_block=1,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=16,
        attention_head_dim=2,
    )
    vae = AutoencoderKL(block_out_channels=(8,), norm_num_groups=4, latent_channels=4, sample_size=8)
    text = CLIPTextConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=8,
    )
    parts = {"safety_checker": None, "feature_extractor": None, "tokenizer": None, "requires_safety_checker": False}
    return quiet(
        StableDiffusionPipeline(
            vae=vae, text_encoder=CLIPTextModel(text).eval(), unet=unet, scheduler=DDIMScheduler(), **parts
        )
    )


def quiet(pipe):
    pipe.set_progress_bar_config(disable=True)
    return pipe


def drawn(pipe, generator=None):
    """An image; a generator of the CPU's makes the same noise on any device."""
    options = {
        "num_inference_steps": 2,
        "output_type": "np",
        "generator": generator or torch.Generator().manual_seed(1),
    }
    if isinstance(pipe, StableDiffusionPipeline):
        tokens = torch.arange(8).view(1, 8)
        with torch.no_grad():
            words = pipe.text_encoder(tokens.to(pipe._execution_device))[0]
        options |= {"prompt_embeds": words, "negative_prompt_embeds": torch.zeros_like(words)}
    return torch.from_numpy(pipe(**options).images)


KINDS = {"ddpm": ddpm, "stable_diffusion": stable_diffusion}


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    """A function that makes the pipeline, and what it draws on the CPU."""
    return KINDS[request.param], drawn(KINDS[request.param]())


@pytest.mark.sample
def test_I09_a_pipeline_on_the_device(kind, device):
    make, expected = kind
    pipe = make().to(device.type)
    assert pipe.device == torch.device(device.type, 0)
    assert {parameter.device for parameter in pipe.unet.parameters()} == {torch.device(device.type, 0)}
    torch.testing.assert_close(drawn(pipe), expected, atol=1e-5, rtol=1e-4)


def test_I09_generators_of_the_device(device):
    pipe = ddpm().to(device)
    one, two = (drawn(pipe, torch.Generator(device.type).manual_seed(4)) for _ in range(2))
    assert torch.equal(one, two)
    assert not torch.equal(one, drawn(pipe, torch.Generator(device.type).manual_seed(5)))
    with pytest.raises((RuntimeError, ValueError), match=r"generator"):
        drawn(ddpm(), torch.Generator(device.type).manual_seed(4))


@pytest.mark.requires("multi_device")
@pytest.mark.parametrize("how", ["enable_model_cpu_offload", "enable_sequential_cpu_offload"])
@pytest.mark.parametrize("given", [{}, {"gpu_id": 1}, {"device": "{}:1"}])
def test_I09_offloading(kind, device, how, given):
    make, expected = kind
    pipe = make()
    getattr(pipe, how)(**{key: value.format(device.type) if key == "device" else value for key, value in given.items()})
    assert pipe._execution_device == torch.device(device.type, 1 if given else 0)
    torch.testing.assert_close(drawn(pipe), expected, atol=1e-5, rtol=1e-4)
    kept = {"cpu"} if "model" in how else {"meta", "cpu"}
    assert {parameter.device.type for parameter in pipe.unet.parameters()} <= kept


@pytest.mark.sample
def test_I09_a_move_after_offloading(device, caplog):
    pipe = ddpm()
    pipe.enable_sequential_cpu_offload()
    with pytest.raises(ValueError, match="enable_sequential_cpu_offload"):
        pipe.to(device)
    with pytest.raises(ValueError, match="enable_sequential_cpu_offload"):
        pipe.to(device=device, dtype=torch.float16)
    pipe = ddpm()
    pipe.enable_model_cpu_offload()
    logger = logging.getLogger("diffusers")
    logger.addHandler(caplog.handler)
    try:
        pipe.to(device.type)
    finally:
        logger.removeHandler(caplog.handler)
    assert "enable_model_cpu_offload" in caplog.text
    assert pipe.device.type == device.type
    assert ddpm().to(torch.float16).dtype == torch.float16


@pytest.mark.requires("multi_device")
def test_I09_device_maps(device, tmp_path):
    stable_diffusion().unet.save_pretrained(tmp_path / "unet")
    plain = drawn(ddpm())
    ddpm().save_pretrained(tmp_path / "pipe")
    whole = quiet(DDPMPipeline.from_pretrained(tmp_path / "pipe", device_map=device.type))
    assert whole.unet.device == torch.device(device.type, 0)
    torch.testing.assert_close(drawn(whole), plain, atol=1e-5, rtol=1e-4)
    balanced = quiet(DDPMPipeline.from_pretrained(tmp_path / "pipe", device_map="balanced"))
    assert balanced.unet.device == torch.device(device.type, 0)
    torch.testing.assert_close(drawn(balanced), plain, atol=1e-5, rtol=1e-4)
    for given in (f"{device.type}:1", {"": f"{device.type}:1"}, {"": 1}):
        unet = UNet2DConditionModel.from_pretrained(tmp_path / "unet", device_map=given)
        assert {parameter.device for parameter in unet.parameters()} == {torch.device(device.type, 1)}


def test_tensor_parallelism_takes_the_device(device):
    from diffusers.hooks import tensor_parallel

    assert device.type in tensor_parallel._SUPPORTED_TP_DEVICES


LATE = """
import json
import diffusers
from diffusers.utils.torch_utils import get_device
from diffusers.pipelines.pipeline_utils import SUPPORTED_DEVICE_MAP
before = get_device()
import mydevice
import torch_backplane.integrations.auto
from diffusers.pipelines import pipeline_utils
print(json.dumps([before, get_device(), pipeline_utils.SUPPORTED_DEVICE_MAP]))
"""


def test_imported_before_the_backend(answer):
    found = answer(LATE, MYDEVICE_INTEGRATIONS=None, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert found == ["cpu", "mydevice", ["balanced", "cpu", "cpu", "mydevice"]]
