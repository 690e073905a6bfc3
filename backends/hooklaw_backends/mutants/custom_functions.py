"""Mutants whose custom Functions mix up saved tensors, gradients, inputs, marks or options."""

from functools import partial
from typing import Any

from hooklaw_backends.mutants.base import Handle, Hook, Mutant


class Context:
    """The ctx of a custom Function, with some attributes replaced."""

    def __init__(self, own: Any, **instead: Any) -> None:
        object.__setattr__(self, "own", own)
        object.__setattr__(self, "instead", instead)

    def __getattr__(self, name: str) -> Any:
        return self.instead[name]() if name in self.instead else getattr(self.own, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.own, name, value)


class _OtherBackward(Mutant):
    """A mutant that runs the backward of a custom Function in its own way."""

    def run(self, backward: Hook, ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        return super().custom_function(forward, partial(self.run, backward), **options)


class SavedTensorsOfAFunctionTurnedRound(_OtherBackward):
    """ctx.saved_tensors returns the saved tensors in reverse order."""

    def run(self, backward: Hook, ctx: Any, *grads: Any) -> Any:
        return backward(Context(ctx, saved_tensors=lambda: tuple(reversed(ctx.saved_tensors))), *grads)


class EveryInputOfAFunctionNeedsAGradient(_OtherBackward):
    """ctx.needs_input_grad is True for every input of a custom Function."""

    def run(self, backward: Hook, ctx: Any, *grads: Any) -> Any:
        return backward(Context(ctx, needs_input_grad=lambda: (True,) * len(ctx.needs_input_grad)), *grads)


class WrongNumberOfGradientsAccepted(_OtherBackward):
    """A custom Function's backward may return too few gradients; the missing ones count as None."""

    def run(self, backward: Hook, ctx: Any, *grads: Any) -> Any:
        results = backward(ctx, *grads)
        results = results if isinstance(results, tuple) else (results,)
        return results + (None,) * (len(ctx.needs_input_grad) - len(results))


class TrailingNonesRefused(_OtherBackward):
    """A custom Function's backward that returns surplus None values at the end is an error."""

    def run(self, backward: Hook, ctx: Any, *grads: Any) -> Any:
        results = backward(ctx, *grads)
        if isinstance(results, tuple) and len(results) != len(ctx.needs_input_grad):
            raise RuntimeError("a backward returned a different number of gradients than there are inputs")
        return results


class TensorsInListsAreInputs(Mutant):
    """Tensors inside a list argument of a custom Function count as its inputs."""

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def apply(*inputs: Any) -> Any:
            sizes = [len(value) if isinstance(value, list) else None for value in inputs]
            flat = [part for value in inputs for part in (value if isinstance(value, list) else [value])]
            made = super(TensorsInListsAreInputs, self).custom_function(
                lambda ctx, *given: forward(ctx, *_gathered(given, sizes)), backward, **options
            )
            return made(*flat)

        return apply


def _gathered(given: tuple[Any, ...], sizes: list[int | None]) -> list[Any]:
    """Restore the lists that were flattened."""
    rest = list(given)
    return [rest.pop(0) if size is None else [rest.pop(0) for _ in range(size)] for size in sizes]


class HooksPassOverCustomFunctions(Mutant):
    """Hooks on an output of a custom Function, or on its Node, never run."""

    def _is_custom(self, node: Any) -> bool:
        return node is not None and "Custom" in self.node_name(node)

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        return Handle() if self._is_custom(self.grad_fn(tensor)) else super().register_hook(tensor, hook)

    def node_register_prehook(self, node: Any, hook: Hook) -> Any:
        return Handle() if self._is_custom(node) else super().node_register_prehook(node, hook)

    def node_register_hook(self, node: Any, hook: Hook) -> Any:
        return Handle() if self._is_custom(node) else super().node_register_hook(node, hook)


class _Marks(Mutant):
    """A mutant that replaces the mark methods of ctx in forward."""

    def marks(self, ctx: Any) -> dict[str, Hook]:
        raise NotImplementedError

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def marked(ctx: Any, *inputs: Any) -> Any:
            return forward(
                Context(ctx, **{name: lambda mark=mark: mark for name, mark in self.marks(ctx).items()}), *inputs
            )

        return super().custom_function(marked, backward, **options)


class DirtyMarkIgnored(_Marks):
    """ctx.mark_dirty has no effect."""

    def marks(self, ctx: Any) -> dict[str, Hook]:  # noqa: ARG002 - part of the method
        return {"mark_dirty": lambda *_: None}


class NonDifferentiableMarkIgnored(_Marks):
    """ctx.mark_non_differentiable has no effect."""

    def marks(self, ctx: Any) -> dict[str, Hook]:  # noqa: ARG002 - part of the method
        return {"mark_non_differentiable": lambda *_: None}


class MarkOfTheOtherKind(_Marks):
    """ctx.mark_dirty and ctx.mark_non_differentiable are swapped."""

    def marks(self, ctx: Any) -> dict[str, Hook]:
        return {"mark_dirty": ctx.mark_non_differentiable, "mark_non_differentiable": ctx.mark_dirty}


class FunctionOptionsIgnored(Mutant):
    """The options of a custom Function, such as once_differentiable, have no effect."""

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:  # noqa: ARG002 - that is the vice
        return super().custom_function(forward, backward)
