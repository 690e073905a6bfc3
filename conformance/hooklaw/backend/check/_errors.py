"""Probes of the error kinds: what the framework raises for wrong use is what `errors` names for it."""

from collections.abc import Callable
from traceback import extract_tb
from typing import Any

from hooklaw.backend.capabilities import Capability, ErrorKind
from hooklaw.backend.check._probe import Tried, probe, said


def provoke(tried: Tried, kind: ErrorKind, given: str, act: Callable[[], Any]) -> None:
    """Do something wrong: an exception of a type that is not named for the kind is a fault.

    No exception at all is none here: a rule judges that.
    """
    types = tuple(tried.backend.errors.get(kind, (RuntimeError,)))
    names = " or ".join(each.__name__ for each in types)
    try:
        act()
    except Exception as error:  # noqa: BLE001 - it is what is tried
        if tried.is_own(error):
            line = extract_tb(error.__traceback__)[-1]
            mend = f"mend {line.filename}:{line.lineno}, or let the framework raise its own error"
            tried.fault("errors", given, f"{names} of the framework", f"the adapter's own {said(error)}", mend)
        elif not isinstance(error, types):
            tried.fault(
                "errors", given, f"{names}, which it names for {str(kind)!r}", said(error), _mend(tried, error, kind)
            )


def _mend(tried: Tried, error: Exception, kind: ErrorKind) -> str:
    name = type(error).__name__
    others = [str(other) for other, types in tried.backend.errors.items() if other != kind and type(error) in types]
    if others:
        return f"{name} is named for {', '.join(map(repr, others))}: were they swapped?"
    return f"if that is how the framework refuses this, write ErrorKind.{kind.name}: ({name},)"


@probe()
def no_gradient(tried: Tried) -> None:
    """A backward of what requires no grad, and a hook on it."""
    plain = tried.tensor([1.0])
    loss = tried.sum(plain)
    b = tried.backend
    provoke(tried, ErrorKind.NO_GRADIENT, "backward(sum(tensor([1.0])))", lambda: b.backward(loss))
    if tried.can(Capability.TENSOR_HOOKS):
        given = "register_hook(tensor([1.0]), hook)"
        provoke(tried, ErrorKind.NO_GRADIENT, given, lambda: b.register_hook(plain, lambda _: None))


@probe()
def graph_freed(tried: Tried) -> None:
    """A second backward through a graph."""
    x = tried.tensor([1.0, 2.0], requires_grad=True)
    loss = tried.sum(tried.compute(x, "*", x))
    tried.backward(loss)
    provoke(tried, ErrorKind.GRAPH_FREED, "the second backward(sum(x * x))", lambda: tried.backend.backward(loss))


@probe(Capability.SEED_GRADIENT)
def wrong_root_gradient(tried: Tried) -> None:
    """A backward whose root has several elements and no gradient."""
    made = tried.compute(tried.tensor([1.0, 2.0], requires_grad=True), "*", 2.0)
    provoke(tried, ErrorKind.ROOT_GRADIENT, "backward(x * 2.0) of two elements", lambda: tried.backend.backward(made))


@probe(Capability.AUTOGRAD_GRAD)
def unused_input(tried: Tried) -> None:
    """autograd.grad of an input that the output does not depend on."""
    x, other = (tried.tensor([1.0], requires_grad=True) for _ in range(2))
    loss = tried.sum(tried.compute(x, "*", 2.0))
    provoke(tried, ErrorKind.UNUSED_INPUT, "grad(sum(x * 2.0), [y])", lambda: tried.backend.grad(loss, [other]))


@probe(Capability.POST_ACCUMULATE)
def not_a_leaf(tried: Tried) -> None:
    """A post-accumulate hook on a result."""
    made = tried.compute(tried.tensor([1.0], requires_grad=True), "*", 2.0)
    verb = tried.backend.register_post_accumulate_grad_hook
    given = "register_post_accumulate_grad_hook(x * 2.0, hook)"
    provoke(tried, ErrorKind.NOT_A_LEAF, given, lambda: verb(made, lambda _: None))


@probe(Capability.IN_PLACE)
def leaf_in_place(tried: Tried) -> None:
    """An in-place change of a leaf that requires grad."""
    x = tried.tensor([1.0], requires_grad=True)
    given = "mul_(tensor([1.0], requires_grad=True), 2.0)"
    provoke(tried, ErrorKind.LEAF_IN_PLACE, given, lambda: tried.backend.mul_(x, 2.0))


@probe(Capability.MULTI_GRAD)
def multi_grad_mode(tried: Tried) -> None:
    """A multi-grad hook in a mode that does not exist."""
    x = tried.tensor([1.0], requires_grad=True)
    verb, given = tried.backend.register_multi_grad_hook, "register_multi_grad_hook([x], hook, mode='some')"
    provoke(tried, ErrorKind.MULTI_GRAD_MODE, given, lambda: verb([x], lambda _: None, mode="some"))
