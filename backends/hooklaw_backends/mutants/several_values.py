"""Mutants that are wrong with some of several values: each fault of each sequence that a verb or its user has.

No rule need name them: the rules whose ids begin with the row's `chapters` are tried first, then all others. A row's
mutants are right with a sequence of one value.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from hooklaw_backends.mutants.base import Hook, Mutant, altering, calling, fresh, overriding
from hooklaw_backends.mutants.custom_functions import Context
from hooklaw_backends.mutants.in_situations import named
from hooklaw_backends.mutants.kinds import KINDS
from hooklaw_backends.mutants.situations import THIRD

Places = Sequence[int | None]
"""For each place in a sequence the place whose value is there instead, or None if the value that was there is lost."""
Choose = Callable[[int], Places]
"""Makes places for a sequence of some length."""
Make = Callable[[Choose], type[Mutant]]
MIDDLE = 3


def but(*lost: int) -> Choose:
    """Return what loses the values in these places, counted from the end if they are negative."""

    def choose(length: int) -> Places:
        places = {place % length for place in lost}
        return [None if place in places else place for place in range(length)]

    return choose


FAULTS: dict[str, tuple[str, Choose]] = {
    "first-lost": ("the first of several {} is ignored", but(0)),
    "last-lost": ("the last of several {} is ignored", but(-1)),
    "middle-lost": (
        "of three or more {} the second is ignored",
        lambda length: but(1)(length) if length >= MIDDLE else range(length),
    ),
    "first-alone": ("of several {} the first alone counts", lambda length: [0, *[None] * (length - 1)]),
    "last-alone": ("of several {} the last alone counts", lambda length: [*[None] * (length - 1), length - 1]),
    "first-again": ("of several {} the first is in the place of each", lambda length: [0] * length),
    "reversed": ("several {} are taken in reverse order", lambda length: range(length)[::-1]),
}
SAME = ("first-again", "reversed")
"""Faults that make no difference to what is done to each of several things, in any order."""
UNORDERED = ("reversed", "middle-lost")
"""The same of what a Node has: no page orders it, and no verb has a Node of three inputs."""


def is_several(values: Any) -> bool:
    """Whether a value is a sequence of more than one."""
    return type(values) in (list, tuple) and len(values) > 1


def fewer(choose: Choose, values: Any) -> Any:
    """Return a sequence without what is lost."""
    return type(values)(values[at] for at in choose(len(values)) if at is not None) if is_several(values) else values


def other(choose: Choose, values: Any, lost: Callable[[Any], Any] = lambda _: None) -> Any:
    """Return a sequence of the same length, with what `lost` makes of a value in place of one that is lost."""
    if not is_several(values):
        return values
    places = enumerate(choose(len(values)))
    return type(values)(lost(values[place]) if at is None else values[at] for place, at in places)


def cut(mutant: Mutant, choose: Choose, values: Any) -> Any:
    """Return a sequence in which tensors that are lost are constants."""
    return other(choose, values, lambda value: mutant.detach(value) if mutant.is_tensor(value) else value)


def ones(mutant: Mutant, gradient: Any) -> Any:
    """Return ones in place of a gradient that is given for a root."""
    return None if gradient is None else mutant.mapped(gradient, lambda _: 1.0)


# what a pass is given and returns


def _backward_inputs(choose: Choose) -> type[Mutant]:
    def backward(_: Mutant, old: Hook, *given: Any, inputs: Any = None, **how: Any) -> None:
        old(*given, inputs=fewer(choose, inputs), **how)

    return overriding("backward")(backward)


def _grad_outputs(choose: Choose, *, gradients_alone: bool = False) -> type[Mutant]:
    def grad(self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any) -> Any:
        if gradients_alone:
            return old(outputs, inputs, other(choose, grad_outputs, partial(ones, self)), **how)
        same = cache(choose)  # one call, though of two sequences
        return old(fewer(same, outputs), inputs, fewer(same, grad_outputs), **how)

    return overriding("grad")(grad)


def _gradients(choose: Choose) -> type[Mutant]:
    return overriding("grad")(lambda _, old, *given, **how: other(choose, old(*given, **how)))


def _roots(choose: Choose, *, gradients_alone: bool = False) -> type[Mutant]:
    def backward_from_all(self: Mutant, old: Hook, roots: Any, gradients: Any = None) -> None:
        if gradients_alone:
            old(roots, other(choose, gradients, partial(ones, self)))
        else:
            same = cache(choose)
            old(fewer(same, roots), fewer(same, gradients))

    return overriding("backward_from_all")(backward_from_all)


def _multi_grad(choose: Choose, wanted: str = "all") -> type[Mutant]:
    def register(_: Mutant, old: Hook, tensors: Any, hook: Hook, *, mode: str = "all") -> Any:
        if mode != wanted or not is_several(tensors):
            return old(tensors, hook, mode=mode)
        places = choose(len(tensors))
        kept = sorted({place for place in places if place is not None})

        def run(grads: Any) -> Any:
            found = dict(zip(kept, grads, strict=True))
            return hook(type(grads)(None if place is None else found[place] for place in places))

        return old([tensors[place] for place in kept], run if mode == "all" else hook, mode=mode)

    return overriding("register_multi_grad_hook")(register)


def _versions(choose: Choose) -> type[Mutant]:
    return overriding("increment_version")(lambda _, old, tensors: old(fewer(choose, tensors)))


# what a function of the user's is given and returns


def _called_with(choose: Choose) -> type[Mutant]:
    return overriding("call")(lambda self, old, owner, *given: old(owner, *cut(self, choose, given)))


def _checkpoint(choose: Choose, *, use_reentrant: bool, outputs: bool = False) -> type[Mutant]:
    def checkpoint(self: Mutant, old: Hook, fn: Hook, *inputs: Any, **how: Any) -> Any:
        if how.get("use_reentrant") is not use_reentrant:
            return old(fn, *inputs, **how)
        if outputs:
            return cut(self, choose, old(fn, *inputs, **how))
        return old(fn, *cut(self, choose, inputs), **how)

    return overriding("checkpoint")(checkpoint)


def _primals(choose: Choose) -> type[Mutant]:
    def func_vjp(self: Mutant, old: Hook, function: Hook, *primals: Any) -> Any:
        return old(lambda *given: function(*cut(self, choose, given)), *primals)

    return overriding("func_vjp")(func_vjp)


def _pulled_back(choose: Choose) -> type[Mutant]:
    def func_vjp(self: Mutant, old: Hook, *given: Any) -> Any:
        output, pull_back = old(*given)
        return output, lambda *grads: other(choose, pull_back(*grads), self.zeros_like)

    return overriding("func_vjp")(func_vjp)


def _module(choose: Choose, *, outputs: bool = False) -> type[Mutant]:
    def module(self: Mutant, old: Hook, parameters: Any, forward: Hook) -> Any:
        def run(its: Any, *given: Any, **keywords: Any) -> Any:
            if outputs:
                return cut(self, choose, forward(its, *given, **keywords))
            return forward(its, *cut(self, choose, given), **keywords)

        return old(parameters, run)

    return overriding("module")(module)


def _sequential(choose: Choose) -> type[Mutant]:
    return overriding("checkpoint_sequential")(
        lambda _, old, functions, *given, **how: old(fewer(choose, functions), *given, **how)
    )


def _policy(choose: Choose) -> type[Mutant]:
    return overriding("create_selective_checkpoint_contexts")(
        lambda _, old, policy, **options: old(fewer(choose, policy), **options)
    )


# what a custom Function is given, saves, marks and returns


def _saved(choose: Choose) -> type[Mutant]:
    def backward(_: Mutant, run: Hook, ctx: Any, *grads: Any) -> Any:
        return run(Context(ctx, saved_tensors=lambda: other(choose, ctx.saved_tensors)), *grads)

    return calling("custom_function")(backward)


def _needed(choose: Choose) -> type[Mutant]:
    def backward(_: Mutant, run: Hook, ctx: Any, *grads: Any) -> Any:
        needed = lambda: other(choose, ctx.needs_input_grad, lambda _: False)  # noqa: E731 - a def is no shorter
        return run(Context(ctx, needs_input_grad=needed), *grads)

    return calling("custom_function")(backward)


def _function_gradients(choose: Choose, *, returned: bool = False) -> type[Mutant]:
    def backward(self: Mutant, run: Hook, ctx: Any, *grads: Any) -> Any:
        if returned:
            return other(choose, run(ctx, *grads))
        zeros = lambda grad: None if grad is None else self.zeros_like(grad)  # noqa: E731 - a def is no shorter
        return run(ctx, *other(choose, grads, zeros))

    return calling("custom_function")(backward)


def _function_outputs(choose: Choose) -> type[Mutant]:
    def custom_function(self: Mutant, old: Hook, *given: Any, **options: Any) -> Hook:
        apply = old(*given, **options)
        return lambda *inputs: cut(self, choose, apply(*inputs))

    return overriding("custom_function")(custom_function)


def _marks(choose: Choose, mark: str) -> type[Mutant]:
    def custom_function(_: Mutant, old: Hook, forward: Hook, *given: Any, **options: Any) -> Hook:
        def marking(ctx: Any, *inputs: Any) -> Any:
            marked: Hook = lambda *tensors: getattr(ctx, mark)(*fewer(choose, tensors))  # noqa: E731 - as above
            return forward(Context(ctx, **{mark: lambda: marked}), *inputs)

        return old(marking, *given, **options)

    return overriding("custom_function")(custom_function)


# what is done to each parameter and child


class _Owning(Mutant):
    """A mutant that knows the parameters and children of modules, and the parameters of optimizers."""

    watched = frozenset({"sgd", "module", "add_module"})
    owned = fresh(dict[int, tuple[list[Any], list[Any]]])

    def sgd(self, parameters: Sequence[Any], **options: Any) -> Any:
        optimizer = super().sgd(parameters, **options)
        self.owned[id(optimizer)] = list(parameters), []
        return optimizer

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        module = super().module(parameters, forward)
        self.owned[id(module)] = [getattr(module, name) for name in parameters], []
        return module

    def add_module(self, module: Any, name: str, child: Any) -> None:
        super().add_module(module, name, child)
        self.owned[id(module)][1].append(child)

    def tensors_of(self, owner: Any) -> list[Any]:
        """Return the parameters of a module and of its children, or of an optimizer."""
        tensors, children = self.owned.get(id(owner), ([], []))
        return [*tensors, *(tensor for child in children for tensor in self.tensors_of(child))]

    def children_of(self, module: Any) -> list[Any]:
        """Return the children of a module."""
        return self.owned.get(id(module), ([], []))[1]

    def groups_of(self, module: Any, generation: int) -> list[list[Any]]:
        """Return the children of a module as one group, or for the next generation those of each child."""
        groups = [self.children_of(module)]
        for _ in range(generation):
            groups = [self.children_of(child) for group in groups for child in group]
        return groups


def lost_of(choose: Choose, things: Sequence[Any]) -> list[Any]:
    """Return those of several things that are lost."""
    places = choose(len(things)) if is_several(things) else range(len(things))
    return [thing for thing, place in zip(things, places, strict=True) if place is None]


Undo = Callable[[_Owning, Any], Callable[[], object]]
"""Returns what takes back what will be done to a thing."""


def _grad_kept(mutant: _Owning, tensor: Any) -> Callable[[], object]:
    grad = mutant.grad_of(tensor)
    kept = grad if grad is None else mutant.clone(mutant.detach(grad))
    return lambda: mutant.set_grad(tensor, kept)


def _grad_hidden(mutant: _Owning, tensor: Any) -> Callable[[], object]:
    grad = mutant.grad_of(tensor)
    mutant.set_grad(tensor, None)
    return lambda: mutant.set_grad(tensor, grad)


def _flag_kept(mutant: _Owning, tensor: Any) -> Callable[[], object]:
    flag = mutant.requires_grad(tensor)
    return lambda: mutant.set_requires_grad(tensor, requires_grad=flag)


def _training_kept(mutant: _Owning, child: Any) -> Callable[[], object]:
    flag = mutant.is_training(child)
    unchanged: Any = super(_Owning, mutant)
    return lambda: unchanged.train(child, flag)


def _of_all(undo: Undo) -> Undo:
    """Return what takes back what will be done to the parameters of a child."""

    def of_child(mutant: _Owning, child: Any) -> Callable[[], object]:
        undos = [undo(mutant, tensor) for tensor in mutant.tensors_of(child)]
        return lambda: [each() for each in undos]

    return of_child


def _done_to_each(choose: Choose, verb: str, undo: Undo, *, generation: int | None = None) -> type[Mutant]:
    """Return a mutant of what a verb does to each parameter, or to the children of a generation, from 0."""

    def done(self: Any, old: Hook, owner: Any, *given: Any, **options: Any) -> Any:
        groups = [self.tensors_of(owner)] if generation is None else self.groups_of(owner, generation)
        undos = [undo(self, thing) for group in groups for thing in lost_of(choose, group)]
        result = old(owner, *given, **options)
        for each in undos:
            each()
        return result

    return overriding(verb, base=_Owning)(done)


# states


def _state(choose: Choose) -> type[Mutant]:
    def state_dict(self: Mutant, old: Hook, owner: Any, **options: Any) -> Any:
        state = old(owner, **options)
        for key in lost_of(choose, list(state)) if all(map(self.is_tensor, state.values())) else ():
            del state[key]
        return state

    return overriding("state_dict")(state_dict)


def _loaded(choose: Choose) -> type[Mutant]:
    def load_state_dict(self: Mutant, old: Hook, owner: Any, state: Mapping[str, Any]) -> None:
        lost = lost_of(choose, list(state)) if all(map(self.is_tensor, state.values())) else []
        own = self.state_dict(owner) if lost else {}
        old(owner, {**state, **{key: self.clone(self.detach(own[key])) for key in lost if key in own}})

    return overriding("load_state_dict")(load_state_dict)


# what a Node has


def _of_nodes(choose: Choose, verb: str) -> type[Mutant]:
    return overriding(verb)(lambda _, old, node: other(choose, old(node)))


def _parts(choose: Choose) -> type[Mutant]:
    return overriding("split")(lambda self, old, *given: cut(self, choose, old(*given)))


# what hooks are given and return


def _hook(choose: Choose, of: str, place: int, *, returned: bool = False) -> type[Mutant]:
    """Return a mutant that changes one of the arguments of a hook, or what replaces it."""

    def altered(self: Mutant, *where: Any) -> Hook:
        hook = where[-1]
        lost = lambda value: self.zeros_like(value) if self.is_tensor(value) else None  # noqa: E731 - a def is no shorter

        def run(*given: Any, **keywords: Any) -> Any:
            if not returned:
                at = place % len(given)
                return hook(*given[:at], other(choose, given[at], lost), *given[at + 1 :], **keywords)
            result, replaced = hook(*given, **keywords), given[place]
            if not is_several(result) or not is_several(replaced) or len(result) != len(replaced):
                return result
            taken = [(replaced if at is None else result)[nr if at is None else at] for nr, at in _at(choose, result)]
            return type(result)(taken)

        return run

    return altering(*KINDS[of].verbs)(altered)


def _at(choose: Choose, values: Sequence[Any]) -> Iterator[tuple[int, int | None]]:
    return enumerate(choose(len(values)))


class Several(NamedTuple):
    """A sequence of values."""

    words: str
    make: Make
    chapters: tuple[str, ...]
    """How the ids of the rules begin that are tried first."""
    without: tuple[str, ...] = ()
    """Faults that make no difference, or of which no law speaks."""


def _row(words: str, make: Callable[..., type[Mutant]], *chapters: str, without: Sequence[str] = (), **how: Any) -> Any:
    return Several(words, partial(make, **how), chapters, tuple(without))


OF_HOOKS = {
    "node-pre-hook": {"gradients": 0},
    "node-hook": {"gradients": 0, "gradients-beside": 1},
    "backward-pre-hook": {"gradients": 1},
    "backward-hook": {"gradients": 1, "gradients-beside": 2},
    "global-backward-pre-hook": {"gradients": 1},
    "global-backward-hook": {"gradients": 1, "gradients-beside": 2},
    "forward-pre-hook": {"inputs": 1},
    "forward-hook": {"inputs": 1, "outputs": -1},
    "global-forward-pre-hook": {"inputs": 1},
    "global-forward-hook": {"inputs": 1, "outputs": -1},
}
"""For each kind of hook that gets several values at once: where each sequence is among its arguments."""
REPLACED = {"forward-hook": -1, "global-forward-hook": -1, "node-pre-hook": 0, "node-hook": 0}
"""Where the sequence is that a hook's result replaces, if it is not the second argument."""


