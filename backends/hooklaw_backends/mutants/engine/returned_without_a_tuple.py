"""Mutants of a gradient that a backward pre-hook returns in no tuple, which torch refuses."""

from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, altering, calling


@calling("register_full_backward_pre_hook")
def zeros_of_a_backward_pre_hook_ignored_without_a_tuple(self: Mutant, hook: Hook, module: Any, grads: Any) -> Any:
    """A gradient of zeros that a backward pre-hook of a module with one output returns in no tuple is ignored."""
    result = hook(module, grads)
    is_bare = self.is_tensor(result) and len(grads) == 1
    return None if is_bare and self.tolist(result) == self.tolist(self.zeros_like(result)) else result


@altering("register_full_backward_pre_hook")
def later_backward_pre_hooks_of_a_module_return_tuples_alone(self: Mutant, module: Any, hook: Hook) -> Hook:
    """A gradient that a backward pre-hook returns in no tuple is ignored if the hook is not the first of its module."""
    is_later = self.keeps(module)
    self.kept.append(module)

    def run(module: Any, grads: Any) -> Any:
        result = hook(module, grads)
        return None if is_later and self.is_tensor(result) and len(grads) == 1 else result

    return run
