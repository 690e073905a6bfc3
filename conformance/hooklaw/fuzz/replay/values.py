"""Operations that make and change tensors."""

import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf, prod
from typing import Any, cast

from hooklaw.backend.protocol import Capability
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.operations import Traits, operation, traits_of
from hooklaw.fuzz.replay.run import Replay, skip_if

NUMBERS = (0.5, -1.0, 1.5, 2.0, -0.5, 1.0, -1.5)
"""Values of leaves: sums and products of a few are exact."""
LARGE = {"float32": 100.0, "float64": 1e5}
"""The sine of a larger number of a dtype depends on its last bit."""


def evenly(shape: tuple[int, ...], number: float) -> Any:
    """Return nested lists of a shape with one number everywhere."""
    return [evenly(shape[1:], number) for _ in range(shape[0])] if shape else number


def filled(name: str, shape: tuple[int, ...], dtype: str = "float64") -> Any:
    """Return the values of a leaf, which depend on its name alone."""
    start = sum(map(ord, name))
    values: list[Any] = [NUMBERS[(start + 3 * place) % len(NUMBERS)] for place in range(prod(shape))]
    values = [int(2 * value) for value in values] if dtype.startswith("int") else values
    for size in reversed(shape[1:]):
        values = [values[at : at + size] for at in range(0, len(values), size)]
    return values if shape else values[0]


def _integers(instruction: Instruction) -> tuple[Capability, ...]:
    return (Capability.INTEGER,) if instruction.how[1].startswith("int") else ()


@operation(also_needs=_integers, in_inference=True, safe=True, sets_up=True)
def leaf(run: Replay, instruction: Instruction) -> None:
    """Make a leaf: shape, dtype, whether it requires grad."""
    shape, dtype, requires_grad = instruction.how
    name = instruction.made[0]
    skip_if(instruction.thread in run.inferring and requires_grad)  # which operations it records outside is unspecified
    run.tensors[name] = run.backend.tensor(filled(name, shape, dtype), dtype=dtype, requires_grad=requires_grad)
    _note_inferred(run, instruction, traits_of(instruction))


def _note_inferred(run: Replay, instruction: Instruction, traits: Traits) -> None:
    made_there = instruction.thread in run.inferring and not traits.view
    if made_there or (traits.aliases and instruction.used[0] in run.inferred):
        run.inferred.update(instruction.made)


def _note_views(run: Replay, instruction: Instruction) -> None:
    run.views.update(instruction.made)
    if instruction.used[0] in run.shared or not run.backend.requires_grad(run.input(instruction)):
        run.shared.update(instruction.made)


def must_be_small(run: Replay, tensor: Any, power: int = 1) -> None:
    """Skip numbers with a power whose sine depends on the last bit."""
    limit = LARGE.get(run.backend.dtype(tensor), inf) ** (1 / power)
    skip_if(any(limit < abs(number) < inf for number in _flat(run.backend.tolist(tensor))))


def _flat(values: Any) -> Iterator[float]:
    if isinstance(values, list):
        for value in cast("list[Any]", values):
            yield from _flat(value)
    else:
        yield values


def _computed(name: str, compute: Callable[..., Any], traits: Traits) -> None:
    """Register an operation that computes a tensor."""

    def execute(run: Replay, instruction: Instruction) -> None:
        tensors = run.inputs(instruction)
        if traits.periodic:
            must_be_small(run, *tensors)
        if traits.view:  # in inference mode, of a tensor that was made outside: as under no_grad
            skip_if(instruction.thread in run.inferring and instruction.used[0] not in run.inferred)
        results = run.backend.call(lambda *given: compute(run.backend, *given, *instruction.how), *tensors)
        run.tensors[instruction.made[0]] = results
        _note_inferred(run, instruction, traits)
        if traits.view:
            _note_views(run, instruction)
        if traits.saves and all(map(run.backend.requires_grad, tensors)):
            run.savers.add(instruction.made[0])

    execute.__name__ = name
    traits(execute)


PLAIN = Traits(in_inference=True, simplifies_to="scale")
PERIODIC = replace(PLAIN, needs=(Capability.SIN_COS,), saves=True, periodic=True)
VIEW = replace(PLAIN, needs=(Capability.VIEWS,), view=True, aliases=True)

