"""PyTorch Geometric: layers of seven kinds learn, batches of graphs, scatter, segments, edges, against the CPU."""

import pytest
import torch
from beside import Stays, assert_computes, assert_learns, assert_same
from torch_geometric import data, nn, utils

NODES, EDGES = 12, 40


def graph(seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(NODES, 6, generator=generator)
    edges = torch.randint(NODES, (2, EDGES), generator=generator)
    return data.Data(x=x, edge_index=edges, y=torch.arange(NODES) % 3)


LAYERS = {
    "gcn": lambda: nn.GCNConv(6, 5),
    "gat": lambda: nn.GATConv(6, 5, heads=2),
    "gatv2": lambda: nn.GATv2Conv(6, 5, heads=2),
    "sage": lambda: nn.SAGEConv(6, 5, aggr="max"),
    "gin": lambda: nn.GINConv(torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 5))),
    "transformer": lambda: nn.TransformerConv(6, 5, heads=2),
    "pna": lambda: nn.PNAConv(6, 5, ["mean", "max", "std"], ["identity"], deg=torch.ones(20, dtype=torch.long)),
}


@pytest.mark.parametrize("kind", [pytest.param("gcn", marks=pytest.mark.sample), *list(LAYERS)[1:]])
def test_layers_learn(device, kind):
    one = graph()
    assert_learns(device, LAYERS[kind], one.x, one.edge_index, atol=1e-5, rtol=1e-3)


def test_a_batch_of_graphs_learns(device):
    """A graph a class."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.out = nn.GCNConv(6, 8), nn.GraphNorm(8), torch.nn.Linear(8, 3)

        def forward(self, batch):
            found = self.norm(self.conv(batch.x, batch.edge_index), batch.batch).relu()
            return self.out(nn.global_add_pool(found, batch.batch) + nn.global_max_pool(found, batch.batch))

    def learned(place):
        torch.manual_seed(2)
        model = Model().to(place)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        batch = data.Batch.from_data_list([graph(seed) for seed in range(3)]).to(place)
        for _ in range(2):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch), torch.arange(3, device=place)).backward()
            optimizer.step()
        return model.state_dict()

    expected = learned("cpu")
    with Stays(device):
        found = learned(device)
    assert_same(found, expected, device, atol=1e-5, rtol=1e-3)


@pytest.mark.sample
@pytest.mark.parametrize("how", ["sum", "mean", "max", "min", "mul"])
def test_scatter(device, how):
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(3)).requires_grad_()
    assert_computes(device, lambda x, index: utils.scatter(x, index, reduce=how, dim_size=8), x, torch.arange(30) % 7)


@pytest.mark.parametrize("how", ["sum", "mean", "max", "min"])
def test_segments(device, how):
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(3)).requires_grad_()
    assert_computes(device, lambda x, ends: utils.segment(x, ends, how), x, torch.tensor([0, 4, 4, 17, 30]))


def test_edges(device):
    """Softmax over a node's edges, a sparse matrix, loops, degrees, subgraphs; and what is drawn on the device."""
    one = graph()
    edges = one.edge_index.to(device)
    weights = torch.randn(EDGES, generator=torch.Generator().manual_seed(4)).requires_grad_()
    assert_computes(device, lambda w, e: utils.softmax(w, e[1], num_nodes=NODES), weights, one.edge_index)
    assert_computes(device, lambda e: utils.add_self_loops(utils.coalesce(utils.to_undirected(e)))[0], one.edge_index)
    assert_computes(device, lambda e: utils.degree(e[0], NODES), one.edge_index)
    assert_computes(device, lambda e, part: utils.subgraph(part, e)[0], one.edge_index, torch.tensor([0, 3, 4, 7, 9]))
    assert_computes(device, lambda e: utils.to_dense_adj(e), one.edge_index)
    assert_computes(
        device, lambda x, e: utils.spmm(utils.to_torch_csr_tensor(e, size=(NODES, NODES)), x), one.x, one.edge_index
    )
    kept, mask = utils.dropout_edge(edges, p=0.5)
    assert torch.equal(kept, edges[:, mask])
    assert kept.device == device
    negative = utils.negative_sampling(edges, NODES, 10)
    assert negative.device == device
    assert not set(map(tuple, negative.T.tolist())) & set(map(tuple, one.edge_index.T.tolist()))
