"""Sentence Transformers on the device: where models go, embeddings, pools, training, against the CPU."""

import pytest
import tiny
import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers import util as utilities
from sentence_transformers.losses import CosineSimilarityLoss


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with a model of two modules, made here."""
    from sentence_transformers.models import Pooling, Transformer

    folder = tmp_path_factory.mktemp("bert")
    tiny.bert().save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    whole = tmp_path_factory.mktemp("sentences")
    transformer = Transformer(str(folder), max_seq_length=16)
    SentenceTransformer(modules=[transformer, Pooling(32)], device="cpu").save(str(whole))
    return str(whole)


@pytest.mark.sample
def test_I06_embeddings_are_made_on_the_device(device, saved):
    model = SentenceTransformer(saved)
    assert model.device == device
    found = model.encode(tiny.sentences(), convert_to_tensor=True)
    assert found.device == device
    expected = SentenceTransformer(saved, device="cpu").encode(tiny.sentences(), convert_to_tensor=True)
    torch.testing.assert_close(found.cpu(), expected, atol=1e-5, rtol=1e-4)
    groups = utilities.community_detection(found, threshold=0.9, min_community_size=1)
    assert groups == utilities.community_detection(expected, threshold=0.9, min_community_size=1)


@pytest.mark.requires("multi_device")
def test_a_pool_takes_every_device(device, saved, device_module, monkeypatch):
    """Where its processes go; they are started by spawn, and test_accelerate_ranks has processes enough."""
    model, places = SentenceTransformer(saved), []

    class Process:
        def __init__(self, target, args, daemon):
            places.append(args[0])
            self.start = lambda: None

    context = torch.multiprocessing.get_context("spawn")
    monkeypatch.setattr(type(context), "Process", Process)
    model.start_multi_process_pool()
    assert places == [f"{device.type}:{index}" for index in range(device_module.device_count())]


def test_I06_training(device, saved, tmp_path):
    from datasets import Dataset

    rows = {"a": tiny.sentences(8), "b": tiny.sentences(8)[::-1], "score": [0.1 * index for index in range(8)]}

    def trained(place, **options):
        model = SentenceTransformer(saved, device=place)
        arguments = SentenceTransformerTrainingArguments(
            output_dir=str(tmp_path), max_steps=3, per_device_train_batch_size=4, optim="sgd", learning_rate=0.1,
            report_to=[], disable_tqdm=True, save_strategy="no", logging_steps=1, **options,
        )  # fmt: skip
        trainer = SentenceTransformerTrainer(
            model=model, args=arguments, train_dataset=Dataset.from_dict(rows), loss=CosineSimilarityLoss(model)
        )
        trainer.train()
        return trainer, [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

    trainer, losses = trained(None)
    assert trainer.model.device == device
    _, halves = trained(None, bf16=True)
    _, expected = trained("cpu", use_cpu=True)
    assert losses == pytest.approx(expected, rel=1e-3)
    assert halves == pytest.approx(expected, rel=0.1, abs=0.02)
