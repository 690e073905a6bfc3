"""checkpoint_sequential: a list of functions in segments, which are checkpoints except for the last."""

import weakref
from itertools import product
from typing import Any

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, observed, page, rule
from hooklaw.rules.checkpoints import KINDS, drawing, leaf

SEQUENTIAL = docstring("torch.utils.checkpoint.checkpoint_sequential")
BACKWARD_HOOK = docstring("torch.nn.Module.register_full_backward_hook")
BACKWARD_PRE_HOOK = docstring("torch.nn.Module.register_full_backward_pre_hook")
NEEDS = [Capability.CHECKPOINT_SEQUENTIAL]


def squares(trace: Trace, count: int) -> list[Any]:
    """Return functions that log their number and square their input."""

    def square(number: int) -> Any:
        def run(x: Any) -> Any:
            trace.log(str(number))
            return x * x

        return run

    return [square(number) for number in range(count)]


def sequence(backend: Backend, functions: Any, segments: int, **how: Any) -> Any:
    """Return a forward that sums the result of the functions."""
    return lambda x: backend.sum(backend.checkpoint_sequential(functions, segments, x, **how))


@rule(
    "checkpoint-sequential.grads",
    level=Level.MUST,
    sources=[SEQUENTIAL.sentence(2, 11, 20)],
    needs=NEEDS,
    mutants=[
        "sequential-forgets-the-rest",
        "sequential-needs-an-input-that-requires-grad",
        "sequential-unpacks-tuples",
        "sequential-passes-the-first-of-a-tuple-on",
    ],
)
def test_gradients(backend: Backend, trace: Trace) -> None:
    """checkpoint_sequential, reentrant or not, has the result and gradients of running the functions one by one.

    The docstring says that it returns the output of running them sequentially, in any number of segments.
    """
    for kind, use_reentrant in KINDS.items():
        for segments in (1, 2, 3):
            x, weight = leaf(backend), leaf(backend, 3.0, 1.0)
            functions = [lambda x: x * x, lambda x, weight=weight: x * weight, lambda x: x * x]
            loss = backend.call(sequence(backend, functions, segments, use_reentrant=use_reentrant), x)
            trace.expect_value(f"result, {kind}, {segments} segments", 25.0, loss)
            backend.backward(loss)
            gradients = [backend.grad_of(x), backend.grad_of(weight)]
            trace.expect_value(f"gradients, {kind}, {segments} segments", [[36.0, 32.0], [6.0, 32.0]], gradients)

    weight = leaf(backend, 3.0, 1.0)
    forward = sequence(backend, [lambda x: x * weight, lambda x: x * weight], 2, use_reentrant=False)
    backend.backward(backend.call(forward, backend.tensor([1.0, 2.0])))
    trace.expect_value("gradient, of an input that requires none", [6.0, 4.0], backend.grad_of(weight))

    whole: list[bool] = []

    def joined(*given: Any):
        whole.append(isinstance(given[0], tuple))
        first, second, *_ = given[0] if whole[-1] else given * 2
        return first * second

    functions = [lambda x: (x * 2, x), joined, lambda x: x * x, lambda x: x * 3]
    for segments, use_reentrant in ((2, True), (2, False), (4, False)):  # no tuple passes from one reentrant segment on
        x = leaf(backend)
        backend.backward(backend.call(sequence(backend, functions, segments, use_reentrant=use_reentrant), x))
        trace.expect_value("gradient, of functions that pass a tuple on", [48.0, 384.0], backend.grad_of(x))
    trace.expect_value("the tuple is one argument", [True] * len(whole), whole)


@rule(
    "checkpoint-sequential.last-segment",
    level=Level.MUST,
    sources=[SEQUENTIAL.sentence(4, 11)],
    needs=NEEDS,
    mutants=[
        "sequential-checkpoints-every-segment",
        "checkpoint-sequential-in-one-piece",
        "sequential-checkpoints-single-functions",
    ],
)
def test_last_segment(backend: Backend, trace: Trace) -> None:
    """checkpoint_sequential runs the functions of all segments but the last again in backward, from the last on."""
    for use_reentrant in KINDS.values():
        for segments, again in ((1, ""), (2, "012"), (3, "2301"), (6, "43210")):
            forward = sequence(backend, squares(trace, 6), segments, use_reentrant=use_reentrant)
            loss = backend.call(forward, leaf(backend, 1.0, 1.0))
            trace.expect(*"012345")
            backend.backward(loss)
            trace.expect(*again)


