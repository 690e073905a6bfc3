"""The medium: bytes reach the medium that the packer claims, and leave it again; parameters are not moved."""

import gc

import torch

from hooklaw.law.rule import docstring, observed
from hooklaw.packing._law import HOOKS, law
from hooklaw.packing.properties.parts import held, numbers, on_disk, saved, unchanged

SAVE_ON_CPU = docstring("torch.autograd.graph.save_on_cpu")
CLAIM = "moving bytes is what such a packer is used for"


@law("packer.medium.reached", sources=[observed(CLAIM)], needs=["disk"], wrong=["claims-disk-keeps-memory"])
def reached(packer, device, medium):
    """While a graph is alive, the folder that the packer claims to write to holds at least the saved bytes."""
    x = torch.rand(2**18, device=device).requires_grad_()
    with packer():
        before = on_disk(medium)
        loss = (x * 2).pow(2).sum()
    there = on_disk(medium) - before
    assert there >= 2**20, f"2**20 bytes were saved, but {medium} grew by {there}"
    loss.backward()


@law(
    "packer.medium.released", sources=[observed(CLAIM)], needs=["claim"], wrong=["claims-disk-keeps-memory"], frees=True
)
def released(packer, device):
    """A packed tensor that only the graph needs takes no memory on its own device until backward."""
    x = torch.ones(2**18, device=device, requires_grad=True)
    context = packer()
    before = held(device)
    with context:
        loss = (x * 2).pow(2).sum()
    left = held(device) - before
    assert left < 2**19, f"{left} bytes are held in memory for a tensor of 2**20 that was packed"
    loss.backward()


@law("packer.medium.given-back", sources=[observed(CLAIM)], needs=["disk"], wrong=["files-left-behind"])
def given_back(packer, device, medium):
    """When a graph is freed, after backward or without it, its bytes are removed from the folder."""
    x = torch.ones(2**18, device=device, requires_grad=True)
    before = on_disk(medium)
    with packer():
        done, dropped = (x * 2).pow(2).sum(), (x * 3).pow(2).sum()
    done.backward()
    del done, dropped
    gc.collect()
    left = on_disk(medium) - before
    assert left < 2**19, f"{left} bytes are left in {medium} for graphs that were freed"


@law(
    "packer.medium.parameters",
    sources=[observed("a parameter stays in memory as long as its model, so moving a copy of it frees nothing")],
    wrong=["parameters-told-by-their-type"],
)
def parameters(packer, device):
    """A parameter, or a view of a parameter such as a transposed weight, is not copied: its own memory comes back."""
    weight = torch.nn.Parameter(numbers(2, 3, device=device))
    for name, tensor in {"a parameter": weight, "a transposed parameter": weight.t()}.items():
        back = saved(packer, tensor)
        own = back.untyped_storage().data_ptr() == weight.untyped_storage().data_ptr()
        assert own, f"{name} was copied, although it stays in memory"


@law(
    "packer.medium.inputs-of-the-cpu",
    sources=[HOOKS.sentence(11), SAVE_ON_CPU.sentence(2)],
    needs=["accelerator"],
    wrong=["left-on-another-device"],
)
def mixed_devices(packer, device, tolerance):
    """In a graph over two devices each tensor comes back to its own device."""

    def run():
        x = numbers(3, device="cpu").requires_grad_()
        y = (x * x).to(device)
        (y * y).sum().backward()
        return {"the gradient": x.grad}

    unchanged(packer, run, tolerance * 8)
