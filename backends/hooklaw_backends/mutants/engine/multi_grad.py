"""Mutants of multi-grad hooks that break a rule which torch breaks too."""

from collections.abc import Callable
from typing import Any

from hooklaw.model._multi_grad import Handles
from hooklaw.model.modes import running_pass
from hooklaw_backends.mutants.base import Hook, InBackward, Mutant, altering, fresh, overriding
from hooklaw_backends.mutants.shared import Passes


class MultiGradHookAnyNotInAnInnerPass(Passes):
    """A multi-grad hook in mode any that ran in a pass does not run in a pass inside it, nor the other way round."""

    _depth = 0
    _ran = fresh(list[Hook])

    def around(self, run: Callable[[], Any]) -> Any:
        self._depth += 1
        try:
            return run()
        finally:
            self._depth -= 1
            self._ran = self._ran if self._depth else []

    def register_multi_grad_hook(self, tensors: Any, hook: Hook, *, mode: str = "all") -> Any:
        def unless_ran(given: Any) -> Any:
            if mode == "any":
                if hook in self._ran:
                    return None
                self._ran.append(hook)
            return hook(given)

        return super().register_multi_grad_hook(tensors, unless_ran, mode=mode)


class MultiGradHookAnyTakesASecondNoneForAGradient(Mutant):
    """A multi-grad hook in mode any skips the None of one unused output, and takes that of the next for a gradient."""

    def register_multi_grad_hook(self, tensors: Any, hook: Hook, *, mode: str = "all") -> Any:
        if mode != "any":
            return super().register_multi_grad_hook(tensors, hook, mode=mode)
        skipped, ran = object(), object()

        def arrive(grad: Any) -> None:
            memory = running_pass().memory
            if grad is None and skipped not in memory:
                memory[skipped] = True
            elif ran not in memory:
                memory[ran] = True
                hook(grad)

        return Handles(tensor.register_hook(arrive) for tensor in tensors if tensor.requires_grad)


@overriding("register_multi_grad_hook", base=InBackward)
def multi_grad_hook_gets_ones_for_the_root(
    self: InBackward, old: Hook, tensors: Any, hook: Hook, *, mode: str = "all"
) -> Any:
    """A multi-grad hook in mode all gets ones for a root, whatever gradient backward was given for it."""
    return old(tensors, _given_ones(self, tensors, hook) if mode == "all" else hook, mode=mode)


@overriding("register_multi_grad_hook", base=InBackward)
def multi_grad_hook_gets_one_for_a_scalar_root(
    self: InBackward, old: Hook, tensors: Any, hook: Hook, *, mode: str = "all"
) -> Any:
    """A multi-grad hook in mode all gets 1 for a root without dimensions, whatever gradient backward was given."""
    is_wrong = mode == "all" and not any(map(self.shape, tensors))
    return old(tensors, _given_ones(self, tensors, hook) if is_wrong else hook, mode=mode)


def _given_ones(mutant: InBackward, tensors: Any, hook: Hook) -> Hook:
    """Return a multi-grad hook that gets ones for a root."""

    def run(grads: Any) -> Any:
        pairs = zip(tensors, grads, strict=True)
        return hook([mutant.mapped(grad, lambda _: 1.0) if each is mutant.root else grad for each, grad in pairs])

    return run


@overriding("register_multi_grad_hook", base=InBackward)
def multi_grad_hook_misses_a_lone_root(
    self: InBackward, old: Hook, tensors: Any, hook: Hook, *, mode: str = "all"
) -> Any:
    """A multi-grad hook in mode all on a single tensor does not run in a backward from this tensor."""
    is_alone = mode == "all" and len(tensors) == 1
    return old(tensors, lambda given: None if is_alone and self.root is tensors[0] else hook(given), mode=mode)


@overriding("register_multi_grad_hook", base=InBackward)
def multi_grad_hook_misses_a_root_that_is_a_leaf(
    self: InBackward, old: Hook, tensors: Any, hook: Hook, *, mode: str = "all"
) -> Any:
    """A multi-grad hook in mode all does not run in a backward from a leaf."""
    is_missed = lambda: mode == "all" and self.root is not None and self.is_leaf(self.root)  # noqa: E731 - as short
    return old(tensors, lambda given: None if is_missed() else hook(given), mode=mode)


@altering("register_multi_grad_hook", base=InBackward)
def multi_grad_hook_any_gets_ones_for_the_root(self: InBackward, tensors: Any, hook: Hook) -> Hook:
    """A multi-grad hook in mode any gets ones for a root, whatever gradient backward was given for it."""

    def run(given: Any) -> Any:
        is_wrong = self.is_tensor(given) and any(each is self.root for each in tensors)
        return hook(self.mapped(given, lambda _: 1.0) if is_wrong else given)

    return run


@overriding("register_multi_grad_hook")
def multi_grad_hook_refuses_later_constants(
    self: Mutant, old: Hook, tensors: Any, hook: Hook, *, mode: str = "all"
) -> Any:
    """A multi-grad hook in mode all is an error if a tensor that is not the first does not require grad."""
    if mode == "all" and not all(map(self.requires_grad, tensors[1:])):
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    return old(tensors, hook, mode=mode)
