"""When a multi-grad hook runs: among other hooks, in nested passes, in concurrent passes, and after one that failed.

Also what it gets for an output that is not used, for which it does not wait.
"""

import threading
from collections import Counter
from typing import Any

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, notes, observed, rule

HOOK = docstring("torch.autograd.graph.register_multi_grad_hook")
SPECIAL = notes("autograd", "special-hooks")
ORDER = notes("autograd", "the-order-in-which-the-different-hooks-are-fired")
LIMIT = 30
"""Seconds after which a thread counts as deadlocked."""
PATIENCE = 3
"""Seconds that a hook waits for the other thread."""


@rule(
    "multi-grad.order.tensor-hooks",
    level=Level.MUST,
    sources=[SPECIAL.sentence(1, 2)],
    needs=[Capability.MULTI_GRAD, Capability.TENSOR_HOOKS],
    mutants=[
        "multi-grad-hook-deferred-to-the-end",
        "multi-grad-hook-before-earlier-tensor-hooks",
        "multi-grad-hook-after-the-first-tensor-hook",
        "multi-grad-hook-gets-the-latest-gradients",
        "multi-grad-hook-after-later-hooks-of-leaves",
        "multi-grad-hook-in-mode-any-before-earlier-tensor-hooks",
    ],
)
def test_among_tensor_hooks(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook gets gradients as earlier tensor hooks left them, before later tensor hooks run."""

    def forward(y):
        z = y * 3
        for tensor, label in ((y, "y"), (z, "z")):
            backend.register_hook(tensor, trace.saw(f"{label} before", lambda grad: grad * 2))
            backend.register_hook(tensor, lambda grad: grad * 2)
        backend.register_multi_grad_hook([y, z], trace.saw("multi-grad"), mode="all")
        backend.register_multi_grad_hook([y, z], trace.saw("multi-grad in mode any"), mode="any")
        for tensor, label in ((y, "y"), (z, "z")):
            backend.register_hook(tensor, trace.saw(f"{label} after", lambda grad: grad * 5))
        return backend.sum(z)

    for is_leaf in (False, True):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        y = x if is_leaf else backend.call(lambda x: x * 2, x)
        backend.backward(backend.call(forward, y))

        trace.expect(
            ("z before", [1.0, 1.0]),
            ("multi-grad in mode any", [4.0, 4.0]),
            ("z after", [4.0, 4.0]),
            ("y before", [60.0, 60.0]),
            ("multi-grad", [[240.0, 240.0], [4.0, 4.0]]),
            ("y after", [240.0, 240.0]),
        )


@rule(
    "multi-grad.order.node-prehooks",
    level=Level.MUST,
    sources=[SPECIAL.sentence(1, 2), ORDER.sentence(2, 3)],
    needs=[Capability.MULTI_GRAD, Capability.NODES, Capability.NODE_HOOKS],
    mutants=["multi-grad-hook-deferred-to-the-end"],
)
def test_before_node_prehooks(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook runs before the pre-hooks on the grad_fn of the tensor whose gradient is computed last."""

    def forward(x):
        y = x * 3
        z = y * 2
        backend.node_register_prehook(backend.grad_fn(y), trace.saw("node pre-hook"))
        backend.register_multi_grad_hook([y, z], trace.saw("multi-grad"))
        return backend.sum(z)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect("multi-grad", "node pre-hook")


@rule(
    "multi-grad.before-accumulate",
    level=Level.MUST,
    sources=[SPECIAL.sentence(1, 2), ORDER.sentence(2, 5)],
    needs=[Capability.MULTI_GRAD],
    mutants=[
        "multi-grad-hook-deferred-to-the-end",
        "multi-grad-hook-any-after-accumulation",
        "multi-grad-hook-on-a-lone-leaf-after-accumulation",
    ],
)
def test_before_accumulation(backend: Backend, trace: Trace) -> None:
    """When a multi-grad hook on leaves runs, the gradient computed last is not in its leaf's .grad yet."""
    a = backend.tensor([1.0, 2.0], requires_grad=True)
    b = backend.tensor([3.0, 4.0], requires_grad=True)
    backend.register_multi_grad_hook(
        [a, b], lambda _: trace.log("a gradient is missing", any(backend.grad_of(leaf) is None for leaf in (a, b)))
    )
    for mode in ("any", "all"):
        label = f"a.grad in mode {mode}"
        backend.register_multi_grad_hook([a], lambda _, label=label: trace.log(label, backend.grad_of(a)), mode=mode)

    backend.backward(backend.call(lambda a, b: backend.sum(a * 2 + b * 3), a, b))

    trace.expect_in_any_order("a gradient is missing", "a.grad in mode any", "a.grad in mode all")
    trace.expect_value("a gradient is missing", [True], trace.values("a gradient is missing"))
    for mode in ("any", "all"):
        trace.expect_value(f"a.grad in mode {mode}", [None], trace.values(f"a.grad in mode {mode}"))


@rule(
    "multi-grad.all.once.nested",
    level=Level.MUST,
    sources=[HOOK.sentence(3)],
    needs=[Capability.MULTI_GRAD, Capability.TENSOR_HOOKS, Capability.RETAIN_GRAPH],
    mutants=["multi-grad-hook-counts-what-an-inner-pass-needs", "multi-grad-hook-any-not-in-an-inner-pass"],
)
def test_nested_pass(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook is called for a nested backward pass, and still for the outer pass."""
    waiting: list[Any] = []

    def once(_: object) -> None:
        if waiting:
            backend.backward(waiting.pop(), retain_graph=True)

    def forward(x, mode):
        first = x * 2
        second = first * 3
        backend.register_multi_grad_hook([first, second], trace.saw("hook"), mode=mode)
        backend.register_hook(second, once)
        return backend.sum(first * 5), backend.sum(second)

    calls = {"any": ([1.0, 1.0], [5.0, 5.0]), "all": ([[5.0, 5.0], None], [[3.0, 3.0], [1.0, 1.0]])}
    for mode, expected in calls.items():
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        inner, outer = backend.call(lambda x, mode=mode: forward(x, mode), x)
        waiting.append(inner)
        backend.backward(outer)

        trace.expect(*(("hook", grads) for grads in expected))


@rule(
    "multi-grad.threads",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("backward passes in two threads at once each call the hook with their own gradients")],
    needs=[Capability.MULTI_GRAD, Capability.TENSOR_HOOKS, Capability.THREADS, Capability.CALLER_THREAD],
    mutants=["threads-share-the-gradients-of-a-multi-grad-hook", "backward-passes-take-turns"],
)
def test_threads(backend: Backend, trace: Trace) -> None:
    """Concurrent backward passes may each call a multi-grad hook, with their own gradients."""
    a = backend.tensor([1.0, 2.0], requires_grad=True)
    b = backend.tensor([3.0, 4.0], requires_grad=True)
    both, waited = threading.Barrier(2), Counter[int]()

    def wait(_: object) -> None:
        both.wait(PATIENCE)
        waited[threading.get_ident()] += 1

    def run(loss: Any) -> None:
        try:
            backend.backward(loss)
        finally:
            if waited[threading.get_ident()] < len("ab"):
                both.abort()  # else the other thread waits for ever

    for leaf in (a, b):
        backend.register_hook(leaf, wait)
    backend.register_multi_grad_hook([a, b], trace.saw("hook"))
    losses = [backend.call(lambda a, b, by=by: backend.sum(a * by + b * by), a, b) for by in (2.0, 3.0)]
    threads = [threading.Thread(target=run, args=(loss,), daemon=True) for loss in losses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)

    expected = [[[by, by], [by, by]] for by in (2.0, 3.0)]
    trace.expect_value("seen by the hook", expected, sorted(trace.values("hook")))


@rule(
    "multi-grad.threads.failure",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("the gradients that a failing pass collected are not those of another")],
    needs=[Capability.MULTI_GRAD, Capability.TENSOR_HOOKS, Capability.THREADS, Capability.CALLER_THREAD],
)
def test_failure_in_another_thread(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook may run in a pass during which a pass of another thread, with the same tensors, fails."""
    a = backend.tensor([1.0, 2.0], requires_grad=True)
    b = backend.tensor([3.0, 4.0], requires_grad=True)
    passes: list[bool] = []
    failed: list[type[BaseException]] = []

    def fail_there(_: object) -> None:
        passes.append(True)
        if len(passes) > 1:
            raise KeyError("of the hook")
        other = threading.Thread(target=run_and_fail, daemon=True)
        other.start()
        other.join(LIMIT)

    def run_and_fail() -> None:
        try:
            backend.backward(losses[1])
        except KeyError as error:
            failed.append(type(error))

    backend.register_hook(b, fail_there)
    backend.register_multi_grad_hook([a, b], trace.saw("hook"))
    losses = [backend.call(lambda a, b, by=by: backend.sum(a * by + b * by), a, b) for by in (2.0, 3.0)]
    backend.backward(losses[0])

    trace.expect_value("failed", [KeyError.__name__], [each.__name__ for each in failed])
    trace.expect(("hook", [[2.0, 2.0], [2.0, 2.0]]))


@rule(
    "multi-grad.all.after-failure",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("what a pass has collected is dropped with the pass")],
    needs=[Capability.MULTI_GRAD, Capability.TENSOR_HOOKS],
)
def test_after_failure(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook does not run in a pass that fails before all gradients are there, and does in the next."""

    def forward(a, b, fails):
        y = b * 2
        if fails:
            backend.register_hook(y, lambda _: _fail())
        return backend.sum(a * 3) + backend.sum(y)

    a, b = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    backend.register_multi_grad_hook([a, b], trace.saw("hook"))
    with trace.raises_type(ZeroDivisionError):
        backend.backward(forward(a, b, fails=True))
    trace.expect()
    backend.backward(forward(a, b, fails=False))
    trace.expect(("hook", [[3.0, 3.0], [2.0, 2.0]]))


def _fail() -> None:
    raise ZeroDivisionError


@rule(
    "multi-grad.all.ignored.output",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[HOOK, observed("an unused output gets no gradient, though its Node computes with zeros")],
    needs=[Capability.MULTI_GRAD, Capability.MULTI_OUTPUT],
    mutants=["multi-grad-hook-gets-zeros-for-none"],
)
def test_ignored_output(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook gets None for an unused output of an operation whose other outputs are used."""

    def forward(x):
        unused, used, last = backend.split(x, 1)
        backend.register_multi_grad_hook([unused, used, last], trace.saw("hook"))
        return backend.sum(used * 3 + last * 5)

    backend.backward(backend.call(forward, backend.tensor([1.0, 2.0, 3.0], requires_grad=True)))

    trace.expect(("hook", [None, [3.0], [5.0]]))
