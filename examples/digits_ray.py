"""Handwritten digits with PyTorch on workers of Ray: `python digits_ray.py --workers 2`.

The workers get the PACELINE_* variables of this process, such as PACELINE_EXCHANGE=pipelined.
"""

import argparse

import ray
from horovod.ray import RayExecutor


def train(epochs: int) -> float:
    """Train as one rank and return the test accuracy."""
    import torch
    from sklearn.datasets import load_digits

    import paceline.torch as hvd

    hvd.init()
    torch.manual_seed(hvd.rank())
    digits = load_digits()  # 1797 images of 8x8 pixels; the last 297 are for testing
    images, labels = torch.tensor(digits.data / 16).float(), torch.tensor(digits.target)
    share = torch.arange(1500 // hvd.size()) * hvd.size() + hvd.rank()  # each rank gets a disjoint share
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3 * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    for _ in range(epochs):
        for batch in share[torch.randperm(len(share))].split(32):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
    optimizer.drain()  # apply gradients in flight; none if the exchange is synchronous
    return (model(images[1500:]).argmax(1) == labels[1500:]).float().mean().item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Handwritten digits with PyTorch on workers of Ray.")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--address", help="a running cluster, such as auto; without it Ray starts on this machine")
    arguments = parser.parse_args()
    ray.init(address=arguments.address)
    executor = RayExecutor(RayExecutor.create_settings(timeout_s=60), num_workers=arguments.workers)
    executor.start()
    for rank, accuracy in enumerate(executor.run(train, args=[arguments.epochs])):
        print(f"rank {rank}: accuracy {accuracy:.3f}")
    executor.shutdown()
