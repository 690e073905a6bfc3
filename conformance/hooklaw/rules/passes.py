"""The passes in which hooks run, the calls, and the places where they are registered, and what is expected of each."""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from warnings import catch_warnings

from hooklaw import Backend, Capability, Trace
from hooklaw.law.trace import Mismatch
from hooklaw.rules.hooks import (
    Kind,
    Place,
    Then,
    UserError,
    after_calls,
    doubling,
    earlier,
    failing,
    gradient,
    here,
    hook_of,
    hooked,
    hooked_module,
    leaf,
    nothing,
    parameter,
    seen_by,
    twice,
)

PASSES = [
    Capability.RETAIN_GRAPH,
    Capability.AUTOGRAD_GRAD,
    Capability.CREATE_GRAPH,
    Capability.GRAD_MODE,
]
"""What `passes` needs."""
BACKWARDS = [
    Capability.RETAIN_GRAPH,
    Capability.BACKWARD_CREATE_GRAPH,
    Capability.GRAD_MODE,
]
"""What `backwards` needs."""
EVERY_PASS = [*PASSES, Capability.BACKWARD_CREATE_GRAPH]
"""What `every_pass` needs."""
INNER_BACKWARDS = [Capability.RETAIN_GRAPH, Capability.TENSOR_HOOKS]
"""What `inner_backwards` needs."""
INNER = [*INNER_BACKWARDS, Capability.AUTOGRAD_GRAD]
"""What `inside_a_pass` needs."""
ROOTS = [
    Capability.BACKWARD_INPUTS,
    Capability.SEED_GRADIENT,
    Capability.SEVERAL_ROOTS,
    Capability.GRADIENT_EDGES,
    Capability.EDGE_ROOTS,
]
"""What `roots` needs."""
PLACES = [Capability.GRAD_MODE, Capability.TENSOR_HOOKS, Capability.CHECKPOINT, Capability.SAVED_TENSOR_HOOKS]
"""What `places` and `calls` need, beside modules."""
EVERYWHERE = [*PLACES, Capability.MODULES, Capability.THREADS]
"""What `everywhere` needs."""
RETAINING = {
    "backward",
    "backward in no_grad",
    "backward that creates a graph",
    "autograd.grad",
    "autograd.grad that creates a graph",
    "autograd.grad of two outputs for two inputs",
}
"""The passes that retain the graph, so that they can run again."""
THRICE = 3
LIMIT = 30
"""Seconds after which a thread counts as deadlocked."""
Run = Callable[[Any, Any], Any]
"""Runs a pass from a root, for a leaf, and returns the leaf's gradient."""


def passes(backend: Backend) -> dict[str, Run]:
    """Return passes that retain the graph; they need `PASSES`."""

    def in_no_grad(root: Any, x: Any) -> Any:
        with backend.no_grad():
            return _backward(backend, root, x, retain_graph=True)

    def of_two_for_two(root: Any, x: Any) -> Any:
        other = leaf(backend)
        of_other = backend.call(lambda other: backend.sum(other * 5), other)
        return backend.grad([of_other, root], [other, x], retain_graph=True)[1]

    return {
        "backward": lambda root, x: _backward(backend, root, x, retain_graph=True),
        "backward in no_grad": in_no_grad,
        "autograd.grad": lambda root, x: backend.grad(root, [x], retain_graph=True)[0],
        "autograd.grad that creates a graph": lambda root, x: backend.grad(root, [x], create_graph=True)[0],
        "autograd.grad of two outputs for two inputs": of_two_for_two,
    }


def backwards(backend: Backend) -> dict[str, Run]:
    """Return passes that accumulate gradients and retain the graph."""
    found = {label: run for label, run in passes(backend).items() if label.startswith("backward")}
    return {**found, **creating(backend)}


def creating(backend: Backend) -> dict[str, Run]:
    """Return a backward that creates a graph."""

    def create(root: Any, x: Any) -> Any:
        with catch_warnings(action="ignore"):  # torch warns of the cycle of create_graph
            return _backward(backend, root, x, create_graph=True)

    return {"backward that creates a graph": create}


def every_pass(backend: Backend) -> dict[str, Run]:
    """Return the passes that retain the graph, and a backward that creates one."""
    return {**passes(backend), **creating(backend)}


def inner_backwards(backend: Backend) -> dict[str, Run]:
    """Return a backward that a tensor hook runs during another backward, and one that it runs during two."""
    run = passes(backend)["backward"]
    return {
        "backward inside a backward": partial(_inside, backend, 1, run),
        "backward inside two others": partial(_inside, backend, 2, run),
    }


