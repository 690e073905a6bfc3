"""TorchLike: the verbs of a framework whose methods and functions have PyTorch's own names."""

import io
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from importlib import import_module
from operator import attrgetter
from typing import Any

from hooklaw.errors import NotRunError

Verb = Callable[..., Any]
MODULES = "nn.modules.module"
"""The module whose functions register hooks for all modules."""
TIMEOUT = timedelta(seconds=10)
"""How long a rank waits for another: less than a rule may take."""
LOOPBACK = "lo"
HANDLES = "_handles_of_global_hooks"


def method(verb: str, name: str = "") -> Verb:
    """Return a verb that calls the method `name`, by default the verb's own name, of its first argument."""

    def call(self: Any, owner: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ARG001 - classify reads self
        return getattr(owner, name or verb)(*arguments, **options)

    return named(call, verb)


def attribute(verb: str, name: str = "") -> Verb:
    """Return a verb that reads the attribute `name`, by default the verb's own name, of its argument."""

    def read(self: Any, owner: Any) -> Any:  # noqa: ARG001 - classify reads self
        return getattr(owner, name or verb)

    return named(read, verb)


def function(verb: str, module: str = "") -> Verb:
    """Return a verb that calls the function of its name in a module of the framework, e.g. ``autograd.graph``."""
    path = f"{module}.{verb}" if module else verb

    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        return attrgetter(path)(self.framework)(*arguments, **options)

    return named(call, verb)


def everywhere(verb: str, module: str = MODULES) -> Verb:
    """Return a verb that registers a hook by the function of its name in a module, for all modules or optimizers."""

    def register(self: Any, hook: Verb, **options: bool) -> Any:
        handle = getattr(import_module(f"{self.framework.__name__}.{module}"), verb)(hook, **options)
        vars(self).setdefault(HANDLES, []).append(handle)
        return handle

    return named(register, verb)


def remove_global_hooks(adapter: Any) -> None:
    """Remove the hooks for all modules and optimizers that a rule which failed halfway may have left behind."""
    for handle in reversed(vars(adapter).pop(HANDLES, [])):
        handle.remove()
    adapter.framework.nn.modules.module.__dict__["_global_is_full_backward_hook"] = None  # no function resets the kind


def named(made: Any, verb: str) -> Verb:
    """Give a function the name of a verb, in its code too, where a result looks for the verb that raised."""
    made.__name__, made.__code__ = verb, made.__code__.replace(co_name=verb, co_qualname=verb)
    return made


class TorchLike:
    """Base class of adapters; an adapter overrides what differs and declares what the framework can do."""

    framework: Any
    """The framework's module: ``torch``, or a module with the same names."""

    # values
    is_tensor = function("is_tensor")
    tolist = method("tolist")
    requires_grad = attribute("requires_grad")
    is_leaf = attribute("is_leaf")
    grad_of = attribute("grad_of", "grad")
    detach = method("detach")
    detach_ = method("detach_")
    clone = method("clone")
    requires_grad_ = method("requires_grad_")
    stride = method("stride")
    data_ptr = method("data_ptr")
    conj = method("conj")
    is_conj = method("is_conj")
    is_neg = method("is_neg")

    def shape(self, tensor: Any) -> tuple[int, ...]:
        return tuple(tensor.shape)

    def dtype(self, tensor: Any) -> str:
        return str(tensor.dtype).rpartition(".")[2]

    def device(self, tensor: Any) -> str:
        return str(tensor.device)

    def set_grad(self, tensor: Any, value: Any) -> None:
        tensor.grad = value

    def set_requires_grad(self, tensor: Any, *, requires_grad: bool) -> None:
        tensor.requires_grad = requires_grad

    # operations
    sum = method("sum")
    exp = method("exp")
    sin = method("sin")
    cos = method("cos")
    mul_ = method("mul_")
    cos_ = method("cos_")
    split = method("split")
    view = method("view")
    transpose = method("transpose")
    expand = method("expand")
    increment_version = function("increment_version", "autograd.graph")

    def channels_last(self, tensor: Any) -> Any:
        return tensor.contiguous(memory_format=self.framework.channels_last)

    def detect_anomaly(self, *, check_nan: bool = True) -> AbstractContextManager[Any]:
        return self.framework.autograd.set_detect_anomaly(True, check_nan=check_nan)  # detect_anomaly warns

    # running
    is_grad_enabled = function("is_grad_enabled")
    no_grad = function("no_grad")
    enable_grad = function("enable_grad")
    inference_mode = function("inference_mode")

    def call(self, fn: Verb, *tensors: Any) -> Any:
        return fn(*tensors)

    def backward_from_all(self, roots: Sequence[Any], gradients: Sequence[Any] | None = None) -> None:
        self.framework.autograd.backward(roots, gradients)

    # hooks and Nodes
    register_hook = method("register_hook")
    retain_grad = method("retain_grad")
    retains_grad = attribute("retains_grad")
    register_post_accumulate_grad_hook = method("register_post_accumulate_grad_hook")
    register_multi_grad_hook = function("register_multi_grad_hook", "autograd.graph")
    get_gradient_edge = function("get_gradient_edge", "autograd.graph")
    grad_fn = attribute("grad_fn")
    node_name = method("node_name", "name")
    node_metadata = attribute("node_metadata", "metadata")
    node_register_prehook = method("node_register_prehook", "register_prehook")
    node_register_hook = method("node_register_hook", "register_hook")

    def accumulate_grad(self, leaf: Any) -> Any:
        return self.framework.autograd.graph.get_gradient_edge(leaf).node

    def node_next(self, node: Any) -> list[Any]:
        return [edge[0] for edge in node.next_functions]

    # saved tensors
    saved_tensors_hooks = function("saved_tensors_hooks", "autograd.graph")
    disable_saved_tensors_hooks = function("disable_saved_tensors_hooks", "autograd.graph")
    allow_mutation_on_saved_tensors = function("allow_mutation_on_saved_tensors", "autograd.graph")
    save_on_cpu = function("save_on_cpu", "autograd.graph")
    saved_tensor_register_hooks = method("saved_tensor_register_hooks", "register_hooks")

    def save(self, tensor: Any) -> bytes:
        buffer = io.BytesIO()
        self.framework.save(tensor, buffer)
        return buffer.getvalue()

    def load(self, data: bytes) -> Any:
        return self.framework.load(io.BytesIO(data), weights_only=True)

    unserializable_hook = function("unserializable_hook", "utils.hooks")

    # modules and optimizers, and their state
    def module(self, parameters: Mapping[str, Any], forward: Verb) -> Any:
        made = type("Module", (self.framework.nn.Module,), {"forward": forward})()
        for name, value in parameters.items():
            made.register_parameter(name, self.framework.nn.Parameter(value))
        return made

    def sgd(self, parameters: Sequence[Any], *, lr: float, weight_decay: float = 0.0) -> Any:
        return self.framework.optim.SGD(parameters, lr=lr, weight_decay=weight_decay)

    forward = method("forward")
    register_forward_pre_hook = method("register_forward_pre_hook")
    register_forward_hook = method("register_forward_hook")
    register_full_backward_pre_hook = method("register_full_backward_pre_hook")
    register_full_backward_hook = method("register_full_backward_hook")
    register_backward_hook = method("register_backward_hook")
    train = method("train")
    is_training = attribute("is_training", "training")
    module_requires_grad_ = method("module_requires_grad_", "requires_grad_")
    module_zero_grad = method("module_zero_grad", "zero_grad")
    add_module = method("add_module")
    register_buffer = method("register_buffer")
    state_dict = method("state_dict")
    load_state_dict = method("load_state_dict")
    register_state_dict_pre_hook = method("register_state_dict_pre_hook")
    register_state_dict_post_hook = method("register_state_dict_post_hook")
    register_load_state_dict_pre_hook = method("register_load_state_dict_pre_hook")
    register_load_state_dict_post_hook = method("register_load_state_dict_post_hook")
    step = method("step")
    zero_grad = method("zero_grad")
    register_step_pre_hook = method("register_step_pre_hook")
    register_step_post_hook = method("register_step_post_hook")

    # hooks for all modules or optimizers
    register_module_backward_hook = everywhere("register_module_backward_hook")
    register_module_forward_pre_hook = everywhere("register_module_forward_pre_hook")
    register_module_forward_hook = everywhere("register_module_forward_hook")
    register_module_full_backward_pre_hook = everywhere("register_module_full_backward_pre_hook")
    register_module_full_backward_hook = everywhere("register_module_full_backward_hook")
    register_module_parameter_registration_hook = everywhere("register_module_parameter_registration_hook")
    register_module_buffer_registration_hook = everywhere("register_module_buffer_registration_hook")
    register_module_module_registration_hook = everywhere("register_module_module_registration_hook")
    register_optimizer_step_pre_hook = everywhere("register_optimizer_step_pre_hook", "optim.optimizer")
    register_optimizer_step_post_hook = everywhere("register_optimizer_step_post_hook", "optim.optimizer")

    # several processes
    get_rank = function("get_rank", "distributed")
    get_world_size = function("get_world_size", "distributed")
    all_reduce = function("all_reduce", "distributed")
    no_sync = method("no_sync")
    join = method("join")
    register_comm_hook = method("register_comm_hook")
    copy_ = method("copy_")

    def init_process_group(self, rank: int, world_size: int, store: str) -> None:
        os.environ["GLOO_SOCKET_IFNAME"] = LOOPBACK  # or gloo would look the machine's name up
        self.framework.set_num_threads(1)  # a thread of OpenMP does not survive a fork
        group, shared = self.framework.distributed, self.framework.distributed.FileStore(store, world_size)
        try:
            group.init_process_group("gloo", store=shared, rank=rank, world_size=world_size, timeout=TIMEOUT)
            group.barrier()  # or a rank that ends at once would tear the group down that another still joins
        except (RuntimeError, OSError) as error:
            said = str(error).splitlines()[0]
            raise NotRunError(f"gloo cannot form a group of {world_size} processes here: {said}") from error

    def new_group(self, ranks: Sequence[int]) -> Any:
        return self.framework.distributed.new_group([*ranks])

    def future(self, value: Any) -> Any:
        made = self.framework.futures.Future()
        made.set_result(value)
        return made

    def all_reduce_future(self, tensor: Any) -> Any:
        work = self.framework.distributed.all_reduce(tensor, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    def default_comm_hook(self, name: str) -> Verb:
        hooks = import_module(f"{self.framework.__name__}.distributed.algorithms.ddp_comm_hooks.default_hooks")
        debugging = import_module(f"{self.framework.__name__}.distributed.algorithms.ddp_comm_hooks.debugging_hooks")
        return getattr(debugging if name == "noop_hook" else hooks, name)

    def fully_sharded_data_parallel(self, module: Any, *, no_shard: bool = False) -> Any:
        fsdp = import_module(f"{self.framework.__name__}.distributed.fsdp")
        kept = fsdp.ShardingStrategy.NO_SHARD if no_shard else fsdp.ShardingStrategy.FULL_SHARD
        cpu = self.framework.device("cpu")
        return fsdp.FullyShardedDataParallel(module, sharding_strategy=kept, use_orig_params=True, device_id=cpu)
