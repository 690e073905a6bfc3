"""save_on_cpu: the right gradients, no copy of CPU tensors, less memory on an accelerator."""

import gc
import weakref
from contextlib import nullcontext

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, observed, rule

SAVE_ON_CPU = docstring("torch.autograd.graph.save_on_cpu")
IN_PLACE = [
    Capability.SAVE_ON_CPU,
    Capability.HOST,
    Capability.NODES,
    Capability.SAVED_TENSOR_ACCESS,
    Capability.STORAGE,
]
ELEMENTS = 4096
BYTES = 2 * ELEMENTS
"""Of the smallest dtype: no rule says how wide an element is."""


def saved_in_place(backend: Backend, *, pin_memory: bool) -> list[bool]:
    """Return for each tensor that two products and an exponential save under save_on_cpu whether it shares its data."""

    def forward(x, constant):
        with backend.save_on_cpu(pin_memory=pin_memory):
            return x * x, x * constant, backend.exp(x)

    x, constant = backend.tensor([2.0, 3.0], requires_grad=True), backend.tensor([5.0, 7.0])
    square, multiple, output = backend.call(forward, x, constant)
    if backend.data_ptr(backend.clone(x)) == backend.data_ptr(x):
        return []  # the address says nothing of the data
    return [
        backend.data_ptr(read) == backend.data_ptr(saved)
        for saved, made in ((x, square), (constant, multiple), (output, output))
        for read in backend.saved_tensors(backend.grad_fn(made))
        if read is not None  # the factor that is not saved
    ]


@rule(
    "save-on-cpu.grads",
    level=Level.MUST,
    sources=[SAVE_ON_CPU.sentence(2)],
    needs=[Capability.SAVE_ON_CPU],
    mutants=["save-on-cpu-reads-before-the-copy", "save-on-cpu-unpacks-on-the-cpu"],
)
def test_gradients(backend: Backend, trace: Trace) -> None:
    """Under save_on_cpu, with pinned memory or without, gradients and their device are those of a plain run."""

    def gradient(hooks):
        def forward(x):
            with hooks:
                return backend.sum(x * x * x + backend.exp(x))

        x = backend.tensor([0.0, 2.0], requires_grad=True)
        backend.backward(backend.call(forward, x))
        return [backend.grad_of(x), backend.device(backend.grad_of(x))]

    plain = gradient(nullcontext())
    trace.expect_value("pageable", plain, gradient(backend.save_on_cpu()))
    trace.expect_value("pinned", plain, gradient(backend.save_on_cpu(pin_memory=True)))


@rule(
    "save-on-cpu.no-copy-on-cpu",
    level=Level.MUST,
    sources=[SAVE_ON_CPU.sentence(3)],
    needs=IN_PLACE,
    mutants=["save-on-cpu-always-copies", "save-on-cpu-copies-outputs", "save-on-cpu-copies-constants"],
)
def test_no_copy(backend: Backend, trace: Trace) -> None:
    """Under save_on_cpu a tensor that is already on the CPU, input or output, is saved without a copy."""
    trace.expect_value("on the data of the original", [True] * 4, saved_in_place(backend, pin_memory=False))


@rule(
    "save-on-cpu.no-copy-on-cpu.pinned",
    level=Level.MAY,
    sources=[SAVE_ON_CPU.sentence(3)],
    needs=IN_PLACE,
    mutants=["save-on-cpu-always-copies", "save-on-cpu-copies-outputs", "save-on-cpu-copies-to-pinned-memory"],
)
def test_no_copy_pinned(backend: Backend, trace: Trace) -> None:
    """Under save_on_cpu with pin_memory too, a tensor that is already on the CPU may be saved without a copy.

    The docstring says that no copy is made of a graph on the CPU, and that with pin_memory tensors are saved to pinned
    memory, which a tensor in pageable memory cannot be without a copy.
    """
    trace.expect_value("on the data of the original", [True] * 4, saved_in_place(backend, pin_memory=True))


