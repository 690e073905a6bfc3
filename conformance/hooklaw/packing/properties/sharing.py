"""Sharing: saved tensors that have a storage or an address in common, or are the same tensor."""

import torch

from hooklaw.law.rule import notes
from hooklaw.packing._law import HOOKS, law
from hooklaw.packing.properties.parts import numbers, unchanged

VERSIONS = notes("autograd", "in-place-correctness-checks")


@law("packer.sharing.views", wrong=["storage-keyed-deduplication"])
def views(packer, device, tolerance):
    """Each of several saved views of one storage comes back with its own values."""

    def run():
        x = numbers(4, device=device).requires_grad_()
        first, second = x[:2], x[2:]
        ((first * second).sum() + (first * x[1:3]).sum()).backward()
        return {"the gradient": x.grad}

    unchanged(packer, run, tolerance)


@law("packer.sharing.same-address", wrong=["address-keyed-deduplication-blind-to-layout"])
def same_address(packer, device, tolerance):
    """Two saved views with the same address but other strides or another shape come back each with its own values."""

    def run():
        x = numbers(2, 2, device=device).requires_grad_()
        y = x * 1
        ((y * y.mT).sum() + (y[0] * y[0]).sum()).backward()
        return {"the gradient": x.grad}

    unchanged(packer, run, tolerance)


@law("packer.sharing.twice", sources=[HOOKS.sentence(3, 11)], wrong=["one-entry-for-each-tensor"])
def twice(packer, device, tolerance):
    """A tensor that is saved twice, by one operation or by two, comes back both times."""

    def run():
        x = numbers(3, device=device).requires_grad_()
        y = x * 2
        ((y * y).sum() + y.pow(2).sum()).backward()
        return {"the gradient": x.grad}

    unchanged(packer, run, tolerance)


def at_an_old_address(addresses, like):
    """Return a new tensor, at one of these addresses if the allocator reuses one."""
    fresh = [torch.empty_like(like) for _ in range(50)]
    return next((tensor for tensor in fresh if tensor.data_ptr() in addresses), fresh[0])


@law("packer.sharing.reused-address", wrong=["address-keyed-deduplication"], frees=True)
def reused_address(packer, device, tolerance):
    """A tensor at the address of a freed tensor comes back with its own values."""

    def run():
        w = numbers(1000, device=device).requires_grad_()
        loss, addresses = torch.zeros((), device=device), set()
        for factor in range(1, 9):
            y = at_an_old_address(addresses, w).fill_(factor)
            addresses.add(y.data_ptr())
            loss = loss + (w * y).sum()
            del y
        loss.backward()
        return {"the gradient": w.grad}

    unchanged(packer, run, tolerance)


@law(
    "packer.sharing.changed-between",
    sources=[HOOKS.sentence(3, 11), VERSIONS.sentence(2)],
    wrong=["deduplication-blind-to-versions"],
)
def changed_between(packer, device, tolerance):
    """A tensor that is saved, changed in place and saved again comes back from the second save with its new values."""

    def run():
        x, w = numbers(3, device=device), numbers(3, device=device).requires_grad_()
        _ = x * w
        with torch.no_grad():
            x.add_(1)
        (x * w).sum().backward()
        return {"the gradient": w.grad}

    unchanged(packer, run, tolerance)


@law("packer.sharing.parameters", wrong=["parameters-looked-up-by-shape"])
def parameters(packer, device, tolerance):
    """Parameters and their transposed views come back with their own values, so every parameter's gradient is right."""

    def run():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 3)).to(device)
        model(numbers(2, 3, device=device).requires_grad_()).sum().backward()
        return {f"the gradient of {name}": parameter.grad for name, parameter in model.named_parameters()}

    unchanged(packer, run, tolerance)
