"""A strategy assembled from parts: changes to the model, and a packer that forward runs in."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, cast

from torch import nn

from hooklaw_backends.offload.packer import Packer

AMPLIFIED = 25  # how much worse than an element a gradient may be, if a user's packer does not say
Context = AbstractContextManager[Any]


class Change(Protocol):
    """A change to a model that `close` reverts."""

    def close(self) -> None: ...


class Assembled:
    """A strategy of parts: changes to the model, and a packer or any other context manager."""

    backward_inside = False

    def __init__(
        self,
        name: str,
        packer: Context | Callable[[], Context] | None = None,
        *,
        changes: tuple[Callable[[nn.Module], Change], ...] = (),
        only_inside: Callable[[nn.Module, Context], Change] | None = None,
    ) -> None:
        self.name = name
        self._packer = packer
        self._changes = changes
        self._only_inside = only_inside
        self._active: list[Change] = []
        by_element = getattr(packer, "tolerance", 0.0)
        self.tolerance = float(getattr(packer, "gradient_tolerance", by_element * AMPLIFIED))
        self.lossless = bool(getattr(packer, "lossless", not self.tolerance))
        self.medium = str(getattr(packer, "medium", "memory"))

    def wrap(self, model: nn.Module) -> Callable[..., Any]:
        """Change the model and return what to call; `close` reverts the change."""
        if isinstance(self._packer, Packer):
            self._packer.own(model)
        for change in self._changes:
            self._active.append(change(model))
        if self._only_inside:
            self._active.append(self._only_inside(model, self._entered()))
        return model

    def context(self) -> Context:
        return nullcontext() if self._only_inside else self._entered()

    def counters(self) -> dict[str, int]:
        packer: Any = self._packer
        return dict(packer.counters()) if callable(getattr(packer, "counters", None)) else {}

    def close(self) -> None:
        while self._active:
            self._active.pop().close()
        end = getattr(self._packer, "close", None)
        if callable(end):
            end()

    def _entered(self) -> Context:
        if self._packer is None:
            return nullcontext()
        packer: Any = self._packer
        return cast("Context", packer() if _is_factory(packer) else packer)


def _is_factory(thing: object) -> bool:
    return callable(thing) and not hasattr(type(thing), "__enter__")
