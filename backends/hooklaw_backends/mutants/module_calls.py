"""Mutants that pass the wrong tensors to a module's forward, or run its hooks in the wrong calls."""

from collections.abc import Mapping
from typing import Any
from warnings import catch_warnings
from weakref import WeakKeyDictionary

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, InGrad, Mutant, altering, calling, fresh, overriding
from hooklaw_backends.mutants.shared import inputs_to, once, without_input_gradients
from hooklaw_backends.mutants.situations import Knowing


@overriding("forward")
def forward_runs_the_module_hooks(self: Mutant, old: Hook, module: Any, *inputs: Any) -> Any:
    """Calling a module's forward directly runs the module's hooks."""
    return module(*inputs)


class ForwardRunsTheGlobalHooks(Mutant):
    """Calling a module's forward directly runs the forward hooks on all modules."""

    def register_module_forward_hook(self, hook: Hook, **options: Any) -> Any:
        self.kept.append(hook)
        return super().register_module_forward_hook(hook, **options)

    def forward(self, module: Any, *inputs: Any) -> Any:
        output = super().forward(module, *inputs)
        for hook in self.kept:
            hook(module, inputs, output)
        return output


class ForwardRunsTheBackwardHooks(Mutant):
    """A direct call of a module's forward makes the module's backward hooks run."""

    def register_full_backward_hook(self, module: Any, hook: Hook, **options: Any) -> Any:
        self.kept.append((module, hook))
        return super().register_full_backward_hook(module, hook, **options)

    def forward(self, module: Any, *inputs: Any) -> Any:
        output = super().forward(module, *inputs)
        for hook in [hook for owner, hook in self.kept if owner is module and self.requires_grad(output)]:
            self.register_hook(output, lambda grad, hook=hook: (hook(module, (grad,), (grad,)), None)[1])
        return output


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
def later_parameters_made_under_no_grad_are_constants(self: Mutant, old: Hook, parameters: Any, forward: Hook) -> Any:
    """Of the parameters of a module that is made under no_grad only the first requires grad."""
    made = old(parameters, forward)
    for name in list(parameters)[1:] if not self.is_grad_enabled() else ():
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


def _silent_for_named_tuples(self: Mutant, module: Any, hook: Hook) -> Hook:
    outputs: list[Any] = []

    def note(_module: Any, _args: Any, output: Any) -> None:
        outputs[:] = [output]

    self.register_forward_hook(module, note)
    return lambda *given: None if hasattr(outputs[0], "_fields") else hook(*given)


@altering(*verbs.FULL_BACKWARD[:1])
def full_backward_hooks_silent_for_named_tuples(*given: Any) -> Hook:
    """A full backward hook does not run if the output of its module is a named tuple."""
    return _silent_for_named_tuples(*given)


@altering(*verbs.FULL_BACKWARD_PRE[:1])
def backward_pre_hooks_silent_for_named_tuples(*given: Any) -> Hook:
    """A backward pre-hook does not run if the output of its module is a named tuple."""
    return _silent_for_named_tuples(*given)


class _KnowsInnerModules(Mutant):
    """A mutant that keeps the modules that another module called, and knows how many calls are running."""

    depth = 0

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        def counted(module: Any, *args: Any, **kwargs: Any) -> Any:
            self.kept += [module] if self.depth else []
            self.depth += 1
            try:
                return forward(module, *args, **kwargs)
            finally:
                self.depth -= 1

        return super().module(parameters, counted)


@calling(*verbs.ON_ALL_MODULES, base=_KnowsInnerModules)
def global_module_hooks_on_the_outermost_module(self: _KnowsInnerModules, hook: Hook, module: Any, *rest: Any) -> Any:
    """A global module hook does not run for a module that another module calls."""
    return None if self.depth or self.keeps(module) else hook(module, *rest)


