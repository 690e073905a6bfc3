"""Mutants of the switches of a module: evaluation mode, requires_grad_ and zero_grad."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, fresh, overriding
from hooklaw_backends.mutants.shared import CountsNoGrad


class _ModeOfCalls(Mutant):
    """Knows which training mode a module was put in last."""

    is_training_now = True

    def train(self, module: Any, mode: bool = True) -> Any:  # noqa: FBT001, FBT002 - torch's argument
        self.is_training_now = mode
        return super().train(module, mode)

    def call(self, fn: Hook, *tensors: Any) -> Any:
        with self.around():
            return super().call(fn, *tensors)

    def around(self) -> AbstractContextManager[Any]:
        """Return the context in which a forward runs."""
        return nullcontext()


class EvaluationModeTurnsGradModeOff(_ModeOfCalls):
    """A module in evaluation mode records nothing."""

    def around(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.is_training_now else self.no_grad()


class EvaluationModeTurnsGradModeOn(_ModeOfCalls):
    """A module in evaluation mode records even under no_grad."""

    def around(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.is_training_now else self.enable_grad()


class GradModesAreEvaluationModes(Mutant):
    """Inside no_grad and inference_mode every module is in evaluation mode."""

    def no_grad(self) -> AbstractContextManager[Any]:
        return self._evaluating(super().no_grad())

    def inference_mode(self, mode: bool = True) -> AbstractContextManager[Any]:  # noqa: FBT001, FBT002 - torch's argument
        return self._evaluating(super().inference_mode(mode))

    @contextmanager
    def _evaluating(self, context: AbstractContextManager[Any]) -> Generator[None]:
        with context:
            self.kept.append(context)
            yield
            self.kept.pop()

    def is_training(self, module: Any) -> bool:
        return super().is_training(module) and not self.kept


class _Restoring(Mutant):
    """A mutant that knows the training modes which modules had when a context was entered."""

    changed = fresh(list[Any])

    def train(self, module: Any, mode: bool = True) -> Any:  # noqa: FBT001, FBT002 - torch's argument
        for modules in self.changed:
            modules.append((module, self.is_training(module)))
        return super().train(module, mode)

    @contextmanager
    def restoring(self, context: AbstractContextManager[Any]) -> Generator[None]:
        """Enter a context at whose end each module is in the training mode that it had before."""
        self.changed.append([])
        try:
            with context:
                yield
        finally:
            for module, mode in reversed(self.changed.pop()):
                super().train(module, mode)


class LeavingNoGradRestoresTheTrainingMode(_Restoring):
    """At the end of no_grad each module is in the training mode that it had before."""

    def no_grad(self) -> AbstractContextManager[Any]:
        return self.restoring(super().no_grad())


class LeavingInferenceModeRestoresTheTrainingMode(_Restoring):
    """At the end of inference mode each module is in the training mode that it had before."""

    def inference_mode(self, mode: bool = True) -> AbstractContextManager[Any]:  # noqa: FBT001, FBT002 - torch's argument
        return self.restoring(super().inference_mode(mode))


class TrainingModeChangedInNoGradLeavesItOn(CountsNoGrad):
    """If a module's training mode is changed inside no_grad, nothing is recorded after it either."""

    is_off = False

    def reset(self) -> None:
        super().reset()
        self.is_off = False

    def train(self, module: Any, mode: bool = True) -> Any:  # noqa: FBT001, FBT002 - torch's argument
        self.is_off = self.depth > 0
        return super().train(module, mode)

    def call(self, fn: Hook, *tensors: Any) -> Any:
        with super().no_grad() if self.is_off else nullcontext():
            return super().call(fn, *tensors)


@overriding("train", "module_requires_grad_")
def switches_stop_at_a_module(self: Mutant, old: Hook, module: Any, *given: Any, **options: bool) -> Any:
    """The switches of a module do not reach its submodules."""
    inner: Any = getattr(module, "inner", None)
    if inner is None:
        return old(module, *given, **options)
    weight: Any = inner.weight
    is_training, requires_grad = self.is_training(inner), self.requires_grad(weight)
    old(module, *given, **options)
    self.train(inner, is_training)
    self.set_requires_grad(weight, requires_grad=requires_grad)
    return module


