"""Mutants whose hooks on modules run in the wrong order, for the wrong calls, or not at all."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from hooklaw_backends.mutants.base import Handle, Hook, ModuleHooks, Mutant, Passes, within

Options = dict[str, bool]


def without(options: Options, name: str) -> Options:
    """Return the options but one."""
    return {one: value for one, value in options.items() if one != name}


class ModuleHooksRunInReverseOrder(ModuleHooks):
    """Hooks on a module run from the last registered to the first."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        turned = {**options, "prepend": not options.get("prepend", False)} if where else options
        return super().put(kind, register, where, hook, turned)


class PrependIgnored(ModuleHooks):
    """A hook that is prepended runs after those that the module has already."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        return super().put(kind, register, where, hook, without(options, "prepend"))


class _Made(Mutant):
    """Knows the modules that it made."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Any] = []

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        self.made.append(super().module(parameters, forward))
        return self.made[-1]


class GlobalModuleHooksRunLast(ModuleHooks, _Made):
    """A hook on all modules runs after those that each of them has already."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        if where:
            return super().put(kind, register, where, hook, options)
        handles = [getattr(self, f"register_{kind}_hook")(module, hook, **options) for module in self.made]
        return Handle(lambda: [handle.remove() for handle in handles])


class GlobalModuleHooksOnTheOutermostModule(ModuleHooks):
    """A hook on all modules does not run for a module that another one calls."""

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
            is_inner = self._depth or any(module is one for one in self._inner)
            return None if is_inner else hook(module, *rest)

        return super().put(kind, register, where, hook if where else outermost, options)


class ModuleHandleRemovesNothing(ModuleHooks):
    """The handle of a hook on a module leaves it there."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        super().put(kind, register, where, hook, options)
        return Handle()


class ReplacementByAModuleHookIgnored(ModuleHooks):
    """What a hook on a module returns is dropped."""

    def altered(self, kind: str, hook: Hook) -> Hook:  # noqa: ARG002 - the same for all
        return lambda *given: (hook(*given), None)[1]


class ExceptionInAModuleHookIsLost(ModuleHooks):
    """An exception in a hook on a module is passed over."""

    def altered(self, kind: str, hook: Hook) -> Hook:  # noqa: ARG002 - the same for all
        return within(lambda: suppress(Exception), hook)


class WrongReturnOfAModuleHookAccepted(ModuleHooks):
    """What a hook on a module may not return is dropped."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        def checked(module: Any, *given: Any) -> Any:
            result = hook(module, *given)
            expected = 2 if options.get("with_kwargs") else len(given[0])
            fits = isinstance(result, tuple) and len(result) == expected
            return result if fits and any(one is not None for one in given[0]) else None

        watched = kind.startswith("full") or (kind == "forward_pre" and options.get("with_kwargs"))
        return super().put(kind, register, where, checked if watched else hook, options)


class FullBackwardHookAtTheOutputs(ModuleHooks):
    """A full backward hook runs for the gradients of the outputs, and replaces those."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        if kind != "full_backward" or not where:
            return super().put(kind, register, where, hook, options)
        return self.register_full_backward_pre_hook(
            where[0], lambda module, grads: hook(module, grads, grads), **options
        )


class GradientsOfAModuleSwapped(ModuleHooks):
    """A full backward hook is given the gradients of the outputs for those of the inputs, and the reverse."""

    def altered(self, kind: str, hook: Hook) -> Hook:
        return hook if kind != "full_backward" else lambda module, inputs, outputs: hook(module, outputs, inputs)


class FullBackwardHookHasOneGradientTooMany(ModuleHooks):
    """A full backward hook is given one gradient more than there are inputs."""

    def altered(self, kind: str, hook: Hook) -> Hook:
        def longer(module: Any, inputs: Any, outputs: Any) -> Any:
            result = hook(module, (*inputs, None), outputs)
            return result and result[: len(inputs)]

        return longer if kind == "full_backward" else hook


class ModuleHooksGetGradientsOfTensorsAlone(ModuleHooks):
    """A full backward hook is given no None for what is no tensor."""

    def altered(self, kind: str, hook: Hook) -> Hook:
        def shorter(module: Any, *grads: Any) -> Any:
            hook(module, *(tuple(one for one in some if one is not None) for some in grads))

        return shorter if kind == "full_backward" else hook


class ModuleBackwardHooksDeferredToTheEnd(ModuleHooks, Passes):
    """Backward hooks of modules run when the backward is over."""

    def __init__(self) -> None:
        super().__init__()
        self._deferred: list[Callable[[], object]] = []

    def around(self, run: Callable[[], Any]) -> Any:
        result = run()
        while self._deferred:
            self._deferred.pop(0)()
        return result

    def altered(self, kind: str, hook: Hook) -> Hook:
        later: Hook = lambda *given: self._deferred.append(lambda: hook(*given))  # noqa: E731 - a def is no shorter
        return later if kind.startswith("full") else hook


class ModuleBackwardHooksCalledForNothing(ModuleHooks, Passes):
    """A full backward hook that has not run is called with nothing in the end."""

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
            self._waiting = [one for one in self._waiting if one is not hook]
            return hook(*given)

        self._waiting += [hook] if kind == "full_backward" else []
        return called if kind == "full_backward" else hook


class ModuleBackwardHookFiresOnce(ModuleHooks):
    """A backward hook of a module runs the first time only."""

    def altered(self, kind: str, hook: Hook) -> Hook:
        fired: list[bool] = []
        once: Hook = lambda *given: None if fired else (fired.append(True), hook(*given))[1]  # noqa: E731 - idem
        return once if kind.startswith("full") else hook


class ModuleBackwardHooksSkippedInAutogradGrad(ModuleHooks):
    """Backward hooks of modules do not run in autograd.grad."""

    asked = False

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        self.asked = True
        try:
            return super().grad(outputs, inputs, grad_outputs, **how)
        finally:
            self.asked = False

    def altered(self, kind: str, hook: Hook) -> Hook:
        return (lambda *given: None if self.asked else hook(*given)) if kind.startswith("full") else hook


class ModuleHooksSilentWithoutInputGradients(ModuleHooks):
    """Backward hooks of a module do not run where none of its inputs requires grad."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        if not where or not kind.startswith("full"):
            return super().put(kind, register, where, hook, options)
        wanted: list[bool] = []

        def note(_: Any, args: Any) -> None:
            wanted[:] = [self.requires_grad(one) for one in args if self.is_tensor(one)]

        self.register_forward_pre_hook(where[0], note)
        return super().put(kind, register, where, lambda *given: hook(*given) if any(wanted) else None, options)


class BackwardHooksOfAModuleLookedUpLate(ModuleHooks):
    """Which full backward hooks a module has is looked up in backward, not when it is called."""

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
    """The forward of a module is recorded even under no_grad."""

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        return super().module(parameters, within(self.enable_grad, forward))


class ChangesInPlaceAroundModulesAccepted(Mutant):
    """A tensor that must not be changed in place is changed without its history."""

    def mul_(self, tensor: Any, factor: Any) -> Any:
        try:
            return super().mul_(tensor, factor)
        except RuntimeError:
            return super().mul_(self.detach(tensor), factor)
