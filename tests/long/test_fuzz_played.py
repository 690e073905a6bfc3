"""Programs of which the engine once did not know what PyTorch does: each is explained now, by a flag or by the law."""

import pytest

from hooklaw.backend import loading
from hooklaw.fuzz.judge.judge import Judge
from hooklaw.fuzz.program import Instruction as Do
from hooklaw.fuzz.program import text

pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")

X = Do("leaf", ("x1",), (), ((2,), "float64", True))
KEPT = Do("saved_hooks", ("c1",), (), ("itself",))
REPLICAS = (Do("module", ("m1", "p1"), ("x1",), ("weighted",)), Do("parallel", ("v1",), ("m1", "x1")))
PROGRAMS = {
    "what is differentiable once fails even if nothing is asked of it": (
        "once-differentiable-gradients-are-constants",
        (
            X,
            Do("mul", ("v1",), ("x1", "x1")),
            Do("scale", ("v2",), ("v1",), (2,)),
            Do("function", ("v3",), ("v2",), ("once",)),
            Do("sin", ("v4",), ("v3",)),
            Do("grad", ("g1",), ("v4", "x1"), (1.0, None, True)),
            Do("backward", (), ("g1",), (1.0, None, False)),
        ),
    ),
    "a base takes on its history after its retained gradient": (
        "retained-gradients-are-mixed-up",
        (
            X,
            Do("custom", ("v1", "v2"), ("x1",), ("pair",)),
            Do("retain_grad", (), ("v2",)),
            Do("scale_", (), ("v2",), (2,)),
            Do("view", ("v3",), ("v2",), (2,)),
            Do("scale_", (), ("v3",), (2,)),
            Do("backward", (), ("v3",), (1.0, None, False)),
        ),
    ),
    "post-hooks hold what became .grad": (
        "views-of-gradients-become-grad",
        (
            X,
            Do("scale", ("v1",), ("x1",), (2,)),
            Do("posthook", ("h1",), ("x1",), (("backward", "x1"),)),
            Do("posthook", ("h2",), ("x1",), (("nothing",),)),
            Do("backward", (), ("v1",), (1.0, None, False)),
        ),
    ),
    "what replicas share is nobody's affair": (
        "",
        (X, KEPT, *REPLICAS, Do("exp", ("v2",), ("v1",)), Do("backward", (), ("v2",), (2.0, None, True))),
    ),
    "a Function that cannot save keeps nothing alive": (
        "",
        (
            X,
            Do("saved_hooks", ("c1",), (), ("pack-raises",)),
            Do("scale", ("v1",), ("x1",), (2,)),
            Do("function", ("v2",), ("v1", "x1"), ("dirty-first",)),
            Do("forget", (), ("v1",)),
        ),
    ),
    "the cosine of a large number of single precision is left alone": (
        "",
        (
            Do("leaf", ("x1",), (), ((2, 2), "float32", False)),
            Do("exp", ("v1",), ("x1",)),
            Do("exp", ("v2",), ("v1",)),
            Do("scale_", (), ("v2",), (2,)),
            Do("cos_", (), ("v2",)),
            Do("value", (), ("v2",)),
        ),
    ),
}


@pytest.fixture(scope="module")
def judge():
    """Give the judge of torch in eager mode."""
    return Judge(loading.load("torch-eager"))


@pytest.mark.parametrize(("flag", "program"), PROGRAMS.values(), ids=PROGRAMS)
def test_torch_is_played(judge, flag, program):
    """A program shows what the law gives, or what one flag explains."""
    difference = judge(program)

    assert (difference is not None) == bool(flag), text(program)
    assert difference is None or difference.flags == {flag}
