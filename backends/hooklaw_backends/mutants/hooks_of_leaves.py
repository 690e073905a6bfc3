"""Mutants of hooks on leaves between passes: freezing a leaf drops some, zero_grad runs some."""

import weakref
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from hooklaw_backends.mutants.base import Hook, Mutant, fresh, overriding


class _Hooked(NamedTuple):
    """A hook on a tensor; neither is kept alive."""

    tensor: weakref.ref[Any]
    verb: str
    hook: weakref.ref[Hook]
    dropped: list[None]
    """If not empty, the hook does nothing."""


class _KnowsHooks(Mutant):
    """A mutant that knows the hooks that were registered on tensors, and how often each tensor was frozen."""

    hooked = fresh(list[_Hooked])
    freezings = fresh(list[weakref.ref[Any]])

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        return super().register_hook(tensor, self._noted("register_hook", tensor, hook))

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: Hook) -> Any:
        noted = self._noted("register_post_accumulate_grad_hook", tensor, hook)
        return super().register_post_accumulate_grad_hook(tensor, noted)

    def _noted(self, verb: str, tensor: Any, hook: Hook) -> Hook:
        dropped: list[None] = []

        def run(given: Any) -> Any:
            return None if dropped else hook(given)

        run.__dict__.update(getattr(hook, "__dict__", {}))  # the mark of an unserializable hook, say
        self.hooked.append(_Hooked(weakref.ref(tensor), verb, weakref.ref(run), dropped))
        return run

    def on(self, tensor: Any, verb: str = "") -> list[_Hooked]:
        """Return the hooks on a tensor that a verb registered, or either."""
        return [each for each in self.hooked if each.tensor() is tensor and verb in {"", each.verb}]


def dropping(step: Hook) -> type[Mutant]:
    """Make a mutant that removes ``(self, tensor)``, hooks of a tensor, when its requires_grad is set to False."""

    @wraps(step)
    def freeze(self: _KnowsHooks, old: Hook, tensor: Any, *, requires_grad: bool) -> None:
        old(tensor, requires_grad=requires_grad)
        if not requires_grad:
            self.freezings.append(weakref.ref(tensor))
            for each in step(self, tensor):
                each.dropped.append(None)

    return overriding("set_requires_grad", base=_KnowsHooks)(freeze)


@dropping
def freezing_drops_tensor_hooks(self: _KnowsHooks, tensor: Any) -> list[_Hooked]:
    """Setting requires_grad of a leaf to False removes its tensor hooks."""
    return self.on(tensor, "register_hook")


@dropping
def freezing_drops_post_accumulate_hooks(self: _KnowsHooks, tensor: Any) -> list[_Hooked]:
    """Setting requires_grad of a leaf to False removes its post-accumulate-grad hooks."""
    return self.on(tensor, "register_post_accumulate_grad_hook")


@dropping
def freezing_drops_later_hooks(self: _KnowsHooks, tensor: Any) -> list[_Hooked]:
    """Setting requires_grad of a leaf to False removes its hooks but the first of each kind."""
    verbs = ("register_hook", "register_post_accumulate_grad_hook")
    return [each for verb in verbs for each in self.on(tensor, verb)[1:]]


@dropping
def third_freezing_drops_hooks(self: _KnowsHooks, tensor: Any) -> list[_Hooked]:
    """Setting requires_grad of a leaf to False for the third time removes its hooks."""
    times = sum(each() is tensor for each in self.freezings)
    return self.on(tensor) if times > 2 else []  # noqa: PLR2004 - the third


class FreezingAModuleDropsHooks(_KnowsHooks):
    """requires_grad_(False) of a module removes the hooks of its parameters."""

    def module_requires_grad_(self, module: Any, **options: bool) -> Any:
        for parameter in () if options.get("requires_grad", True) else _parameters_of(module):
            for each in self.on(parameter):
                each.dropped.append(None)
        return super().module_requires_grad_(module, **options)


def _parameters_of(module: Any) -> list[Any]:
    """Return the parameter of a module that is named weight, if it has one."""
    return [module.weight] if hasattr(module, "weight") else []


def _run_hooks(mutant: _KnowsHooks, tensor: Any, verb: str) -> None:
    """Run the hooks that a verb registered on a tensor as if its gradient were zeros, if it has one."""
    for each in [] if mutant.grad_of(tensor) is None else mutant.on(tensor, verb):
        hook = each.hook()
        if hook is not None:
            hook(mutant.zeros_like(tensor) if verb == "register_hook" else tensor)