@overriding("module_requires_grad_")
def requires_grad_of_a_module_returns_nothing(self: Mutant, old: Hook, *given: Any, **options: bool) -> None:
    """requires_grad_ of a module returns None."""
    old(*given, **options)


@overriding("module_requires_grad_")
def thawing_a_module_thaws_nothing(self: Mutant, old: Hook, module: Any, **options: bool) -> Any:
    """requires_grad_ of a module can only freeze its parameters."""
    return old(module, **options) if options else module


@overriding("module_requires_grad_")
def freezing_a_module_makes_new_parameters(self: Mutant, old: Hook, module: Any, **options: bool) -> Any:
    """requires_grad_ of a module puts new parameters in the place of the old ones."""
    _renew(self, module)
    return old(module, **options)


@overriding("module_requires_grad_")
def thawing_a_module_makes_new_parameters(self: Mutant, old: Hook, module: Any, **options: bool) -> Any:
    """requires_grad_ of a module puts new parameters in the place of the old ones if it turns the flag on."""
    if options.get("requires_grad", True):
        _renew(self, module)
    return old(module, **options)


def _renew(self: Mutant, module: Any) -> None:
    for each in (module, module.inner):
        each.weight = self.module({"weight": self.detach(each.weight)}, lambda _module, x: x).weight


class _KnowsParameters(Mutant):
    """A mutant that keeps the names of the parameters of each module."""

    names = fresh(dict[Any, list[str]])

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        made = super().module(parameters, forward)
        self.names[made] = list(parameters)
        return made

    def all_but(self, place: int, module: Any) -> Iterator[Any]:
        """Yield the parameters of a module, and of those inside, but for the one in a place."""
        while module is not None:
            names = self.names[module]
            yield from (getattr(module, name) for name in names if name != names[place])
            module = getattr(module, "inner", None)


def _setting_the_flag_in(place: int, self: _KnowsParameters, old: Hook, module: Any, **options: bool) -> Any:
    flags = [(each, self.requires_grad(each)) for each in self.all_but(place, module)]
    old(module, **options)
    for each, flag in flags:
        self.set_requires_grad(each, requires_grad=flag)
    return module


@overriding("module_requires_grad_", base=_KnowsParameters)
def requires_grad_of_a_module_reaches_the_first_parameter(self: _KnowsParameters, *given: Any, **options: bool) -> Any:
    """requires_grad_ of a module changes the first parameter of each module alone."""
    return _setting_the_flag_in(0, self, *given, **options)


@overriding("module_requires_grad_", base=_KnowsParameters)
def requires_grad_of_a_module_reaches_the_last_parameter(self: _KnowsParameters, *given: Any, **options: bool) -> Any:
    """requires_grad_ of a module changes the last parameter of each module alone."""
    return _setting_the_flag_in(-1, self, *given, **options)


def _resetting_in(place: int, self: _KnowsParameters, old: Hook, module: Any, **options: bool) -> None:
    grads = [(each, self.clone(self.grad_of(each))) for each in self.all_but(place, module)]
    old(module, **options)
    for each, grad in grads:
        self.set_grad(each, grad)


@overriding("module_zero_grad", base=_KnowsParameters)
def zero_grad_of_a_module_reaches_the_first_parameter(self: _KnowsParameters, *given: Any, **options: bool) -> None:
    """zero_grad of a module resets the gradient of the first parameter of each module alone."""
    _resetting_in(0, self, *given, **options)


@overriding("module_zero_grad", base=_KnowsParameters)
def zero_grad_of_a_module_reaches_the_last_parameter(self: _KnowsParameters, *given: Any, **options: bool) -> None:
    """zero_grad of a module resets the gradient of the last parameter of each module alone."""
    _resetting_in(-1, self, *given, **options)


@overriding("module_zero_grad")
def zero_grad_stops_at_a_module(self: Mutant, old: Hook, module: Any, **options: bool) -> None:
    """zero_grad of a module does not reach the parameters of its submodules."""
    before = self.grad_of(module.inner.weight)
    kept = before is not None and self.clone(before)
    old(module, **options)
    self.set_grad(module.inner.weight, kept)


