"""Mutants whose forward hooks of some kind get the output as forward or another hook of the kind left it."""

from collections.abc import Mapping
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, fresh


class _KnowsOutputs(Mutant):
    """A mutant that keeps the output of each module."""

    left = fresh(dict[Any, Any])

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        def run(module: Any, *args: Any, **kwargs: Any) -> Any:
            self.left[module] = output = forward(module, *args, **kwargs)
            return output

        return super().module(parameters, run)

    def unaware(self, hook: Hook) -> Hook:
        """Return a hook that gets the output that is kept, unless the call failed."""

        def run(module: Any, *given: Any) -> Any:
            return hook(module, *given[:-1], None if given[-1] is None else self.left.get(module, given[-1]))

        return run


class AlwaysCalledHookGetsWhatForwardReturned(_KnowsOutputs):
    """A forward hook with always_call=True gets the output as forward or another such hook left it."""

    def register_forward_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        def run(*given: Any) -> Any:
            result = self.unaware(hook)(*given)
            if result is not None:
                self.left[module] = result
            return result

        return super().register_forward_hook(module, run if options.get("always_call") else hook, **options)


class ForwardHooksWithKwargsGetWhatForwardReturned(_KnowsOutputs):
    """A forward hook with with_kwargs=True gets what forward returned, whatever earlier hooks did."""

    def register_forward_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        taken = self.unaware(hook) if options.get("with_kwargs") else hook
        return super().register_forward_hook(module, taken, **options)


class GlobalForwardHooksGetWhatForwardReturned(_KnowsOutputs):
    """A global forward hook gets what forward returned, whatever other global hooks did."""

    def register_module_forward_hook(self, hook: Hook, **options: bool) -> Any:
        return super().register_module_forward_hook(self.unaware(hook), **options)
