"""Replicas of a module: rows shared among them, gradients summed, nothing of the calling thread but its grad mode."""

import threading

import pytest

from hooklaw.model.adapter import backend

R = backend()


def weighted(forward=lambda module, x: x * module.weight):
    """Make a module with one weight."""
    return R.module({"weight": R.tensor([2.0])}, forward)


@pytest.mark.parametrize(("rows", "shares"), [(1, [1]), (2, [1, 1]), (3, [2, 1]), (4, [2, 2])])
def test_rows_are_shared(rows, shares):
    """The first replica has the most rows, and the joined output is that of the module alone."""
    seen = []
    module = weighted(lambda module, x: (seen.append(R.shape(x)[0]), x * module.weight)[1])
    x = R.tensor([[float(row)] for row in range(rows)])

    output = R.data_parallel(module)(x)

    assert sorted(seen, reverse=True) == shares
    assert R.tolist(output) == R.tolist(module(x))


def test_gradients_are_summed():
    """The module's weight accumulates the gradients of all replicas, once; the replicas' weights are non-leaves."""
    leaves = []
    module = weighted(lambda module, x: (leaves.append(R.is_leaf(module.weight)), x * module.weight)[1])
    R.backward(R.sum(R.data_parallel(module)(R.tensor([[1.0], [2.0], [3.0]]))))

    assert leaves == [False, False]
    assert R.tolist(R.grad_of(module.weight)) == [6.0]


def test_scalars_become_rows():
    """A 0-d output of a replica becomes a row."""
    module = weighted(lambda module, x: R.sum(x * module.weight))

    assert R.tolist(R.data_parallel(module)(R.tensor([1.0, 2.0, 3.0, 4.0]))) == [6.0, 14.0]


def test_only_the_grad_mode_comes_along():
    """Each replica runs in a thread of its own, with its caller's grad mode."""
    seen = []
    module = weighted(lambda module, x: (seen.append((threading.get_ident(), R.is_grad_enabled())), x)[1])
    with R.no_grad():
        R.data_parallel(module)(R.tensor([1.0, 2.0]))

    assert {recording for _, recording in seen} == {False}
    assert threading.get_ident() not in {thread for thread, _ in seen}


def test_a_single_number_cannot_be_shared():
    """A 0-d tensor has no rows; a value that is not a tensor goes to all replicas."""
    with pytest.raises(RuntimeError, match="no rows"):
        R.data_parallel(weighted())(R.tensor(1.0))

    both = R.data_parallel(weighted(lambda _, x, number: x * number))
    assert R.tolist(both(R.tensor([1.0, 2.0]), 3)) == [3.0, 6.0]