def _of_hooks() -> Iterator[tuple[str, Several]]:
    for of, sequences in OF_HOOKS.items():
        kind = KINDS[of]
        without = ["middle-lost"] if of == "node-hook" else []  # no verb has a Node of three inputs
        for what, place in sequences.items():
            words = f"{what.partition('-')[0]} that {kind.words} gets{' beside' if 'beside' in what else ''}"
            left_out = without if place == 0 else []
            yield f"{of}-{what}", _row(words, _hook, *kind.chapters, without=left_out, of=of, place=place)
        words = f"values that {kind.words} returns"
        how = {"of": of, "place": REPLACED.get(of, 1), "returned": True}
        yield f"{of}-results", _row(words, _hook, *kind.chapters, without=without, **how)


OF_CHILDREN = {
    "frozen": ("a module's requires_grad_", "module_requires_grad_", _of_all(_flag_kept)),
    "reset": ("a module's zero_grad", "module_zero_grad", _of_all(_grad_kept)),
}
"""What is done to the parameters of each child."""


def _of_children() -> Iterator[tuple[str, Several]]:
    for name, (words, verb, undo) in OF_CHILDREN.items():
        for generation, which in enumerate(("children", "grandchildren")):
            how: dict[str, Any] = {"verb": verb, "undo": undo, "generation": generation}
            yield f"{name}-{which}", _row(f"{which} of {words}", _done_to_each, "module", without=SAME, **how)


