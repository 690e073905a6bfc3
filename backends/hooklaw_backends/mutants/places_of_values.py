"""What makes a mutant that changes the values in one place: what a hook, a verb or a function is given or returns."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from hooklaw_backends.mutants.base import Hook, Mutant, Pair, calling, overriding, pairs
from hooklaw_backends.mutants.custom_functions import Context
from hooklaw_backends.mutants.kinds import KINDS as HOOKS
from hooklaw_backends.mutants.values import LOST, Change, replaced

Make = Callable[..., type[Mutant]]
"""Makes a mutant of a change, and of what else it takes."""

# hooks


def _of_hook(of: str, run: Hook) -> type[Mutant]:
    """Return a mutant that runs ``(self, hook, ...)`` in place of each hook of a kind."""
    kind = HOOKS[of]
    if not kind.mode:
        return calling(*kind.verbs)(run)

    def register(self: Mutant, old: Hook, tensors: Any, hook: Hook, *, mode: str = "all") -> Any:
        return old(tensors, partial(run, self, hook) if mode == kind.mode else hook, mode=mode)

    return overriding(*kind.verbs)(register)


def of_given(change: Change, of: str, place: int) -> type[Mutant]:
    """Return a mutant that changes an argument of a hook; if it is lost, the hook is not called."""

    def run(self: Mutant, hook: Hook, *given: Any, **keywords: Any) -> Any:
        its = change(self, given[place])
        return None if its is LOST else hook(*replaced(given, place, its), **keywords)

    return _of_hook(of, run)


def of_returned(change: Change, of: str) -> type[Mutant]:
    """Return a mutant that ignores what a hook returns, if it is lost."""

    def run(self: Mutant, hook: Hook, *given: Any, **keywords: Any) -> Any:
        result = change(self, hook(*given, **keywords))
        return None if result is LOST else result

    return _of_hook(of, run)


def positions(change: Change, of: str, *, outputs: bool) -> type[Mutant]:
    """Return a mutant in which a backward hook gets nothing in the position of an input or an output that is lost."""
    place = -1 if outputs or "pre" in of else 1

    def register(self: Mutant, old: Hook, module: Any, hook: Hook, **options: Any) -> Any:
        passed: list[Any] = []

        def note(_module: Any, args: Any, output: Any) -> None:
            passed[:] = output if outputs and isinstance(output, tuple) else [output] if outputs else args

        def run(*given: Any) -> Any:
            grads = given[place]
            if len(grads) != len(passed):  # another call of the module came between
                return hook(*given)
            kept = tuple(grad for grad, each in zip(grads, passed, strict=True) if change(self, each) is not LOST)
            return hook(*replaced(given, place, kept))

        self.register_forward_hook(module, note)
        return old(module, run, **options)

    return overriding(*HOOKS[of].verbs)(register)


# verbs


def of_argument(change: Change, verb: str, place: int, name: str = "") -> type[Mutant]:
    """Return a mutant that changes an argument of a verb; if it is lost, the verb does nothing."""

    def run(self: Mutant, old: Hook, *given: Any, **options: Any) -> Any:
        if name in options:
            its = change(self, options[name])
            return None if its is LOST else old(*given, **{**options, name: its})
        if place >= len(given):
            return old(*given, **options)
        its = change(self, given[place])
        return None if its is LOST else old(*replaced(given, place, its), **options)

    return overriding(verb)(run)


def of_backward_inputs(change: Change) -> type[Mutant]:
    """Return a mutant in which a backward leaves out those of its inputs that are lost."""

    def backward(self: Mutant, old: Hook, *given: Any, inputs: Any = None, **how: Any) -> None:
        kept = inputs if inputs is None else [each for each in inputs if change(self, each) is not LOST]
        old(*given, inputs=kept, **how)

    return overriding("backward")(backward)


def of_grad_inputs(change: Change) -> type[Mutant]:
    """Return a mutant in which autograd.grad returns None for an input that is lost."""

    def grad(self: Mutant, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any) -> Any:
        found = zip(old(outputs, inputs, *given, **how), inputs, strict=True)
        return tuple(None if change(self, each) is LOST else gradient for gradient, each in found)

    return overriding("grad")(grad)


def undetached(change: Change) -> type[Mutant]:
    """Return a mutant in which detach returns a tensor itself, if it is lost."""
    return overriding("detach")(lambda self, old, tensor: tensor if change(self, tensor) is LOST else old(tensor))


def uncounted(change: Change) -> type[Mutant]:
    """Return a mutant in which a change in place of a tensor does not count, if it is lost."""

    def mul_(self: Mutant, old: Hook, tensor: Any, factor: Any) -> Any:
        if change(self, tensor) is not LOST:
            return old(tensor, factor)
        with self.no_grad():
            self.overwrite_unseen(tensor, self.detach(tensor) * factor)
        return tensor

    return overriding("mul_")(mul_)


def unmaterialized(change: Change) -> type[Mutant]:
    """Return a mutant in which materialize_grads leaves None for an input that is lost."""

    def grad(self: Mutant, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any) -> Any:
        if not how.get("materialize_grads"):
            return old(outputs, inputs, *given, **how)
        instead = {"materialize_grads": False, "allow_unused": True, "retain_graph": True}
        left = old(outputs, inputs, *given, **how | instead)
        zeros = old(outputs, inputs, *given, **how)
        found = zip(inputs, left, zeros, strict=True)
        return tuple(none if change(self, each) is LOST else zero for each, none, zero in found)

    return overriding("grad")(grad)


def optimized(change: Change) -> type[Mutant]:
    """Return a mutant in which an optimizer has none of the parameters that are lost."""

    def sgd(self: Mutant, old: Hook, parameters: Any, **options: Any) -> Any:
        kept = [each for each in parameters if change(self, each) is not LOST]
        return old(kept or [self.tensor([0.0], requires_grad=True)], **options)

    return overriding("sgd")(sgd)


def accepted(change: Change, verb: str, place: int = 0) -> type[Mutant]:
    """Return a mutant in which a call of a verb that is an error does nothing, if one of its arguments is lost."""

    def run(self: Mutant, old: Hook, *given: Any, **options: Any) -> Any:
        try:
            return old(*given, **options)
        except Exception:
            if change(self, given[place]) is LOST:
                return None
            raise

    return overriding(verb)(run)


# functions of the user's


def of_function(
    change: Change, verb: str, *, outputs: bool = False, keywords: bool = False, **wanted: Any
) -> type[Mutant]:
    """Return a mutant that changes what the function of a module or a checkpoint is given, or what it returns."""
    place = 1 if verb == "module" else 0

    def make(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
        if not wanted.items() <= how.items():
            return old(*given, **how)

        def run(*values: Any, **options: Any) -> Any:
            if not outputs and not keywords:
                values = *values[:place], *change(self, values[place:])
            result = given[place](*values, **change(self, options) if keywords else options)
            return change(self, result) if outputs else result

        return old(*replaced(given, place, run), **how)

    return overriding(verb)(make)


def function_inputs(change: Change) -> type[Mutant]:
    """Return a mutant that changes what the forward of a custom Function is given."""

    def custom_function(self: Mutant, old: Hook, forward: Hook, *given: Any, **options: Any) -> Hook:
        return old(lambda ctx, *inputs: forward(ctx, *change(self, inputs)), *given, **options)

    return overriding("custom_function")(custom_function)


def function_outputs(change: Change) -> type[Mutant]:
    """Return a mutant that changes what a custom Function returns to its caller."""

    def custom_function(self: Mutant, old: Hook, *given: Any, **options: Any) -> Hook:
        apply = old(*given, **options)
        return lambda *inputs: change(self, apply(*inputs))

    return overriding("custom_function")(custom_function)


def function_saved(change: Change) -> type[Mutant]:
    """Return a mutant that changes the saved tensors that the backward of a custom Function reads."""

    def backward(self: Mutant, run: Hook, ctx: Any, *grads: Any) -> Any:
        return run(Context(ctx, saved_tensors=lambda: change(self, ctx.saved_tensors)), *grads)

    return calling("custom_function")(backward)


def function_grads(change: Change) -> type[Mutant]:
    """Return a mutant that changes what the backward of a custom Function gets; if it is lost, that does not run."""

    def backward(self: Mutant, run: Hook, ctx: Any, *grads: Any) -> Any:
        its = change(self, grads)
        return None if its is LOST else run(ctx, *its)

    return calling("custom_function")(backward)


def function_results(change: Change) -> type[Mutant]:
    """Return a mutant that changes what the backward of a custom Function returns."""
    return calling("custom_function")(lambda self, run, *given: change(self, run(*given)))


# saved-tensor hooks


class _Saved(NamedTuple):
    """A saved tensor that was not packed."""

    tensor: Any


def pack_given(change: Change) -> type[Mutant]:
    """Return a mutant in which a tensor is saved as it is, if it is lost."""

    def pair(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
        def packing(tensor: Any) -> Any:
            return _Saved(self.detach(tensor)) if change(self, tensor) is LOST else [pack(tensor)]

        return packing, lambda packed: packed.tensor if isinstance(packed, _Saved) else unpack(*packed)

    return pairs("saved_tensors_hooks")(pair)


def packed(change: Change) -> type[Mutant]:
    """Return a mutant that changes what pack returns; if it is lost, the tensor is saved as it is."""

    def pair(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
        def packing(tensor: Any) -> Any:
            packed = change(self, pack(tensor))
            return _Saved(self.detach(tensor)) if packed is LOST else [packed]

        return packing, lambda packed: packed.tensor if isinstance(packed, _Saved) else unpack(*packed)

    return pairs("saved_tensors_hooks")(pair)
