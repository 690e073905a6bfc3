"""Mutants that give a module's forward the wrong tensors, or its hooks the wrong calls."""

from collections.abc import Mapping, Sequence
from typing import Any
from warnings import catch_warnings

from hooklaw_backends.mutants.base import Hook, ModuleHooks, Mutant


class ForwardRunsTheModuleHooks(Mutant):
    """The hooks of a module run where its forward is called directly."""

    def forward(self, module: Any, *inputs: Any) -> Any:
        return module(*inputs)


class ForwardIsGivenCopies(Mutant):
    """The forward of a module is given copies of its inputs."""

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        def copied(module: Any, *args: Any, **kwargs: Any) -> Any:
            copies = [self.clone(one) if self.is_tensor(one) else one for one in args]
            return forward(module, *copies, **kwargs)

        return super().module(parameters, copied)


class ForwardIsGivenWhatTheCallerGave(Mutant):
    """The forward of a module is given the caller's own tensors, whatever hooks the module has."""

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        given: list[Any] = []
        made = super().module(parameters, lambda module, *_, **kwargs: forward(module, *given, **kwargs))

        def keep(_: Any, args: Any) -> None:
            given[:] = args

        self.register_forward_pre_hook(made, keep)
        return made


class NamedtupleBecomesATuple(Mutant):
    """The forward of a module that returns a named tuple returns a tuple without names."""

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        def plain(*args: Any, **kwargs: Any) -> Any:
            output = forward(*args, **kwargs)
            return tuple(output) if isinstance(output, tuple) else output  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]

        return super().module(parameters, plain)


class WarningsOfACallAreLost(Mutant):
    """Nothing that the forward part does warns."""

    def call(self, fn: Hook, *tensors: Any) -> Any:
        with catch_warnings(action="ignore"):
            return super().call(fn, *tensors)


class ModuleHooksOnlyOnTheOriginal(ModuleHooks):
    """The hooks of a module do not run for a copy of it."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: dict[str, bool]) -> Any:
        here: Hook = lambda module, *given: hook(module, *given) if module is where[0] else None  # noqa: E731 - a def is no shorter
        return super().put(kind, register, where, here if where else hook, options)


class HookRegisteredMeanwhileRunsAtOnce(ModuleHooks):
    """A forward hook that another one registers runs in the same call."""

    def __init__(self) -> None:
        super().__init__()
        self._running: list[tuple[Any, ...]] = []

    def altered(self, kind: str, hook: Hook) -> Hook:
        def noted(*given: Any) -> Any:
            self._running.append(given)
            try:
                return hook(*given)
            finally:
                self._running.pop()

        return noted if kind == "forward" else hook

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: dict[str, bool]) -> Any:
        handle = super().put(kind, register, where, hook, options)
        if kind == "forward" and self._running:
            hook(*self._running[-1])
        return handle
