"""The reference backend: hooklaw's own engine, `hooklaw.model`, which does what the documentation says."""

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from math import prod
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hooklaw
from hooklaw import Capability, ErrorKind
from hooklaw.backend.capabilities import SEVERAL_PROCESSES
from hooklaw.backend.torchlike import TorchLike
from hooklaw.model import (
    _func,
    _legacy,
    _module,
    _multi_grad,
    _mutation,
    _replicas,
    _selective,
    _switches,
    engine,
    errors,
    flags,
    modes,
    ops,
    views,
)
from hooklaw.model._batches import for_each_row
from hooklaw.model._checkpoint import checkpoint, checkpoint_sequential
from hooklaw.model._function_options import function
from hooklaw.model._module import Module, register
from hooklaw.model._optimizer import SGD, every_optimizer
from hooklaw.model._registry import registration_hooks
from hooklaw.model._unused import Unused
from hooklaw.model.node import Edge, Node
from hooklaw.model.record import SavedTensor
from hooklaw.model.strided import contiguous, from_nested
from hooklaw.model.tensor import UNRECORDED, Tensor

Hook = Callable[..., Any]
FOR_TORCH = Path(__file__).with_name("reference-torch.toml")
LACKS = {
    Capability.ACCELERATOR: "tensors are Python arrays in the memory of the host",
    Capability.VMAP: "a tensor has no dimension that operations do not see",
    Capability.LAZY_BITS: "every operation computes at once, so no conjugation or negation is left pending",
    **dict.fromkeys(SEVERAL_PROCESSES, "one process is enough for what the engine shows, so it has no group of them"),
}


ALL = "torch"


def backend(argument: str = "") -> "Reference":
    """Return the backend. `argument` names flags to turn on, separated by commas; ``torch`` turns on all of them."""
    names = flags.TORCH if argument == ALL else filter(None, argument.split(","))
    return Reference(flags.known(names))


def _registers(table: str, kind: str) -> Hook:
    """Return a verb that registers a hook of this kind in a table of hooks of its first argument."""
    return lambda _, owner, hook, **options: getattr(owner, table)[kind].add(hook, **options)


