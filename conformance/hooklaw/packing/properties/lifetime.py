"""How long what was packed is there: as often as it is asked for, in whatever order, and no longer than its graph."""

import gc
import weakref

import torch

from hooklaw.law.rule import Level, docstring, notes, observed
from hooklaw.packing.cases import LEAVES
from hooklaw.packing.law import HOOKS, NOTES, law
from hooklaw.packing.properties.parts import agree, held, numbers

BACKWARD = docstring("torch.Tensor.backward")
SAVED = notes("autograd", "saved-tensors")
MEMORY = "1 MiB that nothing refers to any more is missed by the next step"


@law(
    "packer.lifetime.retain-graph",
    sources=[HOOKS, BACKWARD],
    wrong=["delete-on-unpack", "unpacks-in-place"],
    draws=LEAVES,
)
def retain_graph(packer, device, tolerance, x):
    """Backward over a retained graph gives the same gradient each time."""
    y = x * 2
    expected = 4 * y.detach()
    with packer():
        loss = (y * y).sum()
    for time in ("first", "second", "third"):
        x.grad = None
        loss.backward(retain_graph=True)
        agree(f"the {time} gradient", expected, x.grad, tolerance)


@law("packer.lifetime.read-again", sources=[SAVED], wrong=["delete-on-unpack", "unpacks-in-place"], draws=LEAVES)
def read_again(packer, device, tolerance, x):
    """A saved tensor can be read off its node as often as one likes, and backward still finds it."""
    with packer():
        y = x.exp()
    for _ in range(3):
        agree("the saved result", y.detach(), y.grad_fn._saved_result.detach(), tolerance)
    y.sum().backward()
    agree("the gradient", y.detach(), x.grad, tolerance)


@law("packer.lifetime.order", sources=[HOOKS], wrong=["last-in-first-out-assumed"])
def order(packer, device, tolerance):
    """Tensors come back right in whatever order they are asked for, also in that in which they were packed."""
    inputs = [numbers(3, device=device).mul(factor).requires_grad_() for factor in (1, 2, 3)]
    with packer():
        losses = [(x * x).sum() for x in inputs]
    for place in (0, 2, 1):
        losses[place].backward()
        agree(f"gradient {place}", 2 * inputs[place].detach(), inputs[place].grad, tolerance)


@law("packer.lifetime.partial", sources=[HOOKS, BACKWARD], wrong=["last-in-first-out-assumed"])
def partial_backward(packer, device, tolerance):
    """Backward through a part of a graph is right, though the rest is never asked for."""
    x, w = numbers(3, device=device).requires_grad_(), numbers(3, device=device).mul(3).requires_grad_()
    with packer():
        y = x * x
        _ = y.exp() * w  # the rest of the graph
    (seen,) = torch.autograd.grad(y.sum(), x)
    agree("the gradient", 2 * x.detach(), seen, tolerance)


@law("packer.lifetime.two-graphs", sources=[HOOKS], wrong=["one-graph-at-a-time"])
def two_graphs(packer, device, tolerance):
    """Two graphs can be alive at once, the later one first, and neither reads what the other saved."""
    first, second = numbers(3, device=device).requires_grad_(), numbers(3, device=device).mul(5).requires_grad_()
    with packer():
        one = (first * first).sum()
    with packer():
        two = (second * second).sum()
    one.backward()
    agree("the gradient of the first graph", 2 * first.detach(), first.grad, tolerance)
    two.backward()
    agree("the gradient of the second graph", 2 * second.detach(), second.grad, tolerance)


@law("packer.lifetime.one-context-two-graphs", sources=[HOOKS], wrong=["last-in-first-out-assumed"], draws=LEAVES)
def one_context_two_graphs(packer, device, tolerance, x):
    """Backward of a graph that was made before another, both in one context, is right: a loop accumulates gradients."""
    losses = []
    with packer():
        for factor in (1, 2):
            y = x * factor
            losses.append((y * y).sum())
        losses[0].backward()
        losses[1].backward()
    agree("the accumulated gradient", 10 * x.detach(), x.grad, tolerance)


@law("packer.lifetime.no-cycle", sources=[HOOKS, NOTES], wrong=["live-tensor-kept"], draws=LEAVES)
def no_cycle(packer, device, x):
    """A graph whose output was saved is gone with its last reference, without the garbage collector's help."""
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


@law(
    "packer.lifetime.dropped",
    level=Level.SHOULD,
    sources=[observed(MEMORY)],
    wrong=["dropped-graphs-leak"],
)
def dropped(packer, device):
    """What was packed for a graph that is dropped without backward is given back, though the packer lives on."""
    x = torch.ones(2**18, device=device, requires_grad=True)
    context = packer()
    before = held(device)
    with context:
        loss = (x * 2).pow(2).sum()
    del loss
    left = held(device) - before
    assert left < 2**19, f"{left} bytes are still held for a graph that is gone"


@law("packer.lifetime.after-dropped", sources=[HOOKS], wrong=["refuses-after-a-dropped-graph"], draws=LEAVES)
def after_dropped(packer, device, tolerance, x):
    """A graph that is dropped without backward does not hinder the steps that follow it in the same context."""
    with packer():
        loss = (x * x).sum()
        del loss
        for step in ("first", "second"):
            x.grad = None
            (x * x).sum().backward()
            agree(f"the gradient of the {step} step after it", 2 * x.detach(), x.grad, tolerance)


@law(
    "packer.lifetime.done",
    level=Level.SHOULD,
    sources=[observed(MEMORY)],
    wrong=["kept-after-backward"],
)
def done(packer, device):
    """What was packed is given back after backward, though the packer lives on."""
    x = torch.ones(2**18, device=device, requires_grad=True)
    context = packer()
    before = held(device)
    with context:
        loss = (x * 2).pow(2).sum()
    loss.backward()
    x.grad = None
    del loss
    left = held(device) - before
    assert left < 2**19, f"{left} bytes are still held for a graph that is done"
