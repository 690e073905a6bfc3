"""The Backend protocol: the verbs that rules call, and what an adapter declares.

Verbs have PyTorch's own names. A tensor is the framework's own object; rules use ``+``, ``-`` and ``*`` on it, with
tensors and with Python numbers, and a verb for everything else. An adapter is any object with the attributes of
`Backend`; it needs no base class, and no verb whose capability it does not declare.
"""

# a verb of the protocol has a docstring and no body
# pyright: reportReturnType=false

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from hooklaw.backend.capabilities import CORE_VERBS, Capability, ErrorKind
from hooklaw.backend.ranks import RankVerbs, type_of_hook

__all__ = ["CORE_VERBS", "VERBS", "Backend", "Capability", "ErrorKind", "type_of_hook"]


class Backend(RankVerbs, Protocol):
    """A framework as rules see it. Each verb raises the framework's own errors.

    Eight more attributes are optional. ``reset()`` is called before each rule, to undo what a failed rule left behind.
    ``surroundings()`` returns a context manager in which each rule runs, e.g. a mode that is off elsewhere.
    ``examples`` limits the number of examples of a property. ``findings`` is the path of the file of known findings of
    `hooklaw fuzz`. ``replay_program(program)`` replays a fuzzed program in the backend's own way, e.g. compiled: it
    returns a `hooklaw.fuzz.replay.run.Replayed`, in which only the order of events of the same name counts, or raises
    `NotReplayedError` with the reason. ``code_of_program(program)`` returns that program as code. ``imports_late``
    names modules that take long to import and that a capability's verbs import at their first call. ``not_under`` says
    for a condition, by name, why it makes no sense for the backend.
    """

    name: str
    """As written on the command line, e.g. ``torch-eager:cuda``."""
    capabilities: frozenset[Capability]
    lacks: Mapping[Capability, str]
    """Why a capability is not declared; the reason is optional."""
    errors: Mapping[ErrorKind, tuple[type[BaseException], ...]]
    """A kind that is not named here means RuntimeError, as in PyTorch."""
    versions: Mapping[str, str]
    """Versions that matter for the verdict: the framework's first, then e.g. ``gpu`` and ``driver``."""
    notes: Mapping[str, str]
    """How a verb is implemented if it is not obvious, e.g. which form of DataParallel runs."""
    expectations: Path | None
    """The backend's expectation file."""

    # values, core verbs
    def tensor(self, data: Any, *, requires_grad: bool = False, dtype: str = "float32") -> Any:
        """Make a leaf on the backend's device from nested lists of numbers; `dtype` is PyTorch's name."""

    def is_tensor(self, value: Any) -> bool:
        """Whether the value is a tensor of this framework."""

    def tolist(self, tensor: Any) -> Any:
        """Return the values as nested lists of Python numbers, or one number for a 0-d tensor."""

    def shape(self, tensor: Any) -> tuple[int, ...]:
        """Return the sizes."""

    def dtype(self, tensor: Any) -> str:
        """Return PyTorch's name of the dtype, e.g. ``float32``."""

    def device(self, tensor: Any) -> str:
        """Return the device's name, equal for tensors on the same device."""

    def requires_grad(self, tensor: Any) -> bool:
        """Whether gradients flow to the tensor."""

    def is_leaf(self, tensor: Any) -> bool:
        """Whether the tensor was made by the user."""

    def grad_of(self, tensor: Any) -> Any:
        """Return ``.grad``: a tensor or None."""

    def set_grad(self, tensor: Any, value: Any) -> None:
        """Assign ``.grad``: a tensor or None."""

    def detach(self, tensor: Any) -> Any:
        """Return a tensor with the same data and no history."""

    def detach_(self, tensor: Any) -> Any:
        """Drop the tensor's history in place, which makes it a leaf."""
        ...

    def clone(self, tensor: Any) -> Any:
        """Return a differentiable copy."""

    def sum(self, tensor: Any) -> Any:
        """Sum all elements to a 0-d tensor; saves nothing."""

    def exp(self, tensor: Any) -> Any:
        """Raise e to each element; saves its output, once."""

    # running, core verbs
    def call(self, fn: Callable[..., Any], *tensors: Any) -> Any:
        """Run the forward part of a rule; a mode may compile or checkpoint it here."""

    def backward(
        self,
        root: Any,
        gradient: Any = None,
        *,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Sequence[Any] | None = None,
    ) -> None:
        """Accumulate gradients of the root into leaves, or into `inputs` alone."""

    def backward_from_all(self, roots: Sequence[Any], gradients: Sequence[Any] | None = None) -> None:
        """Run one backward from several roots, each with its gradient, None for a root that needs none."""
        ...

    def backward_from_edge(self, edge: Any, gradient: Any = None) -> None:
        """Run backward from a gradient edge; `backward` accepts gradient edges among its inputs, `grad` as outputs."""
        ...

    def grad(  # noqa: PLR0913 - torch.autograd.grad's own arguments
        self,
        outputs: Any,
        inputs: Sequence[Any],
        grad_outputs: Any = None,
        *,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        allow_unused: bool | None = None,
        is_grads_batched: bool = False,
        materialize_grads: bool = False,
    ) -> tuple[Any, ...]:
        """Return the gradients of the outputs with respect to the inputs, which may be gradient edges.

        ``is_grads_batched`` and ``materialize_grads`` are given only if their capabilities are declared.
        """

    def func_grad(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function that computes the gradient of this one with respect to its first argument."""
        ...

    def func_vjp(self, function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., tuple[Any, ...]]]:
        """Return what the function returns for the primals, and the function from its gradients to those of primals."""
        ...

    def vmap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function that maps this one over the first dimension of its arguments."""
        ...

    # hooks on tensors and nodes
    def register_hook(self, tensor: Any, hook: type_of_hook) -> Any:
        """Register ``hook(grad)`` on a tensor; return a handle with ``remove()``."""

    def retain_grad(self, tensor: Any) -> None:
        """Keep the gradient of a non-leaf in ``.grad``."""

    def retains_grad(self, tensor: Any) -> bool:
        """Whether a non-leaf keeps its gradient."""

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: type_of_hook) -> Any:
        """Register ``hook(tensor)`` on a leaf, to run after ``.grad`` was updated; return a handle."""

    def grad_fn(self, tensor: Any) -> Any:
        """Return the Node that made the tensor, or None for a leaf."""

    def accumulate_grad(self, leaf: Any) -> Any:
        """Return the AccumulateGrad Node of a leaf; its hooks live as long as a reference to it."""

    def is_node(self, value: Any) -> bool:
        """Whether the value is a Node, as ``isinstance`` says."""
        ...

    def node_name(self, node: Any) -> str:
        """Return the Node's name."""

    def node_next(self, node: Any) -> list[Any]:
        """Return the Nodes in ``next_functions``, None for an input that needs no gradient."""

    def node_metadata(self, node: Any) -> dict[Any, Any]:
        """Return the Node's dict for user data."""

    def node_register_prehook(self, node: Any, hook: type_of_hook) -> Any:
        """Register ``hook(grad_outputs)`` to run before the Node; return a handle."""

    def node_register_hook(self, node: Any, hook: type_of_hook) -> Any:
        """Register ``hook(grad_inputs, grad_outputs)`` to run after the Node; return a handle."""

    def get_gradient_edge(self, tensor: Any) -> Any:
        """Return the tensor's gradient edge, which `grad` accepts as an input."""

    def register_multi_grad_hook(self, tensors: Sequence[Any], hook: type_of_hook, *, mode: str = "all") -> Any:
        """Register ``hook(grads)`` for all of the tensors, or in mode ``any`` ``hook(grad)`` for the first gradient."""

    # modes
    def is_grad_enabled(self) -> bool:
        """Whether grad mode is on in this thread."""

    def no_grad(self) -> AbstractContextManager[Any]:
        """Turn grad mode off inside."""

    def enable_grad(self) -> AbstractContextManager[Any]:
        """Turn grad mode on inside."""

    def inference_mode(self, mode: bool = True) -> AbstractContextManager[Any]:  # noqa: FBT001, FBT002 - torch's argument
        """Enter inference mode, or leave it inside."""

    # more operations
    def sin(self, tensor: Any) -> Any:
        """Return the sine."""

    def cos(self, tensor: Any) -> Any:
        """Return the cosine."""

    def mul_(self, tensor: Any, factor: Any) -> Any:
        """Multiply in place by a tensor or a number."""

    def cos_(self, tensor: Any) -> Any:
        """Replace by the cosine in place; saves its input, once."""

    def increment_version(self, tensors: Any) -> None:
        """Increment the version counter of a tensor or of several."""

    def detect_anomaly(self, *, check_nan: bool = True) -> AbstractContextManager[Any]:
        """Make backward fail inside if a gradient is NaN, unless `check_nan` is False."""

    def split(self, tensor: Any, size: int) -> tuple[Any, ...]:
        """Split along the first dimension; all parts are outputs of one Node."""

    def view(self, tensor: Any, *shape: int) -> Any:
        """View with another shape."""

    def transpose(self, tensor: Any, first: int, second: int) -> Any:
        """View with two dimensions swapped."""

    def expand(self, tensor: Any, *shape: int) -> Any:
        """View with dimensions of size 1 repeated, stride 0."""

    def requires_grad_(self, tensor: Any) -> Any:
        """Make a tensor without history, e.g. a view of such a tensor, a leaf that requires grad; return it."""

    def set_requires_grad(self, tensor: Any, *, requires_grad: bool) -> None:
        """Set ``.requires_grad`` of a tensor."""

    def stride(self, tensor: Any) -> tuple[int, ...]:
        """Return the strides in elements."""

    def data_ptr(self, tensor: Any) -> int:
        """Return the address of the first element."""

    def channels_last(self, tensor: Any) -> Any:
        """Return the 4-d tensor's values laid out channels-last, differentiable."""

    def conj(self, tensor: Any) -> Any:
        """Return the lazy conjugate view of a complex tensor."""

    def neg_view(self, tensor: Any) -> Any:
        """Return the lazy negated view of a real tensor."""

    def is_conj(self, tensor: Any) -> bool:
        """Whether the conjugation is pending."""

    def is_neg(self, tensor: Any) -> bool:
        """Whether the negation is pending."""

    def custom_function(
        self, forward: Callable[..., Any], backward: Callable[..., Any], **options: bool
    ) -> Callable[..., Any]:
        """Return a custom Function of ``forward(ctx, *tensors)`` and ``backward(ctx, *grad_outputs)``.

        ctx has ``save_for_backward(*tensors)`` and ``saved_tensors``, and takes attributes. With their capabilities it
        also has ``needs_input_grad``, ``mark_dirty(*tensors)``, ``mark_non_differentiable(*tensors)`` and
        ``set_materialize_grads(value)``, and the options are ``once_differentiable``,
        ``clear_saved_tensors_on_access`` and ``boxed_grads_call``.
        """

    # saved tensors
    def saved_tensors_hooks(self, pack: type_of_hook, unpack: type_of_hook) -> AbstractContextManager[Any]:
        """Pack every tensor saved inside; unpack it whenever it is read."""

    def disable_saved_tensors_hooks(self, message: str) -> AbstractContextManager[Any]:
        """Forbid saved-tensor hooks inside, with this message."""

    def allow_mutation_on_saved_tensors(self) -> AbstractContextManager[Any]:
        """Allow in-place changes of saved tensors inside."""

    def checkpoint(self, fn: Callable[..., Any], *inputs: Any, **how: Any) -> Any:
        """Run a function that backward recomputes.

        `how` is ``use_reentrant`` and the function's keywords; with their capabilities also ``early_stop``,
        ``determinism_check``, ``context_fn``, ``preserve_rng_state`` and ``debug``.
        """

    def set_checkpoint_early_stop(self, enable: bool) -> AbstractContextManager[Any]:  # noqa: FBT001 - torch's argument
        """Turn the early stop of every non-reentrant checkpoint made inside on or off."""

    def checkpoint_sequential(self, functions: Sequence[Any], segments: int, value: Any, **how: Any) -> Any:
        """Run functions one after the other on one input, in segments that are checkpoints except for the last.

        `how` is ``use_reentrant``.
        """

    def set_checkpoint_debug_enabled(self, enabled: bool | None) -> AbstractContextManager[Any]:  # noqa: FBT001 - torch's
        """Turn ``debug`` of every non-reentrant checkpoint made inside on or off."""

    def graph_exec_group(self) -> AbstractContextManager[Any]:
        """Recompute each non-reentrant checkpoint at most once for all backward passes inside."""

    def create_selective_checkpoint_contexts(
        self, policy: Callable[..., str] | Sequence[str], **options: bool
    ) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        """Return what `checkpoint` takes from ``context_fn``.

        ``policy(ctx, operation)`` gets the name of an operation, e.g. ``exp``, and returns that of a CheckpointPolicy,
        e.g. ``MUST_SAVE``; a list of names saves these operations. The option is ``allow_cache_entry_mutation``.
        """

    def manual_seed(self, seed: int) -> None:
        """Seed the generator of random numbers."""

    def rand_like(self, tensor: Any) -> Any:
        """Return random numbers between 0 and 1 in the tensor's shape and dtype."""

    def autocast(self) -> AbstractContextManager[Any]:
        """Let operations inside choose a dtype of lower precision."""

    def is_autocast_enabled(self) -> bool:
        """Whether autocast is on in this thread."""

    def save_on_cpu(self, *, pin_memory: bool = False) -> AbstractContextManager[Any]:
        """Keep tensors saved inside on the CPU."""

    def saved_tensors(self, node: Any) -> list[Any]:
        """Unpack every saved tensor of the Node once, in the framework's order."""

    def raw_saved_tensors(self, node: Any) -> list[Any]:
        """Return the Node's SavedTensor objects without reading them, in the order of `saved_tensors`."""

    def saved_tensor_register_hooks(self, saved: Any, pack: type_of_hook, unpack: type_of_hook) -> None:
        """Register a pair of hooks on one SavedTensor."""

    # memory, serialization, modules
    def memory_allocated(self) -> int:
        """Return the bytes that tensors occupy on the device now."""

    def save(self, tensor: Any) -> bytes:
        """Serialize a tensor."""

    def load(self, data: bytes) -> Any:
        """Deserialize a tensor."""

    def unserializable_hook(self, hook: type_of_hook) -> type_of_hook:
        """Mark a hook so that serializing its tensor does not warn."""

    def module(self, parameters: Mapping[str, Any], forward: Callable[..., Any]) -> Any:
        """Make a module whose call runs ``forward(module, *inputs, **kwargs)``; parameters are its attributes."""

    def forward(self, module: Any, *inputs: Any) -> Any:
        """Run a module's forward without its hooks."""

    def register_forward_pre_hook(
        self, module: Any, hook: type_of_hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> Any:
        """Register ``hook(module, args)``, or ``hook(module, args, kwargs)``, before forward; return a handle."""

    def register_forward_hook(
        self,
        module: Any,
        hook: type_of_hook,
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> Any:
        """Register ``hook(module, args, output)``, or with kwargs before output, after forward; return a handle."""

    def register_full_backward_pre_hook(self, module: Any, hook: type_of_hook, *, prepend: bool = False) -> Any:
        """Register ``hook(module, grad_output)`` before the module's backward; return a handle."""

    def register_full_backward_hook(self, module: Any, hook: type_of_hook, *, prepend: bool = False) -> Any:
        """Register ``hook(module, grad_input, grad_output)`` on the module's backward; return a handle."""

    def register_backward_hook(self, module: Any, hook: type_of_hook) -> Any:
        """Register a legacy ``hook(module, grad_input, grad_output)`` on the last Node of forward; return a handle."""

    def register_module_backward_hook(self, hook: type_of_hook) -> Any:
        """Register a legacy backward hook on every module; return a handle."""

    def register_module_forward_pre_hook(self, hook: type_of_hook) -> Any:
        """Register ``hook(module, args)`` before the forward of every module; return a handle."""

    def register_module_forward_hook(
        self, hook: type_of_hook, *, with_kwargs: bool = False, always_call: bool = False
    ) -> Any:
        """Register a forward hook on every module; return a handle."""

    def register_module_full_backward_pre_hook(self, hook: type_of_hook) -> Any:
        """Register ``hook(module, grad_output)`` before the backward of every module; return a handle."""

    def register_module_full_backward_hook(self, hook: type_of_hook) -> Any:
        """Register ``hook(module, grad_input, grad_output)`` on the backward of every module; return a handle."""

    # switches of a module and of its submodules
    def train(self, module: Any, mode: bool = True) -> Any:  # noqa: FBT001, FBT002 - torch's argument
        """Put a module in training mode, or in evaluation mode; return it."""
        ...

    def is_training(self, module: Any) -> bool:
        """Whether a module is in training mode."""
        ...

    def module_requires_grad_(self, module: Any, requires_grad: bool = True) -> Any:  # noqa: FBT001, FBT002 - torch's argument
        """Set ``requires_grad`` of a module's parameters; return the module."""
        ...

    def module_zero_grad(self, module: Any, **options: bool) -> None:
        """Reset the gradients of a module's parameters; `options` is ``set_to_none``."""

    # the state of modules and optimizers
    def add_module(self, module: Any, name: str, child: Any) -> None:
        """Register a child of a module, as an attribute."""

    def register_buffer(self, module: Any, name: str, tensor: Any) -> None:
        """Register a buffer of a module, as an attribute."""

    def register_module_parameter_registration_hook(self, hook: type_of_hook) -> Any:
        """Register ``hook(module, name, parameter)`` for every registered parameter; return a handle."""

    def register_module_buffer_registration_hook(self, hook: type_of_hook) -> Any:
        """Register ``hook(module, name, buffer)`` for every registered buffer; return a handle."""

    def register_module_module_registration_hook(self, hook: type_of_hook) -> Any:
        """Register ``hook(module, name, child)`` for every registered module; return a handle."""

    def state_dict(self, owner: Any, **options: bool) -> dict[str, Any]:
        """Return the state of a module or an optimizer; a module's takes ``keep_vars``."""

    def load_state_dict(self, owner: Any, state: Mapping[str, Any]) -> None:
        """Load the state of a module, strictly, or of an optimizer."""

    def register_state_dict_pre_hook(self, owner: Any, hook: type_of_hook, **options: bool) -> Any:
        """Register a hook before the state is saved; an optimizer's takes ``prepend``. Return a handle."""

    def register_state_dict_post_hook(self, owner: Any, hook: type_of_hook, **options: bool) -> Any:
        """Register a hook after the state was saved; return a handle."""

    def register_load_state_dict_pre_hook(self, owner: Any, hook: type_of_hook, **options: bool) -> Any:
        """Register a hook before a state is loaded; return a handle."""

    def register_load_state_dict_post_hook(self, owner: Any, hook: type_of_hook, **options: bool) -> Any:
        """Register a hook after a state was loaded; return a handle."""

    def sgd(self, parameters: Sequence[Any], *, lr: float, weight_decay: float = 0.0) -> Any:
        """Make a plain SGD optimizer."""

    def step(self, optimizer: Any, **arguments: Any) -> None:
        """Make a step of the optimizer; `arguments` is ``closure``, a function without arguments."""

    def zero_grad(self, optimizer: Any, **options: bool) -> None:
        """Reset the gradients; `options` is ``set_to_none``."""

    def register_step_pre_hook(self, optimizer: Any, hook: type_of_hook) -> Any:
        """Register ``hook(optimizer, args, kwargs)`` before each step; return a handle."""

    def register_step_post_hook(self, optimizer: Any, hook: type_of_hook) -> Any:
        """Register ``hook(optimizer, args, kwargs)`` after each step; return a handle."""

    def register_optimizer_step_pre_hook(self, hook: type_of_hook) -> Any:
        """Register ``hook(optimizer, args, kwargs)`` before the steps of all optimizers; return a handle."""

    def register_optimizer_step_post_hook(self, hook: type_of_hook) -> Any:
        """Register ``hook(optimizer, args, kwargs)`` after the steps of all optimizers; return a handle."""

    def data_parallel(self, module: Any) -> Callable[..., Any]:
        """Return a function that splits inputs along the first dimension over replicas, and gathers the outputs."""

    def replica_count(self) -> int:
        """Return how many replicas `data_parallel` runs, at least two."""


VERBS = tuple(
    name
    for part in (Backend, RankVerbs)
    for name, member in vars(part).items()
    if callable(member) and not name.startswith("_")
)