class ZeroGradRunsPostAccumulateHooks(_KnowsHooks):
    """zero_grad of an optimizer runs the post-accumulate-grad hooks of each parameter whose gradient it resets."""

    def zero_grad(self, optimizer: Any, **options: bool) -> None:
        for parameter in (each for group in optimizer.param_groups for each in group["params"]):
            _run_hooks(self, parameter, "register_post_accumulate_grad_hook")
        super().zero_grad(optimizer, **options)


class ZeroGradThatWritesZerosRunsPostAccumulateHooks(ZeroGradRunsPostAccumulateHooks):
    """zero_grad(set_to_none=False) of an optimizer runs post-accumulate-grad hooks, if it is not the first."""

    def zero_grad(self, optimizer: Any, **options: bool) -> None:
        self.kept.append(None)
        if not options.get("set_to_none", True) and len(self.kept) > 1:
            super().zero_grad(optimizer, **options)
        else:
            super(ZeroGradRunsPostAccumulateHooks, self).zero_grad(optimizer, **options)


def _resetting(step: Hook) -> type[Mutant]:
    """Make a mutant whose zero_grad of a module runs the hooks of the verb that ``()`` returns."""

    @wraps(step)
    def module_zero_grad(self: _KnowsHooks, old: Hook, module: Any, **options: bool) -> None:
        for parameter in _parameters_of(module):
            _run_hooks(self, parameter, step())
        old(module, **options)

    return overriding("module_zero_grad", base=_KnowsHooks)(module_zero_grad)


@_resetting
def zero_grad_of_a_module_runs_tensor_hooks() -> str:
    """zero_grad of a module runs the tensor hooks of each parameter whose gradient it resets."""
    return "register_hook"


@_resetting
def zero_grad_of_a_module_runs_post_accumulate_hooks() -> str:
    """zero_grad of a module runs the post-accumulate-grad hooks of each parameter whose gradient it resets."""
    return "register_post_accumulate_grad_hook"


class _KnowsTheParameters(_KnowsHooks):
    """A mutant that knows the parameters and submodules of modules."""

    names = fresh(WeakKeyDictionary[Any, list[str]])
    inside = fresh(WeakKeyDictionary[Any, list[weakref.ref[Any]]])

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        made = super().module(parameters, forward)
        self.names[made] = list(parameters)
        return made

    def add_module(self, module: Any, name: str, child: Any) -> None:
        super().add_module(module, name, child)
        self.inside.setdefault(module, []).append(weakref.ref(child))

    def parameters_in(self, module: Any) -> list[Any]:
        """Return the parameters of a module alone."""
        return [getattr(module, name) for name in self.names.get(module, ())]

    def parameters_below(self, module: Any) -> list[Any]:
        """Return the parameters of the submodules of a module."""
        below = [child for reference in self.inside.get(module, ()) if (child := reference()) is not None]
        return [each for child in below for each in (*self.parameters_in(child), *self.parameters_below(child))]


def _dropping_in(
    which: Callable[[_KnowsTheParameters, Any], list[Any]], *, flag: bool
) -> Callable[[Hook], type[Mutant]]:
    """Make a mutant that removes the hooks of some parameters when requires_grad of a module is set to a flag."""

    def make(said: Hook) -> type[Mutant]:
        @wraps(said)
        def switch(self: _KnowsTheParameters, old: Hook, module: Any, **options: bool) -> Any:
            for parameter in which(self, module) if options.get("requires_grad", True) == flag else ():
                for each in self.on(parameter):
                    each.dropped.append(None)
            return old(module, **options)

        return overriding("module_requires_grad_", base=_KnowsTheParameters)(switch)

    return make


@_dropping_in(lambda self, module: self.parameters_in(module)[1:], flag=False)
def freezing_a_module_drops_hooks_of_later_parameters() -> None:
    """requires_grad_(False) of a module removes the hooks of its own parameters but the first."""


@_dropping_in(_KnowsTheParameters.parameters_below, flag=False)
def freezing_a_module_drops_hooks_of_submodules() -> None:
    """requires_grad_(False) of a module removes the hooks of the parameters of its submodules."""


@_dropping_in(_KnowsTheParameters.parameters_below, flag=True)
def thawing_a_module_drops_hooks_of_submodules() -> None:
    """requires_grad_(True) of a module removes the hooks of the parameters of its submodules."""
