"""vLLM on the device: images beside text, and sounds by an encoder and a decoder, against Transformers on the CPU"""

import numpy as np
import pytest
import tiny_models
import torch
import transformers
from engines import engine
from PIL import Image
from safetensors.torch import load_file, save_file
from vllm import SamplingParams

LIBRARIES = ("vllm", "transformers")
COUNT = 12
IMAGE = "<image>"  # its token comes after the words


def random_weights(model, keep=()):
    """Of all that are learned: as tiny_models, but biases and norms as well, and towers of their own sizes."""
    with torch.no_grad():
        for name, one in model.named_parameters():
            if name not in keep:
                spread, middle = (0.3, 0.0) if one.dim() > 1 else (0.1, float("norm" in name and "weight" in name))
                one.copy_(torch.randn_like(one) * spread + middle)
    return model.float().eval()


def llava(folder):
    """The model of a tower for images and a decoder, and its processor; saved with the names of published ones."""
    torch.manual_seed(7)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**sizes, image_size=28, patch_size=14),
        text_config=transformers.LlamaConfig(**{**tiny_models.GROUPED, "vocab_size": tiny_models.VOCABULARY + 8}),
        **{"image_token_index": tiny_models.VOCABULARY, "image_seq_length": 4, "vision_feature_layer": -1},
    )
    model = random_weights(transformers.LlavaForConditionalGeneration(config))
    model.save_pretrained(folder)
    path, old = folder / "model.safetensors", "vision_tower."
    weights = {name.replace(old, f"{old}vision_model."): one for name, one in load_file(path).items()}
    save_file(weights, path, metadata={"format": "pt"})
    tiny_models.save_tokenizer(folder)
    words = transformers.AutoTokenizer.from_pretrained(folder)
    words.add_special_tokens({"additional_special_tokens": [IMAGE]})
    images = transformers.CLIPImageProcessor(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})
    options = {"patch_size": 14, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    processor = transformers.LlavaProcessor(images, words, image_token=IMAGE, **options)
    processor.save_pretrained(folder)
    return model, processor


@pytest.mark.long
def test_S08_images_beside_text(tmp_path):
    """In one batch with a request without an image."""
    model, processor = llava(tmp_path)
    texts = f"5 6 {IMAGE} 7 8", f"{IMAGE} 9 10 11 12 13", "30 31 32 33"
    pixels = np.random.default_rng(0).integers(0, 255, (3, 28, 28, 3), dtype=np.uint8)
    requests, want = [], []
    model.generation_config.eos_token_id = None
    for text, one in zip(texts, pixels, strict=True):
        images = {"images": Image.fromarray(one)} if IMAGE in text else {}
        inputs = processor(text=text, **images, return_tensors="pt")
        inputs.pop("token_type_ids", None)
        row = model.generate(**inputs, max_new_tokens=COUNT, do_sample=False)
        want.append(row[0, inputs["input_ids"].shape[1] :].tolist())
        requests.append({"prompt": text, **({"multi_modal_data": {"image": images["images"]}} if images else {})})
    parameters = SamplingParams(temperature=0, max_tokens=COUNT, ignore_eos=True)
    with engine(tmp_path) as llm:
        out = llm.generate(requests, parameters, use_tqdm=False)
    assert [list(one.outputs[0].token_ids) for one in out] == want


def whisper(folder):
    """The model, and what turns a second of sound into its features."""
    torch.manual_seed(7)
    names = "encoder_layers decoder_layers encoder_attention_heads decoder_attention_heads"
    config = transformers.WhisperConfig(
        **{"vocab_size": tiny_models.VOCABULARY, "d_model": 32, "num_mel_bins": 16, "max_source_positions": 50},
        **dict.fromkeys(names.split(), 2),
        **{"encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_target_positions": 64},
        **{"pad_token_id": 0, "bos_token_id": 1, "decoder_start_token_id": 1, "eos_token_id": tiny_models.END},
        **{"suppress_tokens": None, "begin_suppress_tokens": None},
    )
    model = transformers.WhisperForConditionalGeneration(config)
    model = random_weights(model, keep=("model.encoder.embed_positions.weight",))
    model.save_pretrained(folder)
    tiny_models.save_tokenizer(folder)
    features = transformers.WhisperFeatureExtractor(feature_size=16, chunk_length=1)
    words = transformers.AutoTokenizer.from_pretrained(folder)
    transformers.WhisperProcessor(features, words).save_pretrained(folder)
    return model, features


@pytest.mark.long
def test_S08_sounds_by_an_encoder_and_a_decoder(tmp_path):
    model, features = whisper(tmp_path)
    chance = np.random.default_rng(0)
    sounds = [chance.standard_normal(count).astype(np.float32) for count in (16000, 9000, 12000)]
    prompts, want = [[1, 5, 6], [1, 7], [1, 9, 10, 11]], []
    for sound, prompt in zip(sounds, prompts, strict=True):
        ids = list(prompt)
        with torch.no_grad():
            heard = model.model.encoder(features(sound, sampling_rate=16000, return_tensors="pt").input_features)
            for _ in range(COUNT):
                logits = model(encoder_outputs=heard, decoder_input_ids=torch.tensor([ids])).logits
                ids.append(logits[0, -1].argmax().item())
        want.append(ids[len(prompt) :])
    assert len({token for row in want for token in row}) > 5
    requests = [
        {"prompt_token_ids": prompt, "multi_modal_data": {"audio": (sound, 16000)}}
        for prompt, sound in zip(prompts, sounds, strict=True)
    ]
    parameters = SamplingParams(temperature=0, max_tokens=COUNT, ignore_eos=True)
    with engine(tmp_path, max_model_len=64) as llm:
        out = llm.generate(requests, parameters, use_tqdm=False)
    assert [list(one.outputs[0].token_ids) for one in out] == want
