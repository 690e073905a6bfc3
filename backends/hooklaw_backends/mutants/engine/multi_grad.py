"""Mutants of multi-grad hooks that break a rule which torch breaks too."""

from collections.abc import Callable
from typing import Any

from hooklaw_backends.mutants.base import Hook, fresh
from hooklaw_backends.mutants.shared import Passes


class MultiGradHookAnyNotInAnInnerPass(Passes):
    """A multi-grad hook in mode any that ran in a pass does not run in a pass inside it, nor the other way round."""

    _depth = 0
    _ran = fresh(list[Hook])

    def around(self, run: Callable[[], Any]) -> Any:
        self._depth += 1
        try:
            return run()
        finally:
            self._depth -= 1
            self._ran = self._ran if self._depth else []

    def register_multi_grad_hook(self, tensors: Any, hook: Hook, *, mode: str = "all") -> Any:
        def unless_ran(given: Any) -> Any:
            if mode == "any":
                if hook in self._ran:
                    return None
                self._ran.append(hook)
            return hook(given)

        return super().register_multi_grad_hook(tensors, unless_ran, mode=mode)
