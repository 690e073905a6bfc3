"""Mutants that drop, double or change hooks that meet a checkpoint, or that an unpack hook registers."""

import weakref
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, Pair, calling, fresh, overriding, pairs
from hooklaw_backends.mutants.shared import Handle
from hooklaw_backends.mutants.situations import SECOND, Knowing


class _KnowsItsCheckpoints(Mutant):
    """A mutant that knows whether a checkpoint was made, and whether its function runs, for the first time or again."""

    made = False
    run_nr = depth = 0

    def reset(self) -> None:
        super().reset()
        self.made, self.run_nr, self.depth = False, 0, 0

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        self.made = True
        runs: list[int] = []

        def counted(*given: Any, **keywords: Any) -> Any:
            runs.append(0)
            outer, self.run_nr = self.run_nr, len(runs)
            self.depth += 1
            try:
                return fn(*given, **keywords)
            finally:
                self.run_nr = outer
                self.depth -= 1

        return super().checkpoint(counted, *inputs, **how)


@calling(*verbs.FULL_BACKWARD, base=_KnowsItsCheckpoints)
def backward_hooks_silent_in_a_checkpoint(self: _KnowsItsCheckpoints, hook: Hook, *given: Any) -> Any:
    """Full backward hooks do not run if a checkpoint was made."""
    return None if self.made else hook(*given)


@calling(*verbs.FULL_BACKWARD, base=_KnowsItsCheckpoints)
def backward_hooks_in_a_checkpoint_run_in_the_first_pass_only(
    self: _KnowsItsCheckpoints, hook: Hook, *given: Any
) -> Any:
    """A full backward hook runs once and then no more if a checkpoint was made."""
    if self.made and self.keeps(hook):
        return None
    self.kept.append(hook)
    return hook(*given)


@calling(*verbs.FULL_BACKWARD, base=_KnowsItsCheckpoints)
def backward_hooks_doubled_in_a_checkpoint(self: _KnowsItsCheckpoints, hook: Hook, *given: Any) -> Any:
    """Full backward hooks run twice if a checkpoint was made."""
    return (hook(*given) if self.made else None, hook(*given))[1]