def inside_a_pass(backend: Backend) -> dict[str, Run]:
    """Return these, and an autograd.grad that a tensor hook runs during a backward."""
    run = passes(backend)["autograd.grad"]
    return {**inner_backwards(backend), "autograd.grad inside a backward": partial(_inside, backend, 1, run)}


def _inside(backend: Backend, times: int, run: Run, root: Any, x: Any) -> Any:
    """Run a pass in a tensor hook during so many backwards, and return the leaf's gradient."""
    got = list[Any]()
    _in_passes(backend, times, lambda: got.append(run(root, x)))()
    return got[0] if got else None


def _in_passes(backend: Backend, times: int, act: Callable[[], Any]) -> Callable[[], Any]:
    """Return what acts in a tensor hook during so many passes; their graphs are made before, while grad mode is on."""
    for _ in range(times):
        other = backend.call(lambda x: x * 5, leaf(backend))
        backend.register_hook(other, lambda _, act=act: here(act))
        act = partial(backend.backward, backend.call(backend.sum, other))
    return act


def roots(backend: Backend) -> dict[str, Run]:
    """Return backward passes for some inputs, with a gradient, from several roots and from an edge.

    They may free the graph.
    """

    def from_all(root: Any, x: Any, place: int) -> Any:
        given = [backend.call(lambda other: backend.sum(other * 5), leaf(backend))]
        given.insert(place, root)
        backend.backward_from_all(given)
        return _taken(backend, x)

    def from_edge(root: Any, x: Any) -> Any:
        backend.backward_from_edge(backend.get_gradient_edge(root), backend.tensor(1.0))
        return _taken(backend, x)

    return {
        "backward with inputs": lambda root, x: _backward(backend, root, x, inputs=[x]),
        "backward with a gradient": lambda root, x: _backward(backend, root, x, gradient=backend.tensor(1.0)),
        "backward from the first of two roots": lambda root, x: from_all(root, x, 0),
        "backward from the last of two roots": lambda root, x: from_all(root, x, 1),
        "backward from an edge": from_edge,
    }


def in_thread(backend: Backend) -> dict[str, Run]:
    """Return a backward pass in another thread than the one that made the graph."""
    return {"backward in another thread": lambda root, x: elsewhere(lambda: _backward(backend, root, x))}


def _backward(backend: Backend, root: Any, x: Any, **how: Any) -> Any:
    """Run a backward and return the leaf's gradient."""
    backend.backward(root, **how)
    return _taken(backend, x)


def _taken(backend: Backend, x: Any) -> Any:
    """Return the numbers of .grad, which may be reset in place, and reset it."""
    grad = backend.grad_of(x)
    numbers = None if grad is None else backend.tolist(grad)
    backend.set_grad(x, None)
    return numbers


def elsewhere(action: Callable[[], Any]) -> Any:
    """Return what the action returns, or raise what it raises, in another thread."""
    results, errors = list[Any](), list[BaseException]()

    def run() -> None:
        try:
            results.append(action())
        except BaseException as error:  # noqa: BLE001 - it is raised again below
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT)
    for error in errors:
        raise error
    if not results:
        raise Mismatch(f"a thread did not end within {LIMIT} s")
    return results[0]


def places(backend: Backend) -> dict[str, Place]:
    """Return the places where hooks are registered."""

    def in_no_grad(register: Callable[[], Any]) -> None:
        with backend.no_grad():
            register()

    def during_a_pass(register: Callable[[], Any]) -> None:
        _in_passes(backend, 1, register)()

    def in_a_checkpoint(register: Callable[[], Any]) -> None:
        backend.checkpoint(lambda other: (register(), other * 5)[1], leaf(backend), use_reentrant=False)

    def in_a_module(register: Callable[[], Any]) -> None:
        backend.module({}, lambda _, other: (register(), other)[1])(leaf(backend))

    def with_saved_tensor_hooks(register: Callable[[], Any]) -> None:
        with backend.saved_tensors_hooks(backend.detach, lambda packed: packed):
            register()

    return {
        "in no_grad": in_no_grad,
        "in no_grad inside two others": _thrice(in_no_grad),
        "during a pass": during_a_pass,
        "in a checkpointed function": in_a_checkpoint,
        "in a module's forward": in_a_module,
        "in a module's forward inside two others": _thrice(in_a_module),
        "while saved-tensor hooks are active": with_saved_tensor_hooks,
    }


def _thrice(place: Place) -> Place:
    """Return a place inside two others of its kind."""
    return lambda register: place(lambda: place(lambda: place(register)))


def everywhere(backend: Backend) -> dict[str, Place]:
    """Return the same places, and another thread."""
    return {**places(backend), "in another thread": elsewhere}


