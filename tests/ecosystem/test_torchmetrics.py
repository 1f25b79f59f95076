"""torchmetrics: metrics of classification, regression, retrieval, images and text, over batches, against the CPU."""

import pytest
import torch
import torchmetrics
from beside import Stays, assert_same, moved
from torchmetrics import image, regression, retrieval, text


def classes(count=5, rows=40):
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(rows, count, generator=generator).softmax(1)
    return scores, torch.randint(count, (rows,), generator=generator)


def numbers():
    generator = torch.Generator().manual_seed(4)
    return torch.randn(40, generator=generator), torch.randn(40, generator=generator)


def pictures():
    generator = torch.Generator().manual_seed(5)
    return torch.rand(4, 3, 24, 24, generator=generator), torch.rand(4, 3, 24, 24, generator=generator)


def found_documents():
    return numbers()[0], numbers()[1] > 0, torch.arange(40) // 10


MANY = {"task": "multiclass", "num_classes": 5}
METRICS = {
    "accuracy": (lambda: torchmetrics.Accuracy(**MANY, average="macro"), classes),
    "f1": (lambda: torchmetrics.F1Score(**MANY, average="weighted"), classes),
    "auroc": (lambda: torchmetrics.AUROC(**MANY), classes),
    "average precision": (lambda: torchmetrics.AveragePrecision(**MANY, thresholds=10), classes),
    "confusion": (lambda: torchmetrics.ConfusionMatrix(**MANY, normalize="true"), classes),
    "calibration": (lambda: torchmetrics.CalibrationError(**MANY), classes),
    "r2": (regression.R2Score, numbers),
    "pearson": (regression.PearsonCorrCoef, numbers),
    "spearman": (regression.SpearmanCorrCoef, numbers),
    "ndcg": (retrieval.RetrievalNormalizedDCG, found_documents),
    "map": (retrieval.RetrievalMAP, found_documents),
    "ssim": (lambda: image.StructuralSimilarityIndexMeasure(data_range=1.0), pictures),
    "psnr": (lambda: image.PeakSignalNoiseRatio(data_range=1.0), pictures),
    "perplexity": (text.Perplexity, lambda: (classes()[0].view(4, 10, 5), classes()[1].view(4, 10))),
}


def measured(kind, place):
    """Of two batches, with the states."""
    make, batch = METRICS[kind]
    metric, batch = make().to(place), moved(batch(), place)
    for half in (slice(0, None, 2), slice(1, None, 2)):
        metric.update(*(part[half] for part in batch))
    return metric.compute(), metric.metric_state


@pytest.mark.parametrize("kind", [pytest.param("accuracy", marks=pytest.mark.sample), *list(METRICS)[1:]])
def test_values_and_states(device, kind):
    assert_same(measured(kind, device), measured(kind, "cpu"), device, atol=1e-5, rtol=1e-4)


def test_a_collection_stays_on_the_device(device):
    together = torchmetrics.MetricCollection([METRICS[kind][0]() for kind in ("accuracy", "f1", "confusion")])
    expected = together.clone()(*classes())
    with Stays(device):
        found = together.to(device)(*moved(classes(), device))
    assert_same(found, expected, device)