@rule(
    "checkpoint-sequential.not-kept-alive",
    level=Level.MUST,
    sources=[SEQUENTIAL.sentence(4)],
    needs=[*NEEDS, Capability.WEAK_REFERENCES],
    mutants=["sequential-keeps-what-its-functions-return", "checkpoint-sequential-in-one-piece"],
)
def test_not_kept_alive(backend: Backend, trace: Trace) -> None:
    """All segments of checkpoint_sequential but the last free what they compute, except their result, before backward.

    The docstring says that they do not store the intermediate activations.
    """
    for (kind, use_reentrant), segments in product(KINDS.items(), (2, 3)):
        made: list[weakref.ref[Any]] = []

        def square(x: Any, made: list[weakref.ref[Any]] = made) -> Any:
            y = x * x
            made.append(weakref.ref(y))
            return y

        forward = sequence(backend, [square] * 6, segments, use_reentrant=use_reentrant)
        loss = backend.call(forward, leaf(backend, 1.0, 1.0))
        size = 6 // segments
        freed = [alive() is None for nr, alive in enumerate(made[:-size]) if (nr + 1) % size]
        trace.expect_value(f"are freed, {kind}, {segments} segments", [True] * len(freed), freed)
        backend.backward(loss)


@rule(
    "checkpoint-sequential.modules",
    level=Level.MUST,
    sources=[SEQUENTIAL.sentence(10)],
    needs=[*NEEDS, Capability.MODULES],
    mutants=["sequential-forgets-the-rest", "forward-pre-hooks-lost-in-a-sequence"],
)
def test_modules(backend: Backend, trace: Trace) -> None:
    """checkpoint_sequential accepts modules: their parameters get gradients, and their hooks run."""
    for kind, use_reentrant in KINDS.items():
        modules = [
            backend.module({"w": backend.tensor([factor, factor])}, lambda module, x: x * module.w)
            for factor in (2.0, 3.0)
        ]
        for module in modules:
            backend.register_forward_pre_hook(module, lambda _, args: (args[0] * 2,))
            backend.register_forward_hook(module, lambda _, _args, output: output * 10)
        x = leaf(backend)
        backend.backward(backend.call(sequence(backend, modules, 2, use_reentrant=use_reentrant), x))

        gradients = [backend.grad_of(tensor) for tensor in (x, modules[0].w, modules[1].w)]
        trace.expect_value(f"gradients, {kind}", [[2400.0, 2400.0], [1200.0, 2400.0], [800.0, 1600.0]], gradients)


@rule(
    "checkpoint-sequential.full-backward-hooks",
    level=Level.MUST,
    sources=[SEQUENTIAL.sentence(10), BACKWARD_HOOK.sentence(2), BACKWARD_PRE_HOOK.sentence(2)],
    needs=[
        *NEEDS,
        Capability.MODULES,
        Capability.MODULE_BACKWARD_HOOKS,
        Capability.MODULE_BACKWARD_PRE_HOOKS,
    ],
    mutants=[
        "backward-hooks-silent-in-a-sequence",
        "backward-hooks-doubled-in-a-sequence",
        "backward-hooks-silent-in-the-last-segment",
        "backward-hooks-of-the-last-module-of-a-segment-alone",
    ],
)
def test_backward_hooks(backend: Backend, trace: Trace) -> None:
    """Full backward hooks of each module in checkpoint_sequential run once, with the gradients of this module.

    A backward computes them once, though the forward of all segments but the last runs twice.
    """
    for use_reentrant in KINDS.values():
        for segments in (1, 2, 4):
            modules = [backend.module({}, lambda _module, x: x * x) for _ in range(4)]
            for number, module in enumerate(modules):
                before, after = trace.saw(f"pre-hook {number}"), trace.saw(f"hook {number}")
                backend.register_full_backward_pre_hook(module, lambda _, grads, before=before: before(grads))
                backend.register_full_backward_hook(module, lambda _, grads, _outputs, after=after: after(grads))
            forward = sequence(backend, modules, segments, use_reentrant=use_reentrant)
            backend.backward(backend.call(forward, leaf(backend, 1.0, -1.0)))

            trace.expect(
                ("pre-hook 3", [[1.0, 1.0]]),
                ("hook 3", [[2.0, 2.0]]),
                ("pre-hook 2", [[2.0, 2.0]]),
                ("hook 2", [[4.0, 4.0]]),
                ("pre-hook 1", [[4.0, 4.0]]),
                ("hook 1", [[8.0, 8.0]]),
                ("pre-hook 0", [[8.0, 8.0]]),
                ("hook 0", [[16.0, -16.0]]),
            )


@rule(
    "checkpoint-sequential.nonreentrant.grad",
    level=Level.MUST,
    sources=[SEQUENTIAL.sentence(18, 19)],
    needs=[*NEEDS, Capability.AUTOGRAD_GRAD],
    mutants=["sequential-use-reentrant-always-true", "sequential-has-gradients-of-its-inputs-alone"],
)
def test_autograd_grad(backend: Backend, trace: Trace) -> None:
    """A non-reentrant checkpoint_sequential has the right gradients in autograd.grad."""
    x, weight = leaf(backend), leaf(backend, 3.0, 5.0)
    functions = [lambda x: x * weight, lambda x: x * x, lambda x: x * 2]
    loss = backend.call(sequence(backend, functions, 2, use_reentrant=False), x)

    trace.expect_value("gradients", [[36.0, 200.0], [12.0, 80.0]], backend.grad(loss, [x, weight]))


