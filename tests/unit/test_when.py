"""Where an entry applies: versions, Python, operating system, device."""

import pytest
from toy import Toy

from hooklaw.backend.loading import device_of
from hooklaw.results import when

VERSIONS = {"torch": "2.13.0+cu130", "python": "3.12.4", "os": "Linux 6.1.0"}
CUDA, CPU = (when.facts(VERSIONS, device) for device in ("cuda", "cpu"))


@pytest.mark.parametrize(
    ("text", "on_cuda", "on_cpu"),
    [
        ("", True, True),
        ("device==cuda", True, False),
        ("device!=cuda", False, True),
        ("device == CUDA", True, False),
        ("os==linux", True, True),
        ("os!=linux", False, False),
        ("os==Windows", False, False),
        ("python>=3.12", True, True),
        ("python<3.12", False, False),
        ("torch>=2.13,<2.14 and device==cuda", True, False),
        ("torch<2.13 and device==cuda", False, False),
        ("torch>=2.13  and python>=3.12 and os==linux and device==cpu", False, True),
    ],
)
def test_applies(text, on_cuda, on_cpu):
    """All clauses must hold; words are compared without case."""
    assert when.is_valid(text)
    assert (on_cuda, on_cpu) == (when.applies(text, CUDA), when.applies(text, CPU))


@pytest.mark.parametrize(
    "text", ["torch>=2 and ", "device", "device>=2", "os", "torch>>2", "torch>=2 or os==linux", "x; y == 'z'"]
)
def test_is_not_valid(text):
    """What is no range of versions, nor an operating system or a device, is refused."""
    assert not when.is_valid(text)


@pytest.mark.parametrize(
    ("text", "on_cuda", "on_cpu"),
    [
        ("", "device!=cuda", ""),
        ("torch>=2.4", "torch>=2.4 and device!=cuda", "torch>=2.4,!=2.13.*"),
        ("torch==2.13.*", "torch==2.13.* and device!=cuda", ""),
        ("torch>=2.4 and device==cuda", "torch>=2.4,!=2.13.* and device==cuda", "torch>=2.4,!=2.13.* and device==cuda"),
        ("os==linux and torch>=2.4", "os==linux and torch>=2.4 and device!=cuda", "os==linux and torch>=2.4,!=2.13.*"),
        ("device==cuda", "", ""),
    ],
)
def test_without(text, on_cuda, on_cpu):
    """What holds on a device says nothing of the CPU; on the CPU the minor version goes."""
    assert (on_cuda, on_cpu) == (when.without(text, CUDA), when.without(text, CPU))


def test_exactly():
    """A new entry is for this version, and for this device unless it is the CPU."""
    assert [when.exactly(facts) for facts in (CUDA, CPU)] == ["torch==2.13.0 and device==cuda", "torch==2.13.0"]


@pytest.mark.parametrize(
    ("name", "kind"), [("cpu", "cpu"), ("cuda:1", "cuda"), ("Place(gpu:0)", "gpu"), ("Place(cpu)", "cpu"), ("", "")]
)
def test_device_of_a_backend(name, kind):
    """The device is named by its type, however the framework writes it."""

    class There(Toy):
        def device(self, tensor):
            return name

    assert kind == device_of(There())


def test_device_of_a_backend_that_has_no_tensors():
    """A backend that cannot make a tensor has no device; its rules will say why."""

    class Broken(Toy):
        def tensor(self, data, **how):
            raise KeyError(data)

    assert device_of(Broken()) == ""
