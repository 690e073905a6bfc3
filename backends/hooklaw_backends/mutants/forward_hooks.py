"""Mutants whose forward hooks get the wrong arguments, or run at the wrong time."""

from collections.abc import Mapping, Sequence
from typing import Any

from hooklaw_backends.mutants.base import Hook, ModuleHooks

Options = dict[str, bool]
KINDS = ("forward_pre", "forward")


class ModuleHookGetsBareArguments(ModuleHooks):
    """A forward hook or pre-hook gets a single argument bare instead of in a tuple."""

    def altered(self, kind: str, hook: Hook) -> Hook:
        def bare(module: Any, args: Any, *rest: Any) -> Any:
            return hook(module, args[0] if len(args) == 1 else args, *rest)

        return bare if kind in KINDS else hook


class ForwardHookGetsTheArgumentsOfTheCaller(ModuleHooks):
    """A forward hook gets the caller's arguments, without the changes that pre-hooks made."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        if kind != "forward" or not where:
            return super().put(kind, register, where, hook, options)
        kept: list[Any] = []

        def keep(_: Any, args: Any) -> None:
            kept[:] = [args]

        self.register_forward_pre_hook(where[0], keep, prepend=True)
        return super().put(kind, register, where, lambda module, _, *rest: hook(module, *kept, *rest), options)


class OutputOfAModuleHookInATuple(ModuleHooks):
    """A forward hook gets the output wrapped in a tuple."""

    def altered(self, kind: str, hook: Hook) -> Hook:
        return hook if kind != "forward" else lambda *given: hook(*given[:-1], (given[-1],))


class ForwardHookForTensorsAlone(ModuleHooks):
    """A forward hook does not run if the output is not a tensor."""

    def altered(self, kind: str, hook: Hook) -> Hook:
        return hook if kind != "forward" else lambda *given: hook(*given) if self.is_tensor(given[-1]) else None


class ModuleHooksOnlyWhereItIsRecorded(ModuleHooks):
    """Forward hooks and pre-hooks do not run under no_grad."""

    def altered(self, kind: str, hook: Hook) -> Hook:
        return (lambda *given: hook(*given) if self.is_grad_enabled() else None) if kind in KINDS else hook


class TupleOfAPreHookIsOneArgument(ModuleHooks):
    """A tuple that a forward pre-hook returns is passed to forward as a single argument."""

    def altered(self, kind: str, hook: Hook) -> Hook:
        def nested(*given: Any) -> Any:
            result = hook(*given)
            return (result,) if isinstance(result, tuple) else result

        return nested if kind == "forward_pre" else hook


class NoneOfAModuleHookIsAReplacement(ModuleHooks):
    """If a forward pre-hook returns None, forward is called with None."""

    def altered(self, kind: str, hook: Hook) -> Hook:
        def replacing(*given: Any) -> Any:
            result = hook(*given)
            return (None,) if result is None else result

        return replacing if kind == "forward_pre" else hook


class KeywordArgumentsGivenToEveryModuleHook(ModuleHooks):
    """Forward hooks and pre-hooks get keyword arguments even without with_kwargs=True."""

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
    """A hook registered with with_kwargs=True gets an empty dict of keyword arguments."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        if options.get("with_kwargs"):
            return super().put(kind, register, where, lambda *given: hook(*given[:2], {}, *given[3:]), options)
        return super().put(kind, register, where, hook, options)


class AlwaysCallIgnored(ModuleHooks):
    """A hook registered with always_call=True is not called after an exception."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        rest = {name: value for name, value in options.items() if name != "always_call"}
        return super().put(kind, register, where, hook, rest)


class EveryForwardHookAlwaysCalled(ModuleHooks):
    """Every forward hook is called after an exception, even without always_call=True."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        always = {**options, "always_call": True} if kind == "forward" else options
        return super().put(kind, register, where, hook, always)


class AlwaysCalledHookCalledTwice(ModuleHooks):
    """A hook registered with always_call=True is called twice."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: Options) -> Any:
        twice = options.get("always_call")
        return super().put(
            kind, register, where, (lambda *given: (hook(*given), hook(*given))[1]) if twice else hook, options
        )


class AlwaysCalledHookNeedsForward(ModuleHooks):
    """A hook registered with always_call=True is not called if a pre-hook raises before forward starts."""

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