@rule(
    "checkpoint-sequential.preserve-rng-state",
    level=Level.MUST,
    sources=[SEQUENTIAL.sentence(13, 14), page("checkpoint", "torch-utils-checkpoint").sentence(3, 6)],
    needs=[*NEEDS, Capability.RANDOM],
    mutants=[
        "sequential-preserve-rng-state-set-always",
        "sequential-keeps-the-random-state-of-its-begin-alone",
        "sequential-restores-the-random-state-before-each-function",
    ],
)
def test_random_numbers(backend: Backend, trace: Trace) -> None:
    """By default the segments of checkpoint_sequential draw the random numbers of their forward again in backward.

    The docstring says of preserve_rng_state that it omits restoring the state, and that its default is True. The page
    says that by default checkpointing restores the state, as the parameter's name does; the rule takes that reading.
    """
    draws = drawing(backend, trace)
    for (kind, use_reentrant), options in product(KINDS.items(), ({}, {"preserve_rng_state": True})):
        how = {"use_reentrant": use_reentrant}
        sequence(backend, [draws] * 2, 2, **how, preserve_rng_state=False)(leaf(backend))
        trace.clear()
        backend.manual_seed(7)
        loss = backend.call(sequence(backend, [draws] * 6, 3, **how, **options), leaf(backend))
        backend.rand_like(loss)
        backend.backward(loss)

        drawn, again = trace.values("drawn")[:6], trace.values("drawn")[6:]
        trace.expect_value(f"drawn again, {kind}, second segment", drawn[2:4], again[:2])
        trace.expect_value(f"drawn again, {kind}, first segment", drawn[:2], again[2:])


@rule(
    "checkpoint-sequential.preserve-rng-state.off",
    level=Level.MAY,
    sources=[SEQUENTIAL.sentence(13), page("checkpoint", "torch-utils-checkpoint").sentence(5)],
    needs=[*NEEDS, Capability.RANDOM],
    mutants=["sequential-preserve-rng-state-ignored"],
)
def test_random_numbers_off(backend: Backend, trace: Trace) -> None:
    """With preserve_rng_state=False the segments of checkpoint_sequential may draw other random numbers in backward.

    A mode in which functions are compiled ignores the option, as the docstring of checkpoint says.
    """
    draws = drawing(backend, trace)
    for kind, use_reentrant in 2 * [*KINDS.items()]:
        trace.clear()
        how = {"use_reentrant": use_reentrant, "preserve_rng_state": False}
        backend.backward(backend.call(sequence(backend, [draws] * 2, 2, **how), leaf(backend)))

        first, _, again = trace.values("drawn")
        trace.expect_value(f"same numbers, {kind}", expected=False, observed=first == again)


@rule(
    "checkpoint-sequential.reentrant.grad-error",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[SEQUENTIAL, observed("the error is that of a reentrant checkpoint")],
    needs=[*NEEDS, Capability.AUTOGRAD_GRAD],
    mutants=["sequential-use-reentrant-always-false"],
)
def test_reentrant_grad(backend: Backend, trace: Trace) -> None:
    """autograd.grad through a reentrant checkpoint_sequential of more than one segment is an error."""
    for _ in range(2):
        x = leaf(backend)
        backend.call(sequence(backend, [lambda x: x * x] * 3, 2, use_reentrant=False), x)
        loss = backend.call(sequence(backend, [lambda x: x * x] * 3, 2, use_reentrant=True), x)

        with trace.raises(ErrorKind.CHECKPOINT_REENTRANT):
            backend.grad(loss, [x])


@rule(
    "checkpoint-sequential.use-reentrant-required",
    level=Level.MUST,
    sources=[SEQUENTIAL.sentence(6, 7, 17)],
    needs=NEEDS,
    mutants=["sequential-use-reentrant-always-false", "sequential-of-one-segment-is-of-any-kind"],
)
def test_kind_required(backend: Backend, trace: Trace) -> None:
    """checkpoint_sequential without use_reentrant is an error."""
    for segments in (1, 2):
        with trace.raises(ErrorKind.CHECKPOINT_KIND):
            backend.call(sequence(backend, squares(trace, 3), segments), leaf(backend))


@rule(
    "checkpoint-sequential.one-input",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[SEQUENTIAL, observed("the signature takes one input")],
    needs=NEEDS,
    mutants=["sequential-ignores-more-inputs"],
)
def test_one_input(backend: Backend, trace: Trace) -> None:
    """checkpoint_sequential without an input, or with more than one, is an error."""
    x = leaf(backend)
    for inputs in ((), (x, x)):
        with trace.raises_type(TypeError):
            backend.checkpoint_sequential([lambda x: x * x], 1, *inputs, use_reentrant=False)
