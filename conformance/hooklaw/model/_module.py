"""Modules: a forward function with parameters, and the hooks around its call."""

import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple, cast

from hooklaw.model import _legacy, ops
from hooklaw.model._boundary import Boundary
from hooklaw.model._state import StatefulRegistry
from hooklaw.model.errors import ModuleHookError
from hooklaw.model.flags import on
from hooklaw.model.hooks import Hook, Hooks, RemovableHandle
from hooklaw.model.tensor import Tensor

KINDS = ("forward_pre", "forward", "backward_pre", "backward", _legacy.KIND)
every_module = {kind: Hooks() for kind in KINDS}
"""Global hooks, which each module calls before its own."""
_backward_kind = _legacy.BackwardKind()


class ModuleHook(NamedTuple):
    """A hook of a module with the options of its registration."""

    hook: Hook
    with_kwargs: bool = False
    always_call: bool = False

    def __call__(self, module: "Module", args: Any, kwargs: Any, *output: Any) -> Any:
        """Call the hook; pass `kwargs` only to a hook registered with_kwargs."""
        return self.hook(module, args, *([kwargs] if self.with_kwargs else []), *output)


class Module(StatefulRegistry):
    """A forward function with parameters as attributes."""

    training = True

    def __init__(self, parameters: Mapping[str, Tensor], forward: Callable[..., Any]) -> None:
        super().__init__()
        self.forward, self.hooks = forward, {kind: Hooks() for kind in KINDS}
        self.backward_kind = _legacy.BackwardKind()
        for name, value in parameters.items():
            self.register("parameter", name, value.detach().requires_grad_())

    def __deepcopy__(self, memo: dict[int, Any]) -> "Module":
        """Return a module with the same hooks, and with parameters of its own that have no hooks."""
        copy = memo[id(self)] = Module({}, self.forward)
        for kind, values in self.registered.items():
            copy.registered[kind] = {name: _copied(value, memo) for name, value in values.items()}
        others = {name: value for name, value in vars(self).items() if name != "registered"}
        vars(copy).update(deepcopy(others, memo))
        return copy

    def hooks_now(self, kind: str) -> dict[int, Any]:
        """Return the hooks to run, by id; a hook registered meanwhile waits for the next call."""
        return {**every_module[kind], **self.hooks[kind]}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run forward with the hooks around it."""
        call = _Call(self, args, kwargs)
        try:
            return call.run()
        except Exception:
            call.after_failure()
            raise


def register(
    kind: str, module: Module | None, hook: Hook, *, prepend: bool = False, **options: bool
) -> RemovableHandle:
    """Register a hook of this kind on a module, or on all modules if `module` is None."""
    hooks, allowed = (every_module, _backward_kind) if module is None else (module.hooks, module.backward_kind)
    allowed.admit(kind)
    return hooks[kind].add(ModuleHook(hook, **options), prepend=prepend)


def reset() -> None:
    """Remove all global hooks."""
    for hooks in every_module.values():
        hooks.clear()
    _backward_kind.kind = ""


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    if isinstance(value, Tensor):
        return Tensor(ops.clone(value.detach()).data, requires_grad=value.requires_grad)
    return deepcopy(value, memo)


class _Call:
    """One call of a module, with the arguments and output as its hooks have replaced them."""

    def __init__(self, module: Module, args: Any, kwargs: Any) -> None:
        self.module, self.args, self.kwargs = module, args, kwargs
        self.output: Any = None
        self.started: set[int] = set()

    def run(self) -> Any:
        """Run the pre-hooks, forward and the hooks; backward hooks registered meanwhile wait for the next call."""
        module = self.module
        kinds = ("backward_pre", "backward", _legacy.KIND)
        pre, full, older = ([hook.hook for hook in module.hooks_now(kind).values()] for kind in kinds)
        boundary = Boundary(module, pre, full)
        for nr, hook in module.hooks_now("forward_pre").items():
            self.before(self._as_called("forward_pre", nr, hook))
        self.args = boundary.enter(self.args)
        self.output = module.forward(module, *self.args, **self.kwargs)
        for nr, hook in module.hooks_now("forward").items():
            self.after(nr, self._as_called("forward", nr, hook))
        self.output = boundary.leave(self.output)
        _legacy.put(module, older, self.args, self.output)
        return self.output

    def _as_called(self, kind: str, nr: int, hook: ModuleHook) -> ModuleHook:
        if nr not in self.module.hooks_now(kind) and on("a-hook-removed-meanwhile-gets-no-kwargs"):
            return hook._replace(with_kwargs=False)
        return hook

    def before(self, hook: ModuleHook) -> None:
        """Run a hook that may replace the arguments."""
        result = hook(self.module, self.args, self.kwargs)
        match result:
            case None:
                pass
            case _ if not hook.with_kwargs:
                self.args = result if isinstance(result, tuple) else (result,)
            case (args, kwargs) if isinstance(result, tuple):
                self.args, self.kwargs = args, kwargs
            case _:
                raise ModuleHookError("a forward pre-hook with kwargs must return None or a pair of args and kwargs")

    def after(self, nr: int, hook: ModuleHook) -> None:
        """Run a hook that may replace the output."""
        self.started.add(nr)
        result = hook(self.module, self.args, self.kwargs, self.output)
        self.output = self.output if result is None else result

    def after_failure(self) -> None:
        """Run the hooks with always_call=True that have not run; the caller gets the first error."""
        for given in (every_module["forward"], self.module.hooks["forward"]):
            hooks = cast("dict[int, ModuleHook]", given)
            before = [*hooks]
            for nr in before:
                if [*hooks] != before and on("hooks-after-a-failure-stay-as-they-are"):
                    raise RuntimeError("a hook that ran after a failure added or removed hooks")
                if nr in hooks and hooks[nr].always_call and nr not in self.started:
                    self._after_failure(nr, hooks[nr], is_global=given is every_module["forward"])

    def _after_failure(self, nr: int, hook: ModuleHook, *, is_global: bool) -> None:
        misses_kwargs = is_global and on("global-hooks-after-a-failure-get-no-kwargs")
        try:
            self.after(nr, hook._replace(with_kwargs=hook.with_kwargs and not misses_kwargs))
        except Exception as error:  # noqa: BLE001 - the caller gets the first error
            warnings.warn(f"a forward hook failed after another error: {error!r}", stacklevel=5)
