"""Tumours, benign or malignant, from thirty measurements (scikit-learn's breast-cancer table), with an MLP.

    python examples/tabular_mlp.py --epochs 20
    isobit run examples/tabular_mlp.py --epochs 20

Plain PyTorch; it knows nothing of Isobit.
"""

from __future__ import annotations

import argparse
import hashlib
import time

import torch
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


def build(columns: int, width: int = 64) -> nn.Module:
    """Takes raw measurements [n, columns]; the first layer puts them on one scale. Gives logits [n, 2]."""
    return nn.Sequential(
        nn.BatchNorm1d(columns),
        nn.Linear(columns, width),
        nn.GELU(),
        nn.LayerNorm(width),
        nn.Dropout(0.1),
        nn.Linear(width, width),
        nn.SiLU(),
        nn.Linear(width, 2),
    )


def tumours(seed: int) -> tuple[TensorDataset, TensorDataset]:
    """Training rows and 114 held-out ones, drawn by a generator of their own."""
    data = load_breast_cancer()
    rows, labels = torch.from_numpy(data.data).float(), torch.from_numpy(data.target)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    test, train = order[:114], order[114:]
    return TensorDataset(rows[train], labels[train]), TensorDataset(rows[test], labels[test])


def train_epoch(
    model: nn.Module,
    batches: DataLoader[tuple[Tensor, Tensor]],
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
) -> float:
    """One pass over the batches; returns their mean loss."""
    model.train()
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    losses = []
    for rows, labels in batches:
        optimizer.zero_grad()
        loss = criterion(model(rows), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def accuracy(model: nn.Module, data: TensorDataset) -> float:
    """Share of `data` that the model labels right."""
    model.eval()
    rows, labels = data.tensors
    return (model(rows).argmax(1) == labels).sum().item() / len(labels)


def digest(model: nn.Module) -> str:
    """A digest of every parameter and buffer, to the last bit."""
    h = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        h.update(name.encode() + value.contiguous().numpy().tobytes())
    return h.hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action="store_true", help='torch.compile(model, backend="isobit")')
    parser.add_argument("--save", metavar="PATH", help="write the trained parameters here")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train, test = tumours(args.seed)
    loader = DataLoader(train, args.batch_size, shuffle=True, drop_last=True)
    model = build(columns=train.tensors[0].shape[1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=args.lr, total_steps=args.epochs * len(loader))
    network = torch.compile(model, backend="isobit") if args.compile else model

    start = time.perf_counter()
    for epoch in range(args.epochs):
        loss = train_epoch(network, loader, optimizer, schedule)
        print(f"epoch {epoch + 1}: loss {loss:.6f}, {time.perf_counter() - start:.1f} s", flush=True)
    print(f"accuracy on held-out rows: {accuracy(model, test):.2%}")
    print(f"parameters: {digest(model)}")
    if args.save:
        torch.save(model.state_dict(), args.save)


if __name__ == "__main__":
    main()
