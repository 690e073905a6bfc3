"""Registering tensor hooks: on which tensors, when, and in which order several run."""

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, rule
from hooklaw.rules.hooks import NUMBERS

REGISTER_HOOK = docstring("torch.Tensor.register_hook")
EXECUTION = notes("autograd", "backward-hooks-execution")


@rule(
    "tensor-hook.order.registration",
    level=Level.MUST,
    sources=[notes("autograd", "the-order-in-which-the-different-hooks-are-fired").sentence(8)],
    needs=[Capability.TENSOR_HOOKS],
    mutants=[
        "hooks-run-in-reverse-order",
        "hook-takes-the-place-of-a-removed-one",
        "hook-of-a-non-leaf-takes-the-place-of-a-removed-one",
    ],
)
def test_order(backend: Backend, trace: Trace) -> None:
    """Hooks on one tensor run in the order in which they were registered."""

    def register(tensor, name):
        handles = [backend.register_hook(tensor, trace.saw(f"{name} {label}")) for label in ("removed", "first")]
        handles[0].remove()
        for label in ("second", "third"):
            backend.register_hook(tensor, trace.saw(f"{name} {label}"))

    def forward(x):
        y = x * 2
        register(y, "y")
        return backend.sum(y)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    register(x, "x")
    backend.backward(backend.call(forward, x))

    trace.expect("y first", "y second", "y third", "x first", "x second", "x third")


@rule(
    "tensor-hook.register.during-forward",
    level=Level.MUST,
    sources=[
        REGISTER_HOOK.sentence(2),
        notes("autograd", "behavior-of-tensor-hooks-when-tensor-is-modified-in-place").sentence(5),
    ],
    needs=[Capability.TENSOR_HOOKS],
    mutants=["tensor-hooks-frozen-at-forward"],
)
def test_after_consumers(backend: Backend, trace: Trace) -> None:
    """A hook can be registered on a tensor any time before its gradient is computed, also after consumers exist."""

    def forward(x):
        y = x * 2
        loss = backend.sum(y * 3)
        backend.register_hook(y, trace.saw("y"))
        return loss

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    loss = backend.call(forward, x)
    backend.register_hook(x, trace.saw("x"))
    backend.backward(loss)

    trace.expect(("y", [3.0, 3.0]), ("x", [6.0, 6.0]))


@rule(
    "tensor-hook.register.same-function-twice",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[EXECUTION, observed("every registration counts, and each handle removes its own")],
    needs=[Capability.TENSOR_HOOKS],
    mutants=["same-hook-registered-once"],
)
def test_same_function_twice(backend: Backend, trace: Trace) -> None:
    """A function registered twice as a hook of a tensor runs twice, and each handle removes one of the two."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    hook = trace.saw("hook")
    backend.register_hook(x, hook)
    handle = backend.register_hook(x, hook)

    backend.backward(backend.call(lambda x: backend.sum(x * 2), x))
    trace.expect("hook", "hook")

    handle.remove()
    backend.backward(backend.call(lambda x: backend.sum(x * 2), x))
    trace.expect("hook")


@rule(
    "tensor-hook.register.requires-grad",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REGISTER_HOOK, observed("only the error's own text says it")],
    needs=[Capability.TENSOR_HOOKS],
    mutants=[
        "hook-accepted-without-requires-grad",
        "hook-accepted-on-what-was-not-recorded",
        "hook-accepted-on-constants-of-one-value",
        "hook-accepted-on-constants-without-elements",
        "hook-accepted-on-detached-results",
        "hook-accepted-on-a-constant-that-refused-one",
    ],
)
def test_requires_grad(backend: Backend, trace: Trace) -> None:
    """Registering a hook on a tensor that does not require grad is an error."""
    constant, leaf = backend.tensor([1.0, 2.0]), backend.tensor([1.0, 2.0], requires_grad=True)
    for x in (constant, backend.call(lambda x: x * 2, constant), backend.detach(leaf)):
        with trace.raises(ErrorKind.NO_GRADIENT):
            backend.register_hook(x, trace.saw("hook"))

    for numbers in NUMBERS:
        constant, leaf = backend.tensor(numbers), backend.tensor(numbers, requires_grad=True)
        detached = backend.detach(backend.call(lambda x: x * 2, leaf))
        for x in (constant, backend.clone(constant), detached):
            for _ in range(2):
                with trace.raises(ErrorKind.NO_GRADIENT):
                    backend.register_hook(x, trace.saw("hook"))


@rule(
    "tensor-hook.register.requires-grad.no-longer",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REGISTER_HOOK, observed("only the error's own text says it")],
    needs=[
        Capability.TENSOR_HOOKS,
        Capability.REQUIRES_GRAD_FLAG,
        Capability.GRAD_MODE,
        Capability.DETACH_IN_PLACE,
    ],
    mutants=[
        "hook-accepted-on-frozen-leaves",
        "hook-accepted-on-results-of-no-grad",
        "hook-accepted-after-detach",
        "hook-accepted-on-what-has-hooks",
    ],
)
def test_no_longer(backend: Backend, trace: Trace) -> None:
    """Registering a hook on a leaf that was frozen, on a result of no_grad or on a detached tensor is an error.

    Whether it has hooks from before, too.
    """
    for numbers in ([1.0, 2.0], *NUMBERS):
        for hooked in (False, True):
            x = backend.tensor(numbers, requires_grad=True)
            y = backend.call(lambda x: x * 2, x)
            for each in (x, y) if hooked else ():
                backend.register_hook(each, trace.saw("hook"))
            with backend.no_grad():
                z = backend.call(lambda x: x * 2, x)
            backend.detach_(y)
            backend.set_requires_grad(x, requires_grad=False)
            for each in (x, y, z):
                with trace.raises(ErrorKind.NO_GRADIENT):
                    backend.register_hook(each, trace.saw("hook"))


@rule(
    "tensor-hook.register.during-backward",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(2)],
    needs=[Capability.TENSOR_HOOKS],
    mutants=["tensor-hooks-registered-in-a-backward-wait"],
)
def test_during_backward(backend: Backend, trace: Trace) -> None:
    """A hook registered during a backward on a tensor that is not reached yet fires in the same backward.

    The docstring says that the hook is called every time a gradient is computed, and here one is computed later.
    """

    def forward(x):
        y = x * 2
        z = y * 3
        backend.register_hook(z, trace.saw("z", lambda _: _then_none(backend.register_hook(y, trace.saw("y")))))
        backend.register_hook(z, lambda _: _then_none(backend.register_hook(x, trace.saw("x"))))
        return backend.sum(z)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect("z", "y", "x")


@rule(
    "tensor-hook.register.self-during-backward",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("fires from the next pass on")],
    needs=[Capability.TENSOR_HOOKS],
    mutants=["hooks-of-hooks-run-at-once"],
)
def test_on_itself_during_backward(backend: Backend, trace: Trace) -> None:
    """A hook that a running hook of the same tensor registers may wait for the next backward before it runs."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_hook(x, trace.saw("outer", lambda _: _then_none(backend.register_hook(x, trace.saw("inner")))))

    backend.backward(backend.call(lambda x: backend.sum(x * 2), x))
    trace.expect("outer")

    backend.backward(backend.call(lambda x: backend.sum(x * 2), x))
    trace.expect("outer", "inner")


def _then_none(_: object) -> None:
    """Drop a handle, so that a hook returns None."""
