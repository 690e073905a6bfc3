"""Mutants as functions: the decorators that make them, and what they share.

A mutant uses the backend's verbs, and the few further methods that `OverTorch` and `OverReference` share, so that
`mutants.backend` and `mutants.of_reference` can build it over either backend.
"""

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar

from hooklaw.backend.protocol import Capability
from hooklaw.backend.torchlike import named

if TYPE_CHECKING:
    from hooklaw_backends.mutants.over_torch import OverTorch as Over
else:
    Over = object

Made = TypeVar("Made")
Hook = Callable[..., Any]
Pair = tuple[Hook, Hook]


def name_of(mutant: type) -> str:
    """Return a mutant's name: the name of its function or class in kebab-case."""
    return re.sub(r"(?<!^)(?=[A-Z])|_", "-", mutant.__name__).lower()


def fresh(make: Callable[[], Made]) -> Made:
    """Return an attribute that is made when a mutant first uses it."""
    made: Any = cached_property(lambda _: make())
    return made


class Mutant(Over):
    """A deliberately wrong backend; the docstring of each subclass says what it breaks."""

    needs: tuple[Capability, ...] = ()
    """What a backend must be able to, beside the verbs that the mutant changes, for the fault to make a difference."""
    kept = fresh(list[Any])
    """What the mutant keeps alive, or remembers."""

    def __init__(self) -> None:
        super().__init__()
        of = "" if self.original == "torch-eager" else f" of {self.original}"
        self.name = f"mutant {name_of(type(self))}{of}"

    def reset(self) -> None:
        super().reset()
        self.kept = []

    def keeps(self, thing: Any) -> bool:
        """Whether a thing is among those kept."""
        return any(thing is kept for kept in self.kept)

    def leaves_of(self, root: Any) -> Iterator[Any]:
        """Yield the leaves of a graph."""
        ahead: list[Any] = [self.gradient_edge(root)[0]]
        seen: set[Any] = set()
        while ahead:
            node = ahead.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if self.leaf_of(node) is not None:
                yield self.leaf_of(node)
            ahead += self.node_next(node)

    def is_floating(self, tensor: Any) -> bool:
        return "float" in self.dtype(tensor)

    def mapped(self, tensor: Any, function: Callable[[Any], Any]) -> Any:
        """Return a tensor like this one with the function applied to each number."""
        if 0 in self.shape(tensor):
            return tensor
        changed = self.tensor(_each(function, self.tolist(tensor)), dtype=self.dtype(tensor))
        return self.laid_out_like(changed, tensor)

    @contextmanager
    def products_by(self, multiply: Hook) -> Generator[None]:
        """Inside the context compute ``left * right`` as ``multiply(original, left, right)``."""
        tensors, original = self.product
        tensors.__mul__ = lambda left, right: multiply(original, left, right)
        try:
            yield
        finally:
            tensors.__mul__ = original

    def zeros_like(self, tensor: Any) -> Any:
        return self.mapped(tensor, lambda _: 0.0)


def _each(function: Callable[[Any], Any], data: Any) -> Any:
    return [_each(function, row) for row in data] if isinstance(data, list) else function(data)


class InBackward(Mutant):
    """A mutant that knows the root of the running backward, and whether it is limited to some inputs."""

    root: Any = None
    is_limited = False

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        self.root, self.is_limited = root, how.get("inputs") is not None
        try:
            super().backward(root, gradient, **how)
        finally:
            self.root, self.is_limited = None, False


class InGrad(Mutant):
    """A mutant that knows the inputs of the running autograd.grad."""

    inputs: Sequence[Any] = ()

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        self.inputs = inputs
        try:
            return super().grad(outputs, inputs, grad_outputs, **how)
        finally:
            self.inputs = ()

    def asks_for(self, tensor: Any) -> bool:
        """Whether a tensor is among the inputs of the running autograd.grad."""
        return any(tensor is asked for asked in self.inputs)


class InTransform(Mutant):
    """A mutant that knows how many transforms are under way."""

    depth = 0

    def reset(self) -> None:
        super().reset()
        self.depth = 0

    @contextmanager
    def deeper(self) -> Generator[None]:
        """Be inside one more transform."""
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def func_grad(self, function: Hook) -> Hook:
        return super().func_grad(self.counted(function))

    def func_vjp(self, function: Hook, *primals: Any) -> Any:
        return super().func_vjp(self.counted(function), *primals)

    def counted(self, function: Hook) -> Hook:
        """Return a function in which one more transform is under way."""

        def inside(*arguments: Any) -> Any:
            with self.deeper():
                return function(*arguments)

        return inside


Maker = Callable[[Hook], type[Mutant]]