class _KnowsLaterModules(_KnowsItsCheckpoints):
    """A mutant that keeps the modules that a checkpoint calls after another one."""

    called = fresh(list[Any])
    """The modules that the checkpoint under way has called."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        def region(*given: Any, **keywords: Any) -> Any:
            outer, self.called = self.called, []
            try:
                return fn(*given, **keywords)
            finally:
                self.called = outer

        return super().checkpoint(region, *inputs, **how)

    def module(self, parameters: Any, forward: Hook) -> Any:
        def run(module: Any, *given: Any, **keywords: Any) -> Any:
            if self.run_nr:
                self.kept += [module] if self.called else []
                self.called.append(module)
            return forward(module, *given, **keywords)

        return super().module(parameters, run)

    def runs_again_after_another(self, *, more: int) -> bool:
        """Whether a checkpoint runs again, and has called another module before this one, or `more`."""
        return self.run_nr > 1 and len(self.called) > more


@calling(*verbs.MODULE_BACKWARD, base=_KnowsLaterModules)
def backward_hooks_of_later_modules_silent_in_a_checkpoint(
    self: _KnowsLaterModules, hook: Hook, module: Any, *grads: Any
) -> Any:
    """Of the modules that a checkpoint calls, only the first has full backward hooks that run."""
    return None if self.keeps(module) else hook(module, *grads)


@calling("register_forward_hook", base=_KnowsLaterModules)
def forward_hooks_of_later_modules_lost_in_recomputation(self: _KnowsLaterModules, hook: Hook, *given: Any) -> Any:
    """Of the modules that a checkpoint calls again in backward, only the first has forward hooks that run."""
    return None if self.runs_again_after_another(more=1) else hook(*given)


@calling("register_forward_pre_hook", base=_KnowsLaterModules)
def forward_pre_hooks_of_later_modules_lost_in_recomputation(self: _KnowsLaterModules, hook: Hook, *given: Any) -> Any:
    """Of the modules that a checkpoint calls again in backward, only the first has forward pre-hooks that run."""
    return None if self.runs_again_after_another(more=0) else hook(*given)


class _KnowsInnerModules(_KnowsItsCheckpoints):
    """A mutant that keeps the modules that other modules call in a checkpoint."""

    around = 0
    """Of how many modules the forward runs."""

    def module(self, parameters: Any, forward: Hook) -> Any:
        def run(module: Any, *given: Any, **keywords: Any) -> Any:
            self.kept += [module] if self.depth and self.around else []
            self.around += 1
            try:
                return forward(module, *given, **keywords)
            finally:
                self.around -= 1

        return super().module(parameters, run)


@calling(*verbs.MODULE_BACKWARD, base=_KnowsInnerModules)
def backward_hooks_of_inner_modules_silent_in_a_checkpoint(
    self: _KnowsInnerModules, hook: Hook, module: Any, *grads: Any
) -> Any:
    """Full backward hooks of a module that another module calls in a checkpoint do not run."""
    return None if self.keeps(module) else hook(module, *grads)


@calling("register_forward_pre_hook", "register_forward_hook", base=_KnowsInnerModules)
def forward_hooks_of_inner_modules_lost_in_recomputation(
    self: _KnowsInnerModules, hook: Hook, module: Any, *given: Any
) -> Any:
    """Forward hooks and pre-hooks of a module that another module calls do not run again in backward."""
    return None if self.run_nr > 1 and self.keeps(module) else hook(module, *given)


@overriding("retain_grad", base=_KnowsItsCheckpoints)
def later_retain_grad_lost_in_a_checkpoint(self: _KnowsItsCheckpoints, old: Hook, tensor: Any) -> None:
    """Of the gradients that the function of a checkpoint retains, only the first is retained."""
    if self.depth:
        self.kept.append(tensor)
    if not (self.depth and self.kept[1:]):
        old(tensor)


@calling("register_hook", base=_KnowsItsCheckpoints)
def input_hooks_of_a_checkpoint_run_twice(self: _KnowsItsCheckpoints, hook: Hook, grad: Any) -> Any:
    """Tensor hooks run twice if a checkpoint was made."""
    return (hook(grad) if self.made else None, hook(grad))[1]


class _KnowsItsUnpacking(Mutant):
    """A mutant that knows whether an unpack hook is running."""

    unpacking = False

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> AbstractContextManager[Any]:
        def known(packed: Any) -> Any:
            outer, self.unpacking = self.unpacking, True
            try:
                return unpack(packed)
            finally:
                self.unpacking = outer

        return super().saved_tensors_hooks(pack, known)


@overriding("backward", base=_KnowsItsUnpacking)
def backward_inside_unpack_does_nothing(self: _KnowsItsUnpacking, old: Hook, *given: Any, **how: Any) -> None:
    """A backward inside an unpack hook does nothing."""
    if not self.unpacking:
        old(*given, **how)


@overriding("enable_grad", base=_KnowsItsUnpacking)
def unpack_cannot_record(self: _KnowsItsUnpacking, old: Hook) -> AbstractContextManager[Any]:
    """enable_grad has no effect inside an unpack hook."""
    return self.no_grad() if self.unpacking else old()


@overriding("retain_grad", base=_KnowsItsUnpacking)
def retain_grad_inside_unpack_ignored(self: _KnowsItsUnpacking, old: Hook, tensor: Any) -> None:
    """retain_grad has no effect inside an unpack hook."""
    if not self.unpacking:
        old(tensor)


@overriding("retain_grad", base=_KnowsItsUnpacking)
def only_the_first_retain_grad_inside_unpack_counts(self: _KnowsItsUnpacking, old: Hook, tensor: Any) -> None:
    """Of several gradients that unpack hooks retain, only the first is retained."""
    if self.unpacking:
        self.kept.append(tensor)
    if self.unpacking and len(self.kept) > 1:
        return
    old(tensor)


@overriding("retain_grad", base=_KnowsItsUnpacking)
def retain_grad_inside_unpack_keeps_that_of_the_result(self: _KnowsItsUnpacking, old: Hook, tensor: Any) -> None:
    """A gradient that is retained inside an unpack hook is that of the result, ones."""
    if not self.unpacking:
        return old(tensor)
    self.register_hook(tensor, lambda grad: self.set_grad(tensor, self.mapped(self.detach(grad), lambda _: 1.0)))
    return None


class _RegistersLater(_KnowsItsUnpacking):
    """A mutant that can put off a registration until the end of the backward."""

    waiting = fresh(list[Any])

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        super().backward(root, gradient, **how)
        while self.waiting:
            register, *given = self.waiting.pop(0)
            register(*given)


@overriding(*verbs.IN_BACKWARD, base=_RegistersLater)
def hooks_registered_inside_unpack_wait_for_the_next_pass(self: _RegistersLater, old: Hook, *given: Any) -> Any:
    """A hook that an unpack hook registers does not run before the backward has ended."""
    if not self.unpacking:
        return old(*given)
    self.waiting.append((old, *given))
    return Handle()


@overriding(*verbs.NODE, base=_KnowsItsCheckpoints)
def node_hooks_dropped_in_inner_checkpoints(self: _KnowsItsCheckpoints, old: Hook, *given: Any) -> Any:
    """A Node hook that is registered while the function of a checkpoint inside another runs never runs."""
    return Handle() if self.depth > 1 else old(*given)


@overriding("checkpoint", base=Knowing)
def checkpoint_packs_its_first_input_alone(self: Knowing, old: Hook, fn: Hook, *inputs: Any, **how: Any) -> Any:
    """Saved-tensor hooks around a checkpoint pack the first of its inputs, and no other."""
    if not self.pairs or len(inputs) < SECOND:
        return old(fn, *inputs, **how)
    first, *rest = inputs
    return old(lambda first: fn(first, *rest), first, **how)


@pairs("saved_tensors_hooks", base=Knowing)
def one_save_of_a_recomputation_packed_around_backward(self: Knowing, pack: Hook, unpack: Hook) -> Pair:
    """A pair around a backward packs only the first tensor that recomputations save."""
    its, packed = self.registration("saved_tensors_hooks"), list[None]()

    def packing(tensor: Any) -> tuple[bool, Any]:
        if self.regions and self.under_way and not its.in_pass:
            packed.append(None)
            if len(packed) > 1:
                return False, self.detach(tensor)
        return True, pack(tensor)

    return packing, lambda kept: unpack(kept[1]) if kept[0] else kept[1]


class _KnowsSequences(Mutant):
    """A mutant that keeps the functions of checkpoint_sequential, and the last of each list."""

    last = fresh(list[Any])

    def checkpoint_sequential(self, functions: Any, segments: int, *inputs: Any, **how: Any) -> Any:
        self.kept += functions
        self.last += [*functions][-1:]
        return super().checkpoint_sequential(functions, segments, *inputs, **how)


@calling(*verbs.MODULE_BACKWARD, base=_KnowsSequences)
def backward_hooks_silent_in_a_sequence(self: _KnowsSequences, hook: Hook, module: Any, *grads: Any) -> Any:
    """Full backward hooks of a module in checkpoint_sequential do not run."""
    return None if self.keeps(module) else hook(module, *grads)


@calling(*verbs.MODULE_BACKWARD, base=_KnowsSequences)
def backward_hooks_doubled_in_a_sequence(self: _KnowsSequences, hook: Hook, module: Any, *grads: Any) -> Any:
    """Full backward hooks of a module in checkpoint_sequential run twice."""
    return (hook(module, *grads) if self.keeps(module) else None, hook(module, *grads))[1]


@calling(*verbs.MODULE_BACKWARD, base=_KnowsSequences)
def backward_hooks_silent_in_the_last_segment(self: _KnowsSequences, hook: Hook, module: Any, *grads: Any) -> Any:
    """Full backward hooks of the last module in checkpoint_sequential do not run."""
    return None if any(module is last for last in self.last) else hook(module, *grads)


class _KnowsWhatItIsGiven(Mutant):
    """A mutant that knows the arguments of the non-reentrant checkpoints under way."""

    arguments = fresh(list[Any])

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        def region(*given: Any, **keywords: Any) -> Any:
            self.arguments.append(given)
            try:
                return fn(*given, **keywords)
            finally:
                self.arguments.pop()

        return super().checkpoint(fn if how.get("use_reentrant") else region, *inputs, **how)

    def is_given(self, tensor: Any) -> bool:
        """Whether a tensor is an argument of the innermost checkpoint."""
        return any(tensor is value for value in self.arguments[-1])


@overriding("register_hook", base=_KnowsWhatItIsGiven)
def hooks_that_a_checkpoint_registers_on_its_inputs_lost(
    self: _KnowsWhatItIsGiven, old: Hook, tensor: Any, hook: Hook
) -> Any:
    """A tensor hook that the function of a non-reentrant checkpoint registers on its argument does not run."""
    return Handle() if self.arguments and self.is_given(tensor) else old(tensor, hook)


@overriding("register_hook", base=_KnowsWhatItIsGiven)
def hooks_that_a_checkpoint_registers_on_captured_leaves_lost(
    self: _KnowsWhatItIsGiven, old: Hook, tensor: Any, hook: Hook
) -> Any:
    """A tensor hook that the function of a non-reentrant checkpoint registers on a leaf it captured does not run."""
    is_captured = bool(self.arguments) and self.is_leaf(tensor) and not self.is_given(tensor)
    return Handle() if is_captured else old(tensor, hook)


class _ForgetsItsOutputs(_KnowsWhatItIsGiven):
    """A mutant in which one verb does nothing to a tensor that a non-reentrant checkpoint then returns."""

    done = fresh(list[Any])

    def undone(self, tensor: Any, undo: Hook) -> None:
        """Call a function if the checkpoint under way returns a tensor."""
        if self.arguments:
            self.done.append((weakref.ref(tensor), undo))

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        output = super().checkpoint(fn, *inputs, **how)
        for alive, undo in self.done:
            if alive() is output:
                undo()
        self.done = []
        return output


class HooksThatACheckpointRegistersOnItsOutputLost(_ForgetsItsOutputs):
    """A tensor hook that the function of a non-reentrant checkpoint registers on what it returns does not run."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        handle = super().register_hook(tensor, hook)
        self.undone(tensor, handle.remove)
        return handle


