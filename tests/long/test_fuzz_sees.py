"""What a program can show: each vice of the engine is seen in a few instructions, which show nothing without it."""

import pytest

from helpers import shows_the_vice
from hooklaw.backend import loading
from hooklaw.fuzz.judge.judge import Judge, engine
from hooklaw.fuzz.program import Instruction as Do
from hooklaw.fuzz.program import text
from hooklaw.fuzz.replay.run import PlannedError, kind_of, replay

pytest.importorskip("torch")  # the mutants of the engine are made together with those of torch

X = Do("leaf", ("x1",), (), ((2,), "float64", True))
SQUARE = Do("mul", ("v1",), ("x1", "x1"))
BACKWARD = Do("backward", (), ("v1",), (1.0, True, False))
LAID_OUT = (
    Do("leaf", ("x2",), (), ((1, 2, 2, 2), "float64", True)),
    Do("channels_last", ("v2",), ("x2",)),
    Do("own", ("x1",), ("v2",)),
)
OUTER = (
    Do("module", ("m1", "p1"), ("x1",), ("unweighted",)),
    Do("module", ("m2", "p2"), ("x1", "m1"), ("outer",)),
    Do("global_hook", ("h1",), (), ("forward", ("nothing",), ())),
    Do("call", ("v2",), ("m2", "x1")),
)
NOT_TO_THE_END = (
    Do("saved_hooks", ("c1",), (), ("detach",)),
    Do("leave", (), (), ("failing",)),
    SQUARE,
    BACKWARD,
)
OTHER = Do("leaf", ("x2",), (), ((2,), "float64", True))
UNUSED = Do("grad", ("g1", "g2"), ("v1", "x1", "x2"), (1.0, None, False, "unsaid"))


def hook(op: str, *how) -> Do:
    """Put a hook on the product."""
    return Do(op, ("h1",), ("v1",), how)


def region(kind: str, *, use_reentrant: bool = False) -> Do:
    """Run a checkpointed region."""
    return Do("checkpoint", ("v1",), ("x1",), (kind, use_reentrant, None))


DIRTY = (X, Do("scale", ("v2",), ("x1",), (2,)), Do("function", ("v1",), ("v2",), ("dirty",)))
INFERRED = (Do("inference_mode"), OTHER._replace(how=((2,), "float64", False)), Do("leave"))
SEEN_OF_TORCH = {
    "dirty-mark-ignored": DIRTY,
    "mark-of-the-other-kind": DIRTY,
    "non-differentiable-mark-ignored": (X, Do("function", ("v1", "v2"), ("x1",), ("constant-second",))),
    "function-clear-saved-tensors-ignored": (X, Do("function", ("v1",), ("x1",), ("read-twice",)), BACKWARD),
    "inference-mode-is-no-grad": (X, *INFERRED, Do("mul", ("v1",), ("x1", "x2"))),
    "increment-of-inference-tensors-refused": (*INFERRED, Do("bump", (), ("x2",))),
    "anomalies-undetected": (X, Do("detect_anomaly"), Do("function", ("v1",), ("x1",), ("nan",)), BACKWARD),
    "materialize-grads-ignored": (X, OTHER, SQUARE, UNUSED._replace(how=(1.0, None, False, "unsaid", "materialized"))),
    "autograd-grad-conflict-accepted": (
        X,
        OTHER,
        SQUARE,
        UNUSED._replace(how=(1.0, None, False, "refused", "materialized")),
    ),
    "every-input-of-a-function-needs-a-gradient": (
        X,
        OTHER._replace(how=((2,), "float64", False)),
        Do("function", ("v1",), ("x1", "x2"), ("needed",)),
        BACKWARD,
    ),
    "wrong-number-of-gradients-accepted": (X, Do("function", ("v1",), ("x1", "x1"), ("few",)), BACKWARD),
    "tensors-in-lists-are-inputs": (X, Do("function", ("v1",), ("x1",), ("listed-alone",))),
    "grad-allow-unused-set-always": (X, OTHER, SQUARE, UNUSED),
}


