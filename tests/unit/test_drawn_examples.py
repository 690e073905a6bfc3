"""The examples of a property are drawn once, and tried again where it is executed again."""

from threading import Lock

import pytest
import toy
from hypothesis import given, settings
from hypothesis import strategies as st

from hooklaw.law import hypothesis_settings
from hooklaw.law.trace import Trace
from hooklaw.runner import examples

numbers = st.integers(0, 50)
SETTINGS = settings(parent=hypothesis_settings.BASE, max_examples=8)


def noted(bad=None, strategy=numbers):
    """Return a property of numbers, which fails for one of them, and the numbers that it was tried on."""
    seen = []

    @SETTINGS
    @given(number=strategy)
    def law(backend, trace, number):
        trace.clear()
        seen.append(number)
        assert number != backend.bad, f"{number} is bad"

    return law, seen, toy_with(bad)


def toy_with(bad):
    """Return a backend on which one number is bad."""
    backend = toy.Toy()
    backend.bad = bad
    return backend


def test_same_examples():
    """A property is tried on the very examples for which it held, in their order, and Hypothesis draws no others."""
    law, seen, backend = noted()
    law(backend, Trace(backend))
    alone = seen.copy()
    seen.clear()
    examples.run(law, backend, Trace(backend))
    first = seen.copy()
    seen.clear()
    law.hypothesis.inner_test = None
    examples.run(law, backend, Trace(backend))

    assert (alone, alone) == (first, seen)
    assert len(alone) == SETTINGS.max_examples


def test_smallest_example():
    """A property that held and now fails is searched for the smallest example, and an error tells which it is."""
    law, seen, backend = noted()
    examples.run(law, backend, Trace(backend))
    worse = toy_with(max(seen))

    with pytest.raises(AssertionError, match="is bad") as caught:
        examples.run(law, worse, Trace(worse))

    assert any(f"number={max(seen)}" in note for note in caught.value.__notes__)


def test_property_that_failed():
    """A property that failed is drawn from the beginning: its examples end where it failed."""
    law, seen, bad = noted(bad=0)
    backend = toy_with(None)
    with pytest.raises(AssertionError, match="0 is bad"):
        examples.run(law, bad, Trace(bad))
    seen.clear()
    examples.run(law, backend, Trace(backend))

    assert len(seen) == SETTINGS.max_examples


def test_changed_example():
    """A property that changes what it was given is given the same again."""
    seen = []

    @SETTINGS
    @given(values=st.lists(numbers, min_size=1))
    def law(backend, trace, values):
        seen.append([*values])
        values.clear()

    backend = toy.Toy()
    for _ in range(3):
        examples.run(law, backend, Trace(backend))

    assert seen == 3 * seen[: len(seen) // 3]


def test_interactive_draws():
    """A property that draws while it runs is left to Hypothesis each time."""
    seen = []

    @SETTINGS
    @given(data=st.data())
    def law(backend, trace, data):
        seen.append(data.draw(numbers))

    backend = toy.Toy()
    for _ in range(2):
        examples.run(law, backend, Trace(backend))

    assert len(seen) == 2 * SETTINGS.max_examples
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]


def test_example_that_cannot_be_copied():
    """A property of things that are no data is left to Hypothesis each time."""
    seen = []

    @SETTINGS
    @given(lock=st.builds(Lock), number=numbers)
    def law(backend, trace, lock, number):
        seen.append(lock)

    backend = toy.Toy()
    for _ in range(2):
        examples.run(law, backend, Trace(backend))

    assert len(seen) == 2 * SETTINGS.max_examples