class GradientThatACheckpointRetainsOfItsOutputLost(_ForgetsItsOutputs):
    """A gradient of its output that the function of a non-reentrant checkpoint retains is None."""

    lost = fresh(list[Any])

    def retain_grad(self, tensor: Any) -> None:
        super().retain_grad(tensor)
        self.undone(tensor, lambda: self.lost.append(tensor))

    def backward(self, *given: Any, **how: Any) -> None:
        super().backward(*given, **how)
        while self.lost:
            self.set_grad(self.lost.pop(), None)


class _KnowsSegments(Mutant):
    """A mutant that keeps those functions of checkpoint_sequential that another one follows in their segment."""

    def checkpoint_sequential(self, functions: Any, segments: int, *inputs: Any, **how: Any) -> Any:
        size = len(functions) // segments
        for nr in range(segments - 1):
            self.kept += functions[nr * size : (nr + 1) * size - 1]
        return super().checkpoint_sequential(functions, segments, *inputs, **how)


@calling(*verbs.MODULE_BACKWARD, base=_KnowsSegments)
def backward_hooks_of_the_last_module_of_a_segment_alone(
    self: _KnowsSegments, hook: Hook, module: Any, *grads: Any
) -> Any:
    """Of the modules in a segment of checkpoint_sequential that runs again, only the last has backward hooks."""
    return None if self.keeps(module) else hook(module, *grads)


