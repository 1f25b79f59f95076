"""What every user does first, on whatever driver is in use. ``device`` comes from the SDK's pytest plugin."""

import torch


def test_values_survive_the_round_trip(device):
    x = torch.arange(6.0).reshape(2, 3)
    assert x.to(device).device.type == torch.device(device).type
    assert torch.equal(x.to(device).t().cpu(), x.t())


def test_operators_agree_with_the_cpu(device):
    a, b = torch.randn(5, 7), torch.randn(7)
    torch.testing.assert_close((a.to(device) + b.to(device)).cpu(), a + b)
    torch.testing.assert_close((a.to(device) @ b.to(device)).cpu(), a @ b)


def test_training_lowers_the_loss(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(64, 4, device=device)
    y = x.sum(1, keepdim=True)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_a_checkpoint_loads_on_the_cpu(device, tmp_path):
    model = torch.nn.Linear(3, 2).to(device)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", map_location="cpu")
    assert torch.equal(loaded["weight"], model.weight.detach().cpu())
