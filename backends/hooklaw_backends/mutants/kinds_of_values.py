"""Mutants that are wrong with values of one kind: each fault of each place where such a value goes in or out.

No rule need name them: the rules whose ids begin with the place's `chapters` are tried first, then all others. They are
right with any other value.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from hooklaw_backends.mutants.base import Mutant
from hooklaw_backends.mutants.in_situations import named
from hooklaw_backends.mutants.kinds import KINDS as HOOKS
from hooklaw_backends.mutants.places_of_values import (
    Make,
    accepted,
    function_grads,
    function_inputs,
    function_outputs,
    function_results,
    function_saved,
    of_argument,
    of_backward_inputs,
    of_function,
    of_given,
    of_grad_inputs,
    of_returned,
    optimized,
    pack_given,
    packed,
    positions,
    uncounted,
    undetached,
    unmaterialized,
)
from hooklaw_backends.mutants.values import FAULTS, KINDS, changed, lost


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
    make: Make,
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
OF_DETACHED = "module.full-backward.args"
"""The rule that kills modules that detach what they are given or return."""
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
    return _place(words, of_given, *HOOKS[of].chapters, losing=losing, faults=faults, of=of, place=place)


def _result_of(of: str, faults: Mapping[str, str]) -> Place:
    losing = f"what {HOOKS[of].words} returns is ignored"
    return _place("it", of_returned, *HOOKS[of].chapters, losing=losing, faults=faults, of=of)


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


def _of_positions() -> Iterator[tuple[str, Place]]:
    kinds = "none zero-number flag text empty-container list dict"
    for of, what in (("backward-hook", "inputs"), ("backward-hook", "outputs"), ("backward-pre-hook", "outputs")):
        losing = f"{HOOKS[of].words} gets nothing in the position of an argument"
        how = {"of": of, "outputs": what == "outputs"}
        yield (
            f"{of}-{what}-that-are",
            _place("it", positions, *HOOKS[of].chapters, losing=losing, faults={"lost": kinds}, **how),
        )


def _passed(words: str, verb: str, *chapters: str, **how: Any) -> Place:
    """Return the place of what the function of a module or a checkpoint is given or returns."""
    containers = "empty-container list dict" if verb == "module" else "empty-container"
    faults = {"none": f"zero-number flag text {containers}", "doubled": "number"}
    if not how.get("keywords"):
        faults["detached"] = NUMBERS
    return _place(words, of_function, *chapters, faults=faults, verb=verb, **how)


def _registered(verb: str, words: str, *chapters: str) -> Place:
    return _place(
        "the tensor",
        of_argument,
        *chapters,
        losing=f"{words} does nothing",
        faults={"lost": TENSORS},
        verb=verb,
        place=0,
    )


PLACES: dict[str, Place] = {
    **dict(_of_passes()),
    **dict(_of_calls()),
    "pack-hook-given": _place(
        "what is saved", pack_given, "saved-tensor", losing="a tensor is not packed", faults={"lost": TENSORS}
    ),
    "packed": _place(
        "what a pack hook returns",
        packed,
        "saved-tensor",
        losing="what a pack hook returns is not kept",
        faults={"lost": f"{TENSORS} none {OTHERS}", "none": f"{NUMBERS} {OTHERS}", "copied": "list dict"},
    ),
    "optimizer-state-returned": _result_of("state-dict-post-hook", {"lost": "empty-container"}),
    "parameter-registered": _place(
        "a parameter",
        of_given,
        "registration-hook",
        losing="a registration hook is not called",
        faults={"lost": TENSORS},
        of="parameter-registration-hook",
        place=-1,
    ),
    "buffer-registered": _place(
        "a buffer",
        of_given,
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
        of_argument,
        "backward",
        losing="a backward does nothing",
        faults={"lost": f"{TENSORS} leaf non-leaf", "none": "scalar one-element zero"},
        verb="backward",
        place=1,
    ),
    "root-gradients": _place(
        "a gradient",
        of_argument,
        "backward",
        losing="a backward from several roots does nothing",
        faults={"lost": TENSORS, "none": "scalar one-element zero"},
        verb="backward_from_all",
        place=1,
    ),
    "edge-gradient": _place(
        "its gradient",
        of_argument,
        "gradient-edge",
        losing="a backward from an edge does nothing",
        faults={"lost": TENSORS, "none": "scalar one-element zero"},
        verb="backward_from_edge",
        place=1,
    ),
    "grad-outputs-given": _place(
        "a value of grad_outputs",
        of_argument,
        "grad",
        faults={"none": "scalar one-element zero", "zeros": "scalar leaf non-leaf"},
        verb="grad",
        place=2,
        name="grad_outputs",
    ),
    "backward-input": _place(
        "it", of_backward_inputs, "backward", losing="an input of backward is left out", faults={"lost": TENSORS}
    ),
    "grad-input": _place(
        "it", of_grad_inputs, "grad", losing="autograd.grad returns None for an input", faults={"lost": TENSORS}
    ),
    "root-accepted": _place(
        "it", accepted, "backward", losing="a wrong root is accepted", faults={"lost": "zeros"}, verb="backward"
    ),
    "roots-accepted": _place(
        "a root",
        accepted,
        "backward",
        losing="a backward from wrong roots is accepted",
        faults={"lost": "zeros"},
        verb="backward_from_all",
    ),
    "outputs-accepted": _place(
        "an output",
        accepted,
        "grad",
        losing="autograd.grad of wrong outputs is accepted",
        faults={"lost": "zeros"},
        verb="grad",
    ),
    "non-leaf-accepted": _place(
        "it",
        accepted,
        "post-acc",
        losing="a post-accumulate hook on a non-leaf is accepted",
        faults={"lost": TENSORS},
        verb="register_post_accumulate_grad_hook",
    ),
    "retain-grad-of": _registered("retain_grad", "retain_grad", "retain-grad"),
    "flag-of": _registered("set_requires_grad", "setting requires_grad", "requires-grad", "leaf"),
    "grad-assigned": _place(
        "the gradient",
        of_argument,
        "grad-accum",
        losing="setting .grad does nothing",
        faults={"lost": NUMBERS},
        verb="set_grad",
        place=1,
    ),
    "detached": _place(
        "it", undetached, "detach", losing="detach returns a tensor itself", faults={"lost": f"{TENSORS} constant"}
    ),
    "changed-in-place": _place(
        "it", uncounted, "inplace", losing="a change of a tensor does not count", faults={"lost": TENSORS}
    ),
    "version-of": _registered("increment_version", "increment_version", "version"),
    "unused-input": _place(
        "it", unmaterialized, "grad", losing="materialize_grads leaves None for an input", faults={"lost": TENSORS}
    ),
    "unused-accepted": _place(
        "an input",
        accepted,
        "grad",
        losing="autograd.grad accepts unused inputs",
        faults={"lost": TENSORS},
        verb="grad",
        place=1,
    ),
    "parameter-of-an-optimizer": _place(
        "it", optimized, "optim", "zero-grad", losing="an optimizer leaves out a parameter", faults={"lost": TENSORS}
    ),
    **dict(_of_positions()),
    "loaded": _place(
        "a value",
        of_argument,
        "load-state-dict",
        losing="load_state_dict does nothing",
        faults={"lost": TENSORS},
        verb="load_state_dict",
        place=1,
    ),
    "function-inputs-given": _place(
        "an input of a custom Function", function_inputs, "custom-function", faults={"none": f"{OTHERS} tuple"}
    ),
    "function-output": _place(
        "an output of a custom Function",
        function_outputs,
        "custom-function",
        faults={"none": OTHERS, "detached": TENSORS},
    ),
    "function-saved-tensor": _place(
        "a saved tensor of a custom Function", function_saved, "custom-function", faults={"none": TENSORS}
    ),
    "function-gradient": _place(
        "a gradient that a custom Function gets",
        function_grads,
        "custom-function",
        losing="the backward of a custom Function does not run",
        faults={"lost": TENSORS, "none": "zero zeros empty"},
    ),
    "function-result": _place(
        "a gradient that a custom Function returns", function_results, "custom-function", faults={"none": NUMBERS}
    ),
    "module-input": _passed("an input of a module", "module", "module.forward", OF_DETACHED),
    "module-keyword": _passed("a keyword argument of a module", "module", "module.forward", keywords=True),
    "module-output": _passed("an output of a module", "module", "module.forward", OF_DETACHED, outputs=True),
    "checkpoint-input": _passed("an input of a checkpoint", "checkpoint", "checkpoint", use_reentrant=False),
    "checkpoint-keyword": _passed(
        "a keyword argument of a checkpoint", "checkpoint", "checkpoint", keywords=True, use_reentrant=False
    ),
    "checkpoint-output": _passed(
        "an output of a checkpoint", "checkpoint", "checkpoint", outputs=True, use_reentrant=False
    ),
    "reentrant-input": _place(
        "an input of a reentrant checkpoint",
        of_function,
        "checkpoint",
        faults={"detached": NUMBERS},
        verb="checkpoint",
        use_reentrant=True,
    ),
    "reentrant-output": _place(
        "an output of a reentrant checkpoint",
        of_function,
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
    cell = place.make(partial(lost, holds) if fault == "lost" else partial(changed, holds, FAULTS[fault][1]))
    cell.__module__ = __name__
    return cell


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
