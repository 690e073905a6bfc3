"""Mutants whose gradients of a whole batch forget rows, outputs, or what hooks return."""

import weakref
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, altering, calling, overriding


class _InBatch(Mutant):
    """A mutant that knows whether the gradients of a batch are computed."""

    is_batch = False

    @contextmanager
    def batch(self) -> Generator[None]:
        """Be computing the gradients of a batch."""
        self.is_batch = True
        try:
            yield
        finally:
            self.is_batch = False

    def grad(self, *given: Any, **how: Any) -> tuple[Any, ...]:
        if not how.get("is_grads_batched"):
            return super().grad(*given, **how)
        with self.batch():
            return super().grad(*given, **how)

    def vmap(self, function: Hook) -> Hook:
        def inside(*arguments: Any) -> Any:
            with self.batch():
                return function(*arguments)

        return super().vmap(inside)


@calling("register_hook", base=_InBatch)
def hooks_return_nothing_in_batches(self: _InBatch, hook: Hook, grad: Any) -> Any:
    """What a tensor hook returns is ignored while the gradients of a batch are computed."""
    returned = hook(grad)
    return None if self.is_batch else returned


@altering("register_hook", base=_InBatch)
def hooks_of_leaves_return_nothing_in_batches(self: _InBatch, tensor: Any, hook: Hook) -> Hook:
    """What a leaf's hook returns is ignored while the gradients of a batch are computed."""
    is_leaf = self.is_leaf(tensor)
    return lambda grad: (hook(grad), None)[1] if self.is_batch and is_leaf else hook(grad)


@altering("register_hook", base=_InBatch)
def later_hooks_return_nothing_in_batches(self: _InBatch, tensor: Any, hook: Hook) -> Hook:
    """What the hooks of a tensor after its first return is ignored while the gradients of a batch are computed."""
    is_later = bool(self.hooks_of(tensor))
    return lambda grad: (hook(grad), None)[1] if self.is_batch and is_later else hook(grad)


class HooksOfOutputsReturnNothingInBatches(_InBatch):
    """What the hooks of an output return is ignored while the gradients of a batch are computed."""

    outputs: Any = None

    def grad(self, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        self.outputs = outputs
        try:
            return super().grad(outputs, inputs, grad_outputs, **how)
        finally:
            self.outputs = None

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        alive = weakref.ref(tensor)

        def run(grad: Any) -> Any:
            returned = hook(grad)
            return None if self.is_batch and self.outputs is not None and self.outputs is alive() else returned

        return super().register_hook(tensor, run)


def batched(step: Hook) -> type[Mutant]:
    """Make a mutant that runs ``(self, old, outputs, inputs, batches)`` for autograd.grad of batches."""

    @wraps(step)
    def grad(self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any) -> Any:
        if not how.get("is_grads_batched"):
            return old(outputs, inputs, grad_outputs, **how)
        batches = grad_outputs if isinstance(grad_outputs, (list, tuple)) else [grad_outputs]
        return step(self, old, outputs, inputs, batches)

    return overriding("grad")(grad)


def _of_rows(self: Mutant, old: Hook, outputs: Any, inputs: Any, rows: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """Return the gradients for each row, one below the other."""
    return _below_one_another(self, [old(outputs, inputs, row, retain_graph=True) for row in rows])


def _below_one_another(self: Mutant, found: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(self.tensor([self.tolist(product) for product in products]) for products in zip(*found, strict=True))


def _rows(self: Mutant, batches: Sequence[Any]) -> list[list[Any]]:
    return [[*map(self.tensor, row)] for row in zip(*map(self.tolist, batches), strict=True)]


@batched
def batches_of_gradients_summed(self: Mutant, old: Hook, outputs: Any, inputs: Any, batches: Sequence[Any]) -> Any:
    """autograd.grad returns the sum of the products of a batch."""
    products = old(outputs, inputs, batches, is_grads_batched=True)
    return tuple(self.tensor([*map(sum, zip(*self.tolist(product), strict=True))]) for product in products)


@batched
def batches_of_gradients_repeat_the_first(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, batches: Sequence[Any]
) -> Any:
    """autograd.grad returns the first product of a batch for each row."""
    first, *others = _rows(self, batches)
    return _of_rows(self, old, outputs, inputs, [first] * (1 + len(others)))


@batched
def batches_of_the_first_output(self: Mutant, old: Hook, outputs: Any, inputs: Any, batches: Sequence[Any]) -> Any:
    """autograd.grad takes the rows of the first output's grad_outputs, and the first row of the others'."""
    first, *others = _rows(self, batches)
    return _of_rows(self, old, outputs, inputs, [first, *([row[0], *first[1:]] for row in others)])


@overriding("grad")
def autograd_grad_of_a_batch_accumulates(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any
) -> Any:
    """autograd.grad of a batch leaves the product for its last row in the .grad of each leaf among its inputs."""
    products = old(outputs, inputs, *given, **how)
    if how.get("is_grads_batched"):
        for tensor, product in zip(inputs, products, strict=True):
            if self.is_leaf(tensor) and product is not None:
                self.set_grad(tensor, self.tensor(self.tolist(product)[-1], dtype=self.dtype(tensor)))
    return products


@overriding("grad")
def batches_retain_the_graph(self: Mutant, old: Hook, *given: Any, **how: Any) -> tuple[Any, ...]:
    """autograd.grad of a batch never frees the graph."""
    return old(*given, **{**how, "retain_graph": True} if how.get("is_grads_batched") else how)


@overriding("grad")
def batches_allow_unused_inputs(self: Mutant, old: Hook, *given: Any, **how: Any) -> tuple[Any, ...]:
    """An unused input is never an error in autograd.grad of a batch."""
    return old(*given, **{**how, "allow_unused": True} if how.get("is_grads_batched") else how)


class _RowByRow(_InBatch):
    """A mutant that computes the gradients of a batch row by row."""

    row = 0

    def grad(self, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        if not how.get("is_grads_batched"):
            return super().grad(outputs, inputs, grad_outputs, **how)
        found: list[tuple[Any, ...]] = []
        for row in self.tolist(grad_outputs):
            found.append(super().grad(outputs, inputs, self.tensor(row), retain_graph=True))
            self.row += 1
        self.row = 0
        return _below_one_another(self, found)


@calling("register_hook", base=_RowByRow)
def hooks_act_on_the_first_row_of_a_batch(self: _RowByRow, hook: Hook, grad: Any) -> Any:
    """A tensor hook changes the first product of a batch only."""
    return None if self.row else hook(grad)
