"""ResNet-18 (He et al. 2015, arXiv:1512.03385), as torchvision has it, for timing without torchvision."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn


def conv_norm(c_in: int, c_out: int, size: int, stride: int) -> nn.Sequential:
    """A convolution that keeps the image's size up to its stride, then batch norm."""
    return nn.Sequential(nn.Conv2d(c_in, c_out, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(c_out))


class Block(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    def __init__(self, c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        self.first = conv_norm(c_in, c_out, 3, stride)
        self.second = conv_norm(c_out, c_out, 3, 1)
        same = c_in == c_out and stride == 1
        self.shortcut = nn.Identity() if same else conv_norm(c_in, c_out, 1, stride)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.second(self.relu(self.first(x))) + self.shortcut(x))


def resnet18(classes: int = 1000) -> nn.Sequential:
    """Takes images [n, 3, h, w]."""
    widths = (64, 64, 128, 256, 512)
    blocks = []
    for c_in, c_out in pairwise(widths):
        blocks += [Block(c_in, c_out, 1 if c_in == c_out else 2), Block(c_out, c_out, 1)]
    return nn.Sequential(
        conv_norm(3, 64, 7, 2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, padding=1),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, classes),
    )
