"""Mutants whose custom Functions do not do as they were told."""

from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant
from hooklaw_backends.mutants.custom_functions import Context


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
