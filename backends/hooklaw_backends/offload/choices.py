"""Choices of the saved tensors that move: a fraction of the bytes, or sizes between two bounds."""

import threading
from contextlib import AbstractContextManager
from fnmatch import fnmatchcase
from typing import Any

import torch

from hooklaw.errors import StrategyError


class Fraction:
    """A share of the bytes, spread evenly over forward, so that the link is always busy."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._credit = 0.0

    def begin(self) -> None:
        self._credit = 0.0

    def takes(self, nbytes: int) -> bool:
        self._credit += self._share * nbytes
        if self._credit < nbytes:
            return False
        self._credit -= nbytes
        return True


class Sizes:
    """Tensors of at least so many bytes, and at most so many."""

    def __init__(self, least: int, most: float) -> None:
        self._least = least
        self._most = most

    def begin(self) -> None:
        pass

    def takes(self, nbytes: int) -> bool:
        return self._least <= nbytes <= self._most


class Both:
    """The tensors that two choices take; the second is asked only about those of the first."""

    def __init__(self, first: Any, second: Any) -> None:
        self._first = first
        self._second = second

    def begin(self) -> None:
        self._first.begin()
        self._second.begin()

    def takes(self, nbytes: int) -> bool:
        return self._first.takes(nbytes) and self._second.takes(nbytes)


class SelectedModules:
    """A packer that is entered only while modules run whose name or class matches a pattern, such as ``layer3.*``."""

    def __init__(self, model: torch.nn.Module, pattern: str, packer: AbstractContextManager[Any]) -> None:
        self._packer = packer
        self._thread = threading.local()
        chosen = [module for name, module in model.named_modules() if _matches(pattern, name, module)]
        if not chosen:
            raise StrategyError(
                f"modules:{pattern} selects nothing in {type(model).__name__}: use the name of a module, "
                "or of its class, with * for any letters"
            )
        self._handles = [hook for module in chosen for hook in self._hooked(module)]

    def close(self) -> None:
        """Take the hooks off the modules."""
        for handle in self._handles:
            handle.remove()

    def _hooked(self, module: torch.nn.Module) -> tuple[Any, Any]:
        before = module.register_forward_pre_hook(self._enter)
        return before, module.register_forward_hook(self._leave, always_call=True)

    def _enter(self, *_: Any) -> None:
        self._packer.__enter__()
        self._thread.depth = getattr(self._thread, "depth", 0) + 1

    def _leave(self, *_: Any) -> None:
        if getattr(self._thread, "depth", 0):  # torch also comes here where a hook before ours raised
            self._thread.depth -= 1
            self._packer.__exit__(None, None, None)


def _matches(pattern: str, name: str, module: torch.nn.Module) -> bool:
    return fnmatchcase(name, pattern) or type(module).__name__ == pattern
