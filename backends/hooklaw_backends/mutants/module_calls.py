"""Mutants that pass the wrong tensors to a module's forward, or run its hooks in the wrong calls."""

from collections.abc import Mapping, Sequence
from typing import Any
from warnings import catch_warnings

from hooklaw_backends.mutants.base import Hook, ModuleHooks, Mutant


class ForwardRunsTheModuleHooks(Mutant):
    """Calling a module's forward directly runs the module's hooks."""

    def forward(self, module: Any, *inputs: Any) -> Any:
        return module(*inputs)


class ForwardIsGivenCopies(Mutant):
    """A module's forward gets copies of its inputs."""

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        def copied(module: Any, *args: Any, **kwargs: Any) -> Any:
            copies = [self.clone(value) if self.is_tensor(value) else value for value in args]
            return forward(module, *copies, **kwargs)

        return super().module(parameters, copied)


class ForwardIsGivenWhatTheCallerGave(Mutant):
    """A module's forward gets the caller's own tensors, even if hooks replace or wrap them."""

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        given: list[Any] = []
        made = super().module(parameters, lambda module, *_, **kwargs: forward(module, *given, **kwargs))

        def keep(_: Any, args: Any) -> None:
            given[:] = args

        self.register_forward_pre_hook(made, keep)
        return made


class NamedtupleBecomesATuple(Mutant):
    """A named tuple that a module's forward returns becomes a plain tuple."""

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        def plain(*args: Any, **kwargs: Any) -> Any:
            output = forward(*args, **kwargs)
            return tuple(output) if isinstance(output, tuple) else output  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]

        return super().module(parameters, plain)


class WarningsOfACallAreLost(Mutant):
    """Warnings raised during the forward pass are lost."""

    def call(self, fn: Hook, *tensors: Any) -> Any:
        with catch_warnings(action="ignore"):
            return super().call(fn, *tensors)


class ModuleHooksOnlyOnTheOriginal(ModuleHooks):
    """Module hooks do not run on a copy of the module."""

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: dict[str, bool]) -> Any:
        here: Hook = lambda module, *given: hook(module, *given) if module is where[0] else None  # noqa: E731 - a def is no shorter
        return super().put(kind, register, where, here if where else hook, options)


class HookRegisteredMeanwhileRunsAtOnce(ModuleHooks):
    """A forward hook registered by another forward hook runs in the same call."""

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
