"""Lifetime: packed tensors can be read often, in any order, and are freed with their graph."""

import gc
import weakref

import torch

from hooklaw.law.rule import docstring, notes, observed
from hooklaw.packing._cases import LEAVES
from hooklaw.packing._law import HOOKS, law
from hooklaw.packing.properties.parts import agree, held, numbers

BACKWARD = docstring("torch.Tensor.backward")
SAVED = notes("autograd", "saved-tensors")
MEMORY = "memory that nothing refers to is missing in the next step"


@law(
    "packer.lifetime.retain-graph",
    sources=[HOOKS.sentence(11), BACKWARD.sentence(14)],
    wrong=["delete-on-unpack", "unpacks-in-place"],
    draws=LEAVES,
)
def retain_graph(packer, device, tolerance, x):
    """Every backward through a retained graph gives the same gradient."""
    y = x * 2
    expected = 4 * y.detach()
    with packer():
        loss = (y * y).sum()
    for time in ("first", "second", "third"):
        x.grad = None
        loss.backward(retain_graph=True)
        agree(f"the {time} gradient", expected, x.grad, tolerance)


@law(
    "packer.lifetime.read-again",
    sources=[SAVED.sentence(6)],
    wrong=["delete-on-unpack", "unpacks-in-place"],
    draws=LEAVES,
)
def read_again(packer, device, tolerance, x):
    """A saved tensor can be read from its Node several times, and backward after that is right."""
    with packer():
        y = x.exp()
    for _ in range(3):
        agree("the saved result", y.detach(), y.grad_fn._saved_result.detach(), tolerance)
    y.sum().backward()
    agree("the gradient", y.detach(), x.grad, tolerance)


@law("packer.lifetime.order", wrong=["last-in-first-out-assumed"])
def order(packer, device, tolerance):
    """Tensors come back right in any order, also in the order in which they were packed."""
    inputs = [numbers(3, device=device).mul(factor).requires_grad_() for factor in (1, 2, 3)]
    with packer():
        losses = [(x * x).sum() for x in inputs]
    for place in (0, 2, 1):
        losses[place].backward()
        agree(f"gradient {place}", 2 * inputs[place].detach(), inputs[place].grad, tolerance)


@law("packer.lifetime.partial", sources=[HOOKS.sentence(5, 11)], wrong=["last-in-first-out-assumed"])
def partial_backward(packer, device, tolerance):
    """Backward through a part of a graph is right, even if the rest is never unpacked."""
    x, w = numbers(3, device=device).requires_grad_(), numbers(3, device=device).mul(3).requires_grad_()
    with packer():
        y = x * x
        _ = y.exp() * w  # the rest of the graph
    (seen,) = torch.autograd.grad(y.sum(), x)
    agree("the gradient", 2 * x.detach(), seen, tolerance)


@law("packer.lifetime.two-graphs", sources=[HOOKS.sentence(6)], wrong=["one-graph-at-a-time"])
def two_graphs(packer, device, tolerance):
    """Two graphs can be alive at once, and neither reads tensors that the other saved."""
    first, second = numbers(3, device=device).requires_grad_(), numbers(3, device=device).mul(5).requires_grad_()
    with packer():
        first_loss = (first * first).sum()
    with packer():
        second_loss = (second * second).sum()
    first_loss.backward()
    agree("the gradient of the first graph", 2 * first.detach(), first.grad, tolerance)
    second_loss.backward()
    agree("the gradient of the second graph", 2 * second.detach(), second.grad, tolerance)


@law("packer.lifetime.one-context-two-graphs", wrong=["last-in-first-out-assumed"], draws=LEAVES)
def one_context_two_graphs(packer, device, tolerance, x):
    """Backward through each of two graphs made in one context, the first made first, accumulates the right gradient."""
    losses = []
    with packer():
        for factor in (1, 2):
            y = x * factor
            losses.append((y * y).sum())
        losses[0].backward()
        losses[1].backward()
    agree("the accumulated gradient", 10 * x.detach(), x.grad, tolerance)


@law(
    "packer.lifetime.no-cycle",
    sources=[HOOKS.sentence(15), notes("autograd", "registering-default-hooks-for-saved-tensors").sentence(6)],
    wrong=["live-tensor-kept"],
    draws=LEAVES,
)
def no_cycle(packer, device, x):
    """A graph whose output was saved is freed with its last reference, without the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        with packer():
            y = x.exp()
        output = weakref.ref(y)
        del y
        assert output() is None, "the output outlives its last reference: what pack returned, or the packer, keeps it"
    finally:
        gc.enable()


@law("packer.lifetime.dropped", sources=[observed(MEMORY)], wrong=["dropped-graphs-leak"], frees=True)
def dropped(packer, device):
    """Memory packed for a graph that is dropped without backward is freed, even if the packer lives on."""
    x = torch.ones(2**18, device=device, requires_grad=True)
    context = packer()
    before = held(device)
    with context:
        loss = (x * 2).pow(2).sum()
    del loss
    left = held(device) - before
    assert left < 2**19, f"{left} bytes are still held for a graph that was dropped"


@law("packer.lifetime.after-dropped", wrong=["refuses-after-a-dropped-graph"], draws=LEAVES)
def after_dropped(packer, device, tolerance, x):
    """After a graph was dropped without backward, later steps in the same context are right."""
    with packer():
        loss = (x * x).sum()
        del loss
        for step in ("first", "second"):
            x.grad = None
            (x * x).sum().backward()
            agree(f"the gradient of the {step} step after it", 2 * x.detach(), x.grad, tolerance)


@law("packer.lifetime.done", sources=[observed(MEMORY)], wrong=["kept-after-backward"], frees=True)
def done(packer, device):
    """Packed memory is freed after backward, even if the packer lives on."""
    x = torch.ones(2**18, device=device, requires_grad=True)
    context = packer()
    before = held(device)
    with context:
        loss = (x * 2).pow(2).sum()
    loss.backward()
    x.grad = None
    del loss
    left = held(device) - before
    assert left < 2**19, f"{left} bytes are still held after backward"
