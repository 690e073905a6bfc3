"""In-place changes: hooks turn autograd's own check off, so the packer is responsible for what it returns."""

import torch

from hooklaw.law.rule import notes
from hooklaw.packing._cases import LEAVES
from hooklaw.packing._law import HOOKS, law
from hooklaw.packing.properties.parts import agree, numbers, right_or_refused

CHECKS = notes("autograd", "in-place-correctness-checks")
ALIAS = "live-tensor-given-back-unchecked"


@law("packer.in-place.pack-input", sources=[HOOKS.sentence(12)], wrong=["in-place-on-packs-input"])
def pack_input(packer, device):
    """Packing changes neither the values nor the version of the saved tensor."""
    x, w = numbers(3, device=device).requires_grad_(), numbers(3, device=device).requires_grad_()
    y = x * 1
    before, version = y.detach().clone(), y._version
    with packer():
        y * w
    assert torch.equal(before, y.detach()), f"a saved tensor was {before.tolist()}, now it is {y.tolist()}"
    assert y._version == version, f"a saved tensor's version went from {version} to {y._version}"


@law("packer.in-place.output", sources=[CHECKS.sentence(4), HOOKS.sentence(6)], wrong=[ALIAS], draws=LEAVES)
def output(packer, device, tolerance, x):
    """After an in-place change of a saved result, backward raises an error or the gradient is right."""
    with packer():
        y = x.exp()
        right = y.detach().clone()
        y.add_(1)
    right_or_refused("a tensor", y.sum(), x, right, tolerance)


@law("packer.in-place.intermediate", sources=[CHECKS.sentence(4), HOOKS.sentence(6)], wrong=[ALIAS], draws=LEAVES)
def intermediate(packer, device, tolerance, x):
    """After an in-place change of a saved operand, backward raises an error or the gradient is right."""
    with packer():
        y = x * 1
        loss = (y * y).sum()
        y.mul_(10)
    right_or_refused("a tensor", loss, x, 2 * x.detach(), tolerance)


@law(
    "packer.in-place.leaf",
    sources=[CHECKS.sentence(4), HOOKS.sentence(6)],
    wrong=[ALIAS, "parameters-given-back-unchecked"],
    draws=LEAVES,
)
def leaf(packer, device, tolerance, x):
    """After an in-place change of a parameter between forward and backward, backward raises an error or is right."""
    weight = torch.nn.Parameter(x.detach() + 1)
    before = weight.detach().clone()
    with packer():
        loss = (x * weight).sum()
    with torch.no_grad():
        weight.mul_(10)
    right_or_refused("a parameter", loss, x, before, tolerance)


@law(
    "packer.in-place.view",
    sources=[CHECKS.sentence(4), HOOKS.sentence(6)],
    wrong=[ALIAS, "parameters-given-back-unchecked"],
)
def view(packer, device, tolerance):
    """After an in-place change of the base of a saved view, backward raises an error or the gradient is right."""
    x = numbers(2, 3, device=device).requires_grad_()
    weight = torch.nn.Parameter(numbers(4, 3, device=device))
    before = weight.detach().clone()
    with packer():
        loss = torch.nn.functional.linear(x, weight).sum()
    with torch.no_grad():
        weight.mul_(10)
    right = torch.ones(2, 4, device=device) @ before
    right_or_refused("a weight", loss, x, right, tolerance)


@law("packer.in-place.unpacked", sources=[HOOKS.sentence(6)], wrong=["one-buffer-for-all"])
def unpacked(packer, device, tolerance):
    """An unpacked tensor does not change while more tensors are unpacked."""
    x, w = numbers(3, device=device).requires_grad_(), numbers(3, device=device).mul(3).requires_grad_()
    seen = []

    class Save(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx, grad):
            seen.extend(ctx.saved_tensors)
            return grad, grad

    with packer():
        y = Save.apply(x, w)
    y.sum().backward()
    agree("the first saved tensor", x.detach(), seen[0], tolerance)
    agree("the second saved tensor", w.detach(), seen[1], tolerance)