@overriding("module_zero_grad")
def zero_grad_of_a_module_skips_frozen_parameters(self: Mutant, old: Hook, module: Any, **options: bool) -> None:
    """zero_grad of a module leaves the gradients of parameters that do not require grad."""
    weights = [each.weight for each in (module, module.inner) if not self.requires_grad(each.weight)]
    kept = [(weight, self.clone(self.grad_of(weight))) for weight in weights]
    old(module, **options)
    for weight, grad in kept:
        self.set_grad(weight, grad)


def _first_parameter_lacks_a_gradient(self: _KnowsParameters, module: Any) -> bool:
    return self.grad_of(getattr(module, self.names[module][0])) is None


@overriding("module_zero_grad", base=_KnowsParameters)
def zero_grad_of_a_module_fails_at_a_missing_gradient(
    self: _KnowsParameters, old: Hook, module: Any, **options: bool
) -> None:
    """zero_grad of a module with set_to_none=False is an error if its first parameter has no gradient."""
    if not options.get("set_to_none", True) and _first_parameter_lacks_a_gradient(self, module):
        raise RuntimeError("there is no gradient")
    old(module, **options)


@overriding("module_zero_grad", base=_KnowsParameters)
def zero_grad_of_a_module_stops_at_a_missing_gradient(
    self: _KnowsParameters, old: Hook, module: Any, **options: bool
) -> None:
    """zero_grad of a module does nothing if its first parameter has no gradient."""
    if not _first_parameter_lacks_a_gradient(self, module):
        old(module, **options)


class _KnowsTheTree(_KnowsParameters):
    """A mutant that knows the modules around each module."""

    parents = fresh(dict[Any, Any])

    def add_module(self, module: Any, name: str, child: Any) -> None:
        self.parents[child] = module
        super().add_module(module, name, child)

    def root_of(self, module: Any) -> Any:
        """Return the outermost module around a module."""
        while module in self.parents:
            module = self.parents[module]
        return module

    def is_in(self, module: Any, outer: Any) -> bool:
        """Whether a module is another, or inside it."""
        return module is outer or (module in self.parents and self.is_in(self.parents[module], outer))


@overriding("module_requires_grad_", base=_KnowsTheTree)
def requires_grad_of_a_module_reaches_those_around_it(
    self: _KnowsTheTree, old: Hook, module: Any, **options: bool
) -> Any:
    """requires_grad_ of a submodule changes the parameters of the modules around it, and of all inside these."""
    old(self.root_of(module), **options)
    return module


@overriding("module_zero_grad", base=_KnowsTheTree)
def zero_grad_of_a_module_reaches_those_around_it(self: _KnowsTheTree, old: Hook, module: Any, **options: bool) -> None:
    """zero_grad of a submodule resets the gradients of the modules around it, and of all inside these."""
    old(self.root_of(module), **options)


def _parameters(self: _KnowsParameters, module: Any) -> list[Any]:
    return [getattr(module, name) for name in self.names[module]]


@overriding("module_requires_grad_", base=_KnowsTheTree)
def requires_grad_of_a_module_reaches_its_parent(self: _KnowsTheTree, old: Hook, module: Any, **options: bool) -> Any:
    """requires_grad_ of a submodule changes the parameters of the module around it too, but of no other inside it."""
    parent = self.parents.get(module)
    for parameter in [] if parent is None else _parameters(self, parent):
        self.set_requires_grad(parameter, requires_grad=options.get("requires_grad", True))
    return old(module, **options)


@overriding("module_requires_grad_", base=_KnowsTheTree)
def requires_grad_of_a_module_is_toggled(self: _KnowsTheTree, old: Hook, module: Any, **options: bool) -> Any:
    """requires_grad_ of a module sets requires_grad of each of its parameters to what it was not."""
    inside = [each for each in self.names if self.is_in(each, module)]
    flags = [(each, not self.requires_grad(each)) for one in inside for each in _parameters(self, one)]
    old(module, **options)
    for each, flag in flags:
        self.set_requires_grad(each, requires_grad=flag)
    return module
