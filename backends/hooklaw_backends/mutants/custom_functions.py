"""Mutants whose custom Functions mix up what they saved, what they may return, and what they were given or told."""

from typing import Any

from hooklaw_backends.mutants.base import Handle, Hook, Mutant


class Context:
    """The ctx of a custom Function, with something else for one of its attributes."""

    def __init__(self, own: Any, **instead: Any) -> None:
        object.__setattr__(self, "own", own)
        object.__setattr__(self, "instead", instead)

    def __getattr__(self, name: str) -> Any:
        return self.instead[name]() if name in self.instead else getattr(self.own, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.own, name, value)


class SavedTensorsOfAFunctionTurnedRound(Mutant):
    """What forward saved last comes first in backward."""

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def turned(ctx: Any, *grads: Any) -> Any:
            return backward(Context(ctx, saved_tensors=lambda: tuple(reversed(ctx.saved_tensors))), *grads)

        return super().custom_function(forward, turned, **options)


class EveryInputOfAFunctionNeedsAGradient(Mutant):
    """A backward is told that all inputs need a gradient."""

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def told(ctx: Any, *grads: Any) -> Any:
            return backward(Context(ctx, needs_input_grad=lambda: (True,) * len(ctx.needs_input_grad)), *grads)

        return super().custom_function(forward, told, **options)


class WrongNumberOfGradientsAccepted(Mutant):
    """Gradients that a backward does not return are None."""

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def padded(ctx: Any, *grads: Any) -> Any:
            results = backward(ctx, *grads)
            results = results if isinstance(results, tuple) else (results,)
            return results + (None,) * (len(ctx.needs_input_grad) - len(results))

        return super().custom_function(forward, padded, **options)


class TrailingNonesRefused(Mutant):
    """A backward must return as many gradients as there are inputs, even if None is all that is too many."""

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def counted(ctx: Any, *grads: Any) -> Any:
            results = backward(ctx, *grads)
            if isinstance(results, tuple) and len(results) != len(ctx.needs_input_grad):
                raise RuntimeError("a backward returned another number of gradients than there are inputs")
            return results

        return super().custom_function(forward, counted, **options)


class TensorsInListsAreInputs(Mutant):
    """The tensors in a list that a custom Function is given are inputs of it."""

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def apply(*inputs: Any) -> Any:
            sizes = [len(one) if isinstance(one, list) else None for one in inputs]
            flat = [part for one in inputs for part in (one if isinstance(one, list) else [one])]
            made = super(TensorsInListsAreInputs, self).custom_function(
                lambda ctx, *given: forward(ctx, *_gathered(given, sizes)), backward, **options
            )
            return made(*flat)

        return apply


def _gathered(given: tuple[Any, ...], sizes: list[int | None]) -> list[Any]:
    """Put what was in lists into lists again."""
    rest = list(given)
    return [rest.pop(0) if size is None else [rest.pop(0) for _ in range(size)] for size in sizes]


class HooksPassOverCustomFunctions(Mutant):
    """Hooks on an output of a custom Function, and on its Node, never run."""

    def _is_custom(self, node: Any) -> bool:
        return node is not None and "Custom" in self.node_name(node)

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        return Handle() if self._is_custom(self.grad_fn(tensor)) else super().register_hook(tensor, hook)

    def node_register_prehook(self, node: Any, hook: Hook) -> Any:
        return Handle() if self._is_custom(node) else super().node_register_prehook(node, hook)

    def node_register_hook(self, node: Any, hook: Hook) -> Any:
        return Handle() if self._is_custom(node) else super().node_register_hook(node, hook)


class _Marks(Mutant):
    """Gives forward other marks."""

    def marks(self, ctx: Any) -> dict[str, Hook]:
        raise NotImplementedError

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def marked(ctx: Any, *inputs: Any) -> Any:
            return forward(
                Context(ctx, **{name: lambda mark=mark: mark for name, mark in self.marks(ctx).items()}), *inputs
            )

        return super().custom_function(marked, backward, **options)


class DirtyMarkIgnored(_Marks):
    """An input that forward changed in place is not marked."""

    def marks(self, ctx: Any) -> dict[str, Hook]:  # noqa: ARG002 - it is left as it is
        return {"mark_dirty": lambda *_: None}


class NonDifferentiableMarkIgnored(_Marks):
    """An output that is not differentiable is not marked."""

    def marks(self, ctx: Any) -> dict[str, Hook]:  # noqa: ARG002 - it is left as it is
        return {"mark_non_differentiable": lambda *_: None}


class MarkOfTheOtherKind(_Marks):
    """What is marked as changed is taken for what is not differentiable, and the reverse."""

    def marks(self, ctx: Any) -> dict[str, Hook]:
        return {"mark_dirty": ctx.mark_non_differentiable, "mark_non_differentiable": ctx.mark_dirty}


class FunctionOptionsIgnored(Mutant):
    """The options of a custom Function have no effect."""

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:  # noqa: ARG002 - that is the vice
        return super().custom_function(forward, backward)