def module_hook(kind: str, *action: str, options: tuple[str, ...] = ()) -> Do:
    """Put a hook on the module."""
    return Do("module_hook", ("h2",), ("m1",), (kind, action or ("nothing",), options))


WEIGHTED = Do("module", ("m1", "p1"), ("x1",), ("weighted",))
ALWAYS = (
    Do("module_hook", ("h1",), ("m1",), ("forward", ("nothing",), ("always_call",))),
    module_hook("forward_pre", "raise"),
)
CALL = Do("call", ("v1",), ("m1", "x1"))
PARALLEL = CALL._replace(op="parallel")
MUTABLE = (X, Do("allow_mutation"), Do("scale", ("v2",), ("x1",), (1,)), Do("mul", ("v1",), ("v2", "v2")))
CHANGED = Do("scale_", (), ("v2",), (10,))
SEEN = {
    "gradient-replaced-when-accumulated": (X, SQUARE, BACKWARD, Do("take", ("g1",), ("x1",)), BACKWARD),
    "gradient-always-contiguous": (*LAID_OUT, SQUARE, BACKWARD),
    "gradient-laid-out-anew": (
        *LAID_OUT,
        Do("give", (), ("x2", "v2")),
        Do("backward", (), ("x2",), (1.0, None, False)),
    ),
    "saved-tensors-hooks-lasts-after-an-error": (X, *NOT_TO_THE_END),
    "disabling-message-replaced": (Do("disable_saved_hooks", ("c1",)), Do("saved_hooks", ("c2",), (), ("detach",))),
    "unserializable-mark-ignored": (
        X,
        Do("hook", ("h1",), ("x1",), (("nothing",), "unserializable")),
        Do("save", ("x2",), ("x1",)),
    ),
    "hooks-serialized": (
        X,
        Do("hook", ("h1",), ("x1",), (("nothing",),)),
        Do("save", ("x2",), ("x1",)),
        Do("backward", (), ("x2",), (1.0, None, False)),
    ),
    "backward-runs-in-one-worker-thread": (X, SQUARE, hook("hook", ("nothing",)), BACKWARD),
    "packed-objects-kept-after-release": (
        X,
        Do("saved_hooks", ("c1",), (), ("boxed",)),
        SQUARE,
        BACKWARD._replace(how=(1.0, None, False)),
    ),
    "unpack-receives-a-copy": (X, Do("saved_hooks", ("c1",), (), ("listed",)), SQUARE, BACKWARD),
    "unpack-in-place-detected": (X, Do("saved_hooks", ("c1",), (), ("growing",)), SQUARE, BACKWARD),
    "node-hook-bare-tensor-accepted": (X, SQUARE, hook("prehook", ("wrong", "bare")), BACKWARD),
    "hook-result-cast": (X, SQUARE, hook("hook", ("wrong", "dtype")), BACKWARD),
    "hook-result-broadcast": (X, SQUARE, hook("hook", ("wrong", "shape")), BACKWARD),
    "node-hook-return-count-unchecked": (X, SQUARE, hook("prehook", ("wrong", "count")), BACKWARD),
    "gradient-restored-after-post-accumulate": (
        X,
        SQUARE,
        Do("post_accumulate", ("h1",), ("x1",), (("drop", "x1"),)),
        BACKWARD,
    ),
    "integers-not-packed": (
        X,
        Do("leaf", ("x2",), (), ((2,), "int64", False)),
        Do("saved_hooks", ("c1",), (), ("detach",)),
        Do("mul", ("v1",), ("x1", "x2")),
    ),
    "global-module-hooks-on-the-outermost-module": (X, *OUTER),
    "multi-grad-mode-unchecked": (X, SQUARE, Do("multi_grad", ("h1",), ("v1",), (("nothing",), "some"))),
    "inference-mode-reaches-other-threads": (Do("inference_mode"), Do("mode", thread=1)),
    "late-remove-raises": (
        X,
        Do("clone", ("v1",), ("x1",)),
        hook("hook", ("nothing",)),
        Do("forget", (), ("v1",)),
        Do("remove", (), ("h1",)),
    ),
    **{
        name: SEEN_OF_TORCH[name]
        for name in (
            "every-input-of-a-function-needs-a-gradient",
            "wrong-number-of-gradients-accepted",
            "tensors-in-lists-are-inputs",
            "grad-allow-unused-set-always",
        )
    },
    "unused-inputs-get-zeros": (X, OTHER, SQUARE, UNUSED._replace(how=(1.0, None, False))),
    "change-to-the-same-values-goes-uncounted": (
        X,
        Do("scale", ("v2",), ("x1",), (2,)),
        Do("mul", ("v1",), ("v2", "v2")),
        Do("scale_", (), ("v2",), (1,)),
        BACKWARD,
    ),
    "always-called-hook-needs-forward": (X, WEIGHTED, *ALWAYS, CALL),
    "freezing-has-no-effect": (X, SQUARE, Do("flag", (), ("x1",), (False,)), BACKWARD),
    "namedtuple-becomes-a-tuple": (X, WEIGHTED._replace(how=("named",)), CALL),
    "warnings-of-a-call-are-lost": (X, WEIGHTED._replace(how=("listed",)), module_hook("full_backward"), CALL),
    "module-hooks-only-on-the-original": (
        X,
        WEIGHTED,
        module_hook("forward"),
        Do("copy", ("m2", "p2"), ("m1",)),
        CALL._replace(used=("m2", "x1")),
    ),
    "wrong-return-of-a-module-hook-accepted": (
        X,
        WEIGHTED,
        module_hook("forward_pre", "wrong", "bare", options=("with_kwargs",)),
        CALL,
    ),
    "accumulate-grad-lives-with-its-leaf": (
        X,
        Do("posthook", ("h1",), ("x1",), (("nothing",), "loose")),
        SQUARE,
        BACKWARD,
    ),
    "save-on-cpu-leaks": (
        X,
        Do("save_on_cpu"),
        Do("scale", ("v1",), ("x1",), (2,)),
        Do("sin", ("v2",), ("v1",)),
        Do("forget", (), ("v2",)),
        Do("forget", (), ("v1",)),
    ),
    "ctx-attributes-packed": (
        X,
        Do("saved_hooks", ("c1",), (), ("detach",)),
        Do("custom", ("v1",), ("x1",), ("attribute",)),
    ),
    "checkpoint-use-reentrant-always-true": (X, region("chain")),
    "checkpoint-use-reentrant-always-false": (X, region("chain", use_reentrant=True)),
    "checkpoint-recomputes-nothing": (X, region("chain"), BACKWARD),
    "checkpoint-early-stop-set-always": (X, region("chain"), BACKWARD),
    "checkpoint-determinism-check-set-always": (X, region("other-shape"), BACKWARD),
    "pairs-ignored-in-a-region": (X, region("pair")),
}