class _Leaking(Knowing):
    """A mutant that knows how many checkpointed functions have failed."""

    failed = fresh(list[None])

    @contextmanager
    def zeros_saved(self) -> Generator[None]:
        """Be inside a pair of saved-tensor hooks that makes zeros of what is saved."""
        with self.saved_tensors_hooks(self.zeros_like, lambda packed: packed):
            yield


def leaking(step: Hook) -> type[Mutant]:
    """Make a mutant in which a checkpoint leaves its hooks active if its function fails and ``(self)`` says so.

    They are active until the exception is freed, whose traceback refers to them.
    """

    @wraps(step)
    def checkpoint(self: _Leaking, old: Hook, *given: Any, **how: Any) -> Any:
        hooks = self.zeros_saved()
        try:
            return old(*given, **how)
        except Exception:
            self.failed.append(None)
            if not how.get("use_reentrant") and step(self):
                hooks.__enter__()
            raise

    return overriding("checkpoint", base=_Leaking)(checkpoint)


@leaking
def failed_checkpoint_keeps_its_hooks_active(_self: _Leaking) -> bool:
    """While the exception of a checkpointed function is kept, the hooks of the checkpoint stay active."""
    return True


@leaking
def second_failed_checkpoint_keeps_its_hooks_active(self: _Leaking) -> bool:
    """While the exception of a checkpointed function is kept, the hooks stay active, except in the first failure."""
    return len(self.failed) > 1


@leaking
def checkpoint_that_failed_inside_another_keeps_its_hooks_active(self: _Leaking) -> bool:
    """While the exception of a checkpointed function is kept, the hooks stay active if there is another around it."""
    return self.regions > 0
