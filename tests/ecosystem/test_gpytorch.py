"""GPyTorch and BoTorch: Gaussian processes learn, and acquisition functions are maximised, against the CPU."""

import gpytorch
import pytest
import torch
from beside import assert_computes, assert_learns, assert_same
from botorch.acquisition import LogExpectedImprovement, qLogNoisyExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.mlls import ExactMarginalLogLikelihood

LIBRARIES = ("gpytorch", "botorch")


def samples(place="cpu"):
    x = torch.rand(14, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    y = torch.sin(6 * x[:, :1]) + x[:, 1:] ** 2
    return x.to(place), y.to(place)


class Exact(gpytorch.models.ExactGP):
    def __init__(self):
        x, y = samples()
        super().__init__(x, y[:, 0], gpytorch.likelihoods.GaussianLikelihood())
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(ard_num_dims=2))
        self.double()

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Variational(gpytorch.models.ApproximateGP):
    def __init__(self):
        points = samples()[0][:5]
        inner = gpytorch.variational.CholeskyVariationalDistribution(5, mean_init_std=0.0)
        super().__init__(gpytorch.variational.VariationalStrategy(self, points, inner))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()
        self.double()

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


@pytest.mark.sample
def test_a_process_learns(device):
    def loss(model, x, y):
        return -ExactMarginalLogLikelihood(model.likelihood, model)(model(x), y[:, 0])

    assert_learns(device, lambda: Exact().train(), *samples(), loss=loss)


def test_a_variational_process_learns(device):
    def loss(model, x, y):
        return -gpytorch.mlls.VariationalELBO(model.likelihood, model, 14)(model(x), y[:, 0])

    assert_learns(device, lambda: Variational().train(), *samples(), loss=loss)


@pytest.mark.parametrize("fast", [True, False])
def test_predictions(device, fast):
    """With Cholesky's decomposition and with conjugate gradients."""

    def predicted(x):
        model = Exact().to(x.device).eval()
        size = 1 if fast else 800
        settings = gpytorch.settings
        with settings.max_cholesky_size(size), settings.cg_tolerance(1e-8), settings.fast_pred_var(fast):
            found = model.likelihood(model(x))
            return found.mean, found.variance

    assert_computes(
        device, predicted, torch.rand(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    )


def fitted(place):
    x, y = samples(place)
    model = SingleTaskGP(x, y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


@pytest.mark.parametrize("kind", ["LogEI", "qLogNEI"])
def test_the_best_point_is_found(device, kind):
    def best(place):
        model, (x, y) = fitted(place), samples(place)
        if kind == "LogEI":
            wanted = LogExpectedImprovement(model, best_f=y.max())
        else:
            sampler = SobolQMCNormalSampler(torch.Size([64]), seed=1)
            wanted = qLogNoisyExpectedImprovement(model, x, sampler=sampler, prune_baseline=True)
        bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64, device=place)
        options = {"num_restarts": 2, "raw_samples": 16, "options": {"seed": 1}}
        return model.state_dict(), optimize_acqf(wanted, bounds, q=1, **options)

    (state, found), (reference, expected) = best(device), best("cpu")
    assert {value.device for value in state.values()} == {device}
    assert state.keys() == reference.keys()
    assert_same(found, expected, device, atol=1e-3, rtol=1e-3)
