"""Mutants of checkpoints that are right for one leaf, input, output or structure, and wrong beside another."""

import weakref
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from hooklaw import ErrorKind
from hooklaw_backends.mutants.base import Hook, Mutant, altering, fresh, overriding
from hooklaw_backends.mutants.shared import Handle, KnowsDepth


class _RemembersInputs(Mutant):
    """A mutant that knows the inputs of checkpoints, and keeps none of them alive."""

    inputs = fresh(list[Any])

    def reset(self) -> None:
        super().reset()
        self.inputs = []

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        self.inputs += [weakref.ref(value) for value in inputs if self.is_tensor(value)]
        return super().checkpoint(fn, *inputs, **how)

    def was_given(self, tensor: Any) -> bool:
        """Whether a tensor was an input of a checkpoint."""
        return any(alive() is tensor for alive in self.inputs)


@overriding("grad", base=_RemembersInputs)
def inputs_of_a_checkpoint_that_are_not_leaves_have_no_gradient(
    self: _RemembersInputs, old: Hook, outputs: Any, inputs: Sequence[Any], *given: Any, **how: Any
) -> tuple[Any, ...]:
    """autograd.grad returns None for an input of a checkpoint that is not a leaf."""
    grads = old(outputs, inputs, *given, **how)
    return tuple(
        None if self.was_given(tensor) and not self.is_leaf(tensor) else grad
        for tensor, grad in zip(inputs, grads, strict=True)
    )


@overriding("grad", base=_RemembersInputs)
def gradients_of_captured_leaves_are_constants(
    self: _RemembersInputs, old: Hook, outputs: Any, inputs: Sequence[Any], *given: Any, **how: Any
) -> tuple[Any, ...]:
    """If there is a checkpoint, autograd.grad returns gradients without history for all that is not its input."""
    grads = old(outputs, inputs, *given, **how)
    if not self.inputs:
        return grads
    return tuple(
        grad if grad is None or self.was_given(tensor) else self.detach(grad)
        for tensor, grad in zip(inputs, grads, strict=True)
    )


@overriding("backward", base=_RemembersInputs)
def gradients_accumulated_for_captured_leaves_are_constants(
    self: _RemembersInputs, old: Hook, root: Any, gradient: Any = None, **how: Any
) -> None:
    """If there is a checkpoint, a backward leaves .grad without history for all leaves that are not its input."""
    leaves = [leaf for leaf in self.leaves_of(root) if not self.was_given(leaf)] if self.inputs else []
    old(root, gradient, **how)
    for leaf in leaves if how.get("create_graph") else ():
        self.set_grad(leaf, self.detach(self.grad_of(leaf)))


class OfSeveralRootsInOneCheckpointTheFirstCounts(Mutant):
    """Of several roots that lead to one checkpoint, a backward starts at the first alone."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        outputs = super().checkpoint(fn, *inputs, **how)
        if isinstance(outputs, tuple) and all(map(self.is_tensor, outputs)):
            self.kept.append([self.gradient_edge(each)[0] for each in outputs if self.requires_grad(each)])
        return outputs

    def backward_from_all(self, roots: Sequence[Any], gradients: Sequence[Any] | None = None) -> None:
        reached, places = list[int](), list[int]()
        for place, root in enumerate(roots):
            found = [nr for nr, nodes in enumerate(self.kept) if any(node in nodes for node in self._nodes_of(root))]
            if not any(nr in reached for nr in found):
                places.append(place)
            reached += found
        some = None if gradients is None else [gradients[place] for place in places]
        super().backward_from_all([roots[place] for place in places], some)

    def _nodes_of(self, root: Any) -> Iterator[Any]:
        ahead = [self.gradient_edge(root)[0]] if self.requires_grad(root) else []
        while ahead:
            node = ahead.pop()
            if node is not None:
                yield node
                ahead += self.node_next(node)


class _RestoresLeaves(Mutant):
    """A mutant that restores the .grad of some leaves after a backward."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        runs: list[int] = []

        def noting(*given: Any, **keywords: Any) -> Any:
            runs.append(0)
            output = fn(*given, **keywords)
            if self.is_tensor(output) and self.requires_grad(output):
                values = [value for value in (*given, *keywords.values()) if self.reaches(value)]
                inputs = {id(leaf) for value in values for leaf in self.leaves_of(value)}
                captured = [leaf for leaf in self.leaves_of(output) if id(leaf) not in inputs]
                self.kept += [(leaf, self._copy(leaf)) for leaf in self.lost(captured, len(runs), how)]
            return output

        return super().checkpoint(noting, *inputs, **how)

    def _copy(self, leaf: Any) -> Any:
        grad = self.grad_of(leaf)
        return None if grad is None else self.clone(self.detach(grad))

    def reaches(self, value: Any) -> bool:
        """Whether a value is a tensor that requires grad."""
        return self.is_tensor(value) and self.requires_grad(value)

    def lost(self, captured: list[Any], run: int, how: dict[str, Any]) -> list[Any]:
        """Return those of the captured leaves that get no gradient."""
        raise NotImplementedError

    def backward(self, *given: Any, **how: Any) -> None:
        super().backward(*given, **how)
        while self.kept:
            self.set_grad(*self.kept.pop())