@rule(
    "save-on-cpu.no-leak",
    level=Level.SHOULD,
    sources=[docstring("torch.autograd.graph.saved_tensors_hooks").sentence(15), SAVE_ON_CPU.sentence(3)],
    needs=[Capability.SAVE_ON_CPU, Capability.WEAK_REFERENCES],
    mutants=["save-on-cpu-leaks", "save-on-cpu-leaks-what-it-pins"],
)
def test_no_leak(backend: Backend, trace: Trace) -> None:
    """An output saved under save_on_cpu is freed also without a backward, by the garbage collector at the latest.

    With pinned memory or without.
    """

    def forward(x, pin):
        with backend.save_on_cpu(pin_memory=pin):
            return backend.exp(x)

    for pin in (False, True):
        x = backend.tensor([0.0], requires_grad=True)
        alive = weakref.ref(backend.call(lambda x, pin=pin: forward(x, pin), x))
        gc.collect()
        y = alive()
        if y is not None:
            backend.backward(backend.sum(y))  # breaks the cycle

        trace.expect_value("is freed", expected=True, observed=y is None)


@rule(
    "save-on-cpu.is-saved-tensors-hooks",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("save_on_cpu is itself a pair of saved-tensor hooks")],
    needs=[Capability.SAVE_ON_CPU, Capability.SAVED_TENSOR_HOOKS],
    mutants=["nested-pairs-composed"],
)
def test_is_a_pair(backend: Backend, trace: Trace) -> None:
    """save_on_cpu may nest like a pair of saved-tensor hooks: only the innermost applies."""

    def user_pair(name):
        return backend.saved_tensors_hooks(trace.saw(f"pack {name}", backend.detach), lambda packed: packed)

    def forward(x):
        with user_pair("outer"), backend.save_on_cpu():
            y = backend.exp(x)
        with backend.save_on_cpu(), user_pair("inner"):
            z = backend.exp(y)
        return backend.sum(z)  # outside: a sum may save its input

    x = backend.tensor([0.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect("pack inner")


@rule(
    "save-on-cpu.cuda.moves",
    level=Level.MUST,
    sources=[SAVE_ON_CPU.sentence(2)],
    needs=[Capability.SAVE_ON_CPU, Capability.ACCELERATOR],
    mutants=["save-on-cpu-leaves-tensors-on-the-device"],
)
def test_moves(backend: Backend, trace: Trace) -> None:
    """Under save_on_cpu a tensor that only the graph needs takes no memory on its device until backward."""
    x = backend.tensor([0.5] * ELEMENTS, requires_grad=True)

    def held_by_graph(hooks):
        def forward(x):
            with hooks:
                return backend.sum(backend.exp(x))

        before = backend.memory_allocated()
        loss = backend.call(forward, x)
        held = backend.memory_allocated() - before
        backend.backward(loss)
        backend.set_grad(x, None)
        return held

    held_by_graph(nullcontext())
    trace.expect_value("held by a plain graph", expected=True, observed=held_by_graph(nullcontext()) >= BYTES)
    trace.expect_value("held, pageable", expected=False, observed=held_by_graph(backend.save_on_cpu()) >= BYTES)
    pinned = backend.save_on_cpu(pin_memory=True)
    trace.expect_value("held, pinned", expected=False, observed=held_by_graph(pinned) >= BYTES)
    trace.expect_value("held after it", expected=True, observed=held_by_graph(nullcontext()) >= BYTES)


@rule(
    "save-on-cpu.cuda.moves-back",
    level=Level.MUST,
    sources=[SAVE_ON_CPU.sentence(2)],
    needs=[Capability.SAVE_ON_CPU, Capability.ACCELERATOR, Capability.CUSTOM_FUNCTION],
    mutants=["save-on-cpu-unpacks-on-the-cpu"],
)
def test_moves_back(backend: Backend, trace: Trace) -> None:
    """Under save_on_cpu backward reads each saved tensor on its original device."""

    def save(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    def read(ctx, grad):
        (saved,) = ctx.saved_tensors
        trace.log("read", [saved, backend.device(saved)])
        return grad * saved * 2

    square = backend.custom_function(save, read)

    def forward(x):
        with backend.save_on_cpu():
            y = square(x)
        with backend.save_on_cpu(pin_memory=True):
            return backend.sum(square(x) + y)

    x = backend.tensor([2.0, 3.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    there = ("read", [[2.0, 3.0], backend.device(x)])
    trace.expect(there, there)
    trace.expect_value("x.grad", [8.0, 12.0], backend.grad_of(x))
