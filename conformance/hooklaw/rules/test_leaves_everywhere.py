"""What makes, changes or resets a leaf, wherever it is called: it acts on what it is given, and on nothing else."""

from collections.abc import Callable
from typing import Any

from hooklaw import Backend, Capability, ErrorKind, Level, Trace, docstring, notes, rule
from hooklaw.rules.hooks import NUMBERS, Place, leaf, nothing
from hooklaw.rules.passes import EVERYWHERE, whenever

DETACH = docstring("torch.Tensor.detach_")
LEAF = docstring("torch.Tensor.is_leaf")
FLAG = notes("autograd", "setting-requires-grad")
RETAIN_GRAD = docstring("torch.Tensor.retain_grad")
INCREMENT = docstring("torch.autograd.graph.increment_version")
IN_PLACE_CHECKS = notes("autograd", "in-place-correctness-checks")
ZERO_GRAD = docstring("torch.optim.Optimizer.zero_grad")
MODULE_REQUIRES_GRAD = docstring("torch.nn.Module.requires_grad_")
MODULE_ZERO_GRAD = docstring("torch.nn.Module.zero_grad")


def constant(backend: Backend) -> Any:
    """Make a leaf that does not require grad."""
    return backend.tensor([1.0, 2.0])


@rule(
    "requires-grad.every-place",
    level=Level.MUST,
    sources=[FLAG.sentence(1, 10), DETACH.sentence(1, 2)],
    needs=[*EVERYWHERE, Capability.REQUIRES_GRAD_FLAG, Capability.DETACH_IN_PLACE, Capability.VIEWS],
    mutants=[
        "set-requires-grad-lost-in-a-module",
        "set-requires-grad-reaches-the-one-before-third-call",
        "requires-grad-lost-in-no-grad",
        "requires-grad-reaches-the-one-before-in-a-pass",
        "detach-lost-in-no-grad",
        "detach-reaches-the-one-before-another-thread",
        "detach-of-a-view-accepted-in-a-module",
        "requires-grad-set-again-is-switched",
        "requires-grad-of-a-frozen-leaf-does-nothing",
        "detach-of-what-was-used-does-nothing",
        "detach-of-what-has-hooks-does-nothing",
        "detach-of-zeros-does-nothing",
    ],
)
def test_flag(backend: Backend, trace: Trace) -> None:
    """requires_grad is what it was last set to, on this tensor alone, and false after detach_, wherever that is done.

    A view is not detached anywhere.
    """
    for label, place in whenever(backend).items():
        set_in(backend, trace, label, place)
        detached_in(backend, trace, label, place)

    for numbers in (*NUMBERS, [1.0, 2.0]):
        for used, hooked in ((False, False), (True, False), (False, True)):
            result = backend.call(lambda x: x * 2, backend.tensor(numbers, requires_grad=True))
            if used:
                backend.call(lambda x: x * 3, result)
            if hooked:
                backend.register_hook(result, nothing)
            backend.detach_(result)
            trace.expect_value(f"requires grad, detached {numbers}", [False], flags(backend, [result]))


def flags(backend: Backend, tensors: list[Any]) -> list[bool]:
    """Return whether the tensors require grad."""
    return [backend.requires_grad(tensor) for tensor in tensors]


def set_in(backend: Backend, trace: Trace, label: str, place: Place) -> None:
    """Expect requires_grad to be set in a place, and of no other tensor."""
    tensors = [constant(backend), constant(backend)]
    for nr in (0, 1, 0, 1):
        for each, flag in ((nr, True), (nr, True), (1 - nr, False)):
            place(lambda each=each, flag=flag: backend.set_requires_grad(tensors[each], requires_grad=flag))
        trace.expect_value(f"require grad, {label}", [not nr, bool(nr)], flags(backend, tensors))
    tensors = [constant(backend), constant(backend)]
    place(lambda: backend.requires_grad_(tensors[0]))
    backend.set_requires_grad(tensors[0], requires_grad=False)
    place(lambda: backend.requires_grad_(tensors[1]))
    trace.expect_value(f"require grad, {label}", [False, True], flags(backend, tensors))
    tensors = [tensors[0], backend.detach(tensors[0])]
    place(lambda: backend.requires_grad_(tensors[1]))
    trace.expect_value(f"require grad, {label}, one detached from the other", [False, True], flags(backend, tensors))
    place(lambda: backend.requires_grad_(tensors[0]))
    trace.expect_value(f"require grad, {label}, once frozen", [True, True], flags(backend, tensors))


