"""allow_mutation_on_saved_tensors in the engine: backward uses the data from the time of the save."""

import weakref

import pytest

from hooklaw.model import errors
from hooklaw.model.adapter import backend

R = backend()


def leaf():
    """Make the leaf that every program begins with."""
    return R.tensor([1.0, 2.0], requires_grad=True)


CHANGES = {
    "of itself": lambda y: R.mul_(y, 10),
    "of a view": lambda y: R.mul_(R.view(y, 2, 1), 10),
    "of a part": lambda y: R.mul_(R.split(R.detach(y), 1)[1], 10),
    "twice": lambda y: [R.mul_(y, 10), R.mul_(y, 10)],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_each_change_is_noticed(change):
    """Backward uses the old data, through whatever tensor and however often it was changed."""
    x = leaf()
    with R.allow_mutation_on_saved_tensors():
        y = x * 1
        loss = R.sum(y * y)
        change(y)
        R.backward(loss)

    assert R.tolist(R.grad_of(x)) == [2.0, 4.0]


def test_each_value_is_kept():
    """A tensor that is saved, changed and saved again has both values."""
    x = leaf()
    with R.allow_mutation_on_saved_tensors():
        y = x * 1
        first = R.sum(y * y)
        R.mul_(y, 10)
        R.backward(first + R.sum(y * y))

    assert R.tolist(R.grad_of(x)) == [202.0, 404.0]


def test_nothing_is_copied_in_vain():
    """An unchanged tensor is not copied, and a tensor that no graph needs is freed."""
    with R.allow_mutation_on_saved_tensors():
        x = leaf()
        y = x * 1
        root = R.sin(y)
        kept = R.saved_tensors(R.grad_fn(root))[0]
        alive = weakref.ref(y)

        assert R.data_ptr(kept) == R.data_ptr(y)
        del root, kept, y
        assert alive() is None


def test_each_context_has_its_own():
    """A tensor saved in one context cannot be read in another, and is freed after that."""
    with R.allow_mutation_on_saved_tensors():
        y = R.sin(leaf())

    with R.allow_mutation_on_saved_tensors(), pytest.raises(errors.OutsideMutationError):
        R.backward(R.sum(y))


def test_the_end_of_the_context_frees_what_it_kept():
    """After the context a tensor may be changed in place as ever, and the graph is of no use."""
    with R.allow_mutation_on_saved_tensors():
        y = leaf() * 1
        loss = R.sum(y * y)
    R.mul_(y, 10)

    assert R.tolist(y) == [10.0, 20.0]
    with pytest.raises(errors.OutsideMutationError):
        R.backward(loss)
