"""A strategy assembled from parts: changes to the model, and a packer that forward runs in."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

from torch import nn

from hooklaw_backends.offload.choices import SelectedModules
from hooklaw_backends.offload.packer import Packer
from hooklaw_backends.offload.recompute import Checkpointed

AMPLIFIED = 25  # how much worse than an element a gradient may be, if a user's packer does not say
Context = AbstractContextManager[Any]


class Assembled:
    """A strategy of parts: changes to the model, and a packer or any other context manager.

    `cuts` makes checkpointed segments of the model; with a `pattern` the packer is entered in those modules only.
    """

    backward_inside = False

    def __init__(
        self,
        name: str,
        packer: Context | Callable[[], Context] | None = None,
        *,
        cuts: Callable[[nn.Module], Checkpointed] | None = None,
        pattern: str = "",
    ) -> None:
        self.name = name
        self._packer = packer
        self._cuts, self._pattern = cuts, pattern
        self._active: list[Checkpointed | SelectedModules] = []
        by_element = getattr(packer, "tolerance", 0.0)
        self.tolerance = float(getattr(packer, "gradient_tolerance", by_element * AMPLIFIED))
        self.lossless = bool(getattr(packer, "lossless", not self.tolerance))
        self.medium = str(getattr(packer, "medium", "memory"))

    def wrap(self, model: nn.Module) -> Callable[..., Any]:
        """Change the model and return what to call; `close` reverts the change."""
        if isinstance(self._packer, Packer):
            self._packer.own(model)
        if self._cuts:
            self._active.append(self._cuts(model))
        if self._pattern:
            self._active.append(SelectedModules(model, self._pattern, self._entered()))
        return model

    def context(self) -> Context:
        return nullcontext() if self._pattern else self._entered()

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