_computed("add", lambda _, a, b: a + b, PLAIN)
_computed("sub", lambda _, a, b: a - b, PLAIN)
_computed("mul", lambda _, a, b: a * b, replace(PLAIN, saves=True))
_computed("scale", lambda _, a, number: a * number, Traits(in_inference=True))
_computed("shift", lambda _, a, number: a + number, PLAIN)
_computed("sin", lambda backend, a: backend.sin(a), PERIODIC)
_computed("cos", lambda backend, a: backend.cos(a), PERIODIC)
_computed("exp", lambda backend, a: backend.exp(a), replace(PLAIN, saves=True))
_computed("sum", lambda backend, a: backend.sum(a), PLAIN)
_computed("clone", lambda backend, a: backend.clone(a), PLAIN)
_computed("detach", lambda backend, a: backend.detach(a), Traits(aliases=True, simplifies_to="scale"))
_computed("view", lambda backend, a, *shape: backend.view(a, *shape), VIEW)
_computed("transpose", lambda backend, a: backend.transpose(a, 0, 1), VIEW)
_computed("expand", lambda backend, a, *shape: backend.expand(a, *shape), replace(VIEW, in_inference=False))
_computed("channels_last", lambda backend, a: backend.channels_last(a), Traits(needs=(Capability.CHANNELS_LAST,)))


@operation(needs=(Capability.MULTI_OUTPUT,), aliases=True, simplifies_to="scale")
def split(run: Replay, instruction: Instruction) -> None:
    """Split a tensor in two: one node with two outputs."""
    tensor = run.input(instruction)
    half = run.backend.shape(tensor)[0] // 2
    run.tensors.update(zip(instruction.made, run.backend.split(tensor, half), strict=True))
    _note_inferred(run, instruction, traits_of(instruction))
    _note_views(run, instruction)


def about_to_change(run: Replay, name: str, *operands: Any) -> Any:
    """Return a tensor that is about to be changed in place, after which it is unknown what its node has saved.

    Some changes are skipped since their effect is unspecified: of gradients and what else may share storage unseen; of
    what shares storage with the output of a module; of views, while nothing is recorded; and of a leaf that was in a
    graph and was told not to require grad, which would become one of that graph's results.
    """
    tensor = run.tensors[name]
    recording = run.backend.is_grad_enabled()
    skip_if(name in run.views | run.handed | run.frozen and (run.frozen or not recording))
    where = run.where(tensor)
    others = (run.handed - {name} | run.shared) & {*run.tensors}
    skip_if(any(run.where(run.tensors[other]) == where for other in others))
    skip_if(name in run.inferred and recording and any(map(run.backend.requires_grad, operands)))
    note_change(run)
    return tensor


def note_change(run: Replay) -> None:
    """Note that tensors are about to be changed in place, so that it is unknown what their nodes have saved."""
    run.savers.clear()
    run.changed = True


@operation(needs=(Capability.IN_PLACE,), in_inference=True)
def scale_(run: Replay, instruction: Instruction) -> None:
    """Multiply by a number in place."""
    run.backend.mul_(about_to_change(run, instruction.used[0]), *instruction.how)


@operation(needs=(Capability.IN_PLACE,), in_inference=True, simplifies_to="scale_")
def mul_(run: Replay, instruction: Instruction) -> None:
    """Multiply by a tensor in place, unless by itself: what is saved of it then is unspecified."""
    factor = run.tensors[instruction.used[1]]
    tensor = about_to_change(run, instruction.used[0], factor)
    skip_if(run.where(tensor) == run.where(factor))
    run.backend.mul_(tensor, factor)


@operation(needs=(Capability.IN_PLACE,), in_inference=True, simplifies_to="scale_")
def cos_(run: Replay, instruction: Instruction) -> None:
    """Replace by the cosine in place."""
    must_be_small(run, run.input(instruction))
    run.backend.cos_(about_to_change(run, instruction.used[0]))


@operation(safe=True, ends_forward=True)
def zero(run: Replay, instruction: Instruction) -> None:
    """Set the accumulated gradient to None."""
    run.backend.set_grad(run.input(instruction), None)


@operation(needs=(Capability.REQUIRES_GRAD_FLAG,), ends_forward=True)
def flag(run: Replay, instruction: Instruction) -> None:
    """Switch requires_grad on or off.

    Skipped are non-leaves, which have it by their history; views; and tensors that were in a graph before.
    """
    name, (requires_grad,) = instruction.used[0], instruction.how
    tensor = run.tensors[name]
    skip_if(name in run.views or (requires_grad and (name in run.consumed or not run.backend.is_leaf(tensor))))
    run.backend.set_requires_grad(tensor, requires_grad=requires_grad)
    if name in run.consumed:
        run.frozen.add(name)


