"""Mutants whose hooks around a module's forward get the wrong things, or run where they should not."""

from collections.abc import Mapping, Sequence
from typing import Any

from hooklaw_backends.mutants.base import Hook, ModuleHooks

Options = dict[str, bool]
KINDS = ("forward_pre", "forward")


class ModuleHookGetsBareArguments(ModuleHooks):
    """A hook around forward is given the only argument itself, not a tuple with it."""

    def altered(self, kind: str, hook: Hook) -> Hook:
        def bare(module: Any, args: Any, *rest: Any) -> Any:
            return hook(module, args[0] if len(args) == 1 else args, *rest)

        return bare if kind in KINDS else hook


class ForwardHookGetsTheArgumentsOfTheCaller(ModuleHooks):
    """A forward hook is given the arguments from before any pre-hook."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        if kind != "forward" or not where:
            return super().put(kind, register, where, hook, options)
        kept: list[Any] = []

        def keep(_: Any, args: Any) -> None:
            kept[:] = [args]

        self.register_forward_pre_hook(where[0], keep, prepend=True)
        return super().put(kind, register, where, lambda module, _, *rest: hook(module, *kept, *rest), options)


class OutputOfAModuleHookInATuple(ModuleHooks):
    """A forward hook is given the output in a tuple."""

    def altered(self, kind: str, hook: Hook) -> Hook:
        return hook if kind != "forward" else lambda *given: hook(*given[:-1], (given[-1],))


class ForwardHookForTensorsAlone(ModuleHooks):
    """A forward hook does not run where the output is no tensor."""

    def altered(self, kind: str, hook: Hook) -> Hook:
        return hook if kind != "forward" else lambda *given: hook(*given) if self.is_tensor(given[-1]) else None


class ModuleHooksOnlyWhereItIsRecorded(ModuleHooks):
    """Hooks around forward do not run under no_grad."""

    def altered(self, kind: str, hook: Hook) -> Hook:
        return (lambda *given: hook(*given) if self.is_grad_enabled() else None) if kind in KINDS else hook


class TupleOfAPreHookIsOneArgument(ModuleHooks):
    """A tuple that a forward pre-hook returns is one argument of forward."""

    def altered(self, kind: str, hook: Hook) -> Hook:
        def nested(*given: Any) -> Any:
            result = hook(*given)
            return (result,) if isinstance(result, tuple) else result

        return nested if kind == "forward_pre" else hook


class NoneOfAModuleHookIsAReplacement(ModuleHooks):
    """A forward pre-hook that returns None has forward called with None."""

    def altered(self, kind: str, hook: Hook) -> Hook:
        def replacing(*given: Any) -> Any:
            result = hook(*given)
            return (None,) if result is None else result

        return replacing if kind == "forward_pre" else hook


class KeywordArgumentsGivenToEveryModuleHook(ModuleHooks):
    """A hook around forward is given keyword arguments though it has not asked for them."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        if kind not in KINDS or not where or options.get("with_kwargs"):
            return super().put(kind, register, where, hook, options)

        def given_all(module: Any, args: Any, kwargs: Any, *output: Any) -> Any:
            result = hook(module, args, kwargs, *output)
            if result is None or output:
                return result
            return (result if isinstance(result, tuple) else (result,)), kwargs

        return super().put(kind, register, where, given_all, {**options, "with_kwargs": True})


class WithKwargsIgnored(ModuleHooks):
    """A hook that asks for the keyword arguments is told that there are none."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        if options.get("with_kwargs"):
            return super().put(kind, register, where, lambda *given: hook(*given[:2], {}, *given[3:]), options)
        return super().put(kind, register, where, hook, options)


class AlwaysCallIgnored(ModuleHooks):
    """A hook that is to be called always is not called where something failed."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        rest = {name: value for name, value in options.items() if name != "always_call"}
        return super().put(kind, register, where, hook, rest)


class EveryForwardHookAlwaysCalled(ModuleHooks):
    """Forward hooks run where something failed, though none asked for it."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        always = {**options, "always_call": True} if kind == "forward" else options
        return super().put(kind, register, where, hook, always)


class AlwaysCalledHookCalledTwice(ModuleHooks):
    """A hook that is to be called always is called twice."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        twice = options.get("always_call")
        return super().put(
            kind, register, where, (lambda *given: (hook(*given), hook(*given))[1]) if twice else hook, options
        )


class AlwaysCalledHookNeedsForward(ModuleHooks):
    """A hook that is to be called always is not called where forward has not begun."""

    began = False

    def reset(self) -> None:
        super().reset()
        self.began = False

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        def noted(*args: Any, **kwargs: Any) -> Any:
            self.began = True
            return forward(*args, **kwargs)

        return super().module(parameters, noted)

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        needy = options.get("always_call")
        return super().put(
            kind, register, where, (lambda *given: hook(*given) if self.began else None) if needy else hook, options
        )