@pytest.mark.parametrize("name", SEEN)
def test_a_vice_is_seen(name):
    """The engine with the vice shows something else than the engine without it."""
    assert shows_the_vice(SEEN[name], name), text(SEEN[name])


SEEN_OF_TORCH |= {
    "both-kinds-of-module-backward-hooks-accepted": (
        X,
        WEIGHTED,
        module_hook("backward"),
        module_hook("full_backward"),
    ),
    "legacy-module-hook-never-runs": (X, WEIGHTED, module_hook("backward"), CALL, BACKWARD),
    "legacy-module-hook-is-a-full-one": (X, WEIGHTED, module_hook("backward"), CALL, BACKWARD),
    "mutation-of-saved-tensors-not-allowed": (*MUTABLE, CHANGED, BACKWARD),
    "mutation-of-saved-tensors-unnoticed": (*MUTABLE, CHANGED, BACKWARD),
    "mutation-allowed-for-good": (*MUTABLE[:2], Do("leave"), *MUTABLE[2:], CHANGED, BACKWARD),
    "mutation-context-open-until-backward": (*MUTABLE, Do("leave"), BACKWARD),
    "gradient-of-one-replica-only": (X, WEIGHTED, PARALLEL, BACKWARD),
    "exception-in-a-replica-is-lost": (X, WEIGHTED._replace(how=("raises",)), PARALLEL, BACKWARD),
    "exception-changes-its-type": (X, WEIGHTED._replace(how=("raises",)), PARALLEL),
    "gradient-keeps-overlapping-strides": (
        X._replace(how=((2, 1), "float64", True)),
        Do("expand", ("v2",), ("x1",), (2, 2)),
        Do("own", ("x2",), ("v2",)),
        BACKWARD._replace(used=("x2",)),
    ),
}