@calling(*verbs.FORWARD_PRE, *verbs.FORWARD, base=_KnowsInnerModules)
def hooks_of_inner_modules_only_where_it_is_recorded(
    self: _KnowsInnerModules, hook: Hook, *given: Any, **named: Any
) -> Any:
    """Under no_grad the forward hooks and pre-hooks of a module that another module calls do not run."""
    return hook(*given, **named) if self.is_grad_enabled() or not self.depth else None


@calling(*verbs.FULL_BACKWARD_PRE[:1], *verbs.FULL_BACKWARD[:1], base=_KnowsInnerModules)
def own_backward_hooks_of_inner_modules_ignored(self: _KnowsInnerModules, hook: Hook, module: Any, *rest: Any) -> Any:
    """The backward hooks and pre-hooks of a module that another module calls do not run."""
    return None if self.keeps(module) else hook(module, *rest)


@calling("register_module_full_backward_pre_hook", base=_KnowsInnerModules)
def global_backward_pre_hooks_on_the_outermost_module(
    self: _KnowsInnerModules, hook: Hook, module: Any, *rest: Any
) -> Any:
    """A global backward pre-hook does not run for a module that another module calls."""
    return None if self.keeps(module) else hook(module, *rest)


@calling(*verbs.GLOBAL_BACKWARD, base=_KnowsInnerModules)
def global_backward_hooks_replace_nothing_for_inner_modules(
    self: _KnowsInnerModules, hook: Hook, module: Any, *rest: Any
) -> Any:
    """What a global backward hook or pre-hook returns is ignored for a module that another module calls."""
    result = hook(module, *rest)
    return None if self.keeps(module) else result


class _KnowsRunningModules(Mutant):
    """A mutant that keeps the modules whose forward is running."""

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        def noted(module: Any, *args: Any, **kwargs: Any) -> Any:
            self.kept.append(module)
            try:
                return forward(module, *args, **kwargs)
            finally:
                self.kept.pop()

        return super().module(parameters, noted)


@calling(*verbs.FORWARD_PRE, *verbs.FORWARD, base=_KnowsRunningModules)
def forward_hooks_skipped_if_the_module_calls_itself(
    self: _KnowsRunningModules, hook: Hook, module: Any, *rest: Any
) -> Any:
    """The forward hooks and pre-hooks of a module do not run for a call from its own forward."""
    return None if self.keeps(module) else hook(module, *rest)


@overriding(*verbs.FULL_BACKWARD_PRE[:1], *verbs.FULL_BACKWARD[:1])
def _knows_backward_hooks(self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool) -> Any:
    """A mutant that keeps the modules with backward hooks of their own."""
    self.kept.append(module)
    return old(module, hook, **options)


@calling("register_forward_pre_hook", "register_forward_hook", base=_knows_backward_hooks)
def forward_hooks_replace_nothing_beside_backward_hooks(self: Mutant, hook: Hook, module: Any, *given: Any) -> Any:
    """What a forward hook or pre-hook returns is ignored if its module has backward hooks too."""
    result = hook(module, *given)
    return None if self.keeps(module) else result


@calling("module", base=_knows_backward_hooks)
def tuple_of_one_output_unpacked_beside_backward_hooks(
    self: Mutant, forward: Hook, module: Any, *args: Any, **kwargs: Any
) -> Any:
    """A module with backward hooks whose forward returns a tuple of one value returns this value."""
    output = forward(module, *args, **kwargs)
    return output[0] if self.keeps(module) and isinstance(output, tuple) and len(output) == 1 else output  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


@calling("module", base=_knows_backward_hooks)
def outputs_that_are_no_tensors_lost_beside_backward_hooks(
    self: Mutant, forward: Hook, module: Any, *args: Any, **kwargs: Any
) -> Any:
    """A module with backward hooks returns None for each output of several that is not a tensor."""
    output = forward(module, *args, **kwargs)
    if type(output) is not tuple or not self.keeps(module):
        return output
    return tuple(each if self.is_tensor(each) else None for each in output)  # pyright: ignore[reportUnknownVariableType]


@overriding("register_forward_pre_hook", "register_forward_hook")
def _knows_forward_hooks(self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool) -> Any:
    """A mutant that keeps the modules with forward hooks of their own."""
    self.kept.append(module)
    return old(module, hook, **options)


