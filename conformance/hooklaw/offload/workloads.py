"""Workloads: a model, mostly a Sequential that can be cut into segments anywhere, a batch and a loss."""

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional


class Workload(NamedTuple):
    """A model, a batch, its target and the loss."""

    model: nn.Module
    inputs: Tensor
    target: Tensor
    distance: Callable[[Tensor, Tensor], Tensor]

    def to(self, device: str) -> "Workload":
        """Return the same on a device."""
        return self._replace(model=self.model.to(device), inputs=self.inputs.to(device), target=self.target.to(device))

    def copied(self) -> "Workload":
        """Return the same with a model of its own, in the same state."""
        return self._replace(model=copy.deepcopy(self.model))

    def double(self) -> "Workload":
        """Return a copy in float64."""
        return self._replace(model=copy.deepcopy(self.model).double(), inputs=self.inputs.double())

    def loss(self, found: Tensor) -> Tensor:
        """Return the loss of an output, in float64, since a sum of many numbers loses digits."""
        return self.distance(found.double(), self.target)


def build(name: str, batch: int = 0) -> Workload:
    """Return a workload; the same numbers each time."""
    torch.manual_seed(0)
    return BUILDERS[name](batch)


# convolutions
class Block(nn.Module):
    """Two convolutions with a shortcut around them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(width), nn.BatchNorm2d(width)])
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        y = self.relu(self.norms[0](self.first(x)))
        return self.relu(self.norms[1](self.second(y)) + x)


def conv(batch: int) -> Workload:
    """Return four residual blocks on small pictures."""
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)]
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *(Block(16) for _ in range(4)), *head)
    return _classified(model, torch.randn(batch or 16, 3, 32, 32), 10)


class Bottleneck(nn.Module):
    """The block of the deep ResNets: narrow, wide, and a shortcut that may change the shape."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        outside = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, outside, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.shortcut: nn.Module = nn.Identity()
        if inside != outside or stride > 1:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        return self.relu(self.body(x) + self.shortcut(x))


def resnet(layers: tuple[int, ...], width: int = 64, classes: int = 1000) -> nn.Sequential:
    """Return a ResNet of bottlenecks: the stem, each block and the head are its children."""
    stem = nn.Sequential(
        nn.Conv2d(3, width, 7, 2, 3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    )
    blocks: list[nn.Module] = []
    inside = width
    for stage, count in enumerate(layers):
        for place in range(count):
            blocks.append(Bottleneck(inside, width << stage, 2 if stage and not place else 1))
            inside = 4 * (width << stage)
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes))
    return nn.Sequential(stem, *blocks, head)


RESNET152 = (3, 8, 36, 3)


def resnet152(batch: int) -> Workload:
    """Return ResNet-152 with pictures of the usual size."""
    return _classified(resnet(RESNET152), torch.randn(batch or 4, 3, 224, 224), 1000)


def tiny(batch: int) -> Workload:
    """Return the same architecture, small enough for anything."""
    return _classified(resnet((1, 1, 1, 1), width=8, classes=10), torch.randn(batch or 4, 3, 64, 64), 10)


def _classified(model: nn.Module, inputs: Tensor, classes: int) -> Workload:
    labels = torch.arange(len(inputs)) % classes
    return Workload(model, inputs, labels, functional.cross_entropy)


# layers and attention
def mlp(batch: int) -> Workload:
    """Return eight layers of the same width."""
    parts = [part for _ in range(8) for part in (nn.Linear(384, 384), nn.GELU(), nn.LayerNorm(384))]
    return _aimed(nn.Sequential(*parts), torch.randn(batch or 512, 384))


class Attention(nn.Module):
    """A transformer block; attention is written out, so that it saves the same tensors on any machine."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.before, self.after = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        many, length, width = x.shape
        parts = self.before(self.norms[0](x)).view(many, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        weights = (query @ key.mT * (width // self.heads) ** -0.5).softmax(-1)
        x = x + self.after((weights @ value).transpose(1, 2).reshape(many, length, width))
        return x + self.feed(self.norms[1](x))


def transformer(batch: int) -> Workload:
    """Return three blocks of attention on short sequences."""
    model = nn.Sequential(*(Attention(128, 4) for _ in range(3)), nn.LayerNorm(128))
    return _aimed(model, torch.randn(batch or 4, 128, 128))


class Chain(nn.Module):
    """Four hundred operations on a few elements, each of which saves a tensor: the price of hooks shows best here."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(64))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scaled input."""
        x = x * self.scale
        for _ in range(200):
            x = x.square().sqrt()
        return x


def chain(batch: int) -> Workload:
    """Return many saved tensors with almost no computation."""
    return _aimed(Chain(), torch.rand(batch or 4, 64) + 1)


def _aimed(model: nn.Module, inputs: Tensor) -> Workload:
    target = torch.randn_like(inputs).double()  # not a constant, which behind a layer norm gives almost no gradient
    return Workload(model, inputs, target, _mean_square)


def _mean_square(found: Tensor, target: Tensor) -> Tensor:
    return (found - target).square().mean()  # mse_loss would save as much memory as its input


BUILDERS: dict[str, Callable[[int], Workload]] = {
    "conv": conv,
    "mlp": mlp,
    "transformer": transformer,
    "resnet152": resnet152,
    "tiny": tiny,
    "chain": chain,
}
