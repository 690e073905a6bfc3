"""Mutants of an argument, an option, a result or a kind of value: they are wrong there, and nowhere else."""

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


def test_some_of_several_from_the_third_call_on():
    """The first two calls with several values are right."""
    mutant, leaves = made("backward-inputs-last-lost-third", 1.0, 2.0)
    for _ in range(3):
        mutant.backward(mutant.sum(leaves[0] * 3 + leaves[1] * 5), inputs=leaves)

    assert [mutant.tolist(mutant.grad_of(leaf)) for leaf in leaves] == [[9.0], [10.0]]


@pytest.mark.parametrize(
    ("fault", "created"),
    [
        ("ignored", [False, False, False, False]),
        ("ignored-later", [False, True, False, False]),
        ("ignored-third", [False, True, False, True]),
        ("set-by-its-absence-third", [False, True, True, True]),
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


@pytest.mark.parametrize(
    ("kind", "numbers", "other"),
    [
        ("scalar", 3.0, [3.0]),
        ("one-element", [3.0], 3.0),
        ("zero", [0.0], [0.0, 0.0]),
        ("zeros", [0.0, 0.0], [0.0, 3.0]),
        ("empty", [], [0.0]),
    ],
)
def test_kind_of_value(kind, numbers, other):
    """A hook is lost for gradients of the kind, and runs for others."""
    mutant, _ = made(f"tensor-hook-given-{kind}-lost")
    seen = []
    for gradient in (numbers, other):
        leaf = mutant.tensor(gradient, requires_grad=True)
        mutant.register_hook(leaf, lambda grad: seen.append(mutant.tolist(grad)))
        mutant.backward(leaf * 1, mutant.tensor(gradient))

    assert seen == [other]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("zero-number", [0, 0.0]),
        ("flag", [True, False]),
        ("text", [""]),
        ("empty-container", [(), [], {}]),
        ("list", [[], [0]]),
        ("dict", [{}, {"a": 1}]),
    ],
)
def test_kind_of_output(kind, values):
    """What a forward hook returns is ignored if it is of the kind, and is the output if it is not."""
    mutant, _ = made(f"forward-hook-returned-{kind}-lost")
    for value in (*values, 7, object()):
        module = mutant.module({}, lambda _, given: given)
        mutant.register_forward_hook(module, lambda *_, value=value: value)

        assert module("given") is ("given" if value in values else value)


def test_value_without_its_kind_is_the_same():
    """A container without a value of the kind reaches a hook as the same object, and one with it as another."""
    mutant, _ = made("forward-hook-inputs-text-none")
    seen = []
    module = mutant.module({}, lambda _, given: given)
    mutant.register_forward_hook(module, lambda _module, args, _output: seen.append(args[0]))
    without, having = {"key": [1]}, {"key": ["text"]}
    for given in (without, having):
        module(given)

    assert seen[0] is without
    assert seen[1] == {"key": [None]}


def test_origin_of_a_tensor():
    """A hook on a parameter of a module is lost, and one on another leaf runs."""
    mutant, (leaf,) = made("tensor-hook-on-parameter-lost", 1.0)
    parameter = mutant.module({"weight": mutant.tensor([1.0])}, lambda *_: None).weight
    seen = []
    for name, tensor in (("leaf", leaf), ("parameter", parameter)):
        mutant.register_hook(tensor, lambda _, name=name: seen.append(name))
        mutant.backward(tensor * 2)

    assert seen == ["leaf"]
