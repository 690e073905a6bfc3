"""Mutants of an argument, an option or a result of a verb: they are wrong there, and nowhere else."""

import pytest

pytest.importorskip("torch", reason="mutants of torch need torch, which is not installed")

from hooklaw_backends.mutants import of_reference


def made(name, *numbers):
    """Return a mutant and leaves."""
    mutant = of_reference(name)
    mutant.reset()
    return mutant, [mutant.tensor([number], requires_grad=True) for number in numbers]


@pytest.mark.parametrize(
    ("fault", "places"),
    [("first-lost", [1, 2]), ("last-lost", [0, 1]), ("middle-lost", [0, 2]), ("first-alone", [0]), ("last-alone", [2])],
)
def test_some_of_several(fault, places):
    """What is lost of several values is ignored; a single one is not."""
    mutant, leaves = made(f"backward-inputs-{fault}", 1.0, 2.0, 3.0)
    mutant.backward(mutant.sum(leaves[0] * leaves[1] * leaves[2]), inputs=leaves)
    single = mutant.tensor([1.0], requires_grad=True)
    mutant.backward(mutant.sum(single * 2), inputs=[single])

    assert [nr for nr, leaf in enumerate(leaves) if mutant.grad_of(leaf) is not None] == places
    assert mutant.tolist(mutant.grad_of(single)) == [2.0]


@pytest.mark.parametrize(
    ("fault", "created"),
    [
        ("ignored", [False, False, False, False]),
        ("ignored-later", [False, True, False, False]),
        ("ignored-at-first", [False, False, False, True]),
        ("stays", [False, True, True, True]),
        ("set-by-its-absence", [True, True, True, True]),
    ],
)
def test_option(fault, created):
    """An option is wrong in the calls of the fault."""
    mutant, (x,) = made(f"grad-create-graph-{fault}", 2.0)
    found = [
        mutant.requires_grad(mutant.grad(mutant.sum(x * x), [x], **how)[0])
        for how in ({}, {"create_graph": True}, {}, {"create_graph": True})
    ]

    assert found == created


@pytest.mark.parametrize(
    ("fault", "read"),
    [("doubled", [10.0, 14.0, 14.0]), ("doubled-later", [5.0, 7.0, 14.0]), ("of-the-call-before", [5.0, 5.0, 7.0])],
)
def test_result(fault, read):
    """A value is wrong in each call, from the second call of its owner on, or that of the call before of any."""
    mutant, (x, y) = made(f"grad-of-{fault}", 1.0, 1.0)
    mutant.backward(mutant.sum(x * 5 + y * 7))

    assert [mutant.tolist(mutant.grad_of(leaf))[0] for leaf in (x, y, y)] == read
