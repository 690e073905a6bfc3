"""Mutants whose module hooks run in the wrong order, for the wrong calls, or not at all."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from hooklaw_backends.mutants.base import (
    Deferring,
    Handle,
    Hook,
    InGrad,
    ModuleHooks,
    Mutant,
    Passes,
    once,
    within,
    without_result,
)

Options = dict[str, bool]


def without(options: Options, name: str) -> Options:
    """Return the options except the named one."""
    return {option: value for option, value in options.items() if option != name}


class ModuleHooksRunInReverseOrder(ModuleHooks):
    """Module hooks run in reverse order of registration."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        turned = {**options, "prepend": not options.get("prepend", False)} if where else options
        return super().put(kind, register, where, hook, turned)


class PrependIgnored(ModuleHooks):
    """A module hook registered with prepend=True runs after the earlier hooks."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        return super().put(kind, register, where, hook, without(options, "prepend"))


class _Made(Mutant):
    """A mutant that knows the modules that the user created."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Any] = []

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        self.made.append(super().module(parameters, forward))
        return self.made[-1]


class GlobalModuleHooksRunLast(ModuleHooks, _Made):
    """A global module hook runs after the hooks of the module itself."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        if where:
            return super().put(kind, register, where, hook, options)
        handles = [getattr(self, f"register_{kind}_hook")(module, hook, **options) for module in self.made]
        return Handle(lambda: [handle.remove() for handle in handles])


class GlobalModuleHooksOnTheOutermostModule(ModuleHooks):
    """A global module hook does not run for a module that another module calls."""

    def __init__(self) -> None:
        super().__init__()
        self._depth, self._inner = 0, list[Any]()

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        def counted(module: Any, *args: Any, **kwargs: Any) -> Any:
            self._inner += [module] if self._depth else []
            self._depth += 1
            try:
                return forward(module, *args, **kwargs)
            finally:
                self._depth -= 1

        return super().module(parameters, counted)

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        def outermost(module: Any, *rest: Any) -> Any:
            is_inner = self._depth or any(module is inner for inner in self._inner)
            return None if is_inner else hook(module, *rest)

        return super().put(kind, register, where, hook if where else outermost, options)


class ModuleHandleRemovesNothing(ModuleHooks):
    """The handle of a module hook does not remove the hook."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        super().put(kind, register, where, hook, options)
        return Handle()


class ReplacementByAModuleHookIgnored(ModuleHooks):
    """The return value of a module hook is ignored."""

    def altered(self, kind: str, hook: Hook) -> Hook:  # noqa: ARG002 - the same for all
        return without_result(hook)


class ExceptionInAModuleHookIsLost(ModuleHooks):
    """An exception in a module hook is lost."""

    def altered(self, kind: str, hook: Hook) -> Hook:  # noqa: ARG002 - the same for all
        return within(lambda: suppress(Exception), hook)


class WrongReturnOfAModuleHookAccepted(ModuleHooks):
    """A module hook's return value of the wrong type or length is ignored instead of raising an error."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        def checked(module: Any, *given: Any) -> Any:
            result = hook(module, *given)
            expected = 2 if options.get("with_kwargs") else len(given[0])
            fits = isinstance(result, tuple) and len(result) == expected
            return result if fits and any(grad is not None for grad in given[0]) else None

        watched = kind.startswith("full") or (kind == "forward_pre" and options.get("with_kwargs"))
        return super().put(kind, register, where, checked if watched else hook, options)


class FullBackwardHookAtTheOutputs(ModuleHooks):
    """A full backward hook runs on the gradients of the outputs, and its return value replaces them."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        if kind != "full_backward" or not where:
            return super().put(kind, register, where, hook, options)
        return self.register_full_backward_pre_hook(
            where[0], lambda module, grads: hook(module, grads, grads), **options
        )


class GradientsOfAModuleSwapped(ModuleHooks):
    """A full backward hook gets grad_input and grad_output swapped."""

    def altered(self, kind: str, hook: Hook) -> Hook:
        return hook if kind != "full_backward" else lambda module, inputs, outputs: hook(module, outputs, inputs)


