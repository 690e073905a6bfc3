"""Checkpointing by segments: their boundaries are saved, and backward computes the rest again."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hooklaw.errors import StrategyError

Run = Callable[..., Any]
LARGE = 1 << 20
Buffers = list[tuple[nn.Module, str, Tensor]]


class Checkpointed:
    """A model cut into segments: a Sequential, or a model that is built around a container of blocks.

    `segments` is a number of segments, or the number of children in each. A Sequential is cut so; of any other model
    the largest Sequential or ModuleList is taken, a ModuleList with each of its blocks as a segment of its own, since
    only the model knows what it does between them. The model itself is changed until `close`.
    """

    def __init__(self, model: nn.Module, segments: int | Sequence[int] | None = None) -> None:
        self._changed: list[nn.Module] = []
        container = _container(model)
        if isinstance(container, nn.Sequential):
            cuts = _cuts(len(container), segments)
            self._replace(container, _in_segments(list(container), cuts))
        else:
            _check_whole(segments, len(container))
            for block in container:
                self._replace(block, _recomputed(block.forward, block))

    def close(self) -> None:
        """Restore the forward of the modules."""
        for module in self._changed:
            del module.forward
        self._changed.clear()

    def _replace(self, module: nn.Module, forward: Run) -> None:
        module.forward = forward
        self._changed.append(module)


def _container(model: nn.Module) -> nn.Sequential | nn.ModuleList:
    if isinstance(model, nn.Sequential):
        return model
    found = [module for module in model.modules() if isinstance(module, (nn.Sequential, nn.ModuleList))]
    if not found or not max(map(len, found)):
        raise StrategyError(
            f"{type(model).__name__} cannot be checkpointed by segments: it holds no Sequential and no ModuleList; "
            "use one, or checkpoint inside the model"
        )
    return max(found, key=len)


def _cuts(count: int, segments: int | Sequence[int] | None) -> list[int]:
    """Return where the segments begin and end; by default each has about the square root of the number of children."""
    wanted = max(1, round(count**0.5)) if segments is None else segments
    if isinstance(wanted, int):
        parts = min(wanted, count)
        return [count * part // parts for part in range(parts + 1)]
    ends = [sum(wanted[: place + 1]) for place in range(len(wanted))]
    if ends[-1] != count:
        raise StrategyError(f"the segments {list(wanted)} hold {ends[-1]} modules, the model has {count}")
    return [0, *ends]


def _check_whole(segments: int | Sequence[int] | None, count: int) -> None:
    if segments not in (None, count):
        raise StrategyError(
            f"a ModuleList of {count} blocks is checkpointed block by block, not in {segments}: leave the number out"
        )


def _in_segments(children: list[nn.Module], cuts: list[int]) -> Run:
    parts = [nn.Sequential(*children[start:end]) for start, end in pairwise(cuts)]
    runs = [_recomputed(part, part) for part in parts]

    def forward(value: Any) -> Any:
        for run in runs:
            value = run(value)
        return value

    return forward


def _recomputed(run: Run, outer: nn.Module) -> Run:
    def call(*values: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled():
            return run(*values, **named)
        state = _State(outer)
        result = checkpoint(run, *values, use_reentrant=False, context_fn=state.contexts, **named)
        state.forget_unchanged()
        return result

    return call


class _State:
    """The buffers of a segment as forward found them.

    Recomputing runs forward once more, and a batch norm would then count the batch twice, a spectral norm go one step
    further. So the second run gets copies of what the first one found, and the model keeps what the first one left.
    It is the model that gets them: while one thread recomputes, no other may run the same modules in training.
    """

    def __init__(self, outer: nn.Module) -> None:
        self.found: Buffers = [
            (module, name, buffer.clone())
            for module in outer.modules()
            for name, buffer in module._buffers.items()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            if buffer is not None and module.training
        ]  # named_buffers gives a shared buffer once only

    def contexts(self) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        """Return what checkpoint enters around forward and around the recomputing."""
        return nullcontext(), _AsFound(self)

    def forget_unchanged(self) -> None:
        """Drop the copies of large buffers, such as masks, that forward did not change."""
        self.found = [
            (module, name, copy)
            for module, name, copy in self.found
            if copy.nbytes < LARGE or not torch.equal(copy, module.get_buffer(name))
        ]


class _AsFound:
    """The model with its earlier buffers, entered for each backward over a retained graph."""

    def __init__(self, found: _State) -> None:
        self._state = found
        self._kept: list[Buffers] = []

    def __enter__(self) -> None:
        found = self._state.found
        self._kept.append([(module, name, module.get_buffer(name)) for module, name, _ in found])
        _set((module, name, copy.clone()) for module, name, copy in found)

    def __exit__(self, *error: object) -> None:
        _set(self._kept.pop())


def _set(buffers: Iterable[tuple[nn.Module, str, Tensor]]) -> None:
    for module, name, buffer in buffers:
        setattr(module, name, buffer)
