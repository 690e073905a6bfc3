"""Probes of further operations: views are views, in-place verbs change in place, modes are left as they were."""

from typing import Any

from hooklaw.backend.capabilities import Capability
from hooklaw.backend.check._probe import Tried, probe


@probe(Capability.VIEWS)
def views(tried: Tried) -> None:
    """Views have the right values."""
    base = tried.tensor([[1.0, 2.0], [3.0, 4.0]])
    tried.expect([1.0, 2.0, 3.0, 4.0], "tolist", tried.view(base, 4))
    tried.expect([[1.0, 3.0], [2.0, 4.0]], "tolist", tried.transpose(base, 0, 1))
    tried.expect([[1.0, 2.0], [1.0, 2.0]], "tolist", tried.expand(tried.tensor([[1.0, 2.0]]), 2, 2))
    leaf = tried.requires_grad_(tried.tensor([1.0]))
    tried.expect_tensor(leaf, "requires_grad_", "the tensor itself")
    tried.expect(True, "requires_grad", leaf)


@probe(Capability.VIEWS, Capability.IN_PLACE)
def views_share_data(tried: Tried) -> None:
    """A change of the base is seen through every view."""
    for verb, shape, sizes in (("view", [1.0, 2.0], (2, 1)), ("transpose", [[1.0, 2.0]], (0, 1))):
        base = tried.tensor(shape)
        _is_seen(tried, base, verb, tried.call(verb, base, *sizes), [[2.0], [4.0]])
    base = tried.tensor([[1.0, 2.0]])
    _is_seen(tried, base, "expand", tried.expand(base, 2, 2), [[2.0, 4.0], [2.0, 4.0]])


def _is_seen(tried: Tried, base: Any, verb: str, view: Any, expected: Any) -> None:
    tried.mul_(base, 2.0)
    got = tried.tolist(view)
    if got != expected:
        given = f"tolist({tried.show(view)}) after mul_(base, 2.0)"
        mend = "return a view that shares the base's data, not a copy, or do not declare 'views'"
        tried.fault(verb, given, str(expected), str(got), mend)


@probe(Capability.IN_PLACE)
def in_place(tried: Tried) -> None:
    """In-place verbs change the tensor itself."""
    for verb, factor, expected in (("mul_", 3.0, [3.0, 6.0]), ("mul_", [5.0, 7.0], [5.0, 14.0]), ("cos_", None, None)):
        x = tried.tensor([1.0, 2.0])
        given = [tried.tensor(factor) if isinstance(factor, list) else factor] if factor else []
        tried.call(verb, x, *given)
        got = tried.tolist(x)
        wanted = expected or [0.5403023, -0.4161468]
        if any(abs(one - other) > 1e-5 for one, other in zip(wanted, got, strict=False)):  # noqa: PLR2004 - float32
            text = f"tolist(x) after {tried.text_of(verb, [x, *given], {})}"
            tried.fault(verb, text, str(wanted), str(got), "change the tensor itself, in place, not a copy of it")


@probe(Capability.SIN_COS)
def sine_and_cosine(tried: Tried) -> None:
    """Sine and cosine are computed."""
    x = tried.tensor([0.0, 1.0])
    tried.expect([0.0, 0.8414710], "tolist", tried.sin(x))
    tried.expect([1.0, 0.5403023], "tolist", tried.cos(x))


@probe(Capability.MULTI_OUTPUT)
def parts(tried: Tried) -> None:
    """`split` returns a tuple of tensors."""
    made = tried.split(tried.tensor([1.0, 2.0, 3.0]), 2)
    if type(made) is not tuple:
        tried.fault("split", "split(tensor([1.0, 2.0, 3.0]), 2)", "a tuple", type(made).__name__, "return tuple(parts)")
    for part, expected in zip(made, ([1.0, 2.0], [3.0]), strict=False):
        tried.expect(expected, "tolist", part, mend="size is the length of each part, not the number of parts")


@probe(Capability.DETACH_IN_PLACE)
def detach_in_place(tried: Tried) -> None:
    """`detach_` makes the tensor itself a leaf."""
    made = tried.compute(tried.tensor([1.0], requires_grad=True), "*", 2.0)
    tried.detach_(made)
    tried.expect(True, "is_leaf", made, mend="detach_ drops the history of the tensor itself, in place")