def named_after(step: Hook, base: type[Mutant], **members: Any) -> type[Mutant]:
    """Return a mutant that has the name of a function, and breaks what the function's docstring says."""
    return type(step.__name__, (base,), {"__doc__": step.__doc__, "__module__": step.__module__, **members})


def overriding(*verbs: str, base: type[Mutant] = Mutant) -> Maker:
    """Make a mutant that runs ``(self, old, ...)`` in place of these verbs, where `old` is the backend's own verb."""

    def make(step: Hook) -> type[Mutant]:
        made = named_after(step, base)
        for verb in verbs:
            setattr(made, verb, _instead(made, verb, step))
        return made

    return make


def _instead(made: type[Mutant], verb: str, step: Hook) -> Hook:
    def run(self: Any, *given: Any, **options: Any) -> Any:
        return step(self, getattr(super(made, self), verb), *given, **options)

    return named(run, verb)


def with_options(*verbs: str, needs: tuple[Capability, ...] = (), **given: Any) -> Maker:
    """Make a mutant that gives these verbs these options, whatever the caller gave."""

    def make(said: Hook) -> type[Mutant]:
        made = overriding(*verbs)(wraps(said)(lambda _, old, *values, **options: old(*values, **{**options, **given})))
        made.needs = needs
        return made

    return make


def altering(*verbs: str, base: type[Mutant] = Mutant, only: str = "") -> Maker:
    """Make a mutant that registers what ``(self, *where, hook)`` returns in place of each hook of these verbs.

    `only` is an option: hooks registered without it stay.
    """

    def make(step: Hook) -> type[Mutant]:
        @wraps(step)
        def register(self: Any, old: Hook, *given: Any, **options: Any) -> Any:
            if only and not options.get(only):
                return old(*given, **options)
            altered = step(self, *given)
            altered.__dict__.update(getattr(given[-1], "__dict__", {}))  # the mark of an unserializable hook, say
            return old(*given[:-1], altered, **options)

        return overriding(*verbs, base=base)(register)

    return make


def calling(*verbs: str, base: type[Mutant] = Mutant, only: str = "") -> Maker:
    """Make a mutant that calls ``(self, hook, ...)`` in place of each hook of these verbs; `only` as for `altering`."""

    def make(step: Hook) -> type[Mutant]:
        @wraps(step)
        def altered(self: Any, *given: Any) -> Hook:
            hook = given[-1]  # alone: a hook must not keep its tensor alive
            return lambda *call, **named: step(self, hook, *call, **named)

        return altering(*verbs, base=base, only=only)(altered)

    return make


def pairs(*verbs: str, base: type[Mutant] = Mutant) -> Maker:
    """Make a mutant that uses what ``(self, pack, unpack)`` returns in place of each pair of saved-tensor hooks."""

    def make(step: Hook) -> type[Mutant]:
        @wraps(step)
        def use(self: Any, old: Hook, *given: Any) -> Any:
            return old(*given[:-2], *step(self, *given[-2:]))

        return overriding(*verbs, base=base)(use)

    return make


def packing(*verbs: str, base: type[Mutant] = Mutant) -> Maker:
    """Make a mutant that calls ``(self, pack, tensor)`` in place of each pack hook."""

    def make(step: Hook) -> type[Mutant]:
        return pairs(*verbs, base=base)(wraps(step)(lambda self, pack, unpack: (partial(step, self, pack), unpack)))

    return make


def unpacking(*verbs: str) -> Maker:
    """Make a mutant that calls ``(self, unpack, packed)`` in place of each unpack hook."""
    return lambda step: pairs(*verbs)(wraps(step)(lambda self, pack, unpack: (pack, partial(step, self, unpack))))


def changing_unpacked(step: Hook) -> type[Mutant]:
    """Make a mutant that passes what unpack returns through ``(self, tensor)``."""
    changed = wraps(step)(lambda self, unpack, packed: step(self, unpack(packed)))
    return unpacking("saved_tensors_hooks")(changed)


def unpacking_beside(step: Hook) -> type[Mutant]:
    """Make a mutant that calls ``(self, unpack, packed, saved)`` in place of unpack, where `saved` was packed."""

    def beside(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
        return lambda tensor: (pack(tensor), self.detach(tensor)), lambda both: step(self, unpack, *both)

    return pairs("saved_tensors_hooks")(wraps(step)(beside))


def products(step: Hook) -> type[Mutant]:
    """Make a mutant that computes products during the forward pass by ``(self, multiply, left, right)``."""

    def call(self: Mutant, old: Hook, fn: Hook, *tensors: Any) -> Any:
        with self.products_by(partial(step, self)):
            return old(fn, *tensors)

    return overriding("call")(wraps(step)(call))