def whenever(backend: Backend) -> dict[str, Place]:
    """Return all of these places, and the time after a backward that failed; they need `EVERYWHERE`."""

    def after_a_failure(act: Callable[[], Any]) -> Any:
        other = backend.call(lambda x: x * 5, leaf(backend))
        backend.register_hook(other, after_calls(0))
        with suppress(Exception):  # the framework's own, if it wraps that of a hook
            backend.backward(backend.call(backend.sum, other))
        return act()

    return {**everywhere(backend), "after a backward that failed": after_a_failure}


def places_of(backend: Backend, kind: Kind) -> dict[str, Place]:
    """Return the places for a kind: a hook on all modules may run for the module in whose forward it is registered."""
    return {label: place for label, place in places(backend).items() if not (kind.of_all and "module" in label)}


def calls(backend: Backend) -> dict[str, Callable[[Any, Any], Any]]:
    """Return ways to call a module."""

    def in_no_grad(module: Any, x: Any) -> Any:
        with backend.no_grad():
            return module(x)

    def with_saved_tensor_hooks(module: Any, x: Any) -> Any:
        with backend.saved_tensors_hooks(backend.detach, lambda packed: packed):
            return module(x)

    def in_modules(times: int, module: Any) -> Any:
        for _ in range(times):
            module = backend.module({}, lambda _, x, inner=module: inner(x))
        return module

    return {
        "call": lambda module, x: module(x),
        "call in no_grad": in_no_grad,
        "call in a checkpointed function": lambda module, x: backend.checkpoint(module, x, use_reentrant=False),
        "call inside another module": lambda module, x: in_modules(1, module)(x),
        "call inside three other modules": lambda module, x: in_modules(3, module)(x),
        "call while saved-tensor hooks are active": with_saved_tensor_hooks,
        "call in another thread": lambda module, x: elsewhere(lambda: module(x)),
    }


def recomputed(backend: Backend, module: Any) -> tuple[Any, Any]:
    """Return a root that needs a recomputation in which the module is called, and the leaf."""

    def squared(x: Any) -> Any:
        y = module(x)
        return y * y

    x = leaf(backend)
    return backend.sum(backend.checkpoint(squared, x, use_reentrant=False)), x


def runs_in(backend: Backend, trace: Trace, kind: Kind, runs: dict[str, Run], times: int = 1) -> None:
    """Expect a hook, alone or after others, to run once in each of these passes, some of which run several times."""
    for others in ([], earlier(trace, kind)):
        for label, run in runs.items():
            with hooked(backend, kind, *others, hook_of(trace, kind)) as (root, x):
                for _ in range(times):
                    trace.log(label, run(root, x))
                    trace.expect(*seen_by(kind, others), (label, gradient(kind)))


def modes_in(backend: Backend, trace: Trace, kind: Kind, runs: dict[str, Run]) -> None:
    """Expect three hooks to run with grad mode off in each of these passes, and on if the pass creates a graph.

    A pass of `RETAINING` runs three times.
    """

    def noting() -> Then:
        return lambda *_: trace.log("grad mode", backend.is_grad_enabled())

    for label, run in runs.items():
        with hooked(backend, kind, noting(), noting(), noting()) as (root, x):
            for _ in range(THRICE if label in RETAINING else 1):
                run(root, x)
                trace.log(label)
                trace.expect(*[("grad mode", "creates a graph" in label)] * THRICE, label)


def modes_after_error(backend: Backend, trace: Trace, *kinds: Kind, runs: dict[str, Run] | None = None) -> None:
    """Expect hooks of these kinds to run in the right grad mode in each pass, or these, after one that failed.

    That was a pass of the same kind, or of the kind before.
    """
    found = [*(runs or every_pass(backend)).items()]
    for kind in kinds:
        for nr, (label, run) in enumerate(found):
            for _, failing_run in (found[nr], found[nr - 1]):
                with suppress(Exception), hooked(backend, kind, nothing, after_calls(0)) as (root, x):
                    failing_run(root, x)
                modes_in(backend, trace, kind, {label: run})


def runs_from(backend: Backend, trace: Trace, kind: Kind) -> None:
    """Expect a hook to run in each of three passes wherever it was registered; so also for a module's parameter."""
    for others in ([], earlier(trace, kind)):
        for label, place in places_of(backend, kind).items():
            with hooked(backend, kind, *others, hook_of(trace, kind), place=place) as (root, x):
                for _ in range(THRICE):
                    trace.log(label, _backward(backend, root, x, retain_graph=True))
                    trace.expect(*seen_by(kind, others), (label, gradient(kind)))
    if kind.of_module:
        return
    for label, double in (
        ("output of a module", doubling(backend)),
        ("output of a checkpoint", lambda x: backend.checkpoint(twice, x, use_reentrant=False)),
    ):
        with hooked(backend, kind, hook_of(trace, kind), x=parameter(backend), double=double) as (root, x):
            trace.log(label, _backward(backend, root, x))
            trace.expect(*seen_by(kind), (label, gradient(kind)))


