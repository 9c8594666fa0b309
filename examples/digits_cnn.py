"""Handwritten digits (scikit-learn's 1,797 images of 8×8) with a small convolutional network.

    python examples/digits_cnn.py --epochs 6
    isobit run examples/digits_cnn.py --epochs 6

Plain PyTorch; it knows nothing of Isobit.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Iterable

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class DigitsNet(nn.Module):
    """Two convolutions and a hidden layer; takes images [n, 1, 8, 8], gives logits [n, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classify = nn.Sequential(
            nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Dropout(0.25), nn.Linear(64, 10)
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.classify(self.features(images))


def digits(every: int = 5) -> tuple[TensorDataset, TensorDataset]:
    """Training images and, held out, every fifth one. Pixels 0..16 become 0..1, exactly."""
    data = load_digits()
    images = torch.from_numpy(data.images).float().mul(1 / 16).unsqueeze(1)
    labels = torch.from_numpy(data.target)
    held_out = torch.arange(len(images)) % every == 0
    return (
        TensorDataset(images[~held_out], labels[~held_out]),
        TensorDataset(images[held_out], labels[held_out]),
    )


def train_epoch(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], optimizer: torch.optim.Optimizer) -> float:
    """One pass over the batches; returns their mean loss."""
    model.train()
    losses = []
    for images, labels in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def accuracy(model: nn.Module, data: TensorDataset) -> float:
    """Share of `data` that the model labels right."""
    model.eval()
    images, labels = data.tensors
    return (model(images).argmax(1) == labels).sum().item() / len(labels)


def digest(model: nn.Module) -> str:
    """A digest of every parameter and buffer, to the last bit."""
    h = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        h.update(name.encode() + value.contiguous().numpy().tobytes())
    return h.hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--compile", action="store_true", help='torch.compile(model, backend="isobit")')
    parser.add_argument("--save", metavar="PATH", help="write the trained parameters here")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train, test = digits()
    loader = DataLoader(train, args.batch_size, shuffle=True, num_workers=args.workers)
    model = DigitsNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    network = torch.compile(model, backend="isobit") if args.compile else model

    start = time.perf_counter()
    for epoch in range(args.epochs):
        loss = train_epoch(network, loader, optimizer)
        print(f"epoch {epoch + 1}: loss {loss:.6f}, {time.perf_counter() - start:.1f} s", flush=True)
    print(f"accuracy on held-out images: {accuracy(model, test):.2%}")
    print(f"parameters: {digest(model)}")
    if args.save:
        torch.save(model.state_dict(), args.save)


if __name__ == "__main__":
    main()