def detached_in(backend: Backend, trace: Trace, label: str, place: Place) -> None:
    """Expect tensors to be detached in a place, and no others; a view is not."""

    def refused() -> None:
        with trace.raises(ErrorKind.VIEW_DETACHED):
            backend.detach_(view)

    tensors = [backend.call(lambda x: x * 2, leaf(backend)) for _ in range(2)]
    view = backend.call(lambda x: backend.view(x, 2, 1), leaf(backend))
    place(lambda: backend.detach_(tensors[0]))
    backend.set_requires_grad(tensors[0], requires_grad=True)
    place(lambda: backend.detach_(tensors[1]))
    trace.expect_value(f"require grad, {label}", [True, False], flags(backend, tensors))
    place(refused)


@rule(
    "retain-grad.every-place",
    level=Level.MUST,
    sources=[RETAIN_GRAD.sentence(2)],
    needs=[*EVERYWHERE, Capability.RETAIN_GRAD],
    mutants=["retain-grad-lost-in-a-module", "retain-grad-lost-another-thread"],
)
def test_retained(backend: Backend, trace: Trace) -> None:
    """A non-leaf gets its gradient in backward no matter what was under way when retain_grad was called."""
    for label, place in whenever(backend).items():
        y = backend.call(lambda x: x * 2, leaf(backend))
        place(lambda y=y: backend.retain_grad(y))
        backend.backward(backend.call(lambda y: backend.sum(y * 3), y))
        trace.expect_value(f"y.grad, {label}", [3.0, 3.0], backend.grad_of(y))

    y = backend.call(backend.module({}, lambda _, x: x * 2), leaf(backend))
    backend.retain_grad(y)
    backend.backward(backend.call(lambda y: backend.sum(y * 3), y))
    trace.expect_value("y.grad of an output of a module", [3.0, 3.0], backend.grad_of(y))


@rule(
    "inplace.every-place",
    level=Level.MUST,
    sources=[IN_PLACE_CHECKS.sentence(1, 2, 3), INCREMENT.sentence(1)],
    needs=[*EVERYWHERE, Capability.IN_PLACE, Capability.VERSION_COUNTER, Capability.INCREMENT_VERSION],
    mutants=[
        "mul-lost-another-thread",
        "mul-twice-in-a-checkpoint",
        "mul-reaches-the-one-before-in-a-module",
        "increment-version-lost-in-no-grad",
    ],
    except_under={"packed": "what hooks unpack is not checked for in-place changes"},
)
def test_in_place(backend: Backend, trace: Trace) -> None:
    """A change in place changes this tensor alone, and makes the backward of what had saved it an error, anywhere.

    So does increment_version, which changes no number.
    """
    for label, place in whenever(backend).items():
        for change, factor in ((lambda tensor: backend.mul_(tensor, 3), 3), (backend.increment_version, 1)):
            tensors, numbers = [constant(backend), constant(backend)], [[1.0, 2.0], [1.0, 2.0]]
            for nr in (0, 1, 0, 0):
                saved, numbers[nr] = tensors[nr], [number * factor for number in numbers[nr]]
                loss = backend.call(lambda x, saved=saved: backend.sum(x * saved), leaf(backend))
                place(lambda change=change, saved=saved: change(saved))
                trace.expect_value(label, numbers, tensors)
                with trace.raises(ErrorKind.SAVED_TENSOR_MODIFIED):
                    backend.backward(loss)