@calling(*verbs.MODULE_BACKWARD, base=_knows_forward_hooks)
def backward_hooks_skipped_beside_forward_hooks(self: Mutant, hook: Hook, module: Any, *given: Any) -> Any:
    """The backward hooks of a module do not run if it has forward hooks too."""
    return None if self.keeps(module) else hook(module, *given)


def _skipped_without_positional(self: Mutant, module: Any, hook: Hook, *, named: bool) -> Hook:
    calls: list[bool] = []

    def note(_module: Any, args: Any, kwargs: Any) -> None:
        calls.append(not args and bool(kwargs) is named)

    self.register_forward_pre_hook(module, note, with_kwargs=True)
    return lambda *given: None if calls[-1] else hook(*given)


@altering(*verbs.FULL_BACKWARD_PRE[:1], *verbs.FULL_BACKWARD[:1])
def backward_hooks_skipped_for_keyword_arguments(*given: Any) -> Hook:
    """The backward hooks of a module do not run if it is called with keyword arguments alone."""
    return _skipped_without_positional(*given, named=True)


@altering(*verbs.FULL_BACKWARD_PRE[:1])
def backward_pre_hooks_skipped_without_inputs(*given: Any) -> Hook:
    """The backward pre-hooks of a module do not run if it is called without arguments."""
    return _skipped_without_positional(*given, named=False)


@calling(*verbs.FULL_BACKWARD_PRE, base=InGrad)
def backward_pre_hooks_skipped_for_weights_alone(self: InGrad, hook: Hook, module: Any, *given: Any) -> Any:
    """A backward pre-hook does not run if autograd.grad is asked for nothing but a weight of its module."""
    asks = [getattr(module, "weight", None) is asked for asked in self.inputs]
    return None if asks and all(asks) else hook(module, *given)


class _KnowsOutputs(Mutant):
    """A mutant that knows the inputs and outputs of a module's last forward."""

    calls = fresh(dict[Any, tuple[Any, Any]])

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        def noted(module: Any, *args: Any, **kwargs: Any) -> Any:
            output = forward(module, *args, **kwargs)
            self.calls[module] = args, output if isinstance(output, tuple) else (output,)
            return output

        return super().module(parameters, noted)

    def tensors_of(self, module: Any, place: int) -> list[Any]:
        """Return the tensors among the inputs, at place 0, or the outputs, at place 1."""
        return [value for value in self.calls[module][place] if self.is_tensor(value)]


@calling(*verbs.MODULE_BACKWARD, base=_KnowsOutputs)
def backward_hooks_skipped_if_an_output_needs_no_gradient(
    self: _KnowsOutputs, hook: Hook, module: Any, *given: Any
) -> Any:
    """The backward hooks of a module do not run if any of its outputs does not require grad."""
    return hook(module, *given) if all(map(self.requires_grad, self.tensors_of(module, 1))) else None


@calling(*verbs.MODULE_BACKWARD, base=_KnowsOutputs)
def backward_hooks_skipped_if_the_last_output_needs_no_gradient(
    self: _KnowsOutputs, hook: Hook, module: Any, *given: Any
) -> Any:
    """The backward hooks of a module do not run if its last output does not require grad."""
    return hook(module, *given) if self.requires_grad(self.tensors_of(module, 1)[-1]) else None


@calling(*verbs.MODULE_BACKWARD, base=_KnowsOutputs)
def backward_hooks_skipped_for_the_identity(self: _KnowsOutputs, hook: Hook, module: Any, *given: Any) -> Any:
    """The backward hooks of a module do not run if its forward returns one of its inputs."""
    returned = any(output is value for output in self.tensors_of(module, 1) for value in self.tensors_of(module, 0))
    return None if returned else hook(module, *given)


