"""Ultralytics: ``yolo detect train`` on the device, by mixed precision, on two, and what it finds, against the CPU."""

import csv

import numpy as np
import pytest

MODEL = """
nc: 2
scales:
  n: [0.33, 0.125, 1024]
backbone:
  - [-1, 1, Conv, [64, 3, 2]]
  - [-1, 1, Conv, [128, 3, 2]]
  - [-1, 2, C3k2, [256, False, 0.25]]
  - [-1, 1, Conv, [256, 3, 2]]
  - [-1, 1, SPPF, [256, 5]]
head:
  - [[2, 4], 1, Detect, [nc]]
"""
COMMAND = "import sys\nfrom ultralytics.cfg import entrypoint\nentrypoint()\n"
SAME = """
import csv, json, sys
import torch
from ultralytics import YOLO
from ultralytics.utils.torch_utils import select_device
options = dict(data="data.yaml", imgsz=64, batch=4, workers=0, plots=False, amp=False, epochs=2, project=sys.argv[1])
found = []
for device in "cpu", None:
    model = YOLO("tiny.yaml")
    model.train(device=device, name=str(device), **options)
    with open(model.trainer.csv) as file:
        losses = [[float(row[key]) for key in row if key.endswith("loss")] for row in csv.DictReader(file)]
    best = YOLO(model.trainer.last).predict("images/0.png", device=device, conf=1e-6, verbose=False)[0].boxes.data[0]
    place = model.trainer.device
    with torch.no_grad():
        boxes = model.model.float().eval().to(place)(torch.full((1, 3, 64, 64), 0.3, device=place))[0]
    found.append([str(place), losses, str(best.device), best[4].item(), boxes.tolist()])
asked = "", 0, "mydevice", "mydevice:1", "0,1", "1"
print()
print(json.dumps([*found, [str(select_device(device)) for device in asked]]))
"""


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Eight images with a rectangle of one of two colours."""
    from PIL import Image

    monkeypatch.setenv("YOLO_CONFIG_DIR", str(tmp_path))
    drawn = np.random.default_rng(0)
    for kind in "images", "labels":
        (tmp_path / kind).mkdir()
    for index in range(8):
        (x, y), which = drawn.integers(4, 30, 2), index % 2
        picture = np.full((64, 64, 3), 40, np.uint8)
        picture[y : y + 16, x : x + 24] = (220, 60, 60) if which else (60, 220, 60)
        Image.fromarray(picture).save(tmp_path / "images" / f"{index}.png")
        box = (x + 12) / 64, (y + 8) / 64, 24 / 64, 16 / 64
        (tmp_path / "labels" / f"{index}.txt").write_text(" ".join(map(str, (which, *box))))
    (tmp_path / "tiny.yaml").write_text(MODEL)
    (tmp_path / "data.yaml").write_text(f"path: {tmp_path}\ntrain: images\nval: images\nnames: [red, green]\n")
    return tmp_path


@pytest.fixture
def trained(data, run):
    def train(name, *options):
        """What the command prints, and the losses of each epoch."""
        given = ["model=tiny.yaml", "data=data.yaml", "imgsz=64", "batch=4", "workers=0", "plots=False", *options]
        printed = run(COMMAND, "detect", "train", *given, f"project={data}", f"name={name}")
        with open(data / name / "results.csv") as file:
            rows = list(csv.DictReader(file))
        return printed + run.errors, [[float(row[key]) for key in row if key.endswith("loss")] for row in rows]

    return train


def test_I12_training_and_what_it_finds(data, answer):
    (_, expected, _, score, boxes), (device, losses, place, found, ours), devices = answer(SAME, data)
    assert device == place == "mydevice:0"
    assert np.array(losses) == pytest.approx(np.array(expected), rel=1e-3)
    assert found == pytest.approx(score, rel=1e-3)
    assert np.array(ours) == pytest.approx(np.array(boxes), rel=1e-3, abs=1e-3)
    assert devices == [f"mydevice:{index}" for index in (0, 0, 0, 1, 0, 1)]


def test_I12_mixed_precision(trained):
    """By default, with a scaler."""
    printed, losses = trained("mixed", "epochs=2")
    assert "MYDEVICE:0" in printed
    _, expected = trained("cpu", "epochs=2", "device=cpu")
    assert losses != expected
    assert np.array(losses) == pytest.approx(np.array(expected), rel=0.05)


@pytest.mark.requires("multi_device")
def test_I12_two_devices(trained):
    """A process each; their batches are halves, and the statistics in them, so that it is not the same training."""
    printed, losses = trained("two", "epochs=1", "amp=False", "device=0,1", "batch=8")
    assert "MYDEVICE:1" in printed
    _, expected = trained("cpu", "epochs=1", "amp=False", "device=cpu", "batch=8")
    assert np.array(losses) == pytest.approx(np.array(expected), rel=0.1)
