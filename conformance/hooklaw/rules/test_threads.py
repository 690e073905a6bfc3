"""Threads: hooks and modes that are thread-local, and hooks that work in any thread."""

import threading
from collections.abc import Callable
from typing import Any

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, notes, observed, rule
from hooklaw.law.trace import Mismatch

THREADED = notes("autograd", "multithreaded-autograd")
SAVED = notes("autograd", "hooks-for-saved-tensors")
WORKERS = 4
LIMIT = 30
"""Seconds after which a thread counts as deadlocked."""
PATIENCE = 3
"""Seconds that a hook waits for those of other threads."""


def in_threads(*actions: Callable[[], Any]) -> list[Any]:
    """Run each action in a thread of its own, all at once; return their results, or raise the first exception."""
    results: list[Any] = [None] * len(actions)
    errors: list[BaseException] = []

    def run(place: int) -> None:
        try:
            results[place] = actions[place]()
        except BaseException as error:  # noqa: BLE001 - it is raised again below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    for error in errors:
        raise error
    if any(thread.is_alive() for thread in threads):
        raise Mismatch(f"a thread did not end within {LIMIT} s")
    return results


def met(others: threading.Barrier) -> bool:
    """Whether all threads came to the barrier in time."""
    try:
        others.wait(PATIENCE)
    except threading.BrokenBarrierError:
        return False
    return True


@rule(
    "threads.backward.caller-thread",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[THREADED, observed("only backward passes nested deep inside hooks move on to other threads")],
    needs=[Capability.TENSOR_HOOKS, Capability.THREADS, Capability.CALLER_THREAD],
    mutants=[
        "backward-runs-in-one-worker-thread",
        "hooks-of-non-leaves-run-in-a-worker-thread",
    ],
)
def test_caller_thread(backend: Backend, trace: Trace) -> None:
    """On the CPU the tensor hooks of a backward not called from a hook run in the thread that calls backward."""

    def run(label: str) -> None:
        caller = threading.get_ident()
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        y = backend.call(lambda x: x * 2, x)
        for tensor in (x, y):
            backend.register_hook(tensor, lambda _: trace.log(label, threading.get_ident() == caller))
        backend.backward(backend.call(lambda y: backend.sum(y * y), y))

    run("hook in the main thread")
    in_threads(lambda: run("hook in the other thread"))

    trace.expect(*[("hook in the main thread", True)] * 2, *[("hook in the other thread", True)] * 2)


@rule(
    "threads.backward.caller-thread.other-hooks",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[THREADED, observed("only backward passes nested deep inside hooks move on to other threads")],
    needs=[
        Capability.NODES,
        Capability.NODE_HOOKS,
        Capability.POST_ACCUMULATE,
        Capability.THREADS,
        Capability.CALLER_THREAD,
    ],
    mutants=[
        "backward-runs-in-one-worker-thread",
        "post-accumulate-hooks-run-in-a-worker-thread",
        "node-hooks-run-in-a-worker-thread",
        "node-pre-hooks-run-in-a-worker-thread",
    ],
)
def test_caller_thread_of_other_hooks(backend: Backend, trace: Trace) -> None:
    """On the CPU Node and post-accumulate-grad hooks of a backward not called from a hook run in the calling thread."""

    def run() -> None:
        caller = threading.get_ident()
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        y = backend.call(lambda x: x * 2, x)
        backend.node_register_prehook(
            backend.grad_fn(y), lambda _: trace.log("Node pre-hook", threading.get_ident() == caller)
        )
        backend.node_register_hook(
            backend.grad_fn(y), lambda *_: trace.log("Node hook", threading.get_ident() == caller)
        )
        backend.register_post_accumulate_grad_hook(
            x, lambda _: trace.log("post-accumulate-grad hook", threading.get_ident() == caller)
        )
        backend.backward(backend.call(lambda y: backend.sum(y * y), y))

    for start in (run, lambda: in_threads(run)):
        start()
        trace.expect(("Node pre-hook", True), ("Node hook", True), ("post-accumulate-grad hook", True))