@calling(*verbs.MODULE_BACKWARD, base=_KnowsOutputs)
def backward_hooks_wait_for_every_output(self: _KnowsOutputs, hook: Hook, module: Any, *given: Any) -> Any:
    """The backward hooks of a module do not run if no gradient comes to one of its outputs."""
    outputs = self.calls[module][1]
    missing = any(self.is_tensor(output) and grad is None for output, grad in zip(outputs, given[-1], strict=False))
    return None if missing else hook(module, *given)


@calling(*verbs.FULL_BACKWARD, base=_KnowsOutputs)
def full_backward_hooks_wait_for_every_input(
    self: _KnowsOutputs, hook: Hook, module: Any, inputs: Any, outputs: Any
) -> Any:
    """A full backward hook does not run if an input that requires grad gets no gradient, or zeros."""
    for value, grad in zip(self.calls[module][0], inputs, strict=False):
        missing = grad is None or self.tolist(grad) == self.tolist(self.zeros_like(grad))
        if self.is_tensor(value) and self.requires_grad(value) and missing:
            return None
    return hook(module, inputs, outputs)


@without_input_gradients("register_full_backward_hook", base=_KnowsOutputs)
def full_backward_hook_waits_for_every_output_without_input_gradients(
    self: _KnowsOutputs, _module: Any, hook: Hook
) -> Hook:
    """If no input requires grad, a full backward hook runs only if a gradient comes to each output."""

    def run(module: Any, grads: Any, outputs: Any) -> Any:
        needs = [self.is_tensor(value) and self.requires_grad(value) for value in self.calls[module][1]]
        is_missing = any(need and grad is None for need, grad in zip(needs, outputs, strict=False))
        return None if is_missing else hook(module, grads, outputs)

    return run


def _judging_by_the_first_output(self: _KnowsOutputs, _module: Any, hook: Hook) -> Hook:
    return lambda module, *given: hook(module, *given) if self.requires_grad(self.tensors_of(module, 1)[0]) else None


@without_input_gradients("register_full_backward_hook", base=_KnowsOutputs)
def full_backward_hook_judges_by_the_first_output_without_input_gradients(*given: Any) -> Hook:
    """If no input and not the first output requires grad, a full backward hook does not run."""
    return _judging_by_the_first_output(*given)


@without_input_gradients("register_full_backward_pre_hook", base=_KnowsOutputs)
def backward_pre_hook_judges_by_the_first_output_without_input_gradients(*given: Any) -> Hook:
    """If no input and not the first output requires grad, a backward pre-hook does not run."""
    return _judging_by_the_first_output(*given)


@without_input_gradients("register_full_backward_pre_hook")
def backward_pre_hook_gets_the_first_output_without_input_gradients(_self: Mutant, _module: Any, hook: Hook) -> Hook:
    """If no input requires grad, a backward pre-hook gets None for each output but the first."""
    return lambda module, grads: hook(module, (*grads[:1], *(None for _ in grads[1:])))


@overriding("module")
def forward_is_given_constants_themselves(self: Mutant, old: Hook, parameters: Any, forward: Hook) -> Any:
    """A module's forward gets the caller's own tensor, not a view, for an input that does not require grad."""

    def own(value: Any, before: Any) -> Any:
        is_constant = self.is_tensor(before) and not self.requires_grad(before)
        return before if is_constant and self.tolist(value) == self.tolist(before) else value

    def run(module: Any, *args: Any, **kwargs: Any) -> Any:
        return forward(module, *map(own, args, given), *args[len(given) :], **kwargs)

    made = old(parameters, run)
    given = inputs_to(self, made)
    return made


class ChangesOfTheFirstOfSeveralOutputsAccepted(Mutant):
    """Of several outputs of a module with backward hooks, the first may be changed in place."""

    has_several = False

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        def noted(*args: Any, **kwargs: Any) -> Any:
            self.has_several = False
            output = forward(*args, **kwargs)
            self.has_several = isinstance(output, tuple)
            return output

        return super().module(parameters, noted)

    def mul_(self, tensor: Any, factor: Any) -> Any:
        place = self.gradient_edge(tensor)[1] if self.has_several else None
        try:
            return super().mul_(tensor, factor)
        except RuntimeError:
            if place != 0:
                raise
            return tensor * factor


