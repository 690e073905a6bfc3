"""Mutants of the legacy backward hooks of modules."""

from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, overriding
from hooklaw_backends.mutants.shared import Handle
from hooklaw_backends.torch_eager import modules


class BothKindsOfModuleBackwardHooksAccepted(Mutant):
    """Legacy and full backward hooks can be registered on the same module, or globally, at the same time."""

    def register_full_backward_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        module._is_full_backward_hook = None  # noqa: SLF001 - torch checks this attribute
        return super().register_full_backward_hook(module, hook, **options)

    def register_backward_hook(self, module: Any, hook: Hook) -> Any:
        module._is_full_backward_hook = None  # noqa: SLF001 - torch checks this attribute
        return super().register_backward_hook(module, hook)

    def register_module_backward_hook(self, hook: Hook) -> Any:
        before = modules.__dict__["_global_is_full_backward_hook"]
        modules.__dict__["_global_is_full_backward_hook"] = None
        try:
            return super().register_module_backward_hook(hook)
        finally:
            modules.__dict__["_global_is_full_backward_hook"] = before


@overriding("register_backward_hook")
def legacy_module_hook_never_runs(*_: Any) -> Any:
    """A legacy backward hook never runs."""
    return Handle()


@overriding("register_backward_hook")
def legacy_module_hook_is_a_full_one(self: Mutant, old: Hook, module: Any, hook: Hook) -> Any:
    """A legacy backward hook gets the gradients of the module's inputs, like a full backward hook."""
    return self.register_full_backward_hook(module, hook)
