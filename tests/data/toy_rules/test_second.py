"""A rule beyond the toy's means, and one that it is free to break."""

from hooklaw.backend.protocol import Capability
from hooklaw.law.rule import Basis, Level, docstring, observed, rule


@rule("toy.nodes", level=Level.SHOULD, sources=[docstring("toy.node")], needs=[Capability.NODES])
def test_nodes(backend, trace):
    """A tensor knows its node."""
    trace.expect_value("node", None, backend.grad_fn(backend.tensor([1.0])))


@rule(
    "toy.free",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("a toy")],
    except_under={"again": "a toy is played with once"},
)
def test_free(backend, trace):
    """A tensor of floats is a double."""
    trace.expect_value("dtype", "float64", backend.dtype(backend.tensor([1.0])))
