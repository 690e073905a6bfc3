"""The packer's context: exit before backward, reentry, nesting, exceptions, and no trace of it afterwards."""

import gc

import torch
from torch.autograd.graph import saved_tensors_hooks

from hooklaw.law.rule import docstring
from hooklaw.packing._cases import LEAVES
from hooklaw.packing._law import HOOKS, law
from hooklaw.packing.properties.parts import agree, numbers, watched

DISABLE = docstring("torch.autograd.graph.disable_saved_tensors_hooks")


@law("packer.context.left", sources=[HOOKS.sentence(5, 6)], wrong=["closed-when-left"], draws=LEAVES)
def left(packer, device, tolerance, x):
    """Backward after the context was left is right, even if context and packer no longer exist."""
    context = packer()
    with context:
        loss = (x * x).sum()
    del context
    gc.collect()
    loss.backward()
    agree("the gradient", 2 * x.detach(), x.grad, tolerance)


@law(
    "packer.context.entered-again",
    sources=[HOOKS.sentence(3, 6)],
    wrong=["cleared-by-the-next-forward", "numbers-begin-again-with-each-entry"],
)
def entered_again(packer, device, tolerance):
    """A context entered a second time works and leaves the first graph intact, or refuses to be entered."""
    first, second = numbers(3, device=device).requires_grad_(), numbers(3, device=device).mul(5).requires_grad_()
    context = packer()
    with context:
        first_loss = (first * first).sum()
    try:
        context.__enter__()
    except (RuntimeError, AttributeError):
        second_loss = (second * second).sum()  # refused: the packer does not pack what is saved now
    else:
        second_loss = (second * second).sum()
        context.__exit__(None, None, None)
    first_loss.backward()
    agree("the gradient of the first graph", 2 * first.detach(), first.grad, tolerance)
    second_loss.backward()
    agree("the gradient of the second graph", 2 * second.detach(), second.grad, tolerance)
    assert not watched(device), "the packer still packs after the context was left twice"


@law(
    "packer.context.nested",
    sources=[HOOKS.sentence(6, 14)],
    wrong=["leaves-its-hooks-when-nested", "one-graph-at-a-time"],
)
def nested(packer, device, tolerance):
    """With one context of the packer inside another, tensors saved in the inner and in the outer come back right."""

    def gradient(outer, inner):
        x = numbers(3, device=device).requires_grad_()
        with outer:
            y = x * x
            with inner:
                z = y * x
            loss = (z * z).sum()
        loss.backward()
        return x.grad

    x = numbers(3, device=device)
    agree("the gradient", 6 * x**5, gradient(packer(), packer()), tolerance * 8)
    assert not watched(device), "the packer still packs after both contexts were left"


@law("packer.context.nested.same", sources=[HOOKS.sentence(3, 14)], wrong=["one-slot-for-nested-entries"], draws=LEAVES)
def nested_same(packer, device, tolerance, x):
    """A context entered inside itself works or refuses to be entered; after it nothing is packed."""
    context = packer()
    with context:
        y = x * x
        try:
            context.__enter__()
        except (RuntimeError, AttributeError):
            z = y * x
        else:
            z = y * x
            context.__exit__(None, None, None)
        loss = (z * z).sum()
    loss.backward()
    agree("the gradient", 6 * x.detach() ** 5, x.grad, tolerance * 8)
    assert not watched(device), "the packer still packs after the context was left"


@law("packer.context.innermost", sources=[HOOKS.sentence(14)], wrong=["composes-with-the-pair-outside"])
def innermost(packer, device, tolerance):
    """A pair inside the context packs there instead of the packer, and a pair outside sees nothing of it."""
    seen = []

    def other(name):
        return saved_tensors_hooks(lambda tensor: seen.append(name) or tensor.detach(), lambda packed: packed)

    x = numbers(3, device=device).requires_grad_()
    with other("outside"), packer():
        y = x * 2
        z = y.exp()
        with other("inside"):
            z = z.exp()
    assert seen == ["inside"], f"only the pair inside should have packed, these did: {seen}"
    z.log().sum().backward()
    agree("the gradient", 2 * y.detach().exp(), x.grad, tolerance * 8)


@law("packer.context.outside", sources=[HOOKS.sentence(3)], wrong=["hooks-left-on-the-stack"], draws=LEAVES)
def outside(packer, device, x):
    """After the context was left nothing is packed, and autograd's own check of in-place changes works again."""
    with packer():
        (x * x).sum().backward()
    assert not watched(device), "a tensor saved after the context was left went through the packer"


@law("packer.context.exception", sources=[HOOKS.sentence(3)], wrong=["hooks-left-after-an-exception"], draws=LEAVES)
def exception(packer, device, tolerance, x):
    """After an exception in the context nothing is packed, and the next use of the packer is right."""
    try:
        with packer():
            _ = x * x
            raise KeyError("the user's own")
    except KeyError:
        pass
    assert not watched(device), "a tensor saved after the exception went through the packer"
    with packer():
        loss = (x * x).sum()
    loss.backward()
    agree("the gradient after the exception", 2 * x.detach(), x.grad, tolerance)


@law("packer.context.exception.passed-on", sources=[HOOKS.sentence(1)], wrong=["exceptions-swallowed"])
def exception_passed_on(packer, device):
    """An exception raised in the context propagates out of it."""
    try:
        with packer():
            raise KeyError("the user's own")
    except KeyError:
        passed_on = True
    else:
        passed_on = False
    assert passed_on, "an exception raised in the context did not come out of it"


@law("packer.context.backward-exception", sources=[HOOKS.sentence(5, 11)], wrong=["delete-on-unpack"], draws=LEAVES)
def backward_exception(packer, device, tolerance, x):
    """After an exception in backward, backward through the retained graph is right."""
    with packer():
        y = x * 2
        loss = (y * y).sum()

    def refuse(grad):
        raise KeyError("the user's own")

    handle = y.register_hook(refuse)
    try:
        loss.backward(retain_graph=True)
    except KeyError:
        pass
    handle.remove()
    x.grad = None
    loss.backward()
    agree("the gradient after the exception", 8 * x.detach(), x.grad, tolerance)


@law("packer.context.gradients-off", sources=[HOOKS.sentence(1)], wrong=["gradients-switched-on"], draws=LEAVES)
def gradients_off(packer, device, x):
    """The context does not change grad mode."""
    with torch.no_grad(), packer():
        y = x * x
    assert not y.requires_grad, "under no_grad an operation in the context recorded a graph"
    with packer():
        y = x * x
    assert y.requires_grad, "an operation in the context recorded no graph"


@law("packer.context.results", sources=[HOOKS.sentence(1)], wrong=["in-place-on-packs-input"])
def results(packer, device):
    """Results computed in the context are bitwise those computed outside: packing changes nothing."""
    x, w = numbers(3, device=device).requires_grad_(), numbers(3, device=device).mul(0.3).requires_grad_()
    before = x.detach().clone()
    expected = (x * w).exp()
    with packer():
        seen = (x * w).exp()
    assert torch.equal(expected, seen), f"exp(x * w) is {seen.tolist()}, outside the context {expected.tolist()}"
    assert torch.equal(before, x.detach()), f"x is {x.tolist()}, before it was saved it was {before.tolist()}"