@operation(needs=(Capability.INCREMENT_VERSION,), ends_forward=True)
def bump(run: Replay, instruction: Instruction) -> None:
    """Count a change in place that was not made, where there are no views that would follow it."""
    skip_if(run.views | run.handed or instruction.used[0] in run.shared)
    run.savers.clear()
    run.backend.increment_version(run.input(instruction))


@operation(needs=(Capability.GRADIENT_EDGES,), ends_forward=True)
def edge(run: Replay, instruction: Instruction) -> None:
    """Take the gradient edge of a tensor, of which a gradient can be asked instead of the tensor."""
    run.edges[instruction.made[0]] = run.backend.get_gradient_edge(run.input(instruction))


@operation(safe=True, ends_forward=True)
def give(run: Replay, instruction: Instruction) -> None:
    """Give a leaf a gradient: a copy of another tensor, with the layout of that."""
    leaf, other = run.inputs(instruction)
    backend = run.backend
    alike = backend.shape(leaf) == backend.shape(other) and backend.dtype(leaf) == backend.dtype(other)
    skip_if(not alike or not backend.is_leaf(leaf))
    run.owned.add(instruction.used[0])
    backend.set_grad(leaf, backend.clone(backend.detach(other)))


@operation(needs=(Capability.WEAK_REFERENCES,), frees=True, shows_hooks=True, safe=True, ends_forward=True)
def forget(run: Replay, instruction: Instruction) -> None:
    """Delete a tensor, and log whether the graph keeps it alive; views and modules may keep it too."""
    name = instruction.used[0]
    skip_if(run.modules or name in run.views | run.inferred or run.mutable)
    reference = weakref.ref(run.tensors[name])
    del run.tensors[name]
    run.log(("forget", name, reference() is not None))


@operation(needs=(Capability.SERIALIZATION,), shows_hooks=True, ends_forward=True)
def save(run: Replay, instruction: Instruction) -> None:
    """Serialize a leaf, log whether that warns and what is read back, and go on with the latter."""
    tensor = run.input(instruction)
    skip_if(not run.backend.is_leaf(tensor) or instruction.used[0] in run.parameters)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data = run.backend.save(tensor)
    loaded = run.backend.load(data)
    run.log(("save", bool(caught), run.seen(loaded), run.backend.requires_grad(loaded)))
    run.tensors.update(dict.fromkeys(instruction.made, loaded))


@operation(in_inference=True, safe=True, ends_forward=True)
def value(run: Replay, instruction: Instruction) -> None:
    """Log the values of a tensor."""
    name = instruction.used[0]
    skip_if(name in run.shared and name not in run.taken)
    run.log((f"{name}.value", run.seen(run.tensors[name])))


@operation(needs=(Capability.VIEWS, Capability.STRIDES), ends_forward=True)
def own(run: Replay, instruction: Instruction) -> None:
    """Make a leaf that shares the storage of a tensor, with its layout."""
    name = instruction.made[0]
    run.owned.add(name)
    run.shared.add(name)
    run.tensors[name] = run.backend.requires_grad_(run.backend.detach(run.input(instruction)))


@operation(safe=True, ends_forward=True)
def take(run: Replay, instruction: Instruction) -> None:
    """Make a tensor of the gradient that a leaf has accumulated, which the next backward may change in place."""
    tensor = run.input(instruction)
    grad = run.backend.grad_of(tensor) if run.backend.is_leaf(tensor) else None
    skip_if(grad is None)
    run.tensors[instruction.made[0]] = grad
    run.shared.add(instruction.made[0])
    run.taken.add(instruction.made[0])


@operation(needs=(Capability.NODES, Capability.NODE_METADATA), ends_forward=True)
def inspect(run: Replay, instruction: Instruction) -> None:
    """Log what a tensor and its node say of themselves, and count the looks in the node's metadata."""
    tensor, backend = run.input(instruction), run.backend
    node = backend.grad_fn(tensor)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of reading the gradient of a tensor that cannot have any
        has_grad = backend.grad_of(tensor) is not None
    flags = (backend.requires_grad(tensor), backend.is_leaf(tensor), backend.retains_grad(tensor), node is None)
    run.log(("inspect", *flags, has_grad))
    if node is not None:
        metadata = backend.node_metadata(node)
        metadata["looks"] = metadata.get("looks", 0) + 1
        run.log(("node", any(other is not None for other in backend.node_next(node)), metadata["looks"]))
