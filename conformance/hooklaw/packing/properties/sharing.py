"""Sharing: saved tensors that have a storage or an address in common, or are the same tensor."""

import torch

from hooklaw.law.rule import docstring, notes
from hooklaw.packing._law import HOOKS, law
from hooklaw.packing.properties.parts import agree, numbers

VERSIONS = notes("autograd", "in-place-correctness-checks")
LINEAR = docstring("torch.nn.Linear")


@law("packer.sharing.views", sources=[HOOKS], wrong=["storage-keyed-deduplication"])
def views(packer, device, tolerance):
    """Each of several saved views of one storage comes back with its own values."""

    def gradient(x):
        first, second = x[:2], x[2:]
        ((first * second).sum() + (first * x[1:3]).sum()).backward()
        return x.grad

    expected = gradient(numbers(4, device=device).requires_grad_())
    with packer():
        seen = gradient(numbers(4, device=device).requires_grad_())
    agree("the gradient", expected, seen, tolerance)


@law("packer.sharing.same-address", sources=[HOOKS], wrong=["address-keyed-deduplication-blind-to-layout"])
def same_address(packer, device, tolerance):
    """Two saved views with the same address but other strides or another shape come back each with its own values."""

    def gradient(x):
        y = x * 1
        ((y * y.mT).sum() + (y[0] * y[0]).sum()).backward()
        return x.grad

    expected = gradient(numbers(2, 2, device=device).requires_grad_())
    with packer():
        seen = gradient(numbers(2, 2, device=device).requires_grad_())
    agree("the gradient", expected, seen, tolerance)


@law("packer.sharing.twice", sources=[HOOKS], wrong=["one-entry-for-each-tensor"])
def twice(packer, device, tolerance):
    """A tensor that is saved twice, by one operation or by two, comes back both times."""

    def gradient(x):
        y = x * 2
        ((y * y).sum() + y.pow(2).sum()).backward()
        return x.grad

    expected = gradient(numbers(3, device=device).requires_grad_())
    with packer():
        seen = gradient(numbers(3, device=device).requires_grad_())
    agree("the gradient", expected, seen, tolerance)


def at_an_old_address(addresses, like):
    """Return a new tensor, at one of these addresses if the allocator reuses one."""
    fresh = [torch.empty_like(like) for _ in range(50)]
    return next((tensor for tensor in fresh if tensor.data_ptr() in addresses), fresh[0])


@law("packer.sharing.reused-address", sources=[HOOKS], wrong=["address-keyed-deduplication"])
def reused_address(packer, device, tolerance):
    """A tensor at the address of a freed tensor comes back with its own values."""

    def gradient(w):
        loss, addresses = torch.zeros((), device=device), set()
        for factor in range(1, 9):
            y = at_an_old_address(addresses, w).fill_(factor)
            addresses.add(y.data_ptr())
            loss = loss + (w * y).sum()
            del y
        loss.backward()
        return w.grad

    expected = gradient(numbers(1000, device=device).requires_grad_())
    with packer():
        seen = gradient(numbers(1000, device=device).requires_grad_())
    agree("the gradient", expected, seen, tolerance)


@law("packer.sharing.changed-between", sources=[HOOKS, VERSIONS], wrong=["deduplication-blind-to-versions"])
def changed_between(packer, device, tolerance):
    """A tensor that is saved, changed in place and saved again comes back from the second save with its new values."""

    def gradient(x, w):
        _ = x * w
        with torch.no_grad():
            x.add_(1)
        (x * w).sum().backward()
        return w.grad

    x = numbers(3, device=device)
    expected = gradient(x.clone(), numbers(3, device=device).requires_grad_())
    with packer():
        seen = gradient(x.clone(), numbers(3, device=device).requires_grad_())
    agree("the gradient", expected, seen, tolerance)


@law("packer.sharing.parameters", sources=[HOOKS, LINEAR], wrong=["parameters-looked-up-by-shape"])
def parameters(packer, device, tolerance):
    """Parameters and their transposed views come back with their own values, so every parameter's gradient is right."""

    def gradients():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 3)).to(device)
        model(numbers(2, 3, device=device).requires_grad_()).sum().backward()
        return {name: parameter.grad for name, parameter in model.named_parameters()}

    expected = gradients()
    with packer():
        seen = gradients()
    for name in expected:
        agree(f"the gradient of {name}", expected[name], seen[name], tolerance)