class LeavesCapturedInAnInnerCheckpointHaveNoGradient(KnowsDepth, _RestoresLeaves):
    """A leaf that a checkpoint inside another one captures has no gradient."""

    def lost(self, captured: list[Any], run: int, how: dict[str, Any]) -> list[Any]:
        return captured if self.depth else []


class RetainedReentrantCheckpointReachesCapturedLeavesOnce(_RestoresLeaves):
    """A reentrant checkpoint has gradients for captured leaves in the first backward through it alone."""

    def lost(self, captured: list[Any], run: int, how: dict[str, Any]) -> list[Any]:
        return captured if how.get("use_reentrant") and run > 2 else []  # noqa: PLR2004 - the second recomputation


@overriding("checkpoint")
def checkpoint_of_several_constants_has_no_gradient(self: Mutant, old: Hook, fn: Hook, *inputs: Any, **how: Any) -> Any:
    """A non-reentrant checkpoint of several tensors none of which requires grad is not recorded."""
    constants = [self.is_tensor(value) and not self.requires_grad(value) for value in inputs]
    with self.no_grad() if inputs[1:] and all(constants) and not how.get("use_reentrant") else nullcontext():
        return old(fn, *inputs, **how)


@overriding("checkpoint")
def checkpoint_of_numbers_has_no_gradient(self: Mutant, old: Hook, fn: Hook, *inputs: Any, **how: Any) -> Any:
    """A non-reentrant checkpoint that is given numbers alone is not recorded."""
    numbers = [isinstance(value, int | float) for value in inputs]
    with self.no_grad() if inputs and all(numbers) and not how.get("use_reentrant") else nullcontext():
        return old(fn, *inputs, **how)


@overriding("checkpoint")
def checkpoint_of_constants_by_keyword_has_no_gradient(
    self: Mutant, old: Hook, fn: Hook, *inputs: Any, **how: Any
) -> Any:
    """A non-reentrant checkpoint that is given constants by keyword, and nothing by position, is not recorded."""
    tensors = [value for value in (*inputs, *how.values()) if self.is_tensor(value)]
    is_constant = bool(tensors) and not inputs and not any(map(self.requires_grad, tensors))
    with self.no_grad() if is_constant and not how.get("use_reentrant") else nullcontext():
        return old(fn, *inputs, **how)


@overriding("checkpoint")
def reentrant_checkpoint_without_inputs_is_recorded(
    _self: Mutant, old: Hook, fn: Hook, *inputs: Any, **how: Any
) -> Any:
    """A reentrant checkpoint without inputs is recorded as if it were none."""
    return fn() if how.get("use_reentrant") and not inputs else old(fn, *inputs, **how)


def _in_list(self: Mutant, value: Any) -> Any:
    if type(value) is not list:
        return value
    return [self.detach(each) if self.is_tensor(each) else each for each in value]


def _in_dict(self: Mutant, value: Any) -> Any:
    if type(value) is not dict:
        return value
    return {key: self.detach(each) if self.is_tensor(each) else each for key, each in value.items()}


@overriding("checkpoint")
def checkpoint_overlooks_tensors_in_a_list_given(self: Mutant, old: Hook, fn: Hook, *inputs: Any, **how: Any) -> Any:
    """A checkpoint takes tensors for constants in a list that is its argument, not in one inside a dict."""
    return old(fn, *(_in_list(self, value) for value in inputs), **how)


@overriding("checkpoint")
def checkpoint_overlooks_tensors_in_a_dict_given(self: Mutant, old: Hook, fn: Hook, *inputs: Any, **how: Any) -> Any:
    """A checkpoint takes the tensors that are the values of a dict that it is given for constants."""
    return old(fn, *(_in_dict(self, value) for value in inputs), **how)


