"""stable-baselines3 on the device, against the same training on the CPU."""

import copy

import numpy as np
import pytest
import torch
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.utils import get_device

SMALL = {"seed": 0, "policy_kwargs": {"net_arch": [16]}}


def assert_same(one, other):
    for (key, ours), theirs in zip(one.policy.state_dict().items(), other.policy.state_dict().values(), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, msg=lambda text, key=key: f"{key}: {text}")


def devices(model):
    return {parameter.device.type for parameter in model.policy.parameters()}


def test_the_device_is_chosen(name):
    assert get_device().type == get_device("auto").type == name
    assert get_device(f"{name}:1") == torch.device(name, 1)
    assert get_device("cpu").type == get_device("cuda").type == "cpu"


@pytest.mark.sample
def test_I10_dqn_learns_as_on_the_cpu(name, tmp_path):
    """All its random numbers are NumPy's or the CPU's, so that it is the same training."""
    options = {**SMALL, "learning_starts": 16, "train_freq": 4, "batch_size": 8, "target_update_interval": 20}
    model = DQN("MlpPolicy", "CartPole-v1", **options).learn(64)
    assert model.device.type == name
    assert devices(model) == {name}
    reference = DQN("MlpPolicy", "CartPole-v1", device="cpu", **options).learn(64)
    before = DQN("MlpPolicy", "CartPole-v1", device="cpu", **options)
    assert not torch.equal(reference.policy.q_net.q_net[0].weight, before.policy.q_net.q_net[0].weight)
    assert_same(model, reference)

    model.save(tmp_path / "model")
    loaded, on_cpu = DQN.load(tmp_path / "model"), DQN.load(tmp_path / "model", device="cpu")
    assert devices(loaded) == {name}
    assert devices(on_cpu) == {"cpu"}
    moments = [value for state in loaded.policy.optimizer.state.values() for value in state.values() if value.dim()]
    assert moments
    assert {moment.device.type for moment in moments} == {name}
    seen = np.linspace(-1, 1, 4, dtype=np.float32)
    assert loaded.predict(seen, deterministic=True)[0] == on_cpu.predict(seen, deterministic=True)[0]
    assert_same(loaded, on_cpu)


@pytest.mark.sample
def test_I10_ppo_learns_from_a_rollout_as_on_the_cpu(name, tmp_path):
    """Actions are drawn on the device, so that one rollout is given to both."""
    options = {**SMALL, "n_steps": 32, "batch_size": 16, "n_epochs": 2}
    reference = PPO("MlpPolicy", "CartPole-v1", device="cpu", **options)
    model = PPO("MlpPolicy", "CartPole-v1", **options)
    assert devices(model) == {name}
    assert_same(model, reference)  # made by the same random numbers
    model.learn(32)
    before = copy.deepcopy(reference.get_parameters())
    model.set_parameters(before)
    reference.rollout_buffer = copy.copy(model.rollout_buffer)
    reference.rollout_buffer.device = reference.device
    for one in (reference, model):
        one.set_logger(model.logger)
        np.random.seed(3)
        one.train()
    assert not all(torch.equal(value, before["policy"][key]) for key, value in reference.policy.state_dict().items())
    assert_same(model, reference)
    model.save(tmp_path / "model")
    assert devices(PPO.load(tmp_path / "model", device="cpu")) == {"cpu"}
    assert devices(PPO.load(tmp_path / "model")) == {name}
