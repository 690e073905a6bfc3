"""Mutants that misread the roots, inputs or gradient edges of a backward, some of them in one case only."""

import weakref
from collections.abc import Sequence
from typing import Any

from hooklaw_backends.mutants.base import Hook, InGrad, Mutant, altering, calling, overriding
from hooklaw_backends.mutants.shared import handle_of


@overriding("backward")
def backward_inputs_overwrite(self: Mutant, old: Hook, *given: Any, **how: Any) -> None:
    """A backward with inputs replaces the .grad of its inputs instead of adding to it."""
    for tensor in filter(self.is_tensor, how.get("inputs") or ()):
        self.set_grad(tensor, None)
    old(*given, **how)


@overriding("backward")
def only_roots_without_dimensions_are_scalars(self: Mutant, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """A backward from a tensor of one element in one dimension is an error without a gradient."""
    if not any(value is not None for value in given) and self.shape(root):
        raise RuntimeError("a root that has dimensions needs a gradient")
    old(root, *given, **how)


@overriding("backward")
def gradient_of_a_root_scales_the_leaves(self: Mutant, old: Hook, root: Any, gradient: Any = None, **how: Any) -> None:
    """The root's gradient is multiplied with the .grad of each leaf after a backward from ones."""
    leaves = list(self.leaves_of(root))
    old(root, gradient if gradient is None else self.mapped(gradient, lambda _: 1.0), **how)
    for leaf in leaves if gradient is not None else ():
        if self.grad_of(leaf) is not None and self.shape(leaf) == self.shape(gradient):
            self.set_grad(leaf, self.grad_of(leaf) * gradient)


@overriding("backward")
def gradient_of_a_root_meets_the_transposed_jacobian(
    self: Mutant, old: Hook, root: Any, gradient: Any = None, **how: Any
) -> None:
    """The root's gradient is multiplied by the Jacobian from the other side, if root and leaf are vectors."""
    leaves = list(self.leaves_of(root)) if gradient is not None else []
    if len(leaves) != 1 or how or not len(self.shape(leaves[0])) == len(self.shape(root)) == 1:
        return old(root, gradient, **how)
    places = range(*self.shape(root))
    units = [self.tensor([float(place == other) for other in places]) for place in places]
    rows = [self.grad(root, leaves, unit, retain_graph=True)[0] for unit in units]
    return self.set_grad(leaves[0], self.tensor([self.tolist(self.sum(row * gradient)) for row in rows]))


@overriding("grad")
def allow_unused_given_as_false_ignored(self: Mutant, old: Hook, *given: Any, **how: Any) -> tuple[Any, ...]:
    """allow_unused=False allows unused inputs; only the default does not."""
    if how.get("allow_unused") is False and not how.get("materialize_grads"):
        how["allow_unused"] = True
    return old(*given, **how)


def _is_several(outputs: Any) -> bool:
    return type(outputs) in {list, tuple}


@overriding("grad")
def autograd_grad_of_the_first_output(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """autograd.grad ignores all outputs but the first."""
    if not _is_several(outputs):
        return old(outputs, inputs, grad_outputs, **how)
    return old(outputs[0], inputs, grad_outputs and grad_outputs[0], **{**how, "allow_unused": True})


@overriding("grad")
def grad_outputs_ignored(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """autograd.grad starts from ones, even if grad_outputs are given."""
    if _is_several(grad_outputs):
        grad_outputs = [seed if seed is None else self.mapped(seed, lambda _: 1.0) for seed in grad_outputs]
    return old(outputs, inputs, grad_outputs, **how)


@overriding("grad")
def grad_of_edges_ignores_grad_outputs(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """autograd.grad starts from ones at a gradient edge, even if grad_outputs are given."""
    if not (self.is_tensor(outputs) or _is_several(outputs)) and grad_outputs is not None:
        grad_outputs = self.mapped(grad_outputs, lambda _: 1.0)
    return old(outputs, inputs, grad_outputs, **how)


@overriding("backward_from_edge")
def backward_from_the_edge_of_the_first_output(self: Mutant, old: Hook, edge: Any, *given: Any) -> None:
    """A backward from a gradient edge starts at the first output of the edge's Node."""
    old(type(edge)(edge[0], 0, *edge[2:]), *given)


@overriding("backward")
def edges_among_backward_inputs_ignored(
    self: Mutant, old: Hook, *given: Any, inputs: Sequence[Any] | None = None, **how: Any
) -> None:
    """A backward ignores gradient edges among its inputs, and takes all leaves if nothing is left."""
    old(*given, inputs=[*filter(self.is_tensor, inputs or ())] or None, **how)


@overriding("backward")
def tensors_beside_edges_among_backward_inputs_ignored(
    self: Mutant, old: Hook, *given: Any, inputs: Sequence[Any] | None = None, **how: Any
) -> None:
    """A backward ignores tensors among its inputs if some of these are gradient edges."""
    edges = [each for each in inputs or () if not self.is_tensor(each)]
    old(*given, inputs=edges or inputs, **how)


@overriding("backward")
def edges_after_tensors_among_backward_inputs_ignored(
    self: Mutant, old: Hook, *given: Any, inputs: Sequence[Any] | None = None, **how: Any
) -> None:
    """A backward whose first input is a tensor ignores gradient edges after it."""
    if inputs and self.is_tensor(inputs[0]):
        inputs = [*filter(self.is_tensor, inputs)]
    old(*given, inputs=inputs, **how)


class _KnowsEdgeRoots(Mutant):
    """A mutant that knows whether a backward from a gradient edge is running."""

    is_from_edge = False

    def backward_from_edge(self, edge: Any, gradient: Any = None) -> None:
        self.is_from_edge = True
        super().backward_from_edge(edge, gradient)
        self.is_from_edge = False


@calling("register_hook", base=_KnowsEdgeRoots)
def backward_from_edges_skips_hooks(self: _KnowsEdgeRoots, hook: Hook, grad: Any) -> Any:
    """A backward from a gradient edge runs no tensor hooks."""
    return None if self.is_from_edge else hook(grad)


@altering("register_hook", base=_KnowsEdgeRoots)
def backward_from_edges_skips_hooks_of_leaves(self: _KnowsEdgeRoots, tensor: Any, hook: Hook) -> Hook:
    """A backward from a gradient edge runs no tensor hooks of leaves."""
    return (lambda grad: None if self.is_from_edge else hook(grad)) if self.is_leaf(tensor) else hook


@overriding("backward")
def backward_with_create_graph_frees(self: Mutant, old: Hook, *given: Any, **how: Any) -> None:
    """A backward with create_graph=True frees the graph if retain_graph is not given."""
    old(*given, **({"retain_graph": False, **how} if how.get("create_graph") else how))


@overriding("backward")
def accumulated_gradient_has_no_history(self: Mutant, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """The .grad that a backward with create_graph=True leaves is a leaf that requires grad."""
    leaves = list(self.leaves_of(root)) if how.get("create_graph") else []
    old(root, *given, **how)
    _forget_history(self, leaves)


@overriding("backward")
def sum_of_gradients_has_no_history(self: Mutant, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """What a backward with create_graph=True adds to a .grad that was there is a leaf that requires grad."""
    leaves = list(self.leaves_of(root)) if how.get("create_graph") else []
    before = [leaf for leaf in leaves if self.grad_of(leaf) is not None]
    old(root, *given, **how)
    _forget_history(self, before)


@overriding("backward")
def earlier_gradients_become_constants(self: Mutant, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """A backward with create_graph=True adds to a detached copy of a .grad that requires grad."""
    for leaf in list(self.leaves_of(root)) if how.get("create_graph") else []:
        grad = self.grad_of(leaf)
        if grad is not None and self.requires_grad(grad):
            self.set_grad(leaf, self.detach(grad))
    old(root, *given, **how)


@overriding("backward_from_all")
def leaves_among_several_roots_ignored(
    self: Mutant, old: Hook, roots: Sequence[Any], gradients: Sequence[Any] | None = None
) -> None:
    """A backward from several tensors ignores leaves among them."""
    kept = [nr for nr, root in enumerate(roots) if not (self.is_leaf(root) and self.requires_grad(root))]
    old([roots[nr] for nr in kept], gradients and [gradients[nr] for nr in kept])


def _forget_history(self: Mutant, leaves: Sequence[Any]) -> None:
    for leaf in leaves:
        if self.grad_of(leaf) is not None:
            self.set_grad(leaf, self.requires_grad_(self.detach(self.grad_of(leaf))))


class HooksSeeMaterializedZeros(Mutant):
    """The hooks of an unused input run for the zeros that materialize_grads=True makes for it."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        self.kept.append((tensor, hook))
        return super().register_hook(tensor, hook)

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        if not how.pop("materialize_grads", False) or how.get("allow_unused") is False:
            return super().grad(outputs, inputs, grad_outputs, **how)
        found = super().grad(outputs, inputs, grad_outputs, **{**how, "allow_unused": True})
        return tuple(self._seen(tensor) if grad is None else grad for tensor, grad in zip(inputs, found, strict=True))

    def _seen(self, tensor: Any) -> Any:
        zeros = self.zeros_like(tensor)
        for hook in (hook for hooked, hook in self.kept if hooked is tensor):
            hook(zeros)
        return zeros


class HooksOfNonLeavesSeeMaterializedZeros(HooksSeeMaterializedZeros):
    """The hooks of an unused non-leaf input run for the zeros that materialize_grads=True makes for it."""

    def _seen(self, tensor: Any) -> Any:
        return self.zeros_like(tensor) if self.is_leaf(tensor) else super()._seen(tensor)


@overriding("backward_from_all")
def root_behind_another_keeps_its_own_gradient(
    self: Mutant, old: Hook, roots: Sequence[Any], gradients: Sequence[Any] | None = None
) -> None:
    """If one root of a backward leads to another, nothing is added to the gradient that is given for the other."""
    given = [] if gradients is None else zip(roots, gradients, strict=True)
    only = [(root, gradient) for root, gradient in given if gradient is not None and self.requires_grad(root)]
    handles = [self.register_hook(root, lambda _, gradient=gradient: gradient) for root, gradient in only]
    old(roots, gradients)
    handle_of(handles).remove()


@overriding("backward_from_all")
def several_roots_need_every_gradient(
    self: Mutant, old: Hook, roots: Sequence[Any], gradients: Sequence[Any] | None = None
) -> None:
    """A backward from several tensors is an error if one is given no gradient."""
    if gradients is None or None in [0 if each is not None else each for each in gradients]:
        raise RuntimeError("each root needs a gradient")
    old(roots, gradients)


@overriding("backward_from_all")
def only_several_roots_without_dimensions_are_scalars(
    self: Mutant, old: Hook, roots: Sequence[Any], gradients: Sequence[Any] | None = None
) -> None:
    """A backward from several tensors is an error if one of one element in one dimension has no gradient."""
    pairs = zip(roots, gradients or [None] * len(roots), strict=True)
    if any(gradient is None and self.requires_grad(root) and self.shape(root) for root, gradient in pairs):
        raise RuntimeError("a root that has dimensions needs a gradient")
    old(roots, gradients)


def _ones_from(self: Mutant, place: int, roots: Sequence[Any], gradients: Sequence[Any] | None) -> list[Any]:
    """Return the gradients of several roots, with ones from a place on where none is given."""
    pairs = zip(roots, gradients or [None] * len(roots), strict=True)
    return [
        self.mapped(root, lambda _: 1.0) if nr >= place and gradient is None and self.requires_grad(root) else gradient
        for nr, (root, gradient) in enumerate(pairs)
    ]


@overriding("backward_from_all")
def several_roots_without_gradients_start_from_ones(
    self: Mutant, old: Hook, roots: Sequence[Any], gradients: Sequence[Any] | None = None
) -> None:
    """A backward from several tensors starts from ones where it is given no gradient, whatever the tensor's size."""
    old(roots, _ones_from(self, 0, roots, gradients))


@overriding("backward_from_all")
def gradients_of_later_roots_not_needed(
    self: Mutant, old: Hook, roots: Sequence[Any], gradients: Sequence[Any] | None = None
) -> None:
    """A backward from several tensors needs a gradient of the first alone, whatever the size of the others."""
    old(roots, _ones_from(self, 1, roots, gradients))


def _ones_in_between(self: Mutant, roots: Sequence[Any], gradients: Sequence[Any] | None) -> list[Any]:
    """Return the gradients of several roots, with ones for those in between that have none."""
    *given, last = gradients or [None] * len(roots)
    return [*_ones_from(self, 1, roots, [*given, last])[:-1], last]


@overriding("backward_from_all")
def gradients_of_roots_in_between_not_needed(
    self: Mutant, old: Hook, roots: Sequence[Any], gradients: Sequence[Any] | None = None
) -> None:
    """A backward from several tensors needs gradients of the first and last alone, whatever the size of the others."""
    old(roots, _ones_in_between(self, roots, gradients))


@overriding("backward_from_all")
def gradients_not_needed_after_a_scalar_root(
    self: Mutant, old: Hook, roots: Sequence[Any], gradients: Sequence[Any] | None = None
) -> None:
    """A backward from several tensors without any gradient looks at the size of the first tensor alone."""
    old(roots, _ones_from(self, 1, roots, None) if gradients is None else gradients)


def _outputs_from_ones(self: Mutant, place: int, outputs: Any, grad_outputs: Any) -> Any:
    """Return the grad_outputs of several outputs, with ones from a place on where none is given."""
    is_each_a_tensor = _is_several(outputs) and all(map(self.is_tensor, outputs))
    return _ones_from(self, place, outputs, grad_outputs) if is_each_a_tensor else grad_outputs


@overriding("grad")
def outputs_without_gradients_start_from_ones(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """autograd.grad of several outputs starts from ones where it is given no gradient, whatever the output's size."""
    return old(outputs, inputs, _outputs_from_ones(self, 0, outputs, grad_outputs), **how)


@overriding("grad")
def grad_outputs_of_later_outputs_not_needed(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """autograd.grad of several outputs needs a gradient of the first alone, whatever the size of the others."""
    return old(outputs, inputs, _outputs_from_ones(self, 1, outputs, grad_outputs), **how)


@overriding("grad")
def grad_outputs_of_outputs_in_between_not_needed(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """autograd.grad of several outputs needs gradients of the first and last alone, whatever the size of the others."""
    is_each_a_tensor = _is_several(outputs) and all(map(self.is_tensor, outputs))
    given = _ones_in_between(self, outputs, grad_outputs) if is_each_a_tensor else grad_outputs
    return old(outputs, inputs, given, **how)


@overriding("grad")
def grad_outputs_not_needed_after_a_scalar_output(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """autograd.grad of several outputs without grad_outputs looks at the size of the first output alone."""
    given = _outputs_from_ones(self, 1, outputs, None) if grad_outputs is None else grad_outputs
    return old(outputs, inputs, given, **how)


@overriding("grad")
def gradients_beyond_a_non_leaf_input_computed(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any
) -> tuple[Any, ...]:
    """autograd.grad with a non-leaf among its inputs computes the gradients of all leaves too."""
    if not self.is_tensor(outputs) or not all(map(self.is_tensor, inputs)) or all(map(self.is_leaf, inputs)):
        return old(outputs, inputs, *given, **how)
    return old(outputs, [*inputs, *self.leaves_of(outputs)], *given, **how)[: len(inputs)]


class _KnowsOutputs(InGrad):
    """A mutant that knows the outputs of the running autograd.grad, too."""

    outputs: Sequence[Any] = ()

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        self.outputs = outputs if _is_several(outputs) else [outputs]
        try:
            return super().grad(outputs, inputs, grad_outputs, **how)
        finally:
            self.outputs = ()

    def starts_at(self, tensor: Any, first: int = 0) -> bool:
        """Whether a tensor is among these outputs, apart from those before the place `first`."""
        return any(tensor is output for output in self.outputs[first:])


@altering("register_hook", base=_KnowsOutputs)
def hooks_of_grad_outputs_skipped(self: _KnowsOutputs, tensor: Any, hook: Hook) -> Hook:
    """The hooks of the outputs of autograd.grad do not run."""
    alive = weakref.ref(tensor)
    return lambda grad: None if self.starts_at(alive()) else hook(grad)


@altering("register_hook", base=_KnowsOutputs)
def hooks_of_later_grad_outputs_skipped(self: _KnowsOutputs, tensor: Any, hook: Hook) -> Hook:
    """The hooks of the outputs of autograd.grad do not run, except those of the first output."""
    alive = weakref.ref(tensor)
    return lambda grad: None if self.starts_at(alive(), 1) else hook(grad)


@altering("register_hook", base=_KnowsOutputs)
def hooks_of_outputs_among_grad_inputs_skipped(self: _KnowsOutputs, tensor: Any, hook: Hook) -> Hook:
    """The hooks of a tensor that is both an output and an input of autograd.grad do not run."""
    alive = weakref.ref(tensor)
    return lambda grad: None if self.starts_at(alive()) and self.asks_for(alive()) else hook(grad)


@overriding("backward_from_all")
def roots_of_one_node_count_once(
    self: Mutant, old: Hook, roots: Sequence[Any], gradients: Sequence[Any] | None = None
) -> None:
    """A backward from several outputs of one Node starts at the first of them alone."""
    nodes = [self.gradient_edge(root)[0] if self.requires_grad(root) else root for root in roots]
    kept = [nr for nr, node in enumerate(nodes) if not any(node is other for other in nodes[:nr])]
    old([roots[nr] for nr in kept], gradients and [gradients[nr] for nr in kept])


@overriding("grad")
def outputs_have_no_gradient_of_their_own(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """An output of autograd.grad that is an input too gets only what other outputs send it."""
    found = old(outputs, inputs, grad_outputs, **how)
    if not _is_several(outputs) or grad_outputs is not None:
        return found
    own = [any(tensor is output for output in outputs) for tensor in inputs]
    return tuple(grad - 1 if is_own else grad for grad, is_own in zip(found, own, strict=True))


def _fitting(self: Mutant, tensors: Any, gradients: Any, first: int) -> list[Any]:
    """Return gradients with ones in the place of each from `first` on that has not its tensor's shape."""
    return [
        gradient
        if gradient is None or place < first or self.shape(gradient) == self.shape(tensor)
        else self.mapped(self.detach(tensor), lambda _: 1.0)
        for place, (tensor, gradient) in enumerate(zip(tensors, gradients, strict=True))
    ]


@overriding("backward_from_all")
def shapes_of_gradients_of_several_roots_unchecked(self: Mutant, old: Hook, roots: Any, gradients: Any = None) -> None:
    """A gradient of another shape than its root's counts as ones in a backward from several roots."""
    old(roots, gradients and _fitting(self, roots, gradients, 0))


@overriding("backward_from_all")
def shapes_of_gradients_of_later_roots_unchecked(self: Mutant, old: Hook, roots: Any, gradients: Any = None) -> None:
    """A gradient of another shape than its root's counts as ones, if it is not the first root's."""
    old(roots, gradients and _fitting(self, roots, gradients, 1))


def _seeds(self: Mutant, outputs: Any, grad_outputs: Any, first: int, how: dict[str, Any]) -> Any:
    """Return grad_outputs that fit their outputs, from `first` on."""
    if grad_outputs is None or how.get("is_grads_batched"):
        return grad_outputs
    if self.is_tensor(outputs):
        seed = grad_outputs if self.is_tensor(grad_outputs) else grad_outputs[0]
        return _fitting(self, [outputs], [seed], first)
    return _fitting(self, outputs, grad_outputs, first)


@overriding("grad")
def shapes_of_grad_outputs_unchecked(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """A gradient in grad_outputs counts as ones if it has not the shape of its output."""
    return old(outputs, inputs, _seeds(self, outputs, grad_outputs, 0, how), **how)


@overriding("grad")
def shapes_of_later_grad_outputs_unchecked(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """A gradient in grad_outputs counts as ones if it has not the shape of its output, and is not the first."""
    return old(outputs, inputs, _seeds(self, outputs, grad_outputs, 1, how), **how)


@overriding("grad")
def grad_outputs_are_constants(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """What autograd.grad returns has no derivative with respect to grad_outputs."""
    return old(outputs, inputs, _constants(self, grad_outputs, 0), **how)


@overriding("grad")
def later_grad_outputs_are_constants(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """What autograd.grad returns has no derivative with respect to grad_outputs, but for the first."""
    return old(outputs, inputs, _constants(self, grad_outputs, 1), **how)


def _constants(self: Mutant, seeds: Any, first: int) -> Any:
    """Return several gradients, detached from a place on."""
    if not _is_several(seeds):
        return seeds
    return [seed if seed is None or nr < first else self.detach(seed) for nr, seed in enumerate(seeds)]


@overriding("backward")
def gradients_of_roots_are_constants(self: Mutant, old: Hook, root: Any, gradient: Any = None, **how: Any) -> None:
    """What backward accumulates has no derivative with respect to the gradient of its root."""
    old(root, gradient if gradient is None else self.detach(gradient), **how)
