"""tinygrad: its gradients; it has no hooks, and its own backward fills .grad of every tensor that is alive."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from hooklaw import Capability, ErrorKind, NotRunError
from hooklaw_backends.functional import Functional

try:
    tinygrad: Any = import_module("tinygrad")  # a type checker would resolve `import tinygrad` to this file
    operations: Any = import_module("tinygrad.uop.ops").Ops
except ImportError as missing:
    raise NotRunError("tinygrad is not installed: pip install tinygrad") from missing


def backend(argument: str = "") -> "Tinygrad":
    """Return the backend for a device of tinygrad, by default the CPU; NotRunError if it cannot be used here."""
    device = (argument or "cpu").upper()
    try:
        tinygrad.Tensor([1.0], device=device).exp().tolist()
    except Exception as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise NotRunError(f"tinygrad cannot use the device {device}: {said}; its CPU needs clang") from error
    return Tinygrad(device)


class Tinygrad(Functional):
    """Gradients as `Tensor.gradient` returns them."""

    framework = tinygrad
    capabilities = Functional.capabilities | {Capability.WEAK_REFERENCES}
    errors: Mapping[ErrorKind, tuple[type[BaseException], ...]] = {
        ErrorKind.ROOT_GRADIENT: (AssertionError, ValueError)
    }
    versions: Mapping[str, str] = {"tinygrad": distribution("tinygrad").version}
    expectations: Path | None = Path(__file__).with_name("expectations") / "tinygrad.toml"

    def __init__(self, device: str) -> None:
        super().__init__()
        self.name = "tinygrad" if device == "CPU" else f"tinygrad:{device.lower()}"
        self._device = device

    def key(self, tensor: Any) -> Any:
        return tensor.uop

    def tensor(self, data: Any, *, requires_grad: bool = False, dtype: str = "float32") -> Any:
        made = tinygrad.Tensor(data, device=self._device, dtype=getattr(tinygrad.dtypes, dtype)).realize()
        if requires_grad:
            self.leaves[made.uop] = None
        return made

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, tinygrad.Tensor)

    def dtype(self, tensor: Any) -> str:
        name = str(tensor.dtype.name)
        return {"float": "float32", "double": "float64"}.get(name, name)

    def device(self, tensor: Any) -> str:
        return self._device.lower() if tensor.device is None else str(tensor.device).lower()

    def requires_grad(self, tensor: Any) -> bool:
        return any(part in self.leaves for part in _history(tensor))

    def gradients(self, output: Any, seed: Any, keys: Sequence[Any]) -> Mapping[Any, Any]:
        history = _history(output)
        found = [key for key in keys if key in history]
        targets = [tinygrad.Tensor(key) for key in found]
        return dict(zip(found, output.gradient(*targets, gradient=seed), strict=True))


def _history(tensor: Any) -> Any:
    """Return the operations that a tensor comes from, up to where it was detached."""
    return tensor.uop.toposort(gate=lambda part: part.op is not operations.DETACH)