def _once_if_made(self: Knowing, old: Hook, module: Any, hook: Hook, where: str, **options: bool) -> Any:
    """Register a forward pre-hook that runs in the first call alone if it is registered there."""
    its = self.registration("register_forward_pre_hook", module)
    return old(module, once(hook) if getattr(its, where) else hook, **options)


@overriding("register_forward_pre_hook", base=Knowing)
def forward_pre_hooks_registered_in_no_grad_run_once(
    self: Knowing, old: Hook, module: Any, hook: Hook, **options: bool
) -> Any:
    """A forward pre-hook that is registered in no_grad runs in the first call alone."""
    return _once_if_made(self, old, module, hook, "in_no_grad", **options)


@overriding("register_forward_pre_hook", base=Knowing)
def forward_pre_hooks_registered_in_a_pass_run_once(
    self: Knowing, old: Hook, module: Any, hook: Hook, **options: bool
) -> Any:
    """A forward pre-hook that is registered during a pass runs in the first call alone."""
    return _once_if_made(self, old, module, hook, "in_pass", **options)


@overriding("register_forward_pre_hook", base=Knowing)
def forward_pre_hooks_registered_in_a_checkpoint_run_once(
    self: Knowing, old: Hook, module: Any, hook: Hook, **options: bool
) -> Any:
    """A forward pre-hook that is registered in a checkpointed function runs in the first call alone."""
    return _once_if_made(self, old, module, hook, "in_checkpoint", **options)


class ForwardRunsTheModuleHooksInsideAnotherModule(Mutant):
    """A direct call of a module's forward runs its hooks if it is inside the forward of another module."""

    depth = 0

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            self.depth += 1
            try:
                return forward(*args, **kwargs)
            finally:
                self.depth -= 1

        return super().module(parameters, run)

    def forward(self, module: Any, *inputs: Any) -> Any:
        return module(*inputs) if self.depth else super().forward(module, *inputs)


class _KnowsSiblings(Mutant):
    """A mutant that knows which modules were called after another in the forward of the same module."""

    running = fresh(list[int])
    later = fresh(WeakKeyDictionary[Any, bool])

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        def run(module: Any, *args: Any, **kwargs: Any) -> Any:
            if self.running:
                self.running[-1] += 1
                self.later[module] = self.running[-1] > 1
            self.running.append(0)
            try:
                return forward(module, *args, **kwargs)
            finally:
                self.running.pop()

        return super().module(parameters, run)


@calling(*verbs.ON_ALL_MODULES, base=_KnowsSiblings)
def global_module_hooks_on_the_first_inner_module(self: _KnowsSiblings, hook: Hook, module: Any, *rest: Any) -> Any:
    """A global module hook does not run for a module that another calls after one that it called before."""
    return None if self.later.get(module) else hook(module, *rest)


class FullBackwardHooksCalledForSeveralConstantOutputs(Mutant):
    """After a backward, full backward hooks run for calls of their modules with several outputs that are constants."""

    counts = fresh(WeakKeyDictionary[Any, int])
    hooks = fresh(WeakKeyDictionary[Any, list[Hook]])

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        def run(module: Any, *args: Any, **kwargs: Any) -> Any:
            output = forward(module, *args, **kwargs)
            several = output if isinstance(output, tuple) and len(output) > 1 else ()  # pyright: ignore[reportUnknownArgumentType]
            if several and not any(self.requires_grad(each) for each in several if self.is_tensor(each)):  # pyright: ignore[reportUnknownVariableType]
                self.counts[module] = len(several)  # pyright: ignore[reportUnknownArgumentType]
            return output

        return super().module(parameters, run)

    def register_full_backward_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        self.hooks.setdefault(module, []).append(hook)
        return super().register_full_backward_hook(module, hook, **options)

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        super().backward(root, gradient, **how)
        for module, count in list(self.counts.items()):
            for hook in self.hooks.get(module, ()):
                hook(module, (None,), (None,) * count)
        self.counts.clear()
