"""Mutants that free a graph too early, too late or never."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from hooklaw_backends.mutants.base import Mutant


class GraphNeverFreed(Mutant):
    """Every pass retains the graph, whatever it was told."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        retaining: dict[str, Any] = {**how, "retain_graph": True}
        super().backward(root, gradient, **retaining)

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        return super().grad(outputs, inputs, grad_outputs, **{**how, "retain_graph": True})


class FreedGraphGivesZeros(Mutant):
    """A backward through a freed graph is no error, and gives nothing."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        with suppress(RuntimeError):
            super().backward(root, gradient, **how)


class RetainGraphIgnored(Mutant):
    """Every pass frees the graph, whatever it was told."""

    def backward(self, root: Any, gradient: Any = None, *, retain_graph: bool | None = None, **how: Any) -> None:  # noqa: ARG002 - that is the vice
        super().backward(root, gradient, **how)

    def grad(
        self,
        outputs: Any,
        inputs: Sequence[Any],
        grad_outputs: Any = None,
        *,
        retain_graph: bool | None = None,  # noqa: ARG002 - that is the vice
        **how: Any,
    ) -> tuple[Any, ...]:
        return super().grad(outputs, inputs, grad_outputs, retain_graph=False, **how)


class RetainedGraphNeverFreed(Mutant):
    """A graph that was retained once is retained by every later pass."""

    def __init__(self) -> None:
        super().__init__()
        self._retained: list[Any] = []

    def backward(self, root: Any, gradient: Any = None, *, retain_graph: bool | None = None, **how: Any) -> None:
        if retain_graph:
            self._retained.append(root)
        kept = any(one is root for one in self._retained)
        super().backward(root, gradient, retain_graph=kept or retain_graph, **how)


class RetainGraphDefaultAlwaysFalse(Mutant):
    """Where nothing is said of retaining, a pass frees the graph even if it creates one."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        return super().grad(outputs, inputs, grad_outputs, **{"retain_graph": False, **how})


class CreateGraphAlwaysRetains(Mutant):
    """A pass that creates a graph retains the one it walks, even if told not to."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        retaining = {**how, "retain_graph": True} if how.get("create_graph") else how
        return super().grad(outputs, inputs, grad_outputs, **retaining)


class AutogradGradRetainsTheGraph(Mutant):
    """autograd.grad retains the graph, whatever it was told."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        return super().grad(outputs, inputs, grad_outputs, **{**how, "retain_graph": True})


class SharedGraphCopiedPerRoot(Mutant):
    """A root frees the graph for itself alone."""

    def __init__(self) -> None:
        super().__init__()
        self._walked: list[Any] = []

    def backward(self, root: Any, gradient: Any = None, *, retain_graph: bool | None = None, **how: Any) -> None:
        if any(one is root for one in self._walked):
            raise RuntimeError("this graph was freed: specify retain_graph=True")
        if not retain_graph:
            self._walked.append(root)
        super().backward(root, gradient, retain_graph=True, **how)


class WalkedRootRefusedAtOnce(Mutant):
    """A second backward from a root fails before anything runs, even if the graph saved nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._walked: list[Any] = []

    def backward(self, root: Any, gradient: Any = None, *, retain_graph: bool | None = None, **how: Any) -> None:
        if any(one is root for one in self._walked):
            raise RuntimeError("this graph was freed: specify retain_graph=True")
        super().backward(root, gradient, retain_graph=retain_graph, **how)
        if not retain_graph:
            self._walked.append(root)


class FailingPassRolledBack(Mutant):
    """A backward that fails leaves every .grad as it was."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        before = [(leaf, self._copy(self.grad_of(leaf))) for leaf in self.leaves_of(root)]
        try:
            super().backward(root, gradient, **how)
        except Exception:
            for leaf, grad in before:
                self.set_grad(leaf, grad)
            raise

    def _copy(self, grad: Any) -> Any:
        return None if grad is None else self.clone(grad)
