"""MindSpore on the CPU: its PyNative mode, whose engine has PyTorch's verbs, most of them under private names."""

import os
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from hooklaw import Capability, ErrorKind, NotRunError, TorchLike
from hooklaw.backend.capabilities import SEVERAL_PROCESSES
from hooklaw.backend.torchlike import attribute, function, method

Hook = Callable[..., Any]

os.environ.setdefault("GLOG_v", "3")  # errors alone: MindSpore prints a line for each deprecated name
try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mindspore: Any = import_module("mindspore")  # a type checker would resolve `import mindspore` to this file
        engine: Any = import_module("mindspore.graph.api")._pynative_executor  # noqa: SLF001 - there is no public one
        run_backward: Hook = import_module("mindspore._c_expression").run_backward
except (ImportError, AttributeError) as missing:
    raise NotRunError(f"no MindSpore of version 2.10: {missing}; pip install mindspore 'numpy<2'") from missing

NO_CLONE = "the CPU has no kernel of clone, which keeping the gradient of a non-leaf calls"
NO_COMPLEX = "no operation has a gradient of complex tensors"
NO_CONTEXT = "there is no such context"
NO_SAVED = "a node does not show what it saved"
RECOMPUTE = "mindspore.recompute takes a Cell, and not a function"
LACKS = {
    Capability.RETAIN_GRAD: NO_CLONE,
    Capability.RETAINS_GRAD: NO_CLONE,
    Capability.POST_ACCUMULATE: "no hook runs after accumulation",
    Capability.NODE_TYPE: "the type of a node is not public",
    Capability.NODE_METADATA: "a node has no place for user data",
    Capability.MATERIALIZE_GRADS: "the engine returns None for an unused input",
    Capability.BATCHED_GRADIENTS: "the engine takes one gradient for each output, not a batch of them",
    Capability.GRADIENT_EDGES: "gradients can be taken only with respect to tensors",
    Capability.EDGE_ROOTS: "backward starts at tensors only",
    Capability.SEVERAL_ROOTS: "backward is a method of one tensor",
    Capability.INFERENCE_MODE: "there is no inference mode",
    Capability.INFERENCE_TENSORS: "there is no inference mode",
    Capability.IN_PLACE: "a change in place of a non-leaf is not differentiated on the CPU",
    Capability.DETACH_IN_PLACE: "no operation detaches a tensor in place",
    Capability.INCREMENT_VERSION: "no function increments the version of a tensor",
    Capability.ANOMALY: NO_CONTEXT,
    Capability.CHANNELS_LAST: "a tensor has no memory format",
    Capability.LAZY_BITS: "conj() computes at once, and there is no negated view",
    Capability.COMPLEX: NO_COMPLEX,
    Capability.BFLOAT16: "the CPU has no kernel that sums bfloat16 tensors",
    Capability.SAVED_TENSOR_ACCESS: NO_SAVED,
    Capability.SAVED_TENSOR_REGISTER: NO_SAVED,
    Capability.DISABLE_SAVED_TENSOR_HOOKS: NO_CONTEXT,
    Capability.WEAK_REFERENCES: "the engine frees what a graph held some time after its last reference",
    Capability.ALLOW_MUTATION: NO_CONTEXT,
    Capability.FUNCTION_OPTIONS: "mindspore._Function has no such options",
    Capability.CHECKPOINT: RECOMPUTE,
    Capability.CHECKPOINT_OPTIONS: RECOMPUTE,
    Capability.CHECKPOINT_SEQUENTIAL: RECOMPUTE,
    Capability.CHECKPOINT_DEBUG: RECOMPUTE,
    Capability.GRAPH_EXEC_GROUP: RECOMPUTE,
    Capability.SELECTIVE_CHECKPOINT: RECOMPUTE,
    Capability.SELECTIVE_OFFLOAD: RECOMPUTE,
    Capability.FUNC: "mindspore.grad is a public function above the engine that this backend drives",
    Capability.VMAP: "mindspore.vmap is a public function above the engine that this backend drives",
    Capability.AUTOCAST: "no rule that MindSpore can be judged by uses autocast",
    Capability.RANDOM: "no rule that MindSpore can be judged by draws random numbers",
    Capability.SAVE_ON_CPU: NO_CONTEXT,
    Capability.ACCELERATOR: "this backend runs on the CPU",
    Capability.SERIALIZATION: "a hook cannot be marked as unserializable",
    Capability.LEGACY_MODULE_BACKWARD_HOOKS: "register_backward_hook is PyTorch's register_full_backward_hook",
    Capability.BACKWARD_HOOK_PREPEND: "the hooks of a Cell's backward take no prepend",
    Capability.GLOBAL_MODULE_HOOKS: "a hook belongs to one Cell",
    Capability.GLOBAL_HOOK_KWARGS: "a hook belongs to one Cell",
    Capability.MODULE_PARTS: "no rule that MindSpore can be judged by has submodules or buffers",
    Capability.REGISTRATION_HOOKS: "no hook runs when a parameter, buffer or Cell is registered",
    Capability.MODULE_SWITCHES: "a Cell cannot freeze its parameters at once, and set_train has another name",
    Capability.OPTIMIZERS: "an optimizer has no hooks",
    Capability.MULTI_GRAD: "a hook belongs to one tensor",
    Capability.THREADS: "a thread records only after a public function such as grad has switched it on there",
    **dict.fromkeys(SEVERAL_PROCESSES, "this backend is judged in one process"),
    Capability.DATA_PARALLEL: "DataParallel runs one process for each device, not one thread for each replica",
}


