"""Modes of eager torch, in which each rule runs from its first line to its last: ``torch-mode:anomaly`` and others.

`hooklaw docs modes` says what each mode may change, and why some modes of torch are not judged.
"""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from hooklaw import Capability
from hooklaw.errors import did_you_mean
from hooklaw_backends.torch_eager import Hook, PlainTensor, TorchEager, checkpoints, torch

dispatch = import_module("torch.utils._python_dispatch")
trees = import_module("torch.utils._pytree")


def backend(argument: str = "") -> "TorchMode":
    """Return the backend for a mode; ValueError lists the modes if there is none of this name."""
    if argument not in MODES:
        hint = did_you_mean(argument, MODES, f"choose from {', '.join(MODES)}")
        raise ValueError(f"torch-mode has no mode {argument!r}: {hint}")
    return MODES[argument](argument)


class TorchMode(TorchEager):
    """The verbs of eager torch on the CPU, in a mode; the docstring of a subclass says what the mode is."""

    alone = "the mode is that of the process that judges, and its ranks are other processes"

    def __init__(self, mode: str) -> None:
        super().__init__(name=f"torch-mode:{mode}")
        self.notes["mode"] = str(type(self).__doc__)
        self.expectations = Path(__file__).with_name("expectations") / f"torch-mode-{mode}.toml"


class SingleThreaded(TorchMode):
    """Each backward stays in the thread that calls it: `torch.autograd.set_multithreading_enabled(False)`."""

    def surroundings(self) -> AbstractContextManager[Any]:
        return torch.autograd.set_multithreading_enabled(False)


class Anomaly(TorchMode):
    """Anomaly detection is on: `torch.autograd.set_detect_anomaly(True)`."""

    def surroundings(self) -> AbstractContextManager[Any]:
        return torch.autograd.set_detect_anomaly(True)


class Deterministic(TorchMode):
    """Operations are deterministic or raise an error: `torch.use_deterministic_algorithms(True)`."""

    def surroundings(self) -> AbstractContextManager[Any]:
        return _deterministic()


class Float64(TorchMode):
    """The default dtype is float64, though the rules' tensors are float32: `torch.set_default_dtype(torch.float64)`."""

    default_dtype = "float64"
    """So a script gives each tensor its dtype."""

    def surroundings(self) -> AbstractContextManager[Any]:
        return _default_dtype(torch.float64)


class Checkpoint(TorchMode):
    """Each forward is checkpointed: `torch.utils.checkpoint.checkpoint(..., use_reentrant=False)`."""

    def call(self, fn: Hook, *tensors: Any) -> Any:
        return checkpoints.checkpoint(fn, *tensors, use_reentrant=False)


class Subclass(TorchMode):
    """Each tensor is of a subclass of `torch.Tensor` that changes nothing."""

    def tensor(self, data: Any, *, requires_grad: bool = False, dtype: str = "float32") -> Any:
        made = torch.tensor(data, dtype=getattr(torch, dtype)).as_subclass(PlainTensor)
        return made.requires_grad_(requires_grad)


class WrapperSubclass(TorchMode):
    """Each tensor holds another one and passes operations on to it, in `__torch_dispatch__`."""

    def __init__(self, mode: str) -> None:
        super().__init__(mode)
        self.lacks |= {
            Capability.SERIALIZATION: "torch.load with weights_only=True refuses the class",
            Capability.STORAGE: "the wrapper has no memory of its own",
        }
        self.capabilities -= self.lacks.keys()

    def tensor(self, data: Any, *, requires_grad: bool = False, dtype: str = "float32") -> Any:
        made = WrapperTensor(torch.tensor(data, dtype=getattr(torch, dtype)))
        return made.requires_grad_(requires_grad)


class WrapperTensor(torch.Tensor):
    """A tensor without memory of its own, which holds another tensor."""

    inner: Any

    @staticmethod
    def __new__(cls: Any, inner: Any) -> Any:
        layout = {"strides": inner.stride(), "storage_offset": inner.storage_offset()}
        return cls._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device, **layout)

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"WrapperTensor({tensor_contents or self.inner})"

    def tolist(self) -> Any:
        return self.inner.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = (args, kwargs or {})
        inner_args, inner_kwargs = trees.tree_map_only(cls, lambda tensor: tensor.inner, given)
        result = func(*inner_args, **inner_kwargs)
        return dispatch.return_and_correct_aliasing(func, *given, trees.tree_map_only(torch.Tensor, cls, result))


@contextmanager
def _deterministic() -> Generator[None]:
    torch.use_deterministic_algorithms(mode=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(mode=False)


@contextmanager
def _default_dtype(dtype: Any) -> Generator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


MODES: dict[str, type[TorchMode]] = {
    "single-threaded": SingleThreaded,
    "anomaly": Anomaly,
    "deterministic": Deterministic,
    "float64": Float64,
    "checkpoint": Checkpoint,
    "subclass": Subclass,
    "wrapper-subclass": WrapperSubclass,
}
