"""The strategies that move nothing: bare hooks, and a packer that keeps every tensor."""

from collections.abc import Callable
from typing import Any

import torch

from hooklaw_backends.offload.handles import keep, kept
from hooklaw_backends.offload.packer import Packer


class HookOnly(torch.autograd.graph.saved_tensors_hooks):
    """Hooks that return what they are given: what hooks cost by themselves."""

    def __init__(self) -> None:
        super().__init__(lambda tensor: tensor, lambda tensor: tensor)


class KeepAll(Packer):
    """Every saved tensor stays, and a change in place is an error in backward: what a packer adds to bare hooks."""

    def _hooks(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        return super()._hooks() if self._counts is not None else (keep, kept)