@rule(
    "threads.backward.concurrent",
    level=Level.SHOULD,
    sources=[notes("autograd", "concurrency-on-cpu").sentence(1)],
    needs=[Capability.TENSOR_HOOKS, Capability.THREADS, Capability.CALLER_THREAD],
    mutants=["backward-passes-take-turns"],
)
def test_concurrent(backend: Backend, trace: Trace) -> None:
    """On the CPU backward passes in several threads run at once: a hook of each can wait for the hooks of the others.

    The documentation expects concurrency, and does not promise how much: hence a SHOULD.
    """
    together = threading.Barrier(WORKERS)

    def work() -> None:
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        backend.register_hook(x, lambda _: trace.log("met", met(together)))
        backend.backward(backend.call(lambda x: backend.sum(x * x), x))

    in_threads(*[work] * WORKERS)

    trace.expect(*[("met", True)] * WORKERS)


@rule(
    "threads.backward.concurrent-hooks",
    level=Level.MUST,
    sources=[notes("autograd", "non-determinism").sentence(5, 8), docstring("torch.Tensor.register_hook").sentence(2)],
    needs=[Capability.TENSOR_HOOKS, Capability.THREADS, Capability.AUTOGRAD_GRAD],
    mutants=["tensor-hook-lost-second-call", "concurrent-backward-mixes-gradients"],
)
def test_concurrent_hooks(backend: Backend, trace: Trace) -> None:
    """If threads compute gradients at once in graphs that share a leaf, each thread runs the leaf's hook once."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_hook(x, trace.saw("hook", lambda grad: grad * 2))
    start = threading.Barrier(WORKERS)

    def worker(factor: float) -> Callable[[], Any]:
        def work() -> Any:
            loss = backend.call(lambda x, factor: backend.sum(x * x * factor), x, backend.tensor([factor, factor]))
            start.wait(LIMIT)
            return backend.grad(loss, [x])[0]

        return work

    grads = in_threads(*(worker(float(place)) for place in range(WORKERS)))

    trace.expect_in_any_order(*["hook"] * WORKERS)
    for place, grad in enumerate(grads):
        trace.expect_value(f"gradient of thread {place}", [4.0 * place, 8.0 * place], grad)


@rule(
    "saved-tensor.threads.local",
    level=Level.MUST,
    sources=[notes("autograd", "registering-default-hooks-for-saved-tensors").sentence(9)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.THREADS],
    mutants=[
        "saved-tensors-hooks-reaches-other-threads",
        "saved-tensor-hooks-only-in-the-main-thread",
        "saved-tensors-hooks-reach-running-threads",
        "threads-share-their-modes",
    ],
)
def test_saved_tensor_hooks_local(backend: Backend, trace: Trace) -> None:
    """A saved_tensors_hooks context packs the tensors that its own thread saves, and none of another thread."""
    x = backend.tensor([0.0, 0.0], requires_grad=True)

    def pair(label: str) -> Any:
        return backend.saved_tensors_hooks(trace.saw(label, backend.detach), lambda packed: packed)

    def save() -> Any:
        return backend.call(backend.exp, x)

    def save_packed() -> Any:
        with pair("pack of the other thread"):
            return save()

    with pair("pack of the main thread"):
        in_threads(save)
        trace.expect()

        in_threads(save_packed)
        trace.expect("pack of the other thread")

        save()
        trace.expect("pack of the main thread")

    together = threading.Barrier(2)

    def inside() -> None:
        met(together)
        with pair("pack of another thread"):
            met(together)  # the pair is in use here while the other thread, which runs already, saves
            met(together)

    def beside() -> None:
        met(together)
        met(together)
        save()
        met(together)

    in_threads(inside, beside)
    trace.expect()


def unpacks_anywhere(backend: Backend, trace: Trace, operation: Callable[[Any], Any], numbers: list[float]) -> None:
    """Expect what an operation with a gradient of 1 saved to be unpacked by its own pair in another thread.

    That thread may be a later one, or the main thread, when the thread that packed has ended.
    """
    pack, unpack = trace.saw("pack", lambda saved: saved * 2), trace.saw("unpack", lambda packed: packed * 0.5)

    def forward() -> tuple[Any, Any]:
        x = backend.tensor(numbers, requires_grad=True)
        with backend.saved_tensors_hooks(pack, unpack):
            y = backend.call(operation, x)
        trace.expect("pack")
        return x, backend.call(backend.sum, y)  # outside: a sum may save its input

    def backward_inside_another_pair(x: Any, loss: Any) -> None:
        other = trace.saw("other pair", backend.detach)
        with backend.saved_tensors_hooks(other, other):
            backend.backward(loss)
        trace.expect("unpack")
        trace.expect_value("x.grad", [1.0, 1.0], backend.grad_of(x))

    given = forward()
    in_threads(lambda: backward_inside_another_pair(*given))
    [given] = in_threads(forward)
    in_threads(lambda: backward_inside_another_pair(*given))
    [given] = in_threads(forward)
    backward_inside_another_pair(*given)


@rule(
    "saved-tensor.threads.unpack-anywhere",
    level=Level.MUST,
    sources=[SAVED.sentence(3), docstring("torch.autograd.graph.saved_tensors_hooks").sentence(6)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.THREADS],
    mutants=[
        "unpack-only-in-the-packing-thread",
        "unpack-lost-once-the-packing-thread-has-ended",
        "pair-of-the-reader-unpacks",
    ],
)
def test_unpack_anywhere(backend: Backend, trace: Trace) -> None:
    """A packed tensor is unpacked by its own pair in whichever thread backward runs."""
    unpacks_anywhere(backend, trace, backend.exp, [0.0, 0.0])


@rule(
    "saved-tensor.threads.unpack-anywhere.custom-function",
    level=Level.MUST,
    sources=[SAVED.sentence(3), docstring("torch.autograd.graph.saved_tensors_hooks").sentence(6)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.THREADS, Capability.CUSTOM_FUNCTION],
    mutants=["unpack-of-custom-functions-only-in-the-packing-thread"],
)
def test_unpack_of_function_anywhere(backend: Backend, trace: Trace) -> None:
    """What a custom Function saved is unpacked by its own pair in whichever thread backward runs."""

    def square(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    function = backend.custom_function(square, lambda ctx, grad: grad * ctx.saved_tensors[0] * 2)
    unpacks_anywhere(backend, trace, function, [0.5, 0.5])


@rule(
    "mode.thread-local",
    level=Level.MUST,
    sources=[docstring("torch.no_grad").sentence(7)],
    needs=[Capability.GRAD_MODE, Capability.THREADS],
    mutants=["no-grad-reaches-other-threads", "no-grad-reaches-earlier-threads", "threads-share-their-modes"],
)
def test_no_grad_local(backend: Backend, trace: Trace) -> None:
    """no_grad turns grad mode off in its own thread only."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)

    with backend.no_grad():
        [there] = in_threads(lambda: backend.call(lambda x: x * 2, x))
        here = backend.call(lambda x: x * 2, x)

    recorded = [backend.requires_grad(there), backend.requires_grad(here)]
    trace.expect_value("recorded there and here", [True, False], recorded)

    together = threading.Barrier(2)

    def without() -> None:
        met(together)
        with backend.no_grad():
            met(together)  # grad mode is off here while the other thread, which runs already, computes
            met(together)

    def beside() -> Any:
        met(together)
        met(together)
        result = backend.call(lambda x: x * 2, x)
        met(together)
        return result

    [_, result] = in_threads(without, beside)
    trace.expect_value("recorded in an earlier thread", expected=True, observed=backend.requires_grad(result))


