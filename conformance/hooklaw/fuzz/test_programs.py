"""The fuzzer as ordinary tests of a backend, for pytest or HypoFuzz on any number of machines.

    HOOKLAW_FUZZ_BACKEND=torch-eager pytest --pyargs hooklaw.fuzz.test_programs

`hooklaw docs fuzz-on-many-machines` shows more.
"""

from functools import partial

import pytest
from hypothesis import given, settings

from hooklaw.errors import HooklawError, NotRunError
from hooklaw.fuzz.campaign.remote import RemoteBackend, remote_backend
from hooklaw.fuzz.draw.strategies import programs
from hooklaw.fuzz.judge import invariants
from hooklaw.fuzz.program import Instruction, Program
from hooklaw.fuzz.stateful import PATIENT, check, machine, named, seen

patiently = settings(deadline=None, suppress_health_check=PATIENT)
TestStepByStep = machine().TestCase


in_common = pytest.mark.parametrize("backend", [""], ids=["program"], indirect=True)
"""HypoFuzz and pytest use the same key for the examples of a test only if the test has parameters."""


@pytest.fixture(scope="module", autouse=True)
def loaded() -> RemoteBackend:
    """Load the backend before Hypothesis begins to search."""
    try:
        return remote_backend(named())
    except NotRunError as error:
        pytest.skip(str(error))
    except HooklawError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="module")
def backend(loaded: RemoteBackend) -> RemoteBackend:
    """Return the backend."""
    return loaded


@in_common
@patiently
@given(program=programs())
def test_the_law_holds(backend: RemoteBackend, program: Program) -> None:
    """What a backend shows of a program is what the law gives, or a known departure from it."""
    check(program, backend)


@in_common
@patiently
@given(program=programs(), other=programs())
def test_a_program_leaves_nothing_behind(backend: RemoteBackend, program: Program, other: Program) -> None:
    """A program shows the same after another one as before it."""
    first, second = backend.able(program), backend.able(other)
    invariants.leaves_nothing_behind(first, second, partial(seen, backend=backend))


@in_common
@patiently
@given(program=programs())
def test_any_thread_will_do(backend: RemoteBackend, program: Program) -> None:
    """A program shows the same in a thread other than the main one."""
    if not backend.able([Instruction("leave", thread=1)]):
        pytest.skip(f"{backend.name} has no threads")
    invariants.is_the_same_in_other_threads(backend.able(program), partial(seen, backend=backend))


@in_common
@patiently
@given(program=programs())
def test_onlookers_change_nothing(backend: RemoteBackend, program: Program) -> None:
    """Hooks that return nothing change nothing for other hooks."""
    invariants.onlookers_change_nothing(backend.able(program), partial(seen, backend=backend))