class Reference(TorchLike):
    """The backend. Most verbs are the engine's own functions and methods."""

    capabilities = frozenset(Capability) - frozenset(LACKS)
    lacks: Mapping[Capability, str] = LACKS
    errors: Mapping[ErrorKind, tuple[type[BaseException], ...]] = {
        ErrorKind.GRAPH_FREED: (errors.GraphFreedError,),
        ErrorKind.NO_GRADIENT: (errors.NoGradientError,),
        ErrorKind.UNUSED_INPUT: (errors.UnusedInputError,),
        ErrorKind.UNUSED_CONFLICT: (errors.UnusedConflictError,),
        ErrorKind.NOT_A_NUMBER: (errors.NotANumberError,),
        ErrorKind.INFERENCE_TENSOR: (errors.InferenceTensorError,),
        ErrorKind.ONCE_DIFFERENTIABLE: (errors.OnceDifferentiableError, errors.NoGradientError),
        ErrorKind.SAVED_TENSORS_CLEARED: (errors.SavedTensorsClearedError,),
        ErrorKind.FUNCTION_RETURN_COUNT: (errors.FunctionCountError,),
        ErrorKind.VIEW_DETACHED: (errors.ViewDetachedError,),
        ErrorKind.LEAF_IN_PLACE: (errors.LeafInPlaceError,),
        ErrorKind.NOT_A_LEAF: (errors.NotALeafError,),
        ErrorKind.HOOK_RETURN_TYPE: (errors.HookTypeError,),
        ErrorKind.HOOK_RETURN_SHAPE: (errors.HookShapeError,),
        ErrorKind.HOOK_RETURN_DTYPE: (errors.HookDtypeError,),
        ErrorKind.HOOK_RETURN_COUNT: (errors.HookCountError,),
        ErrorKind.UNPACK_RETURN_TYPE: (errors.UnpackTypeError,),
        ErrorKind.PACK_IN_PLACE: (errors.PackInPlaceError,),
        ErrorKind.SAVED_TENSOR_MODIFIED: (errors.SavedTensorModifiedError,),
        ErrorKind.SAVED_HOOKS_DISABLED: (errors.SavedHooksDisabledError,),
        ErrorKind.SAVED_HOOKS_ALREADY_SET: (errors.SavedHooksSetError,),
        ErrorKind.CHECKPOINT_KIND: (errors.CheckpointKindError,),
        ErrorKind.CHECKPOINT_REENTRANT: (errors.CheckpointReentrantError,),
        ErrorKind.CHECKPOINT_MISMATCH: (errors.CheckpointMismatchError,),
        ErrorKind.CHECKPOINT_OPTION: (errors.CheckpointOptionError,),
        ErrorKind.CHECKPOINT_SELECTIVE: (errors.CheckpointSelectiveError,),
        ErrorKind.CHECKPOINT_POLICY: (errors.CheckpointPolicyError,),
        ErrorKind.MODULE_HOOK_RETURN: (errors.ModuleHookError,),
        ErrorKind.MODULE_HOOK_KINDS: (errors.HookKindsError,),
        ErrorKind.MODULE_IN_PLACE: (errors.ModuleInPlaceError,),
        ErrorKind.STATE_HOOK_RETURN: (errors.StateHookError,),
        ErrorKind.LOAD_HOOK_RETURN: (errors.LoadHookError,),
        ErrorKind.STATE_KEYS: (errors.StateKeysError,),
        ErrorKind.STEP_HOOK_RETURN: (errors.StepHookError,),
        ErrorKind.OUTSIDE_MUTATION: (errors.OutsideMutationError,),
        ErrorKind.NESTED_MUTATION: (errors.NestedMutationError,),
        ErrorKind.MULTI_GRAD_MODE: (ValueError,),
    }
    versions: Mapping[str, str] = {"hooklaw-reference": hooklaw.__version__}
    notes: Mapping[str, str] = {
        "save_on_cpu": "keeps the tensor itself, since every tensor is already on the CPU",
    }

    def __init__(self, active: frozenset[str] = frozenset()) -> None:
        all_on = active == frozenset(flags.TORCH)
        said = ALL if all_on else ",".join(name for name in flags.TORCH if name in active)
        self.name = f"reference:{said}" if said else "reference"
        self.expectations: Path | None = FOR_TORCH if all_on else None
        self.flags = active
        self.reset()

    def reset(self) -> None:
        """Undo what a rule that failed half way may have left behind, and turn on this backend's flags."""
        modes.reset()
        _module.reset()
        for everywhere in (registration_hooks, every_optimizer):
            for hooks in everywhere.values():
                hooks.clear()
        flags.use(self.flags)

    # values
    stride = staticmethod(attrgetter("data.strides"))

    def tensor(self, data: Any, *, requires_grad: bool = False, dtype: str = "float32") -> Tensor:
        return Tensor(from_nested(data, dtype), requires_grad=requires_grad)

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, Tensor)

    def tolist(self, tensor: Tensor) -> Any:
        return tensor.data.tolist()

    def device(self, tensor: Tensor) -> str:  # noqa: ARG002 - there is only one device
        return "cpu"

    def data_ptr(self, tensor: Tensor) -> int:
        return id(tensor.data.storage) + tensor.data.offset

    def set_requires_grad(self, tensor: Tensor, *, requires_grad: bool) -> None:
        _switches.set_requires_grad(tensor, requires_grad=requires_grad)

    # operations
    clone = staticmethod(ops.clone)
    sum = staticmethod(ops.summed)
    exp = staticmethod(ops.exp)
    sin = staticmethod(ops.sin)
    rand_like = staticmethod(ops.rand_like)
    cos = staticmethod(ops.cos)
    split = staticmethod(views.split)
    transpose = staticmethod(views.transpose)
    custom_function = staticmethod(function)

    def mul_(self, tensor: Tensor, factor: Any) -> Tensor:
        return views.in_place(tensor, lambda before: before * factor, factor)

    def cos_(self, tensor: Tensor) -> Tensor:
        return views.in_place(tensor, ops.cos)

    def manual_seed(self, seed: int) -> None:
        modes.generator().seed(seed)

    def increment_version(self, tensors: Any) -> None:
        for tensor in _tuple(tensors):
            tensor.data.storage.count_change()

    def view(self, tensor: Tensor, *shape: int) -> Tensor:
        return views.view(tensor, shape)

    def expand(self, tensor: Tensor, *shape: int) -> Tensor:
        return views.expand(tensor, shape)

    def channels_last(self, tensor: Tensor) -> Tensor:
        _, channels, height, width = tensor.shape
        return ops.clone(tensor, (channels * height * width, 1, channels * width, channels))

    # running
    is_grad_enabled = staticmethod(modes.recording)

    def backward(
        self,
        root: Tensor,
        gradient: Tensor | None = None,
        *,
        inputs: Sequence[Tensor] | None = None,
        **how: Any,
    ) -> None:
        engine.backward([root], (gradient,), inputs and [*map(_with_edge, inputs)], _how(**how))

    def backward_from_all(self, roots: Sequence[Tensor], gradients: Sequence[Tensor | None] | None = None) -> None:
        engine.backward(roots, (None,) * len(roots) if gradients is None else tuple(gradients), None, _how())

    def backward_from_edge(self, edge: Edge, gradient: Tensor | None = None) -> None:
        engine.backward([_with_edge(edge)], (gradient,), None, _how())

    def grad(  # noqa: PLR0913 - torch.autograd.grad's own arguments
        self,
        outputs: Any,
        inputs: Sequence[Any],
        grad_outputs: Any = None,
        *,
        allow_unused: bool | None = None,
        is_grads_batched: bool = False,
        materialize_grads: bool = False,
        **how: Any,
    ) -> tuple[Any, ...]:
        if is_grads_batched:
            how |= {"allow_unused": allow_unused, "materialize_grads": materialize_grads}
            return for_each_row(partial(self.grad, outputs, inputs), _tuple(grad_outputs), **how)
        unused = Unused(allowed=allow_unused, materialize=materialize_grads)
        roots = [*map(_with_edge, _tuple(outputs))]
        seeds = (None,) * len(roots) if grad_outputs is None else _tuple(grad_outputs)
        grads = engine.grad(roots, seeds, [_with_edge(each) for each in inputs], _how(**how))
        return unused.fill(grads, inputs, requires_grad=_how(**how).create_graph)

    func_grad = staticmethod(_func.func_grad)
    func_vjp = staticmethod(_func.func_vjp)

    no_grad = staticmethod(partial(modes.grad_mode, enabled=False))
    enable_grad = staticmethod(partial(modes.grad_mode, enabled=True))
    inference_mode = staticmethod(modes.inference_mode)
    detect_anomaly: Any = staticmethod(modes.detect_anomaly)

    # hooks and nodes
    register_multi_grad_hook = staticmethod(_multi_grad.register_multi_grad_hook)

    get_gradient_edge = staticmethod(Tensor.needed_edge)

    def accumulate_grad(self, leaf: Tensor) -> Node:
        if leaf.base is not None and flags.on(UNRECORDED):
            raise RuntimeError("a view made under no_grad has no Node")
        return leaf.needed_edge().node

    def is_node(self, value: Any) -> bool:
        return isinstance(value, Node)

    node_name = staticmethod(attrgetter("name"))

    def grad_fn(self, tensor: Tensor) -> Node | None:
        return tensor.made_by and tensor.made_by.node

    def node_next(self, node: Node) -> list[Node | None]:
        return [edge and edge.node for edge in node.next_edges]

    def node_register_prehook(self, node: Node, hook: Hook) -> Any:
        return node.pre_hooks.add(hook)

    def node_register_hook(self, node: Node, hook: Hook) -> Any:
        return node.post_hooks.add(hook)

    # saved tensors
    checkpoint = staticmethod(checkpoint)
    checkpoint_sequential = staticmethod(checkpoint_sequential)
    set_checkpoint_early_stop = staticmethod(modes.set_checkpoint_early_stop)
    set_checkpoint_debug_enabled = staticmethod(modes.set_checkpoint_debug_enabled)
    graph_exec_group = staticmethod(modes.GraphExecGroup)
    create_selective_checkpoint_contexts = staticmethod(_selective.create_selective_checkpoint_contexts)
    autocast = staticmethod(modes.autocast)
    is_autocast_enabled = staticmethod(modes.autocasting)
    disable_saved_tensors_hooks = staticmethod(modes.disable_saved_tensors_hooks)
    allow_mutation_on_saved_tensors = staticmethod(_mutation.allow_mutation_on_saved_tensors)

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> AbstractContextManager[Any]:
        return modes.saved_tensors_hooks(modes.Pair(pack, unpack))

    def save_on_cpu(self, *, pin_memory: bool = False) -> AbstractContextManager[Any]:
        pack = _copy if pin_memory and flags.on("pinning-copies") else _itself
        return modes.saved_tensors_hooks(modes.Pair(pack, _itself))

    def saved_tensors(self, node: Node) -> list[Tensor]:
        return [saved.unpack(node) for saved in self.raw_saved_tensors(node)]

    def raw_saved_tensors(self, node: Node) -> list[SavedTensor]:
        return [saved for saved in node.saved if saved is not None]

    def saved_tensor_register_hooks(self, saved: SavedTensor, pack: Hook, unpack: Hook) -> None:
        saved.register_hooks(modes.Pair(pack, unpack))

    # serialization
    def save(self, tensor: Tensor) -> bytes:
        edge = tensor.edge()
        hooks = [*(edge.node.hooks_of(edge.nr) if edge else tensor.hooks).now()]
        hooks += [] if flags.on("post-accumulate-hooks-are-lost-in-silence") else tensor.post_accumulate_hooks.now()
        if any(not getattr(hook, "unserializable", False) for hook in hooks):
            warnings.warn("hooks are not serialized: mark them with unserializable_hook", stacklevel=2)
        kept = [tensor.data.tolist(), tensor.dtype, tensor.requires_grad, tensor.data.layout()]
        return json.dumps(kept, default=lambda number: {"complex": [number.real, number.imag]}).encode()

    def load(self, data: bytes) -> Tensor:
        nested, dtype, requires_grad, strides = json.loads(data, object_hook=lambda number: complex(*number["complex"]))
        return Tensor(ops.clone(self.tensor(nested, dtype=dtype), tuple(strides)).data, requires_grad=requires_grad)

    def unserializable_hook(self, hook: Hook) -> Hook:
        hook.__dict__["unserializable"] = True
        return hook

    # modules
    module: Any = Module

    def forward(self, module: Module, *inputs: Any) -> Any:
        return module.forward(module, *inputs)

    register_forward_pre_hook = staticmethod(partial(register, "forward_pre"))
    register_forward_hook = staticmethod(partial(register, "forward"))
    register_full_backward_pre_hook = staticmethod(partial(register, "backward_pre"))
    register_full_backward_hook = staticmethod(partial(register, "backward"))
    register_backward_hook = staticmethod(partial(register, _legacy.KIND))
    register_module_forward_pre_hook = staticmethod(partial(register, "forward_pre", None))
    register_module_forward_hook = staticmethod(partial(register, "forward", None))
    register_module_full_backward_pre_hook = staticmethod(partial(register, "backward_pre", None))
    register_module_full_backward_hook = staticmethod(partial(register, "backward", None))
    register_module_backward_hook = staticmethod(partial(register, _legacy.KIND, None))

    def add_module(self, module: Module, name: str, child: Module) -> None:
        module.register("module", name, child)

    def register_buffer(self, module: Module, name: str, tensor: Tensor) -> None:
        module.register("buffer", name, tensor)

    train = staticmethod(_switches.train)
    module_requires_grad_ = staticmethod(_switches.module_requires_grad_)
    module_zero_grad = staticmethod(_switches.module_zero_grad)

    register_module_parameter_registration_hook = staticmethod(registration_hooks["parameter"].add)
    register_module_buffer_registration_hook = staticmethod(registration_hooks["buffer"].add)
    register_module_module_registration_hook = staticmethod(registration_hooks["module"].add)

    data_parallel = staticmethod(_replicas.data_parallel)

    def replica_count(self) -> int:
        return _replicas.REPLICAS

    # the state of modules and optimizers
    sgd: Any = staticmethod(SGD)
    register_state_dict_pre_hook = _registers("state_hooks", "save_pre")
    register_state_dict_post_hook = _registers("state_hooks", "save_post")
    register_load_state_dict_pre_hook = _registers("state_hooks", "load_pre")
    register_load_state_dict_post_hook = _registers("state_hooks", "load_post")
    register_step_pre_hook = _registers("step_hooks", "pre")
    register_step_post_hook = _registers("step_hooks", "post")
    register_optimizer_step_pre_hook = staticmethod(every_optimizer["pre"].add)
    register_optimizer_step_post_hook = staticmethod(every_optimizer["post"].add)


def _how(*, retain_graph: bool | None = None, create_graph: bool = False) -> engine.How:
    return engine.How(create_graph if retain_graph is None else retain_graph, create_graph)


def _with_edge(place: Any) -> Any:
    """Give a gradient edge what the engine asks a tensor for; return a tensor as it is."""
    if isinstance(place, Tensor):
        return place
    shape, dtype = place.node.outputs[place.nr]
    return SimpleNamespace(
        shape=shape,
        dtype=dtype,
        data=SimpleNamespace(size=prod(shape)),
        edge=lambda: place,
        needed_edge=lambda: place,
        retain_grad=lambda: None,
    )


def _copy(tensor: Tensor) -> Tensor:
    return ops.clone(tensor, contiguous(tensor.shape))


def _itself(tensor: Tensor) -> Tensor:
    return tensor


def _tuple(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, Tensor | Edge) else tuple(value)
