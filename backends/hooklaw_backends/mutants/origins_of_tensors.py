"""Mutants that are wrong with tensors of one origin: one loses the hooks on clones, for example.

No rule need name them: the rules whose ids begin with the place's `chapters` are tried first, then all others.
"""

import weakref
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, fresh, overriding
from hooklaw_backends.mutants.in_situations import named
from hooklaw_backends.mutants.places_of_values import Make, of_argument, of_backward_inputs, of_grad_inputs
from hooklaw_backends.mutants.values import LOST, Change, lost


class _Knowing(Mutant):
    """A mutant that knows which verb made a tensor; it changes nothing."""

    origins = fresh(dict[int, tuple[Any, str]])

    def noted(self, origin: str, made: Any) -> Any:
        """Note that a verb made a tensor, or each of several."""
        for tensor in made if isinstance(made, tuple | list) else [made]:
            with suppress(TypeError):
                self.origins[id(tensor)] = weakref.ref(tensor), origin
        return made

    def is_of(self, origin: str, tensor: Any) -> bool:
        """Whether a tensor has an origin."""
        alive, found = self.origins.get(id(tensor), (None, ""))
        return found == origin and alive is not None and alive() is tensor

    def clone(self, tensor: Any) -> Any:
        return self.noted("clone", super().clone(tensor))

    def view(self, tensor: Any, *shape: int) -> Any:
        return self.noted("view", super().view(tensor, *shape))

    def transpose(self, tensor: Any, first: int, second: int) -> Any:
        return self.noted("view", super().transpose(tensor, first, second))

    def expand(self, tensor: Any, *shape: int) -> Any:
        return self.noted("view", super().expand(tensor, *shape))

    def split(self, tensor: Any, size: int) -> Any:
        return self.noted("part", super().split(tensor, size))

    def mul_(self, tensor: Any, factor: Any) -> Any:
        return self.noted("change-in-place", super().mul_(tensor, factor))

    def cos_(self, tensor: Any) -> Any:
        return self.noted("change-in-place", super().cos_(tensor))

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        return self.noted("checkpoint", super().checkpoint(fn, *inputs, **how))

    def custom_function(self, *given: Any, **options: bool) -> Hook:
        apply = super().custom_function(*given, **options)
        return lambda *inputs: self.noted("custom-function", apply(*inputs))

    def module(self, parameters: Any, forward: Hook) -> Any:
        run = lambda *given, **named: self.noted("module", forward(*given, **named))  # noqa: E731 - a def is no shorter
        module = super().module(parameters, run)
        self.noted("parameter", [getattr(module, name) for name in parameters])
        return module


ORIGINS = {
    "clone": "a clone",
    "view": "a view",
    "part": "an output of split",
    "change-in-place": "what was changed in place",
    "checkpoint": "an output of a checkpoint",
    "custom-function": "an output of a custom Function",
    "module": "an output of a module",
    "parameter": "a parameter of a module",
}
NODES = ("clone", "part", "checkpoint", "custom-function", "module")


def _left_out(change: Change) -> type[Mutant]:
    """Return a mutant in which a multi-grad hook is not for those of its tensors that are lost."""

    def register(self: Mutant, old: Hook, tensors: Any, hook: Hook, **how: Any) -> Any:
        return old([self.detach(each) if change(self, each) is LOST else each for each in tensors], hook, **how)

    return overriding("register_multi_grad_hook")(register)


def _unhooked(change: Change, verb: str) -> type[Mutant]:
    """Return a mutant in which a verb registers a hook that does nothing, if its tensor is lost."""

    def register(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
        return old(tensor, (lambda *_: None) if change(self, tensor) is LOST else hook)

    return overriding(verb)(register)


def _unhooked_node(change: Change) -> type[Mutant]:
    """Return a mutant in which the grad_fn of a tensor that is lost takes no hooks."""

    class Unhooked(Mutant):
        kept_of_lost = fresh(list[Any])

        def grad_fn(self, tensor: Any) -> Any:
            node = super().grad_fn(tensor)
            if change(self, tensor) is LOST:
                self.kept_of_lost.append(weakref.ref(node))
            return node

        def node_register_hook(self, node: Any, hook: Hook) -> Any:
            return super().node_register_hook(node, (lambda *_: None) if self._is_lost(node) else hook)

        def node_register_prehook(self, node: Any, hook: Hook) -> Any:
            return super().node_register_prehook(node, (lambda *_: None) if self._is_lost(node) else hook)

        def _is_lost(self, node: Any) -> bool:
            return any(each() is node for each in self.kept_of_lost)

    return Unhooked


PLACES: dict[str, tuple[str, Make, tuple[str, ...], tuple[str, ...]]] = {
    "tensor-hook-on": (
        "a tensor hook on {} does not run",
        partial(_unhooked, verb="register_hook"),
        ("tensor-hook",),
        tuple(ORIGINS),
    ),
    "post-accumulate-hook-on": (
        "a post-accumulate hook on {} does not run",
        partial(_unhooked, verb="register_post_accumulate_grad_hook"),
        ("post-acc",),
        ("parameter",),
    ),
    "multi-grad-hook-on": (
        "a multi-grad hook is not for {}",
        _left_out,
        ("multi-grad",),
        ("clone", "part", "checkpoint", "module", "parameter"),
    ),
    "retain-grad-on": (
        "retain_grad of {} does nothing",
        partial(of_argument, verb="retain_grad", place=0),
        ("retain-grad",),
        ("clone", "checkpoint", "custom-function", "module"),
    ),
    "backward-input-that-is": (
        "a backward leaves {} out of its inputs",
        of_backward_inputs,
        ("backward",),
        ("clone", "checkpoint", "parameter"),
    ),
    "grad-input-that-is": (
        "autograd.grad returns None for {}",
        of_grad_inputs,
        ("grad",),
        ("clone", "part", "checkpoint", "parameter"),
    ),
    "node-hook-of": ("hooks of the Node of {} do not run", _unhooked_node, ("node",), NODES),
}
"""For each place the fault in words, what makes a mutant, the chapters to try first, and the origins.

Left out are origins of which no rule has both capabilities, such as leaves that were made to require grad.
"""


def made(make: Make, origin: str) -> type[Mutant]:
    """Return a mutant with the fault of a place for tensors of an origin."""
    cell = make(partial(lost, lambda mutant, value: mutant.is_of(origin, value)))  # type: ignore[attr-defined]
    bases: tuple[Any, ...] = cell, _Knowing
    return type(cell.__name__, bases, {"__module__": __name__})


def _all() -> Iterator[tuple[str, str, tuple[str, ...], type[Mutant]]]:
    """Yield the name, the fault in words, the chapters and the class of each mutant."""
    for of, (words, make, chapters, origins) in PLACES.items():
        for origin in origins:
            yield f"{of}-{origin}-lost", words.format(ORIGINS[origin]), chapters, made(make, origin)


vars().update(named(*each) for each in _all())
