"""What the tests of the offload strategies share: three small models, a step, and a graph that saves something."""

import copy

import torch
from torch import nn


class Residual(nn.Module):
    """A block with batch norm that changes its own intermediate results in place."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)

    def forward(self, x):  # noqa: D102 - it is forward
        return self.relu(self.norm(self.conv(x)).add_(x))


class Attention(nn.Module):
    """A block with views of one storage, expanded masks and dropout."""

    def __init__(self, width=16):
        super().__init__()
        self.before, self.after, self.norm = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.LayerNorm(width)
        self.register_buffer("mask", torch.zeros(1, 5).index_fill(1, torch.tensor([4]), -1.0))

    def forward(self, x):  # noqa: D102 - it is forward
        query, key, value = self.before(self.norm(x)).chunk(3, dim=-1)
        weights = (query @ key.mT / 4 + self.mask.expand(5, 5)).softmax(-1)
        return x + self.after(nn.functional.dropout(weights @ value, 0.1))


class Blocks(nn.Module):
    """A model that is no Sequential, around a ModuleList."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Attention() for _ in range(3))

    def forward(self, x):  # noqa: D102 - it is forward
        for block in self.blocks:
            x = block(x)
        return x


def conv():
    """Return a channels-last network with batch norm and spectral norm, and an input."""
    layers = [nn.Conv2d(3, 4, 3), Residual(), nn.utils.parametrizations.spectral_norm(nn.Conv2d(4, 4, 1)), Residual()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(144, 3)).to(memory_format=torch.channels_last)
    return model, torch.randn(5, 3, 8, 8).contiguous(memory_format=torch.channels_last)


def mlp():
    """Return three layers that can be cut anywhere, and an input."""
    return nn.Sequential(*[part for _ in range(3) for part in (nn.Linear(32, 32), nn.GELU())]), torch.randn(16, 32)


def attention():
    """Return a model around a ModuleList, and an input."""
    return Blocks(), torch.randn(4, 5, 16)


def step(model, x, strategy=None):
    """Take one step, and return the gradients and the buffers."""
    model = copy.deepcopy(model).train()
    torch.manual_seed(1)
    if strategy is None:
        model(x).square().sum().backward()
    else:
        run = strategy.wrap(model)
        with strategy.context():
            loss = run(x).square().sum()
        loss.backward()
    return [one.grad for one in model.parameters()], [one.clone() for one in model.buffers()]


def same(one, other):
    """Tell whether two lists of tensors are the same bit by bit."""
    return len(one) == len(other) and all(map(torch.equal, one, other))


def distance(seen, expected):
    """Return the norm of the difference over the norm, of all gradients together."""
    flat = [torch.cat([one.flatten() for one in gradients]) for gradients in (seen, expected)]
    return ((flat[0] - flat[1]).norm() / flat[1].norm()).item()


def packed(packer, x):
    """Return a loss whose graph saved something of its own, not a leaf."""
    with packer:
        return (x * 2).pow(3).sum()


def leaf(n=2048):
    """Return a leaf of so many elements."""
    return torch.linspace(-1, 1, n, requires_grad=True)


def cubes(x):
    """Tell whether the leaf has the gradient of what `packed` computes."""
    return torch.allclose(x.grad, 24 * x**2)