@rule(
    "zero-grad.every-place",
    level=Level.MUST,
    sources=[ZERO_GRAD.sentence(1)],
    needs=[*EVERYWHERE, Capability.OPTIMIZERS],
    mutants=["zero-grad-lost-in-a-pass", "zero-grad-reaches-the-one-before-second-call"],
)
def test_zero_grad(backend: Backend, trace: Trace) -> None:
    """An optimizer's zero_grad resets the gradients of its parameters, and no others, wherever it is called."""
    leaves = [leaf(backend), leaf(backend)]
    optimizers = [backend.sgd([x], lr=1.0) for x in leaves]
    resets = [lambda optimizer=optimizer: backend.zero_grad(optimizer) for optimizer in optimizers]
    reset_in_turn(backend, trace, leaves, resets)


def reset_in_turn(backend: Backend, trace: Trace, leaves: list[Any], resets: list[Callable[[], Any]]) -> None:
    """Expect each of two resets to set the gradient of its leaf to None, and that of no other."""
    for label, place in whenever(backend).items():
        for nr in (0, 1, 0, 1):
            for x in leaves:
                backend.set_grad(x, backend.tensor([7.0, 7.0]))
            place(resets[nr])
            left: list[Any] = [None, [7.0, 7.0]] if nr == 0 else [[7.0, 7.0], None]
            trace.expect_value(f"gradients, {label}", left, [backend.grad_of(x) for x in leaves])


@rule(
    "module.switches.every-place",
    level=Level.MUST,
    sources=[MODULE_REQUIRES_GRAD.sentence(1), MODULE_ZERO_GRAD.sentence(1)],
    needs=[*EVERYWHERE, Capability.MODULE_SWITCHES],
    mutants=[
        "module-requires-grad-lost-in-a-checkpoint",
        "module-requires-grad-reaches-the-one-before-second-call",
        "module-zero-grad-lost-in-no-grad",
        "module-zero-grad-reaches-the-one-before-second-call",
    ],
)
def test_switches(backend: Backend, trace: Trace) -> None:
    """requires_grad_ and zero_grad of a module act on its parameters, and no others, wherever they are called."""
    modules = [backend.module({"weight": constant(backend)}, lambda module, x: x * module.weight) for _ in range(2)]
    leaves = [module.weight for module in modules]
    reset_in_turn(backend, trace, leaves, [lambda each=each: backend.module_zero_grad(each) for each in modules])
    for label, place in whenever(backend).items():
        for nr in (0, 1, 0, 1):
            for module, flag in ((modules[nr], True), (modules[1 - nr], False)):
                place(lambda each=module, flag=flag: backend.module_requires_grad_(each, requires_grad=flag))
            trace.expect_value(f"require grad, {label}", [not nr, bool(nr)], list(map(backend.requires_grad, leaves)))


@rule(
    "node.identity.leaf.detached",
    level=Level.MUST,
    sources=[LEAF.sentence(1, 3), DETACH.sentence(1)],
    needs=[
        Capability.NODES,
        Capability.GRAD_MODE,
        Capability.REQUIRES_GRAD_FLAG,
        Capability.DETACH_IN_PLACE,
        Capability.MODULES,
    ],
    mutants=[
        "frozen-leaf-has-a-grad-fn",
        "detached-tensor-has-a-grad-fn",
        "tensor-detached-in-place-has-a-grad-fn",
        "result-of-no-grad-has-a-grad-fn",
        "parameter-has-a-grad-fn",
    ],
)
def test_no_grad_fn(backend: Backend, trace: Trace) -> None:
    """A tensor that was frozen, detached or computed in no_grad has no grad_fn, and a module's parameter has none.

    Each is a leaf: the user made it, it does not require grad, or detach_ made it one.
    """
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    y = backend.call(lambda x: x * 2, x)
    leaves = {
        "what detach returns": backend.detach(y),
        "what was detached in place": y,
        "the frozen leaf": x,
        "the parameter": backend.module(
            {"weight": backend.tensor([3.0, 4.0])}, lambda module, x: x * module.weight
        ).weight,
    }
    with backend.no_grad():
        leaves["the result of no_grad"] = backend.call(lambda x: x * 2, x)
    backend.detach_(y)
    backend.set_requires_grad(x, requires_grad=False)

    for label, tensor in leaves.items():
        trace.expect_value(f"{label} has a grad_fn", expected=False, observed=backend.grad_fn(tensor) is not None)