@rule(
    "mode.thread-local-inference",
    level=Level.MUST,
    sources=[docstring("torch.autograd.grad_mode.inference_mode").sentence(5)],
    needs=[Capability.INFERENCE_MODE, Capability.THREADS],
    mutants=["inference-mode-reaches-running-threads", "inference-mode-reaches-other-threads"],
)
def test_inference_mode_local(backend: Backend, trace: Trace) -> None:
    """inference_mode turns grad mode off in its own thread only."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)

    with backend.inference_mode():
        [there] = in_threads(lambda: backend.call(lambda x: x * 2, x))
        here = backend.call(lambda x: x * 2, x)

    recorded = [backend.requires_grad(there), backend.requires_grad(here)]
    trace.expect_value("recorded there and here", [True, False], recorded)

    entered, recorded_beside = threading.Event(), threading.Event()

    def inside() -> bool:
        with backend.inference_mode():
            entered.set()
            return recorded_beside.wait(LIMIT)

    def beside() -> Any:
        entered.wait(LIMIT)
        result = backend.call(lambda x: x * 2, x)
        recorded_beside.set()
        return backend.requires_grad(result)

    trace.expect_value("recorded in a thread that was running", [True, True], in_threads(beside, inside))


@rule(
    "mode.thread-local.enable-grad",
    level=Level.MUST,
    sources=[docstring("torch.enable_grad").sentence(3)],
    needs=[Capability.GRAD_MODE, Capability.THREADS],
    mutants=["threads-share-their-modes"],
)
def test_enable_grad_local(backend: Backend, trace: Trace) -> None:
    """enable_grad turns grad mode on in its own thread only."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    together = threading.Barrier(2)

    def without() -> Any:
        with backend.no_grad():
            met(together)  # grad mode is off here, and the other thread turns its own on
            met(together)
            result = backend.call(lambda x: x * 2, x)
            met(together)
        return result

    def enabled() -> Any:
        met(together)
        with backend.enable_grad():
            met(together)
            met(together)
            return backend.call(lambda x: x * 2, x)

    recorded = [backend.requires_grad(result) for result in in_threads(without, enabled)]
    trace.expect_value("recorded without, and enabled", [False, True], recorded)


