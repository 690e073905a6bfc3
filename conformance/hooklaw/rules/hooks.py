"""Hooks of each kind, on the same small graph: what the chapters on every pass, call and place share.

A leaf of 1 and 2 is doubled, by a module if the hook is a module's, then multiplied by 3 and summed. The gradient is 1
after that, 3 in between, and 6 for the leaf; a hook that may replace it makes it tenfold.
"""

from collections import namedtuple
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from hooklaw import Backend, Trace

Then = Callable[..., Any]
"""What a hook does with a value, and with what it gets beside; what it returns takes the value's place, if not None."""
Place = Callable[[Callable[[], Any]], Any]
"""Calls a function, which registers hooks, in some place."""


NUMBERS = (3.0, 0.0, [0.0], [0.0, 0.0], [])
"""A 0-d tensor, some of zeros, and one without elements: a value that is tested for truth is taken for none."""
OTHERS = (0, 0.0, False, "", (), [], {})
"""Values that are no tensors, and that a test for truth takes for none."""
EARLIER = ("first", "second", "third")
"""The labels of hooks that are registered before another."""


Pair = namedtuple("Pair", "first second")  # noqa: PYI024 - the types of its fields do not matter
"""A named tuple, which is a tuple."""


class UserError(Exception):
    """A user's own exception."""


class Parts(NamedTuple):
    """The parts of the graph."""

    leaf: Any
    doubled: Any
    tripled: Any


class Kind(NamedTuple):
    """A kind of hook."""

    seen: Any
    """The value that a hook gets; if it gets more, a list of it, the values beside it, and True for its own module."""
    register: Callable[[Backend, Any, Then], Any]
    """Registers a hook for the parts of the graph, or for the module."""
    of_module: bool = False
    of_all: bool = False
    """Whether the hook is on all modules, so that it must be removed."""
    replaces: bool = True
    in_order: bool = True
    """Whether the documentation says that several on the same tensor, Node or module run as they were registered."""


def _first(values: tuple[Any, ...], then: Then, *beside: Any) -> tuple[Any, ...] | None:
    """Return the values with what `then` returns for the first in its place."""
    new = then(values[0], *beside)
    return None if new is None else (new, *values[1:])


