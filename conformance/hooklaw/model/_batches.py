"""The option is_grads_batched of grad: a vector-Jacobian product for each row of the grad_outputs."""

from collections.abc import Callable, Sequence
from typing import Any

from hooklaw.model import ops, views
from hooklaw.model.hooks import Gradients
from hooklaw.model.tensor import Tensor


def for_each_row(
    grad: Callable[..., Gradients],
    grad_outputs: Sequence[Tensor | None],
    *,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    **how: Any,
) -> Gradients:
    """Return what grad does for each row of the grad_outputs, one below the other."""
    kept = create_graph if retain_graph is None else retain_graph
    *before, last = _rows(grad_outputs)
    found = [grad(row, retain_graph=True, create_graph=create_graph, **how) for row in before]
    found.append(grad(last, retain_graph=kept, create_graph=create_graph, **how))
    return tuple(_stacked(products) for products in zip(*found, strict=True))


def _rows(grad_outputs: Sequence[Tensor | None]) -> list[tuple[Tensor | None, ...]]:
    (number,) = {batch.shape[0] for batch in grad_outputs if batch is not None}
    columns = [[None] * number if batch is None else _rows_of(batch) for batch in grad_outputs]
    return [*zip(*columns, strict=True)]


def _rows_of(batch: Tensor) -> list[Tensor]:
    return [ops.summed(row, batch.shape[1:]) for row in views.split(batch, 1)]


def _stacked(products: Sequence[Tensor | None]) -> Tensor | None:
    found = [product for product in products if product is not None]
    return views.joined([ops.repeated(product, (1, *product.shape)) for product in found]) if found else None
