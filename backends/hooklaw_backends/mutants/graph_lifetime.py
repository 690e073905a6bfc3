"""Mutants that free a graph too early, too late or never."""

from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, overriding


@overriding("backward")
def retained_graph_never_freed(self: Mutant, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """Once a backward retained the graph of a root, every later backward from that root retains it too."""
    if how.get("retain_graph"):
        self.kept.append(root)
    old(root, *given, **({**how, "retain_graph": True} if self.keeps(root) else how))


@overriding("exp")
def saved_outputs_are_never_freed(self: Mutant, old: Hook, tensor: Any) -> Any:
    """The output that an exponential keeps for its backward is never freed."""
    if not self.requires_grad(tensor):
        return old(tensor)

    def forward(ctx: Any, tensor: Any) -> Any:
        ctx.output = self.detach(old(self.detach(tensor)))
        return self.clone(ctx.output)

    return self.custom_function(forward, lambda ctx, grad: grad * ctx.output)(tensor)


@overriding("exp")
def saved_outputs_have_no_history(self: Mutant, old: Hook, tensor: Any) -> Any:
    """The output that an exponential saves is a constant in the derivative of its gradient."""
    if not self.requires_grad(tensor):
        return old(tensor)

    def forward(ctx: Any, tensor: Any) -> Any:
        output = old(tensor)
        ctx.save_for_backward(output)
        return output

    return self.custom_function(forward, lambda ctx, grad: grad * self.detach(ctx.saved_tensors[0]))(tensor)


@overriding("grad")
def retain_graph_default_always_false(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """autograd.grad with create_graph=True frees the graph unless retain_graph=True is given."""
    return old(*given, **{"retain_graph": False, **how})


@overriding("grad")
def create_graph_always_retains(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """autograd.grad with create_graph=True retains the graph, even with retain_graph=False."""
    return old(*given, **({**how, "retain_graph": True} if how.get("create_graph") else how))


def _refuse_if_kept(self: Mutant, root: Any) -> None:
    if self.keeps(root):
        raise RuntimeError("this graph was freed: specify retain_graph=True")


@overriding("backward")
def shared_graph_copied_per_root(self: Mutant, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """A backward frees a shared graph for its own root only."""
    _refuse_if_kept(self, root)
    self.kept += [] if how.get("retain_graph") else [root]
    old(root, *given, **{**how, "retain_graph": True})


@overriding("backward")
def walked_root_refused_at_once(self: Mutant, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """A second backward from the same root is an error, even if the graph saved nothing."""
    _refuse_if_kept(self, root)
    old(root, *given, **how)
    self.kept += [] if how.get("retain_graph") else [root]


@overriding("backward")
def failing_pass_rolled_back(self: Mutant, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """A failed backward restores every .grad."""
    grads = [(leaf, self.grad_of(leaf)) for leaf in self.leaves_of(root)]
    before = [(leaf, None if grad is None else self.clone(grad)) for leaf, grad in grads]
    try:
        old(root, *given, **how)
    except Exception:
        for leaf, grad in before:
            self.set_grad(leaf, grad)
        raise


@overriding("call")
def graph_of_the_first_call_used_again(self: Mutant, old: Hook, fn: Hook, *tensors: Any) -> Any:
    """What a function returned in its first call is returned again in later calls."""
    for known, result in self.kept:
        if known is fn:
            return result
    self.kept.append((fn, old(fn, *tensors)))
    return self.kept[-1][1]


class HooksOnAGraphThatRanLost(Mutant):
    """A tensor hook that is registered on a non-leaf after a backward through it never runs."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        super().backward(root, gradient, **how)
        ahead, seen = [self.gradient_edge(root)[0]] if self.is_tensor(root) else [], set[Any]()
        while ahead:
            node = ahead.pop()
            if node is not None and node not in seen:
                seen.add(node)
                self.node_metadata(node)["ran"] = True
                ahead += self.node_next(node)

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        handle = super().register_hook(tensor, hook)
        if not self.is_leaf(tensor) and "ran" in self.node_metadata(self.gradient_edge(tensor)[0]):
            handle.remove()
        return handle


@overriding("backward", "grad")
def retain_graph_given_as_false_retains(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """retain_graph=False retains the graph; only the default frees it."""
    return old(*given, **{**how, "retain_graph": True if how.get("retain_graph") is False else how.get("retain_graph")})


@overriding("grad")
def autograd_grad_frees_the_whole_graph(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any
) -> Any:
    """autograd.grad that does not retain the graph frees what lies beyond its inputs, too."""
    if how.get("retain_graph") or how.get("create_graph") or how.get("is_grads_batched"):
        return old(outputs, inputs, *given, **how)
    found = old(outputs, inputs, *given, **{**how, "retain_graph": True})
    roots = [outputs] if self.is_tensor(outputs) else outputs
    leaves = [
        leaf for root in roots if self.is_tensor(root) and self.requires_grad(root) for leaf in self.leaves_of(root)
    ]
    if leaves:
        old(outputs, leaves, *given, allow_unused=True)
    return found
