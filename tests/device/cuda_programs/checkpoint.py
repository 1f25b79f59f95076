"""A checkpoint as people load it on a GPU: storages moved by a function, and a sequence that is packed."""

import io

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence

torch.manual_seed(0)
torch.cuda.manual_seed_all(0)
model, x = nn.GRU(4, 3, batch_first=True), torch.randn(2, 5, 4)
packed = pack_padded_sequence(x, [5, 3], batch_first=True)
saved = io.BytesIO()
torch.save(model.state_dict(), saved)


def load(place):
    saved.seek(0)
    return torch.load(saved, map_location=place)


if torch.cuda.is_available():
    states = [load(lambda storage, loc: storage.cuda()), load(lambda storage, loc: storage.cuda(0))]
    model, packed = model.cuda(), packed.cuda()
    assert all(weight.is_cuda for state in states for weight in state.values())
    assert x.untyped_storage().cuda(0, True).device.type == "cuda"
else:
    states = [load(lambda storage, loc: storage), load("cpu")]
result = []
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for state in states:
    model.load_state_dict(state)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(packed)[0].data.pow(2).mean()
        loss.backward()
        optimizer.step()
        result.append(loss.item())
