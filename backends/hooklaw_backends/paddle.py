"""PaddlePaddle on the CPU: the verbs as its dynamic graph has them, mostly under Paddle's own names."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

from hooklaw import Capability, ErrorKind, NotRunError, TorchLike
from hooklaw.backend.capabilities import SEVERAL_PROCESSES
from hooklaw.backend.torchlike import attribute, function, method
from hooklaw.law import trace
from hooklaw_backends import _paddle_ranks

try:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "No ccache found", UserWarning)  # nothing is compiled here
        paddle: Any = import_module("paddle")  # a type checker would resolve `import paddle` to this file
except ImportError as missing:
    raise NotRunError("paddle is not installed: pip install 'hooklaw[paddle]'") from missing

Hook = Callable[..., Any]
ALONE = "each rank would compile every function of its own"
LACKS = {
    Capability.RETAINS_GRAD: "a tensor has retain_grads(), but no attribute that says whether it was called",
    Capability.POST_ACCUMULATE: "hooks after accumulation need a private method, which passes no tensor to them",
    Capability.NODE_HOOKS: "node hooks need a private method, which works only after the node has run",
    Capability.NODE_TYPE: "the type of a node is not public",
    Capability.NODE_METADATA: "a node has no place for user data",
    Capability.BACKWARD_CREATE_GRAPH: "backward has no create_graph; only paddle.grad has it",
    Capability.BACKWARD_INPUTS: "backward has no inputs; it always goes to every leaf",
    Capability.INFERENCE_MODE: "there is no inference mode, only no_grad",
    Capability.INFERENCE_TENSORS: "there is no inference mode, only no_grad",
    Capability.NEEDS_INPUT_GRAD: "the context of a PyLayer has no needs_input_grad",
    Capability.MATERIALIZE_GRADS: "paddle.grad always returns None for an unused input",
    Capability.BATCHED_GRADIENTS: "paddle.grad takes one gradient for each output, not a batch of them",
    Capability.GRADIENT_EDGES: "gradients can be taken only with respect to tensors",
    Capability.EDGE_ROOTS: "backward starts at tensors only",
    Capability.ALLOW_MUTATION: "no context allows in-place changes of saved tensors",
    Capability.CHECKPOINT_OPTIONS: "of the options of a checkpoint recompute has use_reentrant and preserve_rng_state",
    Capability.CHECKPOINT_DEBUG: "recompute does not compare what it recomputes, so it has no error to explain",
    Capability.GRAPH_EXEC_GROUP: "no context lets several passes share one recomputation",
    Capability.SELECTIVE_CHECKPOINT: "recompute takes no policy: it recomputes every operation",
    Capability.SELECTIVE_OFFLOAD: "recompute takes no policy: it can offload inputs alone, by their index",
    Capability.FUNC: "paddle.incubate.autograd.vjp computes at once, with no hook between",
    Capability.VMAP: "no function maps another over a dimension",
    Capability.AUTOCAST: "auto_cast has no effect on the CPU, as its warning says",
    Capability.REGISTRATION_HOOKS: "no hook runs when a parameter, buffer or submodule is registered",
    Capability.STATE_DICT: "state_dict has post-hooks only, and loading has no hooks",
    Capability.OPTIMIZERS: "an optimizer has no hooks",
    Capability.MARK_DIRTY: "the context of a PyLayer has no mark_dirty",
    Capability.FUNCTION_OPTIONS: "a PyLayer has no such options",
    Capability.INCREMENT_VERSION: "no function increments the version of a tensor",
    Capability.ANOMALY: "Paddle checks for NaN with a process-wide flag, not in a context",
    Capability.LAZY_BITS: "conj() computes at once, and there is no negated view",
    Capability.FLOAT16: "the CPU has no kernel that multiplies two float16 tensors",
    Capability.BFLOAT16: "the CPU has no kernel that adds two bfloat16 tensors",
    Capability.SAVED_TENSOR_ACCESS: "a node does not show what it saved",
    Capability.SAVED_TENSOR_REGISTER: "a saved tensor is not an object of its own",
    Capability.DISABLE_SAVED_TENSOR_HOOKS: "no context disables saved-tensor hooks",
    Capability.SAVE_ON_CPU: "no ready-made context keeps saved tensors on the CPU",
    Capability.ACCELERATOR: "this backend runs on the CPU",
    Capability.SERIALIZATION: "a hook cannot be marked as unserializable",
    Capability.MODULE_BACKWARD_HOOKS: "a Layer has forward hooks only",
    Capability.MODULE_BACKWARD_PRE_HOOKS: "a Layer has forward hooks only",
    Capability.LEGACY_MODULE_BACKWARD_HOOKS: "a Layer has forward hooks only",
    Capability.GLOBAL_MODULE_HOOKS: "a hook belongs to one Layer",
    Capability.GLOBAL_HOOK_KWARGS: "a hook belongs to one Layer",
    Capability.MULTI_GRAD: "a hook belongs to one tensor",
    **_paddle_ranks.LACKS,
    Capability.DATA_PARALLEL: "paddle.DataParallel runs one process for each device, not one thread for each replica",
}
if "prepend" not in signature(paddle.nn.Layer.register_forward_pre_hook).parameters:
    only = "before Paddle 3.3 the only option of a hook is the with_kwargs of forward pre-hooks"
    LACKS.update(dict.fromkeys((Capability.FORWARD_HOOK_PREPEND, Capability.ALWAYS_CALL), only))
    LACKS[Capability.FORWARD_HOOK_KWARGS] = only
if not hasattr(paddle.nn.Layer, "requires_grad_"):
    LACKS[Capability.MODULE_SWITCHES] = (
        "before Paddle 3.3 a Layer cannot freeze its parameters at once, and train takes no mode"
    )
parameter = getattr(paddle.nn, "Parameter", paddle.base.framework.EagerParamBase.from_tensor)


def backend(argument: str = "") -> "Paddle":
    """Return the backend; the argument is empty or ``cpu``, or ``to_static`` for paddle.jit.to_static."""
    if argument not in ("", "cpu", "to_static"):
        raise ValueError(f"paddle is judged on the CPU only, not on {argument!r}: write paddle or paddle:to_static")
    paddle.set_device("cpu")
    return ToStatic() if argument == "to_static" else Paddle()


class Paddle(_paddle_ranks.Ranks, TorchLike):
    """Paddle's names are PyTorch's, but for those of the verbs below."""

    framework = paddle
    name = "paddle"
    capabilities = frozenset(Capability) - frozenset(LACKS)
    lacks: Mapping[Capability, str] = LACKS
    errors: Mapping[ErrorKind, tuple[type[BaseException], ...]] = {
        ErrorKind.GRAPH_FREED: (SystemError,),  # Paddle's type for fatal errors; the text names retain_graph
        ErrorKind.UNPACK_RETURN_TYPE: (ValueError,),
        ErrorKind.ROOT_GRADIENT: (AssertionError,),
        ErrorKind.UNUSED_INPUT: (ValueError,),
        ErrorKind.LEAF_IN_PLACE: (ValueError,),
        ErrorKind.FUNCTION_RETURN_COUNT: (ValueError,),
        ErrorKind.CHECKPOINT_REENTRANT: (OSError,),  # what Python code raises inside a backward becomes an OSError
        ErrorKind.CHECKPOINT_MISMATCH: (OSError,),
        ErrorKind.NOTHING_TO_REDUCE: (AssertionError,),
    }
    versions: Mapping[str, str] = {"paddlepaddle": paddle.__version__}
    notes: Mapping[str, str] = {
        "expand": "uses as_strided, because Paddle's own expand copies",
        "channels_last": "uses two transposes, because a Paddle tensor has no memory format",
    }
    expectations: Path | None = Path(__file__).with_name("expectations") / "paddle.toml"

    def reset(self) -> None:
        """Undo what a rule that failed halfway may have left behind: a grad mode, or process-wide hooks."""
        paddle.set_grad_enabled(True)
        paddle.autograd.saved_tensors_hooks(id, id).__exit__()

    # values
    def tensor(self, data: Any, *, requires_grad: bool = False, dtype: str = "float32") -> Any:
        return paddle.to_tensor(data, dtype=dtype, stop_gradient=not requires_grad)

    def tolist(self, tensor: Any) -> Any:
        return (tensor.astype("float32") if tensor.dtype == paddle.bfloat16 else tensor).tolist()

    def device(self, tensor: Any) -> str:
        return str(tensor.place)

    def requires_grad(self, tensor: Any) -> bool:
        return not tensor.stop_gradient

    def set_requires_grad(self, tensor: Any, *, requires_grad: bool) -> None:
        tensor.stop_gradient = not requires_grad

    def requires_grad_(self, tensor: Any) -> Any:
        tensor.stop_gradient = False
        return tensor

    def set_grad(self, tensor: Any, value: Any) -> None:
        if value is None:
            tensor.clear_gradient(False)  # noqa: FBT003 - False is "set to zero": by name it has no effect
        else:
            tensor.grad = value

    def manual_seed(self, seed: int) -> None:
        paddle.seed(seed)

    def rand_like(self, tensor: Any) -> Any:
        return paddle.rand(tensor.shape).astype(tensor.dtype)

    # operations
    def mul_(self, tensor: Any, factor: Any) -> Any:
        return tensor.multiply_(factor) if paddle.is_tensor(factor) else tensor.scale_(factor)

    def split(self, tensor: Any, size: int) -> tuple[Any, ...]:
        return tuple(paddle.tensor_split(tensor, list(range(size, tensor.shape[0], size))))

    def view(self, tensor: Any, *shape: int) -> Any:
        return tensor.view(shape)

    def transpose(self, tensor: Any, first: int, second: int) -> Any:
        axes = list(range(len(tensor.shape)))
        axes[first], axes[second] = axes[second], axes[first]
        return paddle.transpose(tensor, axes)

    def stride(self, tensor: Any) -> tuple[int, ...]:
        return tuple(tensor.strides)

    def expand(self, tensor: Any, *shape: int) -> Any:
        sizes = zip(tensor.strides, tensor.shape, shape, strict=True)
        return paddle.as_strided(tensor, shape, [stride if now == then else 0 for stride, now, then in sizes])

    def channels_last(self, tensor: Any) -> Any:
        return tensor.transpose([0, 2, 3, 1]).contiguous().transpose([0, 3, 1, 2])

    def custom_function(self, forward: Hook, backward: Hook) -> Hook:
        members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        made: Any = type("Custom", (paddle.autograd.PyLayer,), members)
        made._backward_function.saved_tensors = property(lambda ctx: ctx.saved_tensor())  # noqa: SLF001 - the context's type
        return made.apply

    # running
    def backward(self, root: Any, gradient: Any = None, *, retain_graph: bool | None = None, **how: Any) -> None:
        root.backward(gradient, bool(retain_graph), **how)

    def backward_from_all(self, roots: Sequence[Any], gradients: Sequence[Any] | None = None) -> None:
        paddle.autograd.backward([*roots], None if gradients is None else [*gradients])

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        return tuple(paddle.grad(outputs, list(inputs), grad_outputs, **how))

    # hooks and nodes
    retain_grad = method("retain_grad", "retain_grads")
    accumulate_grad = attribute("accumulate_grad", "grad_fn")
    node_next = attribute("node_next", "next_functions")
    add_module = method("add_module", "add_sublayer")  # before 3.3 the only name
    register_forward_hook = method("register_forward_hook", "register_forward_post_hook")
    saved_tensors_hooks = function("saved_tensors_hooks", "autograd")

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        return paddle.distributed.fleet.utils.recompute(fn, *inputs, **how)

    def checkpoint_sequential(self, functions: Sequence[Hook], segments: int, *inputs: Any, **how: Any) -> Any:
        return paddle.incubate.distributed.fleet.recompute_sequential({"segments": segments}, functions, *inputs, **how)

    # modules
    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        made = type("Module", (paddle.nn.Layer,), {"forward": forward})()
        for name, value in parameters.items():
            made.add_parameter(name, parameter(value))
        return made


class ToStatic(Paddle):
    """The verbs of the dynamic graph, except that `call` compiles as paddle.jit.to_static does by default."""

    name = "paddle:to_static"
    examples = 2
    has_frames = True
    """A script keeps each verb a function, since the compiler may skip its caller and compile it alone."""
    lacks: Mapping[Capability, str] = {**LACKS, **dict.fromkeys(SEVERAL_PROCESSES, ALONE)}
    capabilities = frozenset(Capability) - frozenset(lacks)
    notes: Mapping[str, str] = {
        **Paddle.notes,
        "call": "paddle.jit.to_static(fn, full_graph=False): the bytecode is traced, and the graph may be broken; "
        "graphs of fewer than ten operations are compiled too, which Paddle leaves to the dynamic graph",
    }
    expectations: Path | None = Path(__file__).with_name("expectations") / "paddle-to_static.toml"

    def __init__(self) -> None:
        skipped = import_module("paddle.jit.sot.opcode_translator.skip_files")
        skipped.skip_file_names.add(trace.__file__)  # or a hook that logs would be an error: it makes an object of C
        skipped.setup_skip_files()

    def reset(self) -> None:
        """Also drop all compiled code and how often it ran, so that every rule starts from nothing."""
        super().reset()
        import_module("paddle.jit.sot.opcode_translator.executor.executor_cache").OpcodeExecutorCache().clear()
        import_module("paddle.jit.sot.utils.utils").StepInfoManager().step_record.clear()

    def call(self, fn: Hook, *tensors: Any) -> Any:
        def forward(inputs: Any) -> Any:
            return fn(*inputs)

        with import_module("paddle.jit.sot.utils").min_graph_size_guard(0):
            return paddle.jit.to_static(forward, full_graph=False)(tensors)