class FullBackwardHookHasOneGradientTooMany(ModuleHooks):
    """The grad_input of a full backward hook has one entry too many."""

    def altered(self, kind: str, hook: Hook) -> Hook:
        def longer(module: Any, inputs: Any, outputs: Any) -> Any:
            result = hook(module, (*inputs, None), outputs)
            return result and result[: len(inputs)]

        return longer if kind == "full_backward" else hook


class ModuleHooksGetGradientsOfTensorsAlone(ModuleHooks):
    """A full backward hook gets gradients without a None for each non-tensor argument."""

    def altered(self, kind: str, hook: Hook) -> Hook:
        def shorter(module: Any, *grads: Any) -> Any:
            hook(module, *(tuple(grad for grad in some if grad is not None) for some in grads))

        return shorter if kind == "full_backward" else hook


class ModuleBackwardHooksDeferredToTheEnd(ModuleHooks, Deferring):
    """Module backward hooks run only after the whole backward."""

    def altered(self, kind: str, hook: Hook) -> Hook:
        return self.later(hook) if kind.startswith("full") else hook


class ModuleBackwardHooksCalledForNothing(ModuleHooks, Passes):
    """After a backward, each full backward hook that did not run is called with None gradients."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[Hook] = []

    def around(self, run: Callable[[], Any]) -> Any:
        waiting, self._waiting = self._waiting, self._waiting.copy()
        result = run()
        for hook in self._waiting:
            hook(None, (None,), (None,))
        self._waiting = waiting
        return result

    def altered(self, kind: str, hook: Hook) -> Hook:
        def called(*given: Any) -> Any:
            self._waiting = [waiting for waiting in self._waiting if waiting is not hook]
            return hook(*given)

        self._waiting += [hook] if kind == "full_backward" else []
        return called if kind == "full_backward" else hook


class ModuleBackwardHookFiresOnce(ModuleHooks):
    """A module backward hook runs only the first time."""

    def altered(self, kind: str, hook: Hook) -> Hook:
        return once(hook) if kind.startswith("full") else hook


class ModuleBackwardHooksSkippedInAutogradGrad(ModuleHooks, InGrad):
    """Module backward hooks do not run in autograd.grad."""

    def altered(self, kind: str, hook: Hook) -> Hook:
        return (lambda *given: None if self.inputs else hook(*given)) if kind.startswith("full") else hook


class ModuleHooksSilentWithoutInputGradients(ModuleHooks):
    """A module's backward hooks do not run if none of its inputs requires grad."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        if not where or not kind.startswith("full"):
            return super().put(kind, register, where, hook, options)
        wanted: list[bool] = []

        def note(_: Any, args: Any) -> None:
            wanted[:] = [self.requires_grad(value) for value in args if self.is_tensor(value)]

        self.register_forward_pre_hook(where[0], note)
        return super().put(kind, register, where, lambda *given: hook(*given) if any(wanted) else None, options)


class BackwardHooksOfAModuleLookedUpLate(ModuleHooks):
    """A module's full backward hooks are looked up during backward instead of at the forward call."""

    def __init__(self) -> None:
        super().__init__()
        self._hooks: dict[Any, list[Hook]] = {}

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        made = super().module(parameters, forward)
        hooks: list[Hook] = []
        self.register_full_backward_hook(made, _in_turn(hooks))
        self._hooks[made] = hooks
        return made

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        if kind != "full_backward" or not where or where[0] not in self._hooks:
            return super().put(kind, register, where, hook, options)
        hooks = self._hooks[where[0]]
        hooks.insert(0 if options.get("prepend") else len(hooks), hook)
        return Handle(lambda: hooks.remove(hook))


def _in_turn(hooks: Sequence[Hook]) -> Hook:
    def run(module: Any, inputs: Any, outputs: Any) -> Any:
        for hook in hooks:
            result = hook(module, inputs, outputs)
            inputs = inputs if result is None else result
        return inputs

    return run


class ModuleWithBackwardHooksRecords(Mutant):
    """A module's forward is recorded even under no_grad."""

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        return super().module(parameters, within(self.enable_grad, forward))


class ChangesInPlaceAroundModulesAccepted(Mutant):
    """A forbidden in-place change is made on a detached tensor instead of raising an error."""

    def mul_(self, tensor: Any, factor: Any) -> Any:
        try:
            return super().mul_(tensor, factor)
        except RuntimeError:
            return super().mul_(self.detach(tensor), factor)