AROUND = ("module.legacy", "module.full", "module.forward", "module.global.backward")
"""The chapters of hooks that are given what a module gets and returns."""
SEVERAL: dict[str, Several] = {
    "backward-inputs": _row("inputs of a backward", _backward_inputs, "backward", without=["reversed"]),
    "grad-outputs": _row("outputs of autograd.grad", _grad_outputs, "grad", without=["reversed"]),
    "grad-grad-outputs": _row("grad_outputs of autograd.grad", _grad_outputs, "grad", gradients_alone=True),
    "grad-inputs": _row("inputs of autograd.grad", _gradients, "grad"),
    "roots": _row("roots of a backward", _roots, "root", "backward", without=["reversed"]),
    "root-gradients": _row("gradients of several roots", _roots, "root", "backward", gradients_alone=True),
    "multi-grad-tensors": _row("tensors of a multi-grad hook", _multi_grad, "multi-grad"),
    "any-grad-tensors": _row(
        "tensors of a multi-grad hook in mode any", _multi_grad, "multi-grad", without=["reversed"], wanted="any"
    ),
    "versions": _row("tensors of increment_version", _versions, "in-place", without=["reversed", "first-again"]),
    "call-inputs": _row("inputs of a function", _called_with, "tensor-hook"),
    "module-inputs": _row("inputs of a module", _module, *AROUND),
    "module-outputs": _row("outputs of a module", _module, *AROUND, outputs=True),
    "checkpoint-inputs": _row("inputs of a non-reentrant checkpoint", _checkpoint, "checkpoint", use_reentrant=False),
    "checkpoint-outputs": _row(
        "outputs of a non-reentrant checkpoint", _checkpoint, "checkpoint", use_reentrant=False, outputs=True
    ),
    "reentrant-inputs": _row("inputs of a reentrant checkpoint", _checkpoint, "checkpoint", use_reentrant=True),
    "reentrant-outputs": _row(
        "outputs of a reentrant checkpoint", _checkpoint, "checkpoint", use_reentrant=True, outputs=True
    ),
    "sequential-functions": _row("functions of checkpoint_sequential", _sequential, "checkpoint-sequential"),
    "policy-operations": _row(
        "operations in the list of a selective checkpoint", _policy, "checkpoint.selective", without=SAME
    ),
    "vjp-primals": _row("primals of vjp", _primals, "func"),
    "vjp-gradients": _row("gradients that vjp's function returns", _pulled_back, "func"),
    "function-saved": _row("saved tensors of a custom Function", _saved, "custom-function", "function"),
    "function-needed": _row("values of ctx.needs_input_grad", _needed, "custom-function", "function"),
    "function-grads": _row("gradients that a custom Function gets", _function_gradients, "custom-function", "function"),
    "function-results": _row(
        "gradients that a custom Function returns", _function_gradients, "custom-function", "function", returned=True
    ),
    "function-outputs": _row("outputs of a custom Function", _function_outputs, "custom-function", "function"),
    "dirty-marks": _row("tensors of mark_dirty", _marks, "function", without=SAME, mark="mark_dirty"),
    "constant-marks": _row(
        "tensors of mark_non_differentiable", _marks, "function", without=SAME, mark="mark_non_differentiable"
    ),
    "step-parameters": _row(
        "parameters of a step", _done_to_each, "optim", without=SAME, verb="step", undo=_grad_hidden
    ),
    "zero-grad-parameters": _row(
        "parameters of an optimizer's zero_grad",
        _done_to_each,
        "optim",
        without=SAME,
        verb="zero_grad",
        undo=_grad_kept,
    ),
    "module-zero-grad-parameters": _row(
        "parameters of a module's zero_grad",
        _done_to_each,
        "module",
        without=SAME,
        verb="module_zero_grad",
        undo=_grad_kept,
    ),
    "frozen-parameters": _row(
        "parameters of a module's requires_grad_",
        _done_to_each,
        "module",
        without=SAME,
        verb="module_requires_grad_",
        undo=_flag_kept,
    ),
    "trained-children": _row(
        "children of a module's train",
        _done_to_each,
        "module",
        without=SAME,
        verb="train",
        undo=_training_kept,
        generation=0,
    ),
    **dict(_of_children()),
    "saved-state": _row("entries of a state dict", _state, "state-dict", without=SAME),
    "loaded-state": _row("entries of a state dict that is loaded", _loaded, "state-dict", without=SAME),
    "next-nodes": _row("next Nodes of a Node", _of_nodes, "node", without=UNORDERED, verb="node_next"),
    "saved-tensors": _row(
        "saved tensors of a Node", _of_nodes, "saved-tensor", without=UNORDERED, verb="saved_tensors"
    ),
    "parts": _row("outputs of split", _parts, "node-hook", "tensor-hook"),
    **dict(_of_hooks()),
}
"""The sequences of which there is a mutant for each fault."""


def _from(first: int, row: Several, choose: Choose) -> type[Mutant]:
    """Return a mutant that is wrong from some sequence of several values on."""
    before = list[None]()

    def later(length: int) -> Places:
        before.append(None)
        return choose(length) if len(before) >= first else range(length)

    made = row.make(later)

    def reset(self: Mutant) -> None:
        before.clear()
        super(made, self).reset()

    made.reset = reset
    return made


def _all() -> Iterator[tuple[str, str, tuple[str, ...], type[Mutant]]]:
    """Yield the name, the fault in words, the chapters and the class of each mutant."""
    for of, row in SEVERAL.items():
        for fault, (words, choose) in FAULTS.items():
            if fault not in row.without:
                said = words.format(row.words)
                yield f"{of}-{fault}", said, row.chapters, row.make(choose)
                yield (
                    f"{of}-{fault}-third",
                    f"{said}, from the third sequence on",
                    row.chapters,
                    _from(THIRD, row, choose),
                )


vars().update(named(*each) for each in _all())
