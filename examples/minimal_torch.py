"""Handwritten digits with PyTorch on all ranks: `horovodrun -np 2 python examples/minimal_torch.py`."""

import torch
from sklearn.datasets import load_digits

import paceline.torch as hvd

hvd.init()
torch.manual_seed(hvd.rank())
digits = load_digits()  # 1797 images of 8x8 pixels; the last 297 are for testing
images, labels = torch.tensor(digits.data / 16).float(), torch.tensor(digits.target)
share = torch.arange(1500 // hvd.size()) * hvd.size() + hvd.rank()  # each rank gets a disjoint share of equal size
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
hvd.broadcast_parameters(model.state_dict(), root_rank=0)  # all ranks begin with rank 0's weights
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3 * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

for epoch in range(1, 11):
    for batch in share[torch.randperm(len(share))].split(32):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()  # with the mean of all ranks' gradients
    optimizer.drain()  # apply gradients still in flight; none if the exchange is synchronous
    if hvd.rank() == 0:
        right = (model(images[1500:]).argmax(1) == labels[1500:]).float().mean()
        print(f"epoch {epoch}/10 loss {loss.item():.3f} accuracy {right:.3f}", flush=True)
