"""An ordinary horovod.torch training script: a small network on scikit-learn's digits, one shard per rank."""

import hashlib
import json
import socket

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

hvd.init()
torch.manual_seed(hvd.rank())  # ranks start apart; the broadcast makes them equal
torch.set_num_threads(1)
digits = load_digits()
pixels, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
train, test = train_test_split(range(len(labels)), test_size=0.2, random_state=0)
train = torch.tensor(train[hvd.rank() : len(train) // hvd.size() * hvd.size() : hvd.size()])

model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)

for _epoch in range(15):
    for batch in train[torch.randperm(len(train))].split(40):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(pixels[batch]), labels[batch]).backward()
        optimizer.step()

with torch.no_grad():
    accuracy = (model(pixels[test]).argmax(1) == labels[test]).float().mean().item()
weights = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
report = {"rank": hvd.rank(), "size": hvd.size(), "local_rank": hvd.local_rank(), "cross_size": hvd.cross_size()}
report |= {"host": socket.gethostname(), "accuracy": accuracy, "checksum": hashlib.sha256(weights).hexdigest()}
print("REPORT", json.dumps(report), flush=True)