def fails_in(backend: Backend, trace: Trace, kind: Kind, runs: dict[str, Run]) -> None:
    """Expect the error of a hook to reach the caller of each of these passes, and the next one to run the hook."""
    for label, run in runs.items():
        with (
            hooked(backend, kind, failing(trace, kind, [None])) as (root, x),
            trace.raises_type(UserError, "from the hook"),
        ):
            run(root, x)
        for others in ([], earlier(trace, kind)):
            with hooked(backend, kind, *others, hook_of(trace, kind)) as (root, x):
                trace.log(label, run(root, x))
                trace.expect(*seen_by(kind, others), (label, gradient(kind)))


def recovers_in(backend: Backend, trace: Trace, kind: Kind, runs: dict[str, Run]) -> None:
    """Expect a hook that has raised to run in the next pass through the same graph, which these passes retain."""
    for label, run in runs.items():
        with hooked(backend, kind, failing(trace, kind, [None])) as (root, x):
            with trace.raises_type(UserError, "from the hook"):
                run(root, x)
            backend.set_grad(x, None)  # a post-accumulate-grad hook raises after .grad was updated
            trace.log(label, run(root, x))
            trace.expect(*seen_by(kind), (label, gradient(kind)))


def fails_late(backend: Backend, trace: Trace, kind: Kind) -> None:
    """Expect the error of the third hook in a third pass to reach its caller."""
    with hooked(backend, kind, nothing, nothing, after_calls(2)) as (root, x):
        for _ in range(2):
            _backward(backend, root, x, retain_graph=True)
        with trace.raises_type(UserError, "from the hook"):
            _backward(backend, root, x, retain_graph=True)


def called_in(backend: Backend, trace: Trace, kind: Kind) -> None:
    """Expect a forward hook, alone or after others, to run once in each kind of call, and in a recomputation."""
    for others in ([], earlier(trace, kind)):
        seen = seen_by(kind, others)
        for label, call in calls(backend).items():
            with hooked_module(backend, kind, *others, hook_of(trace, kind)) as module:
                for _ in range(THRICE):
                    trace.log(label, call(module, leaf(backend)))
                    trace.expect(*seen, (label, [20.0, 40.0]))
        with hooked_module(backend, kind, *others, hook_of(trace, kind)) as module:
            root, x = recomputed(backend, module)
            trace.log("gradient", _backward(backend, root, x))
            trace.expect(*seen, *seen, ("gradient", [800.0, 1600.0]))


def called_from(backend: Backend, trace: Trace, kind: Kind) -> None:
    """Expect a forward hook to run once in each of three calls wherever it was registered."""
    for others in ([], earlier(trace, kind)):
        for label, place in places_of(backend, kind).items():
            with hooked_module(backend, kind, *others, hook_of(trace, kind), place=place) as module:
                for _ in range(THRICE):
                    trace.log(label, module(leaf(backend)))
                    trace.expect(*seen_by(kind, others), (label, [20.0, 40.0]))


def errors_in(backend: Backend, trace: Trace, kind: Kind) -> None:
    """Expect the error of a forward hook to reach its caller, in each kind of call, the third and a recomputation."""
    for label, call in calls(backend).items():
        with hooked_module(backend, kind, failing(trace, kind, [None])) as module:
            with trace.raises_type(UserError, "from the hook"):
                call(module, leaf(backend))
            trace.log(label, call(module, leaf(backend)))
            trace.expect(*seen_by(kind), (label, [20.0, 40.0]))
        others = earlier(trace, kind)
        with hooked_module(backend, kind, *others, hook_of(trace, kind)) as module:
            trace.log(label, call(module, leaf(backend)))
            trace.expect(*seen_by(kind, others), (label, [20.0, 40.0]))
    with hooked_module(backend, kind, after_calls(1)) as module:
        root, _ = recomputed(backend, module)
        with trace.raises_type(UserError, "from the hook"):
            backend.backward(root)
    with hooked_module(backend, kind, nothing, nothing, after_calls(2)) as module:
        for _ in range(2):
            module(leaf(backend))
        with trace.raises_type(UserError, "from the hook"):
            module(leaf(backend))
