"""Mutants that free a graph too early, too late or never."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from hooklaw_backends.mutants.base import Mutant


class FreedGraphGivesZeros(Mutant):
    """A backward through a freed graph does nothing instead of raising an error."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        with suppress(RuntimeError):
            super().backward(root, gradient, **how)


class RetainGraphIgnored(Mutant):
    """Every backward frees the graph, even with retain_graph=True."""

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
    """Once a backward retained the graph of a root, every later backward from that root retains it too."""

    def __init__(self) -> None:
        super().__init__()
        self._retained: list[Any] = []

    def backward(self, root: Any, gradient: Any = None, *, retain_graph: bool | None = None, **how: Any) -> None:
        if retain_graph:
            self._retained.append(root)
        kept = any(retained is root for retained in self._retained)
        super().backward(root, gradient, retain_graph=kept or retain_graph, **how)


class RetainGraphDefaultAlwaysFalse(Mutant):
    """autograd.grad with create_graph=True frees the graph unless retain_graph=True is given."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        return super().grad(outputs, inputs, grad_outputs, **{"retain_graph": False, **how})


class CreateGraphAlwaysRetains(Mutant):
    """autograd.grad with create_graph=True retains the graph, even with retain_graph=False."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        retaining = {**how, "retain_graph": True} if how.get("create_graph") else how
        return super().grad(outputs, inputs, grad_outputs, **retaining)


class AutogradGradRetainsTheGraph(Mutant):
    """autograd.grad retains the graph, even with retain_graph=False."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        return super().grad(outputs, inputs, grad_outputs, **{**how, "retain_graph": True})


class GraphNeverFreed(AutogradGradRetainsTheGraph):
    """Every backward retains the graph, even with retain_graph=False."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        retaining: dict[str, Any] = {**how, "retain_graph": True}
        super().backward(root, gradient, **retaining)


class _RefusesRoots(Mutant):
    """A mutant that knows which roots have freed their graph."""

    def __init__(self) -> None:
        super().__init__()
        self.walked: list[Any] = []

    def refuse(self, root: Any) -> None:
        if any(walked is root for walked in self.walked):
            raise RuntimeError("this graph was freed: specify retain_graph=True")


class SharedGraphCopiedPerRoot(_RefusesRoots):
    """A backward frees a shared graph for its own root only."""

    def backward(self, root: Any, gradient: Any = None, *, retain_graph: bool | None = None, **how: Any) -> None:
        self.refuse(root)
        if not retain_graph:
            self.walked.append(root)
        super().backward(root, gradient, retain_graph=True, **how)


class WalkedRootRefusedAtOnce(_RefusesRoots):
    """A second backward from the same root is an error, even if the graph saved nothing."""

    def backward(self, root: Any, gradient: Any = None, *, retain_graph: bool | None = None, **how: Any) -> None:
        self.refuse(root)
        super().backward(root, gradient, retain_graph=retain_graph, **how)
        if not retain_graph:
            self.walked.append(root)


class FailingPassRolledBack(Mutant):
    """A failed backward restores every .grad."""

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
