"""Mutants of the engine that forget a limit: that of a pass with inputs, of a mark, a leaf, a hook or a sequence."""

from typing import Any

from hooklaw.model import engine, function
from hooklaw_backends.mutants.base import Hook, Mutant, altering, overriding
from hooklaw_backends.mutants.inside import Inside, inside
from hooklaw_backends.mutants.shared import CallsTheRest


@inside(engine.Pass, "_retain")
def retain_grad_in_limited_passes(self: Inside, old: Hook, this: Any, node: Any, grads: Any) -> None:
    """A backward with inputs also sets the .grad of tensors that retain it and are not among the inputs."""
    this.retaining = None
    old(this, node, grads)


@inside(engine.Pass, "run")
def retained_gradient_of_a_root_set_by_limited_passes(
    self: Inside, old: Hook, this: Any, roots: Any, seeds: Any
) -> Any:
    """A backward with inputs also sets the .grad of a root that retains it and is not among the inputs."""
    if this.retaining is not None:
        this.retaining = {*this.retaining, *(root.needed_edge() for root in roots)}
    return old(this, roots, seeds)


@inside(engine.Pass, "_arrive")
def retained_gradients_beside_the_path_set(self: Inside, old: Hook, this: Any, edge: Any, result: Any) -> None:
    """A backward with inputs also sets the .grad of tensors that retain it and lead to none of the inputs."""
    if this.retaining is not None and not this.reaches(edge.node):
        retain = vars(engine)["_retain"]
        retain(edge.node, tuple(result if nr == edge.nr else None for nr in range(len(edge.node.outputs))))
    old(this, edge, result)


@inside(engine, "_without_constants")
def constant_outputs_refused(self: Inside, old: Hook, roots: Any, seeds: Any) -> Any:
    """backward and autograd.grad raise an error if any of their roots does not require grad."""
    return roots, seeds


@inside(engine, "_without_constants")
def constant_outputs_at_the_ends_refused(self: Inside, old: Hook, roots: Any, seeds: Any) -> Any:
    """backward and autograd.grad raise an error if the first or last of their roots does not require grad."""
    return (roots, seeds) if None in (roots[0].edge(), roots[-1].edge()) else old(roots, seeds)


@inside(engine, "_without_constants")
def several_constant_outputs_refused(self: Inside, old: Hook, roots: Any, seeds: Any) -> Any:
    """backward and autograd.grad raise an error if more than one of their roots does not require grad."""
    return (roots, seeds) if [root.edge() for root in roots].count(None) > 1 else old(roots, seeds)


@inside(engine, "_without_constants")
def constant_outputs_of_one_value_refused(self: Inside, old: Hook, roots: Any, seeds: Any) -> Any:
    """backward and autograd.grad raise an error if a root of a single value does not require grad."""
    return (roots, seeds) if any(root.edge() is None and root.data.size == 1 for root in roots) else old(roots, seeds)


@inside(engine, "_without_constants")
def constant_outputs_beside_a_single_other_refused(self: Inside, old: Hook, roots: Any, seeds: Any) -> Any:
    """backward and autograd.grad raise an error if only one of several roots requires grad."""
    return (roots, seeds) if sum(root.edge() is not None for root in roots) == 1 else old(roots, seeds)


@inside(engine, "_without_constants")
def a_constant_as_the_first_output_alone_refused(self: Inside, old: Hook, roots: Any, seeds: Any) -> Any:
    """backward and autograd.grad raise an error if the first root alone does not require grad."""
    is_constant = [root.edge() is None for root in roots]
    return (roots, seeds) if is_constant[0] and sum(is_constant) == 1 else old(roots, seeds)


@inside(engine, "_without_constants")
def constant_outputs_refused_from_the_fourth_pass_on(self: Inside, old: Hook, roots: Any, seeds: Any) -> Any:
    """From the fourth pass on backward and autograd.grad raise an error if any of their roots is a constant."""
    self.kept.append(None)
    return (roots, seeds) if len(self.kept) > 3 else old(roots, seeds)  # noqa: PLR2004 - the fourth


@inside(engine, "_without_constants")
def constant_outputs_end_the_list(self: Inside, old: Hook, roots: Any, seeds: Any) -> Any:
    """backward and autograd.grad overlook the roots after the first that does not require grad."""
    end = [*(root.edge() is not None for root in roots), False].index(False)
    return (roots[:end], seeds[:end]) if end else (roots, seeds)


@inside(engine, "_without_constants")
def constant_roots_get_a_gradient(self: Inside, old: Hook, roots: Any, seeds: Any) -> Any:
    """A root that does not require grad, among others that do, gets its own values as its .grad."""
    for root in roots:
        if root.edge() is None:
            root.grad = root.detach()
    return old(roots, seeds)


@inside(function.CustomNode, "mark_dirty")
def dirty_mark_counts_no_change(self: Inside, old: Hook, this: Any, *tensors: Any) -> None:
    """mark_dirty does not count as a change of the tensor."""
    this.dirty = tensors


@altering("register_post_accumulate_grad_hook", base=CallsTheRest)
def post_accumulate_where_a_gradient_is_there(self: CallsTheRest, tensor: Any, hook: Hook) -> Hook:
    """A post-accumulate hook runs in each backward if its leaf has a .grad, even an old one."""
    return self.waiting_for(lambda leaf: None if self.grad_of(leaf) is None else hook(leaf), tensor)


class DetachedInPlaceRetains(Mutant):
    """retains_grad stays true after detach_."""

    def detach_(self, tensor: Any) -> Any:
        if self.retains_grad(tensor):
            self.kept.append(tensor)
        return super().detach_(tensor)

    def retains_grad(self, tensor: Any) -> bool:
        return self.keeps(tensor) or super().retains_grad(tensor)


@overriding("checkpoint_sequential")
def sequential_of_one_segment_is_of_any_kind(
    self: Mutant, old: Hook, functions: Any, segments: int, *inputs: Any, **how: Any
) -> Any:
    """checkpoint_sequential with one segment, which is no checkpoint, needs no use_reentrant."""
    return old(functions, segments, *inputs, **({"use_reentrant": False} if segments == 1 else {}) | how)