@probe(Capability.STRIDES)
def strides(tried: Tried) -> None:
    """Strides are counted in elements."""
    rows = tried.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    tried.expect((3, 1), "stride", rows, mend="return the strides in elements, a tuple of Python's int")


@probe(Capability.STORAGE)
def addresses(tried: Tried) -> None:
    """Two tensors have two addresses, and an address is a number."""
    first, second = tried.tensor([1.0]), tried.tensor([1.0])
    pointers = [tried.data_ptr(first), tried.data_ptr(second)]
    if not all(type(each) is int for each in pointers):
        got = str([type(each).__name__ for each in pointers])
        tried.fault("data_ptr", "data_ptr(tensor([1.0]))", "an int", got, "return the address of the first element")
    elif pointers[0] == pointers[1]:
        mend = "return the address of the first element, which differs"
        tried.fault("data_ptr", "data_ptr of two tensors", "two numbers", str(pointers), mend)


@probe(Capability.REQUIRES_GRAD_FLAG)
def requires_grad_flag(tried: Tried) -> None:
    """`set_requires_grad` switches the flag on and off."""
    x = tried.tensor([1.0])
    for on in (True, False):
        tried.set_requires_grad(x, requires_grad=on)
        tried.expect(on, "requires_grad", x, mend=f"set_requires_grad(tensor, requires_grad={on}) sets it")


@probe(Capability.GRAD_MODE)
def grad_mode(tried: Tried) -> None:
    """Grad mode is on, off inside no_grad, and as it was afterwards."""
    mend = "return whether grad mode is on in this thread, as a bool, and switch it by no_grad and enable_grad"
    tried.expect(True, "is_grad_enabled", mend="grad mode is on at the start of a rule: switch it on in reset()")
    with context(tried, "no_grad"):
        tried.expect(False, "is_grad_enabled", mend=mend)
        with context(tried, "enable_grad"):
            tried.expect(True, "is_grad_enabled", mend=mend)
        tried.expect(False, "is_grad_enabled", mend=mend)
    tried.expect(True, "is_grad_enabled", mend=mend)


@probe(Capability.INFERENCE_MODE)
def inference_mode(tried: Tried) -> None:
    """Inside inference mode nothing requires grad."""
    x = tried.tensor([1.0], requires_grad=True)
    with context(tried, "inference_mode"):
        made = tried.compute(x, "*", 2.0)
    tried.expect(False, "requires_grad", made)


@probe(Capability.AUTOGRAD_GRAD)
def autograd_grad(tried: Tried) -> None:
    """`grad` returns a tuple of tensors."""
    x = tried.tensor([1.0, 2.0], requires_grad=True)
    loss = tried.sum(tried.compute(x, "*", x))
    found = tried.grad(loss, [x])
    if type(found) is not tuple or len(found) != 1:
        got = f"{type(found).__name__} of {len(found)}" if isinstance(found, list | tuple) else type(found).__name__
        mend = "return tuple(gradients), one for each input"
        tried.fault("grad", "grad(sum(x * x), [x])", "a tuple of one tensor", got, mend)
        return
    tried.expect_tensor(found[0], "grad")
    tried.expect([2.0, 4.0], "tolist", found[0])
    tried.expect(None, "grad_of", x, mend="grad leaves .grad of the inputs as it is")


@probe(Capability.SERIALIZATION)
def serialization(tried: Tried) -> None:
    """A tensor survives `save` and `load`."""
    data = tried.save(tried.tensor([1.5, -2.0]))
    if not isinstance(data, bytes):
        tried.fault("save", "save(tensor([1.5, -2.0]))", "bytes", type(data).__name__, "return the bytes of the file")
        return
    tried.expect([1.5, -2.0], "tolist", tried.load(data))


@probe(Capability.ACCELERATOR)
def memory(tried: Tried) -> None:
    """The bytes that tensors occupy are a number."""
    found = tried.memory_allocated()
    if type(found) is not int:
        mend = "return the bytes that tensors occupy on the device now"
        tried.fault("memory_allocated", "memory_allocated()", "an int", type(found).__name__, mend)


def context(tried: Tried, verb: str, *given: Any) -> Any:
    """Return the context manager of a verb; anything else is a fault, which ends the probe."""
    made = tried.call(verb, *given)
    if not (hasattr(type(made), "__enter__") and hasattr(type(made), "__exit__")):
        text = tried.text_of(verb, given, {})
        tried.refuse(verb, text, "a context manager", f"{type(made).__name__}", "return an object for `with`")
    return made