def backend(argument: str = "") -> "MindSpore":
    """Return the backend; the argument is empty or ``cpu``."""
    if argument not in ("", "cpu"):
        raise ValueError(f"MindSpore is judged on the CPU only, not on {argument!r}: write mindspore or mindspore:cpu")
    mindspore.set_device("CPU")
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    return MindSpore()


class MindSpore(TorchLike):
    """The verbs of the engine below PyNative mode, which the public functions `grad` and `value_and_grad` call."""

    framework = mindspore
    name = "mindspore"
    capabilities = frozenset(Capability) - frozenset(LACKS)
    lacks: Mapping[Capability, str] = LACKS
    errors: Mapping[ErrorKind, tuple[type[BaseException], ...]] = {}
    versions: Mapping[str, str] = {"mindspore": mindspore.__version__}
    notes: Mapping[str, str] = {
        "backward": "the engine's run_backward, which is private: the public functions have no retained graph",
        "requires_grad_": "lets the engine record in this thread, as the public functions do; so do tensor and module",
        "detach": "uses ops.stop_gradient, because a tensor has no detach",
        "clone": "uses copy, because the CPU has no kernel of clone",
    }
    expectations: Path | None = Path(__file__).with_name("expectations") / "mindspore.toml"

    def reset(self) -> None:
        """Undo what a rule has left behind: grad mode, and the recording that a verb switched on."""
        engine.set_enable_grad(True)
        engine.set_grad_flag(False)

    # values
    def tensor(self, data: Any, *, requires_grad: bool = False, dtype: str = "float32") -> Any:
        made = mindspore.Tensor(data, getattr(mindspore, "bool_" if dtype == "bool" else dtype))
        return self.requires_grad_(made) if requires_grad else made

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, mindspore.Tensor)

    def dtype(self, tensor: Any) -> str:
        return str(tensor.dtype).lower()

    def device(self, tensor: Any) -> str:
        return str(tensor.device).lower()

    requires_grad = attribute("requires_grad", "_requires_grad")
    is_leaf = attribute("is_leaf", "_is_leaf")
    grad_of = attribute("grad_of", "_grad")

    def set_grad(self, tensor: Any, value: Any) -> None:
        tensor._grad = value  # noqa: SLF001 - .grad of PyTorch

    def set_requires_grad(self, tensor: Any, *, requires_grad: bool) -> None:
        engine.set_grad_flag(True)
        tensor.requires_grad_(requires_grad)

    def requires_grad_(self, tensor: Any) -> Any:
        engine.set_grad_flag(True)
        tensor.requires_grad_()
        return tensor

    def detach(self, tensor: Any) -> Any:
        return mindspore.ops.stop_gradient(tensor)

    def clone(self, tensor: Any) -> Any:
        return tensor.copy()

    # operations
    def transpose(self, tensor: Any, first: int, second: int) -> Any:
        return mindspore.mint.transpose(tensor, first, second)

    def expand(self, tensor: Any, *shape: int) -> Any:
        return mindspore.mint.broadcast_to(tensor, shape)

    def stride(self, tensor: Any) -> tuple[int, ...]:
        return tuple(tensor.stride())

    def view(self, tensor: Any, *shape: int) -> Any:
        return tensor.view(shape)

    def custom_function(self, forward: Hook, backward: Hook) -> Hook:
        members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        return type("Custom", (mindspore._Function,), members).apply  # noqa: SLF001 - it has no public name

    # running
    def backward(self, root: Any, gradient: Any = None, *, inputs: Sequence[Any] | None = None, **how: Any) -> None:
        _run((root,), gradient, tuple(inputs or ()), accumulate=True, **how)

    def grad(
        self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, *, allow_unused: bool = False, **how: Any
    ) -> tuple[Any, ...]:
        roots = tuple(outputs) if isinstance(outputs, (list, tuple)) else (outputs,)
        return tuple(_run(roots, grad_outputs, tuple(inputs), accumulate=False, unused=allow_unused, **how))

    def is_grad_enabled(self) -> bool:
        return bool(engine.enable_grad())

    def no_grad(self) -> AbstractContextManager[Any]:
        return self._grad_mode(on=False)

    def enable_grad(self) -> AbstractContextManager[Any]:
        return self._grad_mode(on=True)

    @contextmanager
    def _grad_mode(self, *, on: bool) -> Generator[None]:
        before = engine.enable_grad()
        engine.set_enable_grad(on)
        try:
            yield
        finally:
            engine.set_enable_grad(before)

    # hooks and nodes
    def grad_fn(self, tensor: Any) -> Any:
        return None if tensor._is_leaf else tensor._grad_node  # noqa: SLF001 - there is no public name

    accumulate_grad = attribute("accumulate_grad", "_grad_node")
    node_register_prehook = method("node_register_prehook", "register_prehook")
    node_register_hook = method("node_register_hook", "register_hook")

    # saved tensors
    saved_tensors_hooks = function("saved_tensors_hooks")

    # modules
    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        engine.set_grad_flag(True)  # for a Parameter requires grad
        made = type("Module", (mindspore.nn.Cell,), {"construct": forward})()
        for name, value in parameters.items():
            made.insert_param_to_cell(name, mindspore.Parameter(value, name=name))
        return made

    register_full_backward_hook = method("register_full_backward_hook", "register_backward_hook")
    register_full_backward_pre_hook = method("register_full_backward_pre_hook", "register_backward_pre_hook")
    add_module = method("add_module", "insert_child_to_cell")

    def forward(self, module: Any, *inputs: Any) -> Any:
        return module.construct(*inputs)


def _run(roots: Any, given: Any, inputs: Any, *, accumulate: bool, unused: bool = True, **how: Any) -> Any:
    """Run the engine over the graph; return the gradients of the inputs, None where it accumulates."""
    create, retain = bool(how.get("create_graph")), how.get("retain_graph")
    keep = create if retain is None else bool(retain)
    seeds = given if isinstance(given, (list, tuple)) else [given] * len(roots)
    ones = [mindspore.ops.ones_like(root) if seed is None else seed for root, seed in zip(roots, seeds, strict=True)]
    whole = tuple(ones) if given is not None else ()  # the engine takes all seeds or none
    return run_backward(roots, whole, keep, create, inputs, allow_unreachable=unused, accumulate_grad=accumulate)
