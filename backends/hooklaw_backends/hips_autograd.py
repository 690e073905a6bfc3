"""HIPS autograd: the gradients of its functions on numpy arrays; it has no hooks."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hooklaw import NotRunError
from hooklaw_backends.functional import Functional

try:
    np: Any = import_module("autograd.numpy")
    core: Any = import_module("autograd.core")
    tracer: Any = import_module("autograd.tracer")
except ImportError as missing:
    raise NotRunError("autograd is not installed: pip install autograd") from missing


def backend(_: str = "") -> "HipsAutograd":
    """Return the backend."""
    return HipsAutograd()


class HipsAutograd(Functional):
    """A tensor that requires grad is one of autograd's boxes, any other is an array of numpy."""

    framework = np
    name = "hips-autograd"
    versions: Mapping[str, str] = {"autograd": version("autograd")}
    expectations: Path | None = Path(__file__).with_name("expectations") / "hips-autograd.toml"

    def key(self, tensor: Any) -> Any:
        return getattr(tensor, "_node", None)

    def tensor(self, data: Any, *, requires_grad: bool = False, dtype: str = "float32") -> Any:
        value = np.array(data, dtype=dtype)
        if not requires_grad:
            return value
        leaf = tracer.new_box(value, 0, core.VJPNode.new_root())
        self.leaves[self.key(leaf)] = None
        return leaf

    def is_tensor(self, value: Any) -> bool:
        return tracer.isbox(value) or isinstance(value, (np.ndarray, np.generic))

    def tolist(self, tensor: Any) -> Any:
        return tracer.getval(tensor).tolist()

    def dtype(self, tensor: Any) -> str:
        return str(tracer.getval(tensor).dtype)

    def device(self, tensor: Any) -> str:  # noqa: ARG002 - numpy has one
        return "cpu"

    def requires_grad(self, tensor: Any) -> bool:
        return tracer.isbox(tensor)

    def detach(self, tensor: Any) -> Any:
        return tracer.getval(tensor)

    def sum(self, tensor: Any) -> Any:
        return np.sum(tensor)

    def exp(self, tensor: Any) -> Any:
        return np.exp(tensor)

    def sin(self, tensor: Any) -> Any:
        return np.sin(tensor)

    def cos(self, tensor: Any) -> Any:
        return np.cos(tensor)

    def gradients(self, output: Any, seed: Any, keys: Sequence[Any]) -> Mapping[Any, Any]:
        """Run autograd's own `backward_pass`, which returns the last gradient, and keep those of the keys."""
        if not tracer.isbox(output):
            return {}  # autograd only warns of an output that depends on nothing
        start = core.vspace(tracer.getval(output)).ones() if seed is None else tracer.getval(seed)
        arrived: dict[Any, Any] = {}
        pending = {self.key(output): (start, False)}
        for node in tracer.toposort(self.key(output)):
            arrived[node] = pending.pop(node)[0]
            for parent, part in zip(node.parents, node.vjp(arrived[node]), strict=True):
                pending[parent] = core.add_outgrads(pending.get(parent), part)
        return {key: arrived[key] for key in keys if key in arrived}
