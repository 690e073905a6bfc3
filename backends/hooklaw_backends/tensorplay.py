"""TensorPlay on the CPU: a framework of its own whose API is PyTorch's, under PyTorch's names."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any

from hooklaw import Capability, ErrorKind, NotRunError, TorchLike
from hooklaw.backend.torchlike import attribute, function, remove_global_hooks

try:
    tensorplay: Any = import_module("tensorplay")  # a type checker would resolve `import tensorplay` to this file
    checkpoints: Any = import_module("tensorplay.utils.checkpoint")
    parallel: Any = import_module("tensorplay.nn.parallel.distributed")
except ImportError as missing:
    raise NotRunError("tensorplay is not installed: pip install tensorplay") from missing

Hook = Callable[..., Any]
EDGES = "there are no gradient edges"
PLAIN = "a parameter that fully_shard has sharded is a plain tensor, which no public function makes whole"
WHOLE = "full_tensor and redistribute raise TypeError: 'AsyncCollectiveTensor' object layout differs"
LACKS = {
    Capability.NODE_HOOKS: "a hook on a Node has no handle, and on the Node of an operation another name",
    Capability.NODE_METADATA: "a Node has no place for user data",
    Capability.MATERIALIZE_GRADS: "autograd.grad has no materialize_grads",
    Capability.BATCHED_GRADIENTS: "autograd.grad has no is_grads_batched",
    Capability.GRADIENT_EDGES: EDGES,
    Capability.EDGE_ROOTS: EDGES,
    Capability.BACKWARD_INPUTS: "backward has no inputs; it always goes to every leaf",
    Capability.MULTI_GRAD: "a hook belongs to one tensor",
    Capability.INCREMENT_VERSION: "no public function increments the version of a tensor",
    Capability.LAZY_BITS: "conj() computes at once, and there is no negated view",
    Capability.FUNCTION_OPTIONS: "of the options of a Function there is once_differentiable alone",
    Capability.SAVED_TENSOR_ACCESS: "a Node does not show what it saved",
    Capability.SAVED_TENSOR_REGISTER: "a saved tensor is not an object of its own",
    Capability.DISABLE_SAVED_TENSOR_HOOKS: "no context disables saved-tensor hooks",
    Capability.ALLOW_MUTATION: "no context allows in-place changes of saved tensors",
    Capability.LEGACY_MODULE_BACKWARD_HOOKS: "a module takes full backward hooks only",
    Capability.ACCELERATOR: "this backend runs on the CPU",
    Capability.INIT_SYNC: "DistributedDataParallel has no init_sync",
    **dict.fromkeys(
        (Capability.FULLY_SHARD, Capability.HYBRID_SHARDING), "a sharded parameter does not say that it is"
    ),
    **dict.fromkeys((Capability.DISTRIBUTED_TENSORS, Capability.TENSOR_PARALLEL), WHOLE),
    Capability.DATA_PARALLEL: "DataParallel splits inputs over GPUs, and this backend runs on the CPU",
}


def backend(argument: str = "") -> "TensorPlay":
    """Return the backend; the argument is empty or ``cpu``."""
    if argument not in ("", "cpu"):
        raise ValueError(f"tensorplay is judged on the CPU only, not on {argument!r}: leave it out")
    return TensorPlay()


class TensorPlay(TorchLike):
    """What differs from PyTorch, and what TorchLike leaves to an adapter."""

    framework = tensorplay
    name = "tensorplay"
    capabilities = frozenset(Capability) - frozenset(LACKS)
    lacks: Mapping[Capability, str] = LACKS
    errors: Mapping[ErrorKind, tuple[type[BaseException], ...]] = {
        ErrorKind.UNPACK_RETURN_TYPE: (TypeError,),
        ErrorKind.LOAD_HOOK_RETURN: (AssertionError,),
        ErrorKind.CHECKPOINT_OPTION: (ValueError,),
        ErrorKind.COMM_HOOK_TWICE: (RuntimeError, AssertionError),
    }
    versions: Mapping[str, str] = {"tensorplay": tensorplay.__version__}
    notes: Mapping[str, str] = {
        "distributed_data_parallel": "is that of nn.parallel.distributed: without CUDA nn.parallel has None for it",
    }
    expectations: Path | None = Path(__file__).with_name("expectations") / "tensorplay.toml"

    def reset(self) -> None:
        """Undo what a rule that failed halfway may have left behind."""
        tensorplay.set_grad_enabled(True)
        remove_global_hooks(self)

    # values and operations
    def tensor(self, data: Any, *, requires_grad: bool = False, dtype: str = "float32") -> Any:
        return tensorplay.tensor(data, dtype=getattr(tensorplay, dtype), requires_grad=requires_grad)

    def split(self, tensor: Any, size: int) -> tuple[Any, ...]:
        return tuple(tensor.split(size))

    def custom_function(self, forward: Hook, backward: Hook) -> Hook:
        members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        return type("Custom", (tensorplay.autograd.Function,), members).apply

    # running
    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        root.backward(gradient, **how)

    grad = function("grad", "autograd")
    func_grad = staticmethod(tensorplay.func.grad)
    func_vjp = staticmethod(tensorplay.func.vjp)
    vmap = staticmethod(tensorplay.func.vmap)
    manual_seed = staticmethod(tensorplay.manual_seed)
    rand_like = staticmethod(tensorplay.rand_like)

    def autocast(self) -> AbstractContextManager[Any]:
        return tensorplay.autocast("cpu", tensorplay.bfloat16)

    def is_autocast_enabled(self) -> bool:
        return tensorplay.is_autocast_enabled("cpu")

    # Nodes and saved tensors
    node_name = attribute("node_name", "name")

    def is_node(self, value: Any) -> bool:
        return isinstance(value, tensorplay.Node)

    def accumulate_grad(self, leaf: Any) -> Any:
        return leaf.view(leaf.shape).grad_fn.next_functions[0][0]

    checkpoint = staticmethod(checkpoints.checkpoint)
    checkpoint_sequential = staticmethod(checkpoints.checkpoint_sequential)
    graph_exec_group = staticmethod(checkpoints.GraphExecGroup)
    set_checkpoint_debug_enabled = staticmethod(checkpoints.set_checkpoint_debug_enabled)

    def set_checkpoint_early_stop(self, enable: bool) -> AbstractContextManager[Any]:  # noqa: FBT001 - torch's argument
        return checkpoints.set_checkpoint_early_stop(enable)

    def create_selective_checkpoint_contexts(self, policy: Any, **options: bool) -> Any:
        if not callable(policy):
            named_ones = [getattr(tensorplay.Tensor, name, name) for name in policy]
            return checkpoints.create_selective_checkpoint_contexts(named_ones, **options)

        def chosen(ctx: Any, operation: Any, *_: Any, **__: Any) -> Any:
            return getattr(checkpoints.CheckpointPolicy, str(policy(ctx, operation.__name__)))

        return checkpoints.create_selective_checkpoint_contexts(chosen, **options)

    def distributed_data_parallel(self, module: Any, *, forward_sync_buffers: bool = True, **options: Any) -> Any:
        return parallel.DistributedDataParallel(module, broadcast_buffers=forward_sync_buffers, **options)