@pytest.mark.parametrize("name", SEEN_OF_TORCH)
def test_a_vice_of_torch_is_seen(name):
    """Torch with the vice shows something else than the engine, and torch without it the same."""
    program = SEEN_OF_TORCH[name]
    mutant = Judge(loading.load(f"hooklaw_backends.mutants:backend:{name}"))

    assert mutant(program) is not None, text(program)
    assert Judge(loading.load("torch-eager"))(program) is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PlannedError(), "planned"),
        (TypeError("no"), "TypeError"),
        (ValueError("no"), "refused"),
        (RuntimeError("it is forbidden by c3, you know"), "refused: forbidden by c3"),
        (RuntimeError("out != nullptr INTERNAL ASSERT FAILED at a place"), "internal"),
        (KeyError("x"), "KeyError"),
    ],
)
def test_errors_are_told_apart(error, kind):
    """Of an error that is compared which tells whose fault it is."""
    assert kind_of(error) == kind


def test_no_gradients_in_inference_mode():
    """There nothing is carried out that is about gradients, nor made a tensor that requires one."""
    shown = replay((Do("inference_mode"), X, BACKWARD, Do("mode"), Do("leave"), X, SQUARE, Do("mode")), engine(()))

    assert shown == [("mode", False), ("mode", True)]


def test_what_was_made_in_inference_mode_is_told_apart():
    """It is seen outside, but for what nobody says: what of it records, or what keeps it alive."""
    inside = (X, Do("inference_mode"), Do("scale", ("v2",), ("x1",), (2,)), Do("view", ("v3",), ("x1",), (2, 1)))
    after = (
        Do("mul", ("v1",), ("x1", "v2")),
        Do("mul_", (), ("v2", "x1")),
        Do("forget", (), ("v2",)),
        Do("module", ("m1", "p1"), ("v2",), ("unweighted",)),
        Do("inspect", (), ("v3",)),
    )

    assert replay((*inside, Do("leave"), *after), engine(())) == [("error", 5, "mul", "refused")]


def test_changes_by_functions_that_are_left_alone():
    """A Function changes nothing twice, nothing unlike its other input, and nothing that a module returned."""
    module = (Do("module", ("m1", "p1"), ("x1",), ("weighted",)), Do("call", ("v1",), ("m1", "x1")))
    wide = Do("leaf", ("x2",), (), ((2, 2), "float64", True))
    calls = [("dirty-first", "v2", "v2"), ("dirty-second", "x2", "v2"), ("dirty", "v1")]
    functions = [Do("function", (f"w{nr}",), tuple(used), (word,)) for nr, (word, *used) in enumerate(calls)]
    anomaly = Do("detect_anomaly", thread=1)

    assert replay((X, wide, *module, Do("scale", ("v2",), ("x1",), (2,)), *functions, anomaly), engine(())) == []