def _of(module: Any, hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return a hook on all modules that acts for one."""
    return lambda of, *given: hook(of, *given) if of is module else None


TENSOR = Kind([3.0, 3.0], lambda backend, parts, then: backend.register_hook(parts.doubled, then))
POST_ACCUMULATE = Kind(
    [6.0, 6.0],
    lambda backend, parts, then: backend.register_post_accumulate_grad_hook(
        parts.leaf, lambda leaf: then(backend.grad_of(leaf))
    ),
    replaces=False,
)
NODE_PRE = Kind(
    [3.0, 3.0],
    lambda backend, parts, then: backend.node_register_prehook(
        backend.grad_fn(parts.doubled), lambda grads: _first(grads, then)
    ),
)
NODE = Kind(
    [[3.0, 3.0], [[1.0, 1.0]]],
    lambda backend, parts, then: backend.node_register_hook(
        backend.grad_fn(parts.tripled), lambda grads, outputs: _first(grads, then, outputs)
    ),
)
MULTI_GRAD = Kind(
    [[3.0, 3.0], [1.0, 1.0]],
    lambda backend, parts, then: backend.register_multi_grad_hook([parts.doubled, parts.tripled], then),
    replaces=False,
    in_order=False,
)
MULTI_GRAD_ANY = Kind(
    [1.0, 1.0],
    lambda backend, parts, then: backend.register_multi_grad_hook([parts.doubled, parts.tripled], then, mode="any"),
    replaces=False,
    in_order=False,
)
TENSOR_ON_LEAF = Kind([6.0, 6.0], lambda backend, parts, then: backend.register_hook(parts.leaf, then))
NODE_PRE_OF_LEAF = Kind(
    [6.0, 6.0],
    lambda backend, parts, then: backend.node_register_prehook(
        backend.accumulate_grad(parts.leaf), lambda grads: _first(grads, then)
    ),
)
NODE_OF_LEAF = Kind(
    [6.0, 6.0],
    lambda backend, parts, then: backend.node_register_hook(
        backend.accumulate_grad(parts.leaf), lambda _, grads: (then(grads[0]), None)[1]
    ),
    replaces=False,
)
MULTI_GRAD_ON_LEAF = Kind(
    [[6.0, 6.0]],
    lambda backend, parts, then: backend.register_multi_grad_hook([parts.leaf], then),
    replaces=False,
    in_order=False,
)
MULTI_GRAD_ANY_ON_LEAF = Kind(
    [6.0, 6.0],
    lambda backend, parts, then: backend.register_multi_grad_hook([parts.leaf], then, mode="any"),
    replaces=False,
    in_order=False,
)
BACKWARD_PRE = Kind(
    [[3.0, 3.0], True],
    lambda backend, module, then: backend.register_full_backward_pre_hook(
        module, lambda given, grads: _first(grads, then, given is module)
    ),
    of_module=True,
)
BACKWARD = Kind(
    [[6.0, 6.0], [[3.0, 3.0]], True],
    lambda backend, module, then: backend.register_full_backward_hook(
        module, lambda given, grads, outputs: _first(grads, then, outputs, given is module)
    ),
    of_module=True,
)
GLOBAL_BACKWARD_PRE = Kind(
    [3.0, 3.0],
    lambda backend, module, then: backend.register_module_full_backward_pre_hook(
        _of(module, lambda _, grads: _first(grads, then))
    ),
    of_module=True,
    of_all=True,
    in_order=False,
)
GLOBAL_BACKWARD = Kind(
    [[6.0, 6.0], [[3.0, 3.0]]],
    lambda backend, module, then: backend.register_module_full_backward_hook(
        _of(module, lambda _, grads, outputs: _first(grads, then, outputs))
    ),
    of_module=True,
    of_all=True,
    in_order=False,
)
FORWARD_PRE = Kind(
    [[1.0, 2.0], True],
    lambda backend, module, then: backend.register_forward_pre_hook(
        module, lambda given, args: _first(args, then, given is module)
    ),
    of_module=True,
)
FORWARD = Kind(
    [[2.0, 4.0], [[1.0, 2.0]], True],
    lambda backend, module, then: backend.register_forward_hook(
        module, lambda given, args, output: then(output, args, given is module)
    ),
    of_module=True,
)
GLOBAL_FORWARD_PRE = Kind(
    [1.0, 2.0],
    lambda backend, module, then: backend.register_module_forward_pre_hook(
        _of(module, lambda _, args: _first(args, then))
    ),
    of_module=True,
    of_all=True,
    in_order=False,
)
GLOBAL_FORWARD = Kind(
    [[2.0, 4.0], [[1.0, 2.0]]],
    lambda backend, module, then: backend.register_module_forward_hook(
        _of(module, lambda _, args, output: then(output, args))
    ),
    of_module=True,
    of_all=True,
    in_order=False,
)


def leaf(backend: Backend) -> Any:
    """Make the leaf."""
    return backend.tensor([1.0, 2.0], requires_grad=True)


def parameter(backend: Backend) -> Any:
    """Make such a leaf that is a parameter of a module."""
    return backend.module({"weight": backend.tensor([1.0, 2.0])}, nothing).weight


def zeros(backend: Backend) -> Any:
    """Make a leaf whose exponential is 1."""
    return backend.tensor([0.0, 0.0], requires_grad=True)


def doubling(backend: Backend) -> Any:
    """Make the module."""
    return backend.module({}, lambda _, x: x * 2)


def removed_alone(
    trace: Trace, places: Mapping[str, Callable[[Any], Any]], run: Callable[[], Any], *, module: Any = None
) -> None:
    """Expect the handle of each of three hooks in each place, which are one function, to remove this one and no other.

    Which is removed first makes no difference: the places are emptied in order and in reverse. A hook on all modules
    counts for one `module`, since a compiler has modules of its own.
    """

    def hook_of(label: str) -> Callable[..., Any]:
        return lambda of=None, *_: trace.log(label) if module is None or of is module else None

    hooks = {label: hook_of(label) for label in places}
    for labels in ([*places], [*places][::-1]):
        handles = {label: [register(hooks[label]) for _ in range(3)] for label, register in places.items()}
        left = [label for label in places for _ in range(3)]
        run()
        trace.expect_in_any_order(*left)
        for label in labels:
            for nr in (1, 2, 0):
                handles[label][nr].remove()
                left.remove(label)
                run()
                trace.expect_in_any_order(*left)


def removed_in_place(
    trace: Trace,
    make: Callable[[], Any],
    register: Callable[[Any, Any], Any],
    run: Callable[[Any], Any],
    *,
    removes_itself: bool = False,
) -> None:
    """Expect the handle of either of two hooks of one function on a module to remove this one, in order among others.

    One of the others may remove itself in its first call. The function stays on another module.
    """
    for removed, left in ((0, ["older", "newer", "twice"]), (1, ["older", "twice", "newer"])):
        module, itself = make(), list[Any]()
        labels = ["older", "twice", *(["itself"] if removes_itself else []), "newer", "twice"]
        hooks = {label: (lambda *_, label=label: trace.log(label)) for label in labels}
        hooks["itself"] = lambda *_, itself=itself: (trace.log("itself"), itself[0].remove())[1]
        handles = [(label, register(module, hooks[label])) for label in labels]
        itself += [handle for label, handle in handles if label == "itself"]
        run(module)
        trace.expect(*labels)
        run(module)
        trace.expect("older", "twice", "newer", "twice")
        another = make()
        register(another, hooks["twice"])
        [handle for label, handle in handles if label == "twice"][removed].remove()
        for _ in range(2):
            run(module)

        trace.expect(*left * 2)
        run(another)
        trace.expect("twice")


def weighted(backend: Backend) -> Any:
    """Make a module with one weight."""
    return backend.module({"weight": backend.tensor([3.0, 5.0])}, lambda module, x: x * module.weight)


def runs_backward(backend: Backend, module: Any) -> None:
    """Call a module, and run the backward of its sum."""
    backend.backward(backend.sum(backend.call(module, leaf(backend))))


def here(register: Callable[[], Any]) -> None:
    """Register hooks in no other place."""
    register()


@contextmanager
def hooked_module(backend: Backend, kind: Kind, *hooks: Then, place: Place = here) -> Generator[Any]:
    """Make the module with hooks of a kind, and remove those on all modules at the end."""
    module, handles = doubling(backend), list[Any]()
    place(lambda: handles.extend(kind.register(backend, module, hook) for hook in hooks))
    try:
        yield module
    finally:
        for handle in handles if kind.of_all else ():
            handle.remove()


def twice(x: Any) -> Any:
    """Double the leaf."""
    return x * 2


@contextmanager
def hooked(  # noqa: PLR0913 - each of the parts may be another
    backend: Backend,
    kind: Kind,
    *hooks: Then,
    place: Place = here,
    x: Any = None,
    double: Then = twice,
    weight: Any = None,
) -> Generator[tuple[Any, Any]]:
    """Make the graph in three calls with hooks of a kind, and give its root and leaf.

    The leaf and what doubles it may be others, and what is summed may be weighted.
    """
    if x is None:
        x = parameter(backend) if kind.of_module else leaf(backend)
    total = backend.sum if weight is None else lambda tripled: backend.sum(tripled * weight)
    if kind.of_module:
        with hooked_module(backend, kind, *hooks, place=place) as module:
            yield backend.call(lambda x: total(module(x) * 3), x), x
        return
    doubled = backend.call(double, x)
    parts = Parts(x, doubled, backend.call(lambda doubled: doubled * 3, doubled))
    place(lambda: [kind.register(backend, parts, hook) for hook in hooks])
    yield backend.call(total, parts.tripled), x


def gets_each_value(backend: Backend, trace: Trace, kind: Kind) -> None:
    """Expect a hook to get gradients of each of `NUMBERS`."""
    for numbers in NUMBERS:
        x, weight = backend.tensor(numbers, requires_grad=True), backend.tensor(numbers)
        with hooked(backend, kind, trace.saw("hook", nothing), x=x, weight=weight) as (root, _):
            backend.backward(root)
        trace.expect(("hook", _times(kind.seen, numbers)))


def uses_each_value(backend: Backend, trace: Trace, kind: Kind) -> None:
    """Expect what a hook returns to be used if it is one of `NUMBERS`."""
    for numbers in NUMBERS:
        x, returned = backend.tensor(numbers, requires_grad=True), backend.tensor(numbers)
        with hooked(backend, kind, lambda *_, returned=returned: returned, x=x) as (root, _):
            backend.backward(root)
        factor = 6.0 / _first_of(kind.seen)
        trace.expect_value(f"x.grad after {numbers}", _times([factor], numbers), backend.grad_of(x))


def _first_of(seen: Any) -> float:
    """Return the first number of what a hook sees."""
    return _first_of(seen[0]) if isinstance(seen, list) else seen


def _times(seen: Any, numbers: Any) -> Any:
    """Return what a hook sees if the gradients are multiplied: each row of equal numbers becomes one like `numbers`."""
    if not isinstance(seen, list):
        return seen
    if not isinstance(seen[0], float):
        return [_times(each, numbers) for each in seen]
    return [seen[0] * number for number in numbers] if isinstance(numbers, list) else seen[0] * numbers


def hook_of(trace: Trace, kind: Kind) -> Then:
    """Return a hook that logs the value, and makes it tenfold if it may replace it."""
    return trace.saw("hook", (lambda value, *_: value * 10) if kind.replaces else None)


def earlier(trace: Trace, kind: Kind) -> list[Then]:
    """Return three hooks to register before another; they log their values if the documentation gives their order."""
    return [trace.saw(label) if kind.in_order else nothing for label in EARLIER]


def seen_by(kind: Kind, others: Sequence[Then] = ()) -> list[tuple[str, Any]]:
    """Return what is expected to be logged by a hook, and by others registered before it."""
    labels = EARLIER if others and kind.in_order else ()
    return [(label, kind.seen) for label in (*labels, "hook")]


def failing(trace: Trace, kind: Kind, failures: list[None]) -> Then:
    """Return such a hook that raises as long as there are failures."""
    hook = hook_of(trace, kind)

    def fail(*given: Any) -> Any:
        if failures:
            failures.pop()
            raise UserError("from the hook")
        return hook(*given)

    return fail


def nothing(*_: Any) -> None:
    """Be a hook that does nothing."""


def saw(trace: Trace, label: str) -> Callable[..., None]:
    """Return a hook that logs its label."""
    return lambda *_: trace.log(label)


def fail(*_args: object, **_kwargs: object) -> None:
    """Raise UserError."""
    raise UserError("of the user")


def after_calls(calls_before: int) -> Then:
    """Return a hook that raises after so many calls."""
    before = [None] * calls_before

    def fail(*_: Any) -> None:
        if not before:
            raise UserError("from the hook")
        before.pop()

    return fail


def fail_once(trace: Trace, register: Callable[[Any], Any], run: Callable[[], Any]) -> None:
    """Run something once with a hook that raises, and forget it; what holds before holds afterwards."""

    def fail(*_: Any) -> None:
        raise UserError("from the hook")

    handle = register(fail)
    with suppress(Exception):
        run()
    handle.remove()
    trace.clear()


def gradient(kind: Kind) -> list[float]:
    """Return the leaf's gradient."""
    return [60.0, 60.0] if kind.replaces else [6.0, 6.0]