@overriding("checkpoint")
def checkpoint_overlooks_tensors_in_a_dict_by_keyword(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """A checkpoint takes the tensors in a dict that it is given by keyword for constants."""
    return old(*given, **{name: _in_dict(self, value) for name, value in how.items()})


@overriding("checkpoint")
def checkpoint_returns_lists_of_constants(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """A checkpoint that returns a list, alone or in a tuple, returns its tensors detached."""
    output = old(*given, **how)
    if isinstance(output, tuple):
        return tuple(_in_list(self, value) for value in output)
    return _in_list(self, output)


@overriding("checkpoint")
def checkpoint_returns_dicts_of_constants(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """A checkpoint returns the tensors that are the values of a dict detached."""
    output = old(*given, **how)
    if isinstance(output, tuple):
        return tuple(_in_dict(self, value) for value in output)
    return _in_dict(self, output)


def _as_one(self: Mutant, place: int, outputs: Any) -> Any:
    """Detach all outputs if the one in a place is a tensor that does not require grad."""
    if not isinstance(outputs, tuple) or not all(map(self.is_tensor, outputs)) or self.requires_grad(outputs[place]):
        return outputs
    return tuple(map(self.detach, outputs))


@overriding("checkpoint")
def checkpoint_requires_grad_as_its_first_output_does(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """No output of a checkpoint requires grad if its first one is detached."""
    return _as_one(self, 0, old(*given, **how))


@overriding("checkpoint")
def checkpoint_requires_grad_as_its_last_output_does(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """No output of a checkpoint requires grad if its last one is detached."""
    return _as_one(self, -1, old(*given, **how))


@overriding("checkpoint")
def only_output_of_a_checkpoint_requires_grad(self: Mutant, old: Hook, fn: Hook, *inputs: Any, **how: Any) -> Any:
    """The only output of a non-reentrant checkpoint requires grad if an input does, even if it is detached inside."""
    output = old(fn, *inputs, **how)
    if how.get("use_reentrant") or not self.is_tensor(output) or self.requires_grad(output):
        return output
    has_grad = any(self.is_tensor(value) and self.requires_grad(value) for value in inputs)
    return self.requires_grad_(self.detach(output)) if has_grad and self.is_grad_enabled() else output


class FirstOutputOfAReentrantCheckpointStaysDetached(Mutant):
    """The first of several outputs of a reentrant checkpoint does not require grad if it was detached inside."""

    def detach(self, tensor: Any) -> Any:
        detached = super().detach(tensor)
        self.kept += [id(detached)]
        return detached

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        were: list[bool] = []

        def noting(*given: Any, **keywords: Any) -> Any:
            self.kept = []
            output = fn(*given, **keywords)
            were.append(isinstance(output, tuple) and id(output[0]) in self.kept)
            return output

        output = super().checkpoint(noting if how.get("use_reentrant") else fn, *inputs, **how)
        return (super().detach(output[0]), *output[1:]) if were[:1] == [True] else output


class HooksOfAnInputSeeTheCheckpointAlone(Mutant):
    """A tensor hook on an input of a checkpoint gets the part of the gradient that comes from the checkpoint."""

    hooks = fresh(list[list[Any]])

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        its: list[Any] = [weakref.ref(tensor), weakref.ref(hook), super().register_hook(tensor, hook)]
        self.hooks.append(its)
        return Handle(lambda: its[2].remove())  # noqa: PLW0108 - it changes

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        return super().checkpoint(fn, *map(self._moved, inputs), **how)

    def _moved(self, value: Any) -> Any:
        mine = [its for its in self.hooks if self.is_tensor(value) and its[0]() is value and its[1]()]
        if not mine or not self.is_grad_enabled():
            return value
        copy = value * 1
        for its in mine:
            hook = its[1]()
            its[2].remove()
            its[2] = super().register_hook(copy, hook)
        return copy


@altering("register_hook", base=_RemembersInputs)
def hooks_on_leaves_that_a_checkpoint_is_given_lost(self: _RemembersInputs, tensor: Any, hook: Hook) -> Hook:
    """A tensor hook on a leaf that is an input of a checkpoint does not run."""
    alive = weakref.ref(tensor)

    def run(grad: Any) -> Any:
        leaf = alive()
        return None if leaf is not None and self.is_leaf(leaf) and self.was_given(leaf) else hook(grad)

    return run


class BackwardInAPassThatRecomputedLost(Mutant):
    """A backward inside another one that has recomputed a checkpoint does nothing."""

    passes = fresh(list[list[int]])

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        def noting(*given: Any, **keywords: Any) -> Any:
            try:
                return fn(*given, **keywords)
            finally:
                if self.passes:
                    self.passes[-1].append(0)

        return super().checkpoint(noting, *inputs, **how)

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        if self.passes and self.passes[-1]:
            return
        self.passes.append([])
        try:
            super().backward(root, gradient, **how)
        finally:
            self.passes.pop()


class _KnowsCapturedLeaves(Mutant):
    """A mutant that knows which leaves non-reentrant checkpoints captured, and keeps none of them alive."""

    captured = fresh(list[Any])

    def reset(self) -> None:
        super().reset()
        self.captured = []

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        output = super().checkpoint(fn, *inputs, **how)
        first = output[0] if isinstance(output, tuple) else output
        if not how.get("use_reentrant") and self._has_leaves(first) and self.concerns(how):
            given = {id(leaf) for value in inputs if self._has_leaves(value) for leaf in self.leaves_of(value)}
            self.captured += [weakref.ref(leaf) for leaf in self.leaves_of(first) if id(leaf) not in given]
        return output

    def concerns(self, how: dict[str, Any]) -> bool:
        """Whether a checkpoint with these options is one of those that go wrong."""
        return True

    def _has_leaves(self, value: Any) -> bool:
        return self.is_tensor(value) and self.requires_grad(value)

    @contextmanager
    def restored(self) -> Generator[None]:
        """Restore the .grad of the captured leaves in the end."""
        leaves = [leaf for alive in self.captured if (leaf := alive()) is not None]
        grads = [self.grad_of(leaf) for leaf in leaves]
        before = [grad if grad is None else self.clone(self.detach(grad)) for grad in grads]
        yield
        for leaf, grad in zip(leaves, before, strict=True):
            self.set_grad(leaf, grad)


@overriding("backward_from_all", base=_KnowsCapturedLeaves)
def several_roots_of_checkpoints_do_not_reach_captured_leaves(
    self: _KnowsCapturedLeaves, old: Hook, *given: Any
) -> None:
    """A backward from several roots does not reach the leaves that non-reentrant checkpoints captured."""
    with self.restored():
        old(*given)


@overriding("backward_from_edge", base=_KnowsCapturedLeaves)
def backward_from_an_edge_does_not_reach_captured_leaves(self: _KnowsCapturedLeaves, old: Hook, *given: Any) -> None:
    """A backward from a gradient edge does not reach the leaves that non-reentrant checkpoints captured."""
    with self.restored():
        old(*given)


@overriding("grad", base=_RemembersInputs)
def batches_do_not_reach_captured_leaves(
    self: _RemembersInputs, old: Hook, outputs: Any, inputs: Sequence[Any], *given: Any, **how: Any
) -> tuple[Any, ...]:
    """With is_grads_batched, the gradients of all that is no input of a checkpoint are zero if there is one."""
    grads = old(outputs, inputs, *given, **how)
    if not self.inputs or not how.get("is_grads_batched"):
        return grads
    return tuple(
        grad if grad is None or self.was_given(tensor) else self.zeros_like(grad)
        for tensor, grad in zip(inputs, grads, strict=True)
    )


class SelectiveCheckpointDoesNotReachCapturedLeaves(_KnowsCapturedLeaves):
    """A checkpoint with a context_fn has no gradients for the leaves that it captured."""

    def concerns(self, how: dict[str, Any]) -> bool:
        return bool(how.get("context_fn"))

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        with self.restored():
            super().backward(root, gradient, **how)


class ReentrantCheckpointRefusesItsOwnInputsAlone(_RemembersInputs):
    """autograd.grad and a backward with inputs go through a reentrant checkpoint unless asked for its own input."""

    def grad(self, outputs: Any, inputs: Sequence[Any], *given: Any, **how: Any) -> tuple[Any, ...]:
        try:
            return super().grad(outputs, inputs, *given, **how)
        except self._refused():
            if not self.inputs or any(map(self.was_given, inputs)):
                raise
            return tuple(map(self.zeros_like, inputs))

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        try:
            super().backward(root, gradient, **how)
        except self._refused():
            if not self.inputs or how.get("inputs") is None or any(map(self.was_given, how["inputs"])):
                raise

    def _refused(self) -> tuple[type[BaseException], ...]:
        return tuple(self.errors.get(ErrorKind.CHECKPOINT_REENTRANT, (RuntimeError,)))


@overriding("checkpoint_sequential")
def sequential_restores_the_random_state_before_each_function(
    self: Mutant, old: Hook, functions: Any, segments: int, *given: Any, **how: Any
) -> Any:
    """Each function of a segment of checkpoint_sequential that runs again finds the state of the segment's begin."""
    ran: set[int] = set()
    size = len(functions) // segments
    if how.get("preserve_rng_state") is False:
        return old(functions, segments, *given, **how)

    def numbered(nr: int, function: Hook) -> Hook:
        def run(*inputs: Any) -> Any:
            if nr in ran or nr % size == 0:
                self.manual_seed(nr // size)
            ran.add(nr)
            return function(*inputs)

        return run

    return old([numbered(*each) for each in enumerate(functions)], segments, *given, **how)


def _returned_inputs_detached(self: Mutant, fn: Hook) -> Hook:
    """Return a function that detaches those of its arguments that it returns."""

    def run(*given: Any, **keywords: Any) -> Any:
        outputs = fn(*given, **keywords)
        if not isinstance(outputs, tuple):
            return outputs
        return tuple(self.detach(each) if any(each is value for value in given) else each for each in outputs)

    return run


@overriding("checkpoint")
def checkpoint_detaches_the_inputs_that_it_returns(self: Mutant, old: Hook, fn: Hook, *inputs: Any, **how: Any) -> Any:
    """An output of a non-reentrant checkpoint that is one of its inputs does not require grad."""
    return old(fn if how.get("use_reentrant") else _returned_inputs_detached(self, fn), *inputs, **how)


@overriding("checkpoint")
def reentrant_checkpoint_detaches_the_inputs_that_it_returns(
    self: Mutant, old: Hook, fn: Hook, *inputs: Any, **how: Any
) -> Any:
    """The gradient for an output of a reentrant checkpoint that is one of its inputs is lost."""
    return old(_returned_inputs_detached(self, fn) if how.get("use_reentrant") else fn, *inputs, **how)


@overriding("checkpoint")
def checkpoint_that_returns_a_result_twice_detaches_the_second(
    self: Mutant, old: Hook, fn: Hook, *inputs: Any, **how: Any
) -> Any:
    """If a checkpoint returns the same tensor in two places, the gradient for the second is lost."""
    again: set[int] = set()

    def noting(*given: Any, **keywords: Any) -> Any:
        outputs = fn(*given, **keywords)
        if isinstance(outputs, tuple):
            before = [id(each) for each in outputs]
            again.update(place for place, each in enumerate(before) if each in before[:place])
        return outputs

    outputs = old(noting, *inputs, **how)
    if not again:
        return outputs
    return tuple(
        self.detach(each) if place in again and self.is_tensor(each) else each for place, each in enumerate(outputs)
    )


class CheckpointInsideOneOfTheOtherKindDetached(Mutant):
    """A reentrant checkpoint inside a non-reentrant one has no gradient, and the other way round."""

    around = fresh(list[Any])
    """What use_reentrant is of each checkpoint under way."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        def region(*given: Any, **keywords: Any) -> Any:
            self.around.append(how.get("use_reentrant"))
            try:
                return fn(*given, **keywords)
            finally:
                self.around.pop()

        output = super().checkpoint(region, *inputs, **how)
        is_mixed = bool(self.around) and self.around[-1] is not how.get("use_reentrant")
        return self.detach(output) if is_mixed and self.is_tensor(output) else output


@overriding("checkpoint")
def reentrant_checkpoint_of_numbers_is_recorded(_self: Mutant, old: Hook, fn: Hook, *inputs: Any, **how: Any) -> Any:
    """A reentrant checkpoint that is given numbers alone is recorded."""
    numbers = [isinstance(value, int | float) for value in inputs]
    return fn(*inputs) if how.get("use_reentrant") and numbers and all(numbers) else old(fn, *inputs, **how)


class CheckpointTakesCapturedProductsForConstants(Mutant):
    """A non-reentrant checkpoint has no gradients for the products that it captured, only for leaves."""

    products_before = fresh(list[Any])
    arguments = fresh(list[Any])
    """Those of each checkpoint under way."""

    def call(self, fn: Hook, *tensors: Any) -> Any:
        def multiply(original: Hook, left: Any, right: Any) -> Any:
            product = original(*(map(self._cut, (left, right)) if self.arguments else (left, right)))
            if not self.arguments:
                self.products_before.append(weakref.ref(product))
            return product

        with self.products_by(multiply):
            return super().call(fn, *tensors)

    def _cut(self, value: Any) -> Any:
        is_captured = not any(value is given for given in self.arguments[-1])
        is_product = any(alive() is value for alive in self.products_before)
        return self.detach(value) if self.is_tensor(value) and is_captured and is_product else value

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        def region(*given: Any, **keywords: Any) -> Any:
            self.arguments.append([*given, *keywords.values()])
            try:
                return fn(*given, **keywords)
            finally:
                self.arguments.pop()

        return super().checkpoint(fn if how.get("use_reentrant") else region, *inputs, **how)