@rule(
    "threads.custom-function",
    level=Level.MUST,
    sources=[notes("autograd", "thread-safety-on-autograd-node").sentence(2)],
    needs=[Capability.CUSTOM_FUNCTION, Capability.TENSOR_HOOKS, Capability.THREADS],
    mutants=[
        "custom-functions-share-a-context",
        "tensor-hooks-of-other-threads-run-too",
        "hooks-of-non-leaves-mix-the-gradients-of-threads",
    ],
)
def test_custom_function(backend: Backend, trace: Trace) -> None:
    """Threads that use a custom Function at once each have a ctx of their own, and hooks that see their own gradients.

    The documentation calls Functions of Python thread safe: no thread gets what is another's.
    """
    together = threading.Barrier(WORKERS)

    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.half = backend.detach(x) * 0.5
        return x * 3

    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x * ctx.half

    function = backend.custom_function(forward, backward)

    def worker(place: int) -> Callable[[], Any]:
        def work() -> Any:
            x = backend.tensor([float(place), 1.0], requires_grad=True)
            y = backend.call(function, x)
            backend.register_hook(y, lambda grad: grad * (10 * place))
            together.wait(LIMIT)  # no thread goes on before each has saved
            backend.backward(backend.sum(y * (place + 1)))
            return backend.grad_of(x)

        return work

    for place, grad in enumerate(in_threads(*map(worker, range(WORKERS)))):
        expected = [5.0 * place**3 * (place + 1), 5.0 * place * (place + 1)]
        trace.expect_value(f"gradient of thread {place}", expected, grad)


@rule(
    "threads.custom-function.one-graph",
    level=Level.MUST,
    sources=[notes("autograd", "thread-safety-on-autograd-node").sentence(2)],
    needs=[Capability.CUSTOM_FUNCTION, Capability.THREADS, Capability.AUTOGRAD_GRAD],
    mutants=["a-function-mixes-the-gradients-of-threads"],
)
def test_one_graph(backend: Backend, trace: Trace) -> None:
    """Threads that run backward through one custom Function at once each get the gradient for their own seed.

    The documentation calls Functions of Python thread safe, in the section on threads that share a graph.
    """
    start = threading.Barrier(WORKERS)

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x * 2

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    y = backend.call(backend.custom_function(forward, backward), x)

    def worker(place: int) -> Callable[[], Any]:
        def work() -> Any:
            start.wait(LIMIT)
            return backend.grad(y, [x], backend.tensor([float(place), 1.0]), retain_graph=True)[0]

        return work

    for place, grad in enumerate(in_threads(*map(worker, range(WORKERS)))):
        trace.expect_value(f"gradient of thread {place}", [2.0 * place, 4.0], grad)
