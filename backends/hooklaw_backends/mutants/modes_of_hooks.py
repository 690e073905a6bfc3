"""Mutants whose hooks run in the wrong grad mode on leaves, for constant inputs, or after a pass that failed."""

from contextlib import nullcontext
from functools import partial
from typing import Any
from weakref import ref

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, altering, calling, overriding
from hooklaw_backends.mutants.shared import without_input_gradients


def _in_wrong_mode(mutant: Mutant, hook: Hook, *given: Any) -> Any:
    with mutant.no_grad() if mutant.is_grad_enabled() else mutant.enable_grad():
        return hook(*given)


@altering(*verbs.NODE)
def hooks_of_accumulation_in_wrong_mode(self: Mutant, node: Any, hook: Hook) -> Hook:
    """A hook on the Node that accumulates the gradient of a leaf runs in the wrong grad mode."""
    return partial(hook) if self.leaf_of(node) is None else partial(_in_wrong_mode, self, hook)


class HooksOfFunctionOutputsInWrongMode(Mutant):
    """A tensor hook on an output of a custom Function runs in the wrong grad mode."""

    def custom_function(self, *given: Any, **options: bool) -> Hook:
        function = super().custom_function(*given, **options)

        def apply(*inputs: Any) -> Any:
            results = function(*inputs)
            outputs = results if isinstance(results, tuple) else (results,)
            self.kept += [ref(each) for each in outputs if self.is_tensor(each)]
            return results

        return apply

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        if not any(kept() is tensor for kept in self.kept):
            return super().register_hook(tensor, hook)
        return super().register_hook(tensor, partial(_in_wrong_mode, self, hook))


@overriding("register_multi_grad_hook")
def multi_grad_hooks_of_leaves_in_wrong_mode(self: Mutant, old: Hook, tensors: Any, hook: Hook, **how: Any) -> Any:
    """A multi-grad hook on leaves runs in the wrong grad mode."""
    return old(tensors, partial(_in_wrong_mode, self, hook) if all(map(self.is_leaf, tensors)) else hook, **how)


class _KnowingFailures(Mutant):
    """A mutant that knows whether a pass that creates a graph has failed."""

    has_failed = False

    def reset(self) -> None:
        super().reset()
        self.has_failed = False

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        try:
            super().backward(root, gradient, **how)
        except BaseException:
            self.has_failed |= bool(how.get("create_graph"))
            raise

    def grad(self, *given: Any, **how: Any) -> Any:
        try:
            return super().grad(*given, **how)
        except BaseException:
            self.has_failed |= bool(how.get("create_graph"))
            raise

    def run(self, hook: Hook, *given: Any) -> Any:
        """Run a hook, with grad mode on if such a pass has failed."""
        with self.enable_grad() if self.has_failed else nullcontext():
            return hook(*given)


@calling("register_post_accumulate_grad_hook", base=_KnowingFailures)
def post_accumulate_hooks_stay_in_the_mode_of_a_failed_pass(self: _KnowingFailures, hook: Hook, *given: Any) -> Any:
    """After a pass that creates a graph has failed, post-accumulate-grad hooks run with grad mode on."""
    return self.run(hook, *given)


@calling("node_register_prehook", base=_KnowingFailures)
def node_pre_hooks_stay_in_the_mode_of_a_failed_pass(self: _KnowingFailures, hook: Hook, *given: Any) -> Any:
    """After a pass that creates a graph has failed, Node pre-hooks run with grad mode on."""
    return self.run(hook, *given)


@without_input_gradients("register_full_backward_hook")
def full_backward_hook_in_wrong_mode_without_input_gradients(self: Mutant, _module: Any, hook: Hook) -> Hook:
    """If no input of a module requires grad, its full backward hook runs in the wrong grad mode."""
    return partial(_in_wrong_mode, self, hook)


@without_input_gradients("register_full_backward_pre_hook")
def backward_pre_hook_in_wrong_mode_without_input_gradients(self: Mutant, _module: Any, hook: Hook) -> Hook:
    """If no input of a module requires grad, its backward pre-hook runs in the wrong grad mode."""
    return partial(_in_wrong_mode, self, hook)
