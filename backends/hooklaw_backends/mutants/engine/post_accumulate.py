"""Mutants of the engine's post-accumulate hooks; torch itself breaks the rules that catch them."""

from functools import partial
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, overriding


class PostAccumulateSkippedIfAUseGivesNone(Mutant):
    """The post-accumulate hooks of a leaf do not run in a backward in which one of its uses gives it no gradient."""

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def noting(ctx: Any, *grads: Any) -> Any:
            result = backward(ctx, *grads)
            self.kept += [True] * (result is None)
            return result

        return super().custom_function(forward, noting, **options)

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: Hook) -> Any:
        return super().register_post_accumulate_grad_hook(tensor, lambda leaf: None if self.kept else hook(leaf))

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        self.kept = []
        super().backward(root, gradient, **how)


@overriding("register_post_accumulate_grad_hook")
def post_accumulate_hooks_dropped_in_silence(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """Serializing a tensor with post-accumulate hooks does not warn of them."""
    return old(tensor, self.unserializable_hook(partial(hook)))


@overriding("register_post_accumulate_grad_hook")
def marks_of_post_accumulate_hooks_ignored(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """Serializing a tensor warns of a post-accumulate hook that is marked as unserializable, too."""
    return old(tensor, partial(hook))
