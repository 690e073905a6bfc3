"""Composition: a packer together with checkpoint, autocast and tensor hooks."""

from contextlib import nullcontext

import torch
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

from hooklaw.law.rule import docstring
from hooklaw.packing._cases import LEAVES
from hooklaw.packing._law import HOOKS, law
from hooklaw.packing.properties.parts import agree, numbers, unchanged

CHECKPOINT = docstring("torch.utils.checkpoint.checkpoint")
forms = {"use_reentrant": st.sampled_from(["False", "True"])}


@law(
    "packer.checkpoint.within",
    sources=[HOOKS.sentence(11), CHECKPOINT.sentence(5)],
    wrong=["closed-by-its-first-backward", "cleared-by-the-next-backward"],
    draws=forms,
)
def checkpoint_within(packer, device, tolerance, use_reentrant):
    """A checkpoint, reentrant or not, recomputes correctly while the context is open, and the gradient is right."""

    def run():
        x = numbers(3, device=device).requires_grad_()
        z = checkpoint(lambda y: (y * y).tanh() * y, x * x, use_reentrant=use_reentrant)
        (z * z).sum().backward()
        return {"the gradient": x.grad}

    unchanged(packer, run, tolerance * 8)


@law(
    "packer.checkpoint.around",
    sources=[HOOKS.sentence(11), CHECKPOINT.sentence(6)],
    wrong=["refuses-under-another-pair", "last-in-first-out-assumed"],
    draws=forms,
)
def checkpoint_around(packer, device, tolerance, use_reentrant):
    """With the context inside a checkpoint, reentrant or not, the gradient is that of a run without the packer."""

    def gradient(context):
        def region(y):
            with context():
                return (y * y).tanh() * y

        x = numbers(3, device=device).requires_grad_()
        checkpoint(region, x * x, use_reentrant=use_reentrant).sum().backward()
        return x.grad

    agree("the gradient", gradient(nullcontext), gradient(packer), tolerance * 8)


@law(
    "packer.checkpoint.layers",
    sources=[HOOKS.sentence(11), CHECKPOINT.sentence(5)],
    wrong=["one-buffer-for-each-shape"],
    draws=forms,
)
def checkpoint_layers(packer, device, tolerance, use_reentrant):
    """Checkpointed layers called inside the context and recomputed outside give every parameter its gradient."""

    def gradients(context):
        torch.manual_seed(0)
        layers = [torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()).to(device) for _ in range(3)]
        y = numbers(2, 3, device=device).requires_grad_()
        with context:
            for layer in layers:
                y = checkpoint(layer, y, use_reentrant=use_reentrant)
            loss = y.pow(2).sum()
        loss.backward()
        return [parameter.grad for layer in layers for parameter in layer.parameters()]

    expected, seen = gradients(nullcontext()), gradients(packer())
    for place, (was, now) in enumerate(zip(expected, seen, strict=True)):
        agree(f"the gradient of parameter {place}", was, now, tolerance * 8)


@law("packer.autocast", sources=[HOOKS.sentence(11), docstring("torch.autocast").sentence(2, 8)], wrong=["dtype-lost"])
def autocast(packer, device, tolerance):
    """Under autocast, which lowers the precision of some tensors, gradients are those of a run without the packer."""

    def run():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).to(device)
        with torch.autocast(device.partition(":")[0], dtype=torch.bfloat16):
            loss = model(numbers(2, 3, device=device)).float().pow(2).sum()
        loss.backward()
        return {f"the gradient of {name}": parameter.grad for name, parameter in model.named_parameters()}

    unchanged(packer, run, tolerance * 8 + 2**-7)


@law(
    "packer.hooks",
    sources=[HOOKS.sentence(11), docstring("torch.Tensor.register_hook").sentence(2, 4)],
    wrong=["tensors-detached-in-place"],
    draws=LEAVES,
)
def tensor_hooks(packer, device, tolerance, x):
    """A saved tensor still takes hooks and retains its gradient, and both are right."""
    with packer():
        y = x * 2
        loss = (y * y).sum()
    y.register_hook(lambda grad: grad * 3)
    y.retain_grad()
    loss.backward()
    agree("the gradient of y", 12 * x.detach(), y.grad, tolerance)
    agree("the gradient of x", 24 * x.detach(), x.grad, tolerance)
