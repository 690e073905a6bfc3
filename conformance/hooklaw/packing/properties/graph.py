"""Graphs: operations, modules, training, double backward, backward inside the context."""

from contextlib import nullcontext

import torch
from hypothesis import strategies as st

from hooklaw.law.rule import docstring
from hooklaw.packing._cases import LEAVES
from hooklaw.packing._law import HOOKS, law
from hooklaw.packing.properties.parts import agree, numbers, unchanged

GRAD = docstring("torch.autograd.grad")
STEPS = [
    "y * y",
    "y.exp()",
    "y.tanh()",
    "y.sigmoid()",
    "y.relu()",
    "y @ y.mT",
    "y.softmax(-1)",
    "y.pow(3)",
    "y / (y * y + 1)",
    "torch.cat([y, y], 1)",
    "y.max(0).values.expand_as(y)",
    "y.gather(1, y.argsort(1))",
    "y.mT.contiguous()",
    "y[:, :1] * y",
    "torch.where(y > 1, y, y * y)",
    "y.cumsum(0)",
    "torch.nn.functional.layer_norm(y, y.shape)",
    "y.std(0) + y",
    "torch.nn.functional.max_pool1d(y, 2, 1)",
    "y.clone().mul_(y)",
    "torch.linalg.norm(y) * y",
    "y.prod(0) * y",
]
chains = st.lists(st.sampled_from(STEPS), min_size=1, max_size=3).map(
    lambda steps: f"[{', '.join(f'lambda y: {step}' for step in steps)}]"
)


@law(
    "packer.graph.operations",
    needs=["lossless"],
    wrong=["strides-assumed-contiguous", "one-buffer-for-all"],
    draws={"steps": chains},
)
def operations(packer, device, steps):
    """The gradient of a graph of any operations is that of a run without the packer."""

    def run():
        x = y = numbers(2, 3, device=device).requires_grad_()
        for step in steps:
            y = step(y)
        y.mean().backward()
        return {"the gradient": x.grad}

    unchanged(packer, run, 0.0)


@law(
    "packer.graph.double-backward",
    sources=[HOOKS.sentence(5, 11), GRAD.sentence(18)],
    wrong=["delete-on-unpack", "unpacks-in-place"],
    draws=LEAVES,
)
def double_backward(packer, device, tolerance, x):
    """With create_graph a gradient can itself be differentiated, and the second gradient is right."""
    with packer():
        y = (x * x * x).sum()
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    agree("the gradient", 3 * x.detach() ** 2, first.detach(), tolerance)
    (second,) = torch.autograd.grad(first.sum(), x)
    agree("the second gradient", 6 * x.detach(), second, tolerance)


@law(
    "packer.graph.double-backward.inside",
    sources=[HOOKS.sentence(3, 11), GRAD.sentence(18)],
    wrong=["closed-by-its-first-backward", "cleared-by-the-next-backward"],
    draws=LEAVES,
)
def double_backward_inside(packer, device, tolerance, x):
    """A backward with create_graph inside the context saves tensors too, and the second gradient is right."""
    with packer():
        y = (x * x * x).sum()
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        penalty = (first * first).sum()
    penalty.backward()
    agree("the gradient of the penalty", 36 * x.detach() ** 3, x.grad, tolerance)


@law(
    "packer.graph.backward-inside",
    sources=[HOOKS.sentence(5, 11)],
    wrong=["packed-only-when-the-context-is-left"],
    draws=LEAVES,
)
def backward_inside(packer, device, tolerance, x):
    """Backward can run while the context is open."""
    with packer():
        (x * x).sum().backward()
    agree("the gradient", 2 * x.detach(), x.grad, tolerance)


@law("packer.graph.training", wrong=["parameters-cached-for-good"])
def training(packer, device, tolerance):
    """Three training steps, each of which changes the parameters, end at the same parameters as without the packer."""

    def train(contexts):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            with contexts():
                loss = model(numbers(2, 3, device=device) + step).pow(2).mean()
            loss.backward()
            optimizer.step()
        return {name: parameter.detach() for name, parameter in model.named_parameters()}

    expected, seen = train(nullcontext), train(packer)
    for name in expected:
        agree(f"{name} after three steps", expected[name], seen[name], tolerance)


@law(
    "packer.graph.modules",
    needs=["lossless"],
    wrong=["strides-assumed-contiguous"],
    draws={
        "layers": st.sampled_from(
            [
                "[torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(True), torch.nn.MaxPool2d(2)]",
                "[torch.nn.Conv2d(3, 2, 1), torch.nn.GroupNorm(1, 2), torch.nn.GELU(), torch.nn.AdaptiveAvgPool2d(1)]",
                "[torch.nn.Flatten(), torch.nn.Linear(75, 4), torch.nn.LayerNorm(4), torch.nn.LogSoftmax(-1)]",
                "[torch.nn.Flatten(2), torch.nn.TransformerEncoderLayer(25, 5, 8, dropout=0.0, batch_first=True)]",
            ]
        )
    },
)
def modules(packer, device, layers):
    """Common modules have the same gradients and buffers as in a run without the packer."""

    def run():
        torch.manual_seed(0)
        model = torch.nn.Sequential(*layers).to(device).to(memory_format=torch.channels_last)
        for layer in model:
            for module in layer.modules():
                if hasattr(module, "reset_parameters"):
                    module.reset_parameters()
        x = torch.randn(2, 3, 5, 5).to(device).requires_grad_()
        model(x).pow(2).mean().backward()
        model.zero_grad(set_to_none=True)
        return {"input": x.grad, **{name: buffer.clone().float() for name, buffer in model.named_buffers()}}

    unchanged(packer, run, 0.0)
