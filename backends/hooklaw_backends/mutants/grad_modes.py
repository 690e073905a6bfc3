"""Mutants in which recording goes on where it was switched off."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from hooklaw_backends.mutants.base import Mutant


class RecordedUnderNoGrad(Mutant):
    """no_grad switches nothing off."""

    def no_grad(self) -> AbstractContextManager[Any]:
        return nullcontext()
