"""Mutants that are wrong with values of one kind: each fault of each place where such a value goes in or out.

No rule need name them: the rules whose ids begin with the place's `chapters` are tried first, then all others. They are
right with any other value.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from hooklaw_backends.mutants.base import Hook, Mutant, Pair, calling, overriding, pairs
from hooklaw_backends.mutants.custom_functions import Context
from hooklaw_backends.mutants.in_situations import named
from hooklaw_backends.mutants.kinds import KINDS as HOOKS
from hooklaw_backends.mutants.values import FAULTS, KINDS, LOST, Change, changed, lost, replaced

Make = Callable[[Change], type[Mutant]]
"""Makes a mutant that changes what is in a place."""

# hooks


def _of_hook(of: str, run: Hook) -> type[Mutant]:
    """Return a mutant that runs ``(self, hook, ...)`` in place of each hook of a kind."""
    kind = HOOKS[of]
    if not kind.mode:
        return calling(*kind.verbs)(run)

    def register(self: Mutant, old: Hook, tensors: Any, hook: Hook, *, mode: str = "all") -> Any:
        return old(tensors, partial(run, self, hook) if mode == kind.mode else hook, mode=mode)

    return overriding(*kind.verbs)(register)


def _given(change: Change, of: str, place: int) -> type[Mutant]:
    """Return a mutant that changes an argument of a hook; if it is lost, the hook is not called."""

    def run(self: Mutant, hook: Hook, *given: Any, **keywords: Any) -> Any:
        its = change(self, given[place])
        return None if its is LOST else hook(*replaced(given, place, its), **keywords)

    return _of_hook(of, run)


def _returned(change: Change, of: str) -> type[Mutant]:
    """Return a mutant that ignores what a hook returns, if it is lost."""

    def run(self: Mutant, hook: Hook, *given: Any, **keywords: Any) -> Any:
        result = change(self, hook(*given, **keywords))
        return None if result is LOST else result

    return _of_hook(of, run)


# verbs


def _argument(change: Change, verb: str, place: int, name: str = "") -> type[Mutant]:
    """Return a mutant that changes an argument of a verb; if it is lost, the verb does nothing."""

    def run(self: Mutant, old: Hook, *given: Any, **options: Any) -> Any:
        if name in options:
            its = change(self, options[name])
            return None if its is LOST else old(*given, **{**options, name: its})
        if place >= len(given):
            return old(*given, **options)
        its = change(self, given[place])
        return None if its is LOST else old(*replaced(given, place, its), **options)

    return overriding(verb)(run)


def _inputs(change: Change) -> type[Mutant]:
    """Return a mutant in which a backward leaves out those of its inputs that are lost."""

    def backward(self: Mutant, old: Hook, *given: Any, inputs: Any = None, **how: Any) -> None:
        kept = inputs if inputs is None else [each for each in inputs if change(self, each) is not LOST]
        old(*given, inputs=kept, **how)

    return overriding("backward")(backward)


def _gradients(change: Change) -> type[Mutant]:
    """Return a mutant in which autograd.grad returns None for an input that is lost."""

    def grad(self: Mutant, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any) -> Any:
        found = zip(old(outputs, inputs, *given, **how), inputs, strict=True)
        return tuple(None if change(self, each) is LOST else gradient for gradient, each in found)

    return overriding("grad")(grad)


def _undetached(change: Change) -> type[Mutant]:
    """Return a mutant in which detach returns a tensor itself, if it is lost."""
    return overriding("detach")(lambda self, old, tensor: tensor if change(self, tensor) is LOST else old(tensor))


def _accepted(change: Change, verb: str) -> type[Mutant]:
    """Return a mutant in which a verb does nothing where a lost first argument makes it an error."""

    def run(self: Mutant, old: Hook, *given: Any, **options: Any) -> Any:
        try:
            return old(*given, **options)
        except Exception:
            if change(self, given[0]) is LOST:
                return None
            raise

    return overriding(verb)(run)


# functions of the user's


def _function(
    change: Change, verb: str, *, outputs: bool = False, keywords: bool = False, **wanted: Any
) -> type[Mutant]:
    """Return a mutant that changes what the function of a module or a checkpoint is given, or what it returns."""
    place = 1 if verb == "module" else 0

    def make(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
        if not wanted.items() <= how.items():
            return old(*given, **how)

        def run(*values: Any, **options: Any) -> Any:
            if not outputs and not keywords:
                values = *values[:place], *change(self, values[place:])
            result = given[place](*values, **change(self, options) if keywords else options)
            return change(self, result) if outputs else result

        return old(*replaced(given, place, run), **how)

    return overriding(verb)(make)


def _function_inputs(change: Change) -> type[Mutant]:
    def custom_function(self: Mutant, old: Hook, forward: Hook, *given: Any, **options: Any) -> Hook:
        return old(lambda ctx, *inputs: forward(ctx, *change(self, inputs)), *given, **options)

    return overriding("custom_function")(custom_function)


def _function_outputs(change: Change) -> type[Mutant]:
    def custom_function(self: Mutant, old: Hook, *given: Any, **options: Any) -> Hook:
        apply = old(*given, **options)
        return lambda *inputs: change(self, apply(*inputs))

    return overriding("custom_function")(custom_function)


def _function_saved(change: Change) -> type[Mutant]:
    def backward(self: Mutant, run: Hook, ctx: Any, *grads: Any) -> Any:
        return run(Context(ctx, saved_tensors=lambda: change(self, ctx.saved_tensors)), *grads)

    return calling("custom_function")(backward)


def _function_grads(change: Change) -> type[Mutant]:
    """Return a mutant in which the backward of a custom Function does not run, if a gradient is lost."""

    def backward(self: Mutant, run: Hook, ctx: Any, *grads: Any) -> Any:
        return None if change(self, grads) is LOST else run(ctx, *grads)

    return calling("custom_function")(backward)


def _function_results(change: Change) -> type[Mutant]:
    return calling("custom_function")(lambda self, run, *given: change(self, run(*given)))


# saved-tensor hooks


class _Saved(NamedTuple):
    """A saved tensor that was not packed."""

    tensor: Any


def _pack_given(change: Change) -> type[Mutant]:
    """Return a mutant in which a tensor is saved as it is, if it is lost."""

    def pair(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
        def packing(tensor: Any) -> Any:
            return _Saved(self.detach(tensor)) if change(self, tensor) is LOST else [pack(tensor)]

        return packing, lambda packed: packed.tensor if isinstance(packed, _Saved) else unpack(*packed)

    return pairs("saved_tensors_hooks")(pair)


def _packed(change: Change) -> type[Mutant]:
    """Return a mutant that changes what pack returns; if it is lost, the tensor is saved as it is."""

    def pair(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
        def packing(tensor: Any) -> Any:
            packed = change(self, pack(tensor))
            return _Saved(self.detach(tensor)) if packed is LOST else [packed]

        return packing, lambda packed: packed.tensor if isinstance(packed, _Saved) else unpack(*packed)

    return pairs("saved_tensors_hooks")(pair)


class Place(NamedTuple):
    """A place where values go in or out."""

    words: str
    """What is in the place."""
    make: Make
    chapters: tuple[str, ...]
    """How the ids of the rules begin that are tried first."""
    faults: Mapping[str, tuple[str, ...]]
    """For each fault the kinds of values with which a mutant has it."""
    losing: str = ""
    """What happens if a value is lost."""


def _place(
    words: str,
    make: Callable[..., type[Mutant]],
    *chapters: str,
    losing: str = "",
    faults: Mapping[str, str],
    **how: Any,
) -> Place:
    kinds = {fault: tuple(kinds.split()) for fault, kinds in faults.items()}
    return Place(words, partial(make, **how), chapters, kinds, losing)


NUMBERS = "scalar one-element zero zeros"
TENSORS = f"{NUMBERS} empty"
"""An empty tensor makes no difference where only its numbers could."""
OTHERS = "number zero-number flag text empty-container list dict"
"""Kinds of values that are no tensors."""
OF_PASSES = {
    "tensor-hook": 0,
    "post-accumulate-hook": 0,
    "node-pre-hook": 0,
    "node-hook": 0,
    "multi-grad-hook": 0,
    "any-grad-hook": 0,
    "backward-pre-hook": 1,
    "backward-hook": 1,
    "global-backward-pre-hook": 1,
    "global-backward-hook": 1,
}
"""For each kind of hook of a pass, where its gradients are among its arguments; what it gets beside comes next."""
OF_CALLS = ("forward-pre-hook", "forward-hook", "global-forward-pre-hook", "global-forward-hook")


def _of_passes() -> Iterator[tuple[str, Place]]:
    for of, place in OF_PASSES.items():
        kind = HOOKS[of]
        yield f"{of}-given", _given_to(of, "what it gets", place, {"lost": TENSORS})
        if kind.beside:
            yield f"{of}-beside", _given_to(of, "what it gets beside", place + 1, {"lost": TENSORS})
        if kind.has_result:
            yield f"{of}-returned", _result_of(of, {"lost": NUMBERS})


def _given_to(of: str, words: str, place: int, faults: Mapping[str, str]) -> Place:
    losing = f"{HOOKS[of].words} is not called"
    return _place(words, _given, *HOOKS[of].chapters, losing=losing, faults=faults, of=of, place=place)


def _result_of(of: str, faults: Mapping[str, str]) -> Place:
    losing = f"what {HOOKS[of].words} returns is ignored"
    return _place("it", _returned, *HOOKS[of].chapters, losing=losing, faults=faults, of=of)


def _of_calls() -> Iterator[tuple[str, Place]]:
    for of in OF_CALLS:
        kind = HOOKS[of]
        faults = {"lost": f"{TENSORS} none {OTHERS}", "none": OTHERS}
        inputs = {**faults, "copied": "non-leaf list dict"} if of == "forward-hook" else faults
        outputs = {**faults, "copied": "list dict"} if of == "forward-hook" else faults
        yield f"{of}-inputs", _given_to(of, f"an input that {kind.words} gets", 1, inputs)
        if kind.beside:
            yield f"{of}-outputs", _given_to(of, f"an output that {kind.words} gets", -1, outputs)
        yield f"{of}-returned", _result_of(of, {"lost": f"{TENSORS} {OTHERS}"})


def _passed(words: str, verb: str, *chapters: str, **how: Any) -> Place:
    """Return the place of what the function of a module or a checkpoint is given or returns."""
    containers = "empty-container list dict" if verb == "module" else "empty-container"
    faults = {"none": f"zero-number flag text {containers}", "doubled": "number"}
    if not how.get("keywords"):
        faults["detached"] = NUMBERS
    return _place(words, _function, *chapters, faults=faults, verb=verb, **how)


def _registered(verb: str, words: str, *chapters: str) -> Place:
    return _place(
        "the tensor", _argument, *chapters, losing=f"{words} does nothing", faults={"lost": TENSORS}, verb=verb, place=0
    )


PLACES: dict[str, Place] = {
    **dict(_of_passes()),
    **dict(_of_calls()),
    "pack-hook-given": _place(
        "what is saved", _pack_given, "saved-tensor", losing="a tensor is not packed", faults={"lost": TENSORS}
    ),
    "packed": _place(
        "what a pack hook returns",
        _packed,
        "saved-tensor",
        losing="what a pack hook returns is not kept",
        faults={"lost": f"{TENSORS} none {OTHERS}", "none": f"{NUMBERS} {OTHERS}", "copied": "list dict"},
    ),
    "optimizer-state-returned": _result_of("state-dict-post-hook", {"lost": "empty-container"}),
    "parameter-registered": _place(
        "a parameter",
        _given,
        "registration-hook",
        losing="a registration hook is not called",
        faults={"lost": TENSORS},
        of="parameter-registration-hook",
        place=-1,
    ),
    "buffer-registered": _place(
        "a buffer",
        _given,
        "registration-hook",
        losing="a registration hook is not called",
        faults={"lost": TENSORS},
        of="buffer-registration-hook",
        place=-1,
    ),
    "parameter-hook-returned": _result_of("parameter-registration-hook", {"lost": TENSORS}),
    "buffer-hook-returned": _result_of("buffer-registration-hook", {"lost": TENSORS}),
    "root-gradient": _place(
        "its gradient",
        _argument,
        "backward",
        losing="a backward does nothing",
        faults={"lost": f"{TENSORS} leaf non-leaf", "none": "scalar one-element zero"},
        verb="backward",
        place=1,
    ),
    "root-gradients": _place(
        "a gradient",
        _argument,
        "backward",
        losing="a backward from several roots does nothing",
        faults={"lost": TENSORS, "none": "scalar one-element zero"},
        verb="backward_from_all",
        place=1,
    ),
    "edge-gradient": _place(
        "its gradient",
        _argument,
        "gradient-edge",
        losing="a backward from an edge does nothing",
        faults={"lost": TENSORS, "none": "scalar one-element zero"},
        verb="backward_from_edge",
        place=1,
    ),
    "grad-outputs-given": _place(
        "a value of grad_outputs",
        _argument,
        "grad",
        faults={"none": "scalar one-element zero", "zeros": "scalar leaf non-leaf"},
        verb="grad",
        place=2,
        name="grad_outputs",
    ),
    "backward-input": _place(
        "it", _inputs, "backward", losing="an input of backward is left out", faults={"lost": TENSORS}
    ),
    "grad-input": _place(
        "it", _gradients, "grad", losing="autograd.grad returns None for an input", faults={"lost": TENSORS}
    ),
    "root-accepted": _place(
        "it", _accepted, "backward", losing="a wrong root is accepted", faults={"lost": "zeros"}, verb="backward"
    ),
    "roots-accepted": _place(
        "a root",
        _accepted,
        "backward",
        losing="a backward from wrong roots is accepted",
        faults={"lost": "zeros"},
        verb="backward_from_all",
    ),
    "outputs-accepted": _place(
        "an output",
        _accepted,
        "grad",
        losing="autograd.grad of wrong outputs is accepted",
        faults={"lost": "zeros"},
        verb="grad",
    ),
    "non-leaf-accepted": _place(
        "it",
        _accepted,
        "post-acc",
        losing="a post-accumulate hook on a non-leaf is accepted",
        faults={"lost": TENSORS},
        verb="register_post_accumulate_grad_hook",
    ),
    "retain-grad-of": _registered("retain_grad", "retain_grad", "retain-grad"),
    "flag-of": _registered("set_requires_grad", "setting requires_grad", "requires-grad", "leaf"),
    "grad-assigned": _place(
        "the gradient",
        _argument,
        "grad-accum",
        losing="setting .grad does nothing",
        faults={"lost": NUMBERS},
        verb="set_grad",
        place=1,
    ),
    "detached": _place("it", _undetached, "detach", losing="detach returns a tensor itself", faults={"lost": TENSORS}),
    "loaded": _place(
        "a value",
        _argument,
        "load-state-dict",
        losing="load_state_dict does nothing",
        faults={"lost": TENSORS},
        verb="load_state_dict",
        place=1,
    ),
    "function-inputs-given": _place(
        "an input of a custom Function", _function_inputs, "custom-function", faults={"none": f"{OTHERS} tuple"}
    ),
    "function-output": _place(
        "an output of a custom Function",
        _function_outputs,
        "custom-function",
        faults={"none": OTHERS, "detached": TENSORS},
    ),
    "function-saved-tensor": _place(
        "a saved tensor of a custom Function", _function_saved, "custom-function", faults={"none": TENSORS}
    ),
    "function-gradient": _place(
        "a gradient",
        _function_grads,
        "custom-function",
        losing="the backward of a custom Function does not run",
        faults={"lost": TENSORS},
    ),
    "function-result": _place(
        "a gradient that a custom Function returns", _function_results, "custom-function", faults={"none": NUMBERS}
    ),
    "module-input": _passed("an input of a module", "module", "module.forward"),
    "module-keyword": _passed("a keyword argument of a module", "module", "module.forward", keywords=True),
    "module-output": _passed("an output of a module", "module", "module.forward", outputs=True),
    "checkpoint-input": _passed("an input of a checkpoint", "checkpoint", "checkpoint", use_reentrant=False),
    "checkpoint-keyword": _passed(
        "a keyword argument of a checkpoint", "checkpoint", "checkpoint", keywords=True, use_reentrant=False
    ),
    "checkpoint-output": _passed(
        "an output of a checkpoint", "checkpoint", "checkpoint", outputs=True, use_reentrant=False
    ),
    "reentrant-input": _place(
        "an input of a reentrant checkpoint",
        _function,
        "checkpoint",
        faults={"detached": NUMBERS},
        verb="checkpoint",
        use_reentrant=True,
    ),
    "reentrant-output": _place(
        "an output of a reentrant checkpoint",
        _function,
        "checkpoint",
        faults={"detached": NUMBERS},
        verb="checkpoint",
        outputs=True,
        use_reentrant=True,
    ),
}
"""The places where a value of some kinds may be treated wrongly.

Left out are layouts and dtypes, which conditions try; the same tensor given twice, integer and inference tensors, of
which no page says more than their own rules; what a function computes of its inputs, which is no law of hooks; and
containers where the rules could only end in an error of their own.
"""


def made(place: Place, fault: str, kind: str) -> type[Mutant]:
    """Return a mutant with a fault in a place, if a value there is of a kind."""
    _, holds = KINDS[kind]
    return place.make(partial(lost, holds) if fault == "lost" else partial(changed, holds, FAULTS[fault][1]))


def _all() -> Iterator[tuple[str, str, tuple[str, ...], type[Mutant]]]:
    """Yield the name, the fault in words, the chapters and the class of each mutant."""
    for of, place in PLACES.items():
        for fault, kinds in place.faults.items():
            for kind in kinds:
                words, _ = KINDS[kind]
                said = place.losing if fault == "lost" else FAULTS[fault][0].format(place.words)
                condition = f"{place.words} is {words}" if fault == "lost" else f"it is {words}"
                yield f"{of}-{kind}-{fault}", f"{said} if {condition}", place.chapters, made(place, fault, kind)


vars().update(named(*each) for each in _all())
