"""Mutants that pass the wrong tensors to a module's forward, or run its hooks in the wrong calls."""

from typing import Any
from warnings import catch_warnings

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, altering, calling, overriding
from hooklaw_backends.mutants.shared import inputs_to


@overriding("forward")
def forward_runs_the_module_hooks(self: Mutant, old: Hook, module: Any, *inputs: Any) -> Any:
    """Calling a module's forward directly runs the module's hooks."""
    return module(*inputs)


@calling("module")
def forward_is_given_copies(self: Mutant, forward: Hook, module: Any, *args: Any, **kwargs: Any) -> Any:
    """A module's forward gets copies of its inputs."""
    copies = [self.clone(value) if self.is_tensor(value) else value for value in args]
    return forward(module, *copies, **kwargs)


@overriding("module")
def forward_is_given_what_the_caller_gave(self: Mutant, old: Hook, parameters: Any, forward: Hook) -> Any:
    """A module's forward gets the caller's own tensors, even if hooks replace or wrap them."""
    made = old(parameters, lambda module, *_, **kwargs: forward(module, *given, **kwargs))
    given = inputs_to(self, made)
    return made


@calling("module")
def namedtuple_becomes_a_tuple(self: Mutant, forward: Hook, *args: Any, **kwargs: Any) -> Any:
    """A named tuple that a module's forward returns becomes a plain tuple."""
    output = forward(*args, **kwargs)
    return tuple(output) if isinstance(output, tuple) else output  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


@overriding("call")
def warnings_of_a_call_are_lost(self: Mutant, old: Hook, fn: Hook, *tensors: Any) -> Any:
    """Warnings raised during the forward pass are lost."""
    with catch_warnings(action="ignore"):
        return old(fn, *tensors)


@altering(*verbs.ON_ONE_MODULE)
def module_hooks_only_on_the_original(self: Mutant, original: Any, hook: Hook) -> Hook:
    """Module hooks do not run on a copy of the module."""
    return lambda module, *given: hook(module, *given) if module is original else None


@overriding(*verbs.FORWARD)
def hook_registered_meanwhile_runs_at_once(self: Mutant, old: Hook, *given: Any, **options: bool) -> Any:
    """A forward hook registered by another forward hook runs in the same call."""
    *where, hook = given

    def noted(*call: Any) -> Any:
        self.kept.append(call)
        try:
            return hook(*call)
        finally:
            self.kept.pop()

    handle = old(*where, noted, **options)
    if self.kept:
        hook(*self.kept[-1])
    return handle


@overriding("module")
def parameters_made_under_no_grad_are_constants(self: Mutant, old: Hook, parameters: Any, forward: Hook) -> Any:
    """A parameter of a module that is made under no_grad does not require grad."""
    made = old(parameters, forward)
    for name in parameters if not self.is_grad_enabled() else ():
        self.set_requires_grad(getattr(made, name), requires_grad=False)
    return made


@overriding("module")
def inputs_of_modules_all_require_grad(self: Mutant, old: Hook, parameters: Any, forward: Hook) -> Any:
    """In a module's forward every tensor requires grad."""

    def flagged(given: Any) -> Any:
        if not self.is_tensor(given) or self.requires_grad(given) or not self.is_floating(given):
            return given
        return self.requires_grad_(self.detach(given))

    return old(parameters, lambda module, *args, **kwargs: forward(module, *map(flagged, args), **kwargs))


@altering(*verbs.FULL_BACKWARD[:1])
def full_backward_hooks_silent_for_named_tuples(self: Mutant, module: Any, hook: Hook) -> Hook:
    """A full backward hook does not run if the output of its module is a named tuple."""
    outputs: list[Any] = []

    def note(_module: Any, _args: Any, output: Any) -> None:
        outputs[:] = [output]

    self.register_forward_hook(module, note)
    return lambda *given: None if hasattr(outputs[0], "_fields") else hook(*given)
