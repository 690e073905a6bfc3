"""The Backend protocol: the verbs in which every rule speaks, what a backend may lack, and its kinds of error.

Verbs bear PyTorch's own names. A tensor is the framework's own object; rules use ``+``, ``-`` and ``*`` on it, with
tensors and with Python numbers, and everything else through a verb. An adapter is any object with the attributes of
`Backend`: nothing is subclassed, and a verb whose capability is not declared need not exist.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, Self

from hooklaw.errors import BackendContractError

type_of_hook = Callable[..., Any]

CORE_VERBS = (
    "tensor", "is_tensor", "tolist", "shape", "dtype", "device", "requires_grad", "is_leaf", "grad_of", "set_grad",
    "detach", "clone", "sum", "exp", "call", "backward",
)  # fmt: skip


class Capability(StrEnum):
    """What a backend may declare; a rule names those it needs. The text says what the backend promises."""

    verbs: tuple[str, ...]
    promise: str

    def __new__(cls, name: str, promise: str, *verbs: str) -> Self:
        """Attach the promise and the verbs to the name."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.promise = promise
        member.verbs = verbs
        return member

    TENSOR_HOOKS = "tensor-hooks", "hooks can be put on a tensor's gradient", "register_hook"
    RETAIN_GRAD = "retain-grad", "a non-leaf tensor can be told to keep its gradient", "retain_grad"
    RETAINS_GRAD = "retains-grad", "a tensor tells whether it keeps its gradient", "retains_grad"
    POST_ACCUMULATE = (
        "post-accumulate-hooks",
        "hooks can run after a leaf's gradient was accumulated",
        "register_post_accumulate_grad_hook",
    )
    NODES = (
        "nodes",
        "the graph's nodes can be reached",
        "grad_fn",
        "accumulate_grad",
        "node_name",
        "node_next",
    )
    NODE_HOOKS = "node-hooks", "hooks can be put on a node", "node_register_hook", "node_register_prehook"
    NODE_METADATA = "node-metadata", "a node carries a mapping for user data", "node_metadata"
    AUTOGRAD_GRAD = "autograd-grad", "gradients can be had as values, leaving .grad alone", "grad"
    SEED_GRADIENT = "seed-gradient", "backward takes the gradient of its root"
    BACKWARD_INPUTS = "backward-inputs", "backward can be limited to some inputs"
    RETAIN_GRAPH = "retain-graph", "a graph can be kept for another backward"
    CREATE_GRAPH = "create-graph", "a gradient can itself be differentiated"
    BACKWARD_CREATE_GRAPH = "backward-create-graph", "the gradients that backward accumulates can be differentiated too"
    GRAD_MODE = (
        "grad-mode",
        "recording can be switched and asked for",
        "is_grad_enabled",
        "no_grad",
        "enable_grad",
    )
    INFERENCE_MODE = "inference-mode", "there is an inference mode", "inference_mode"
    SIN_COS = "sin-cos", "sine and cosine are differentiable", "sin", "cos"
    IN_PLACE = "in-place", "tensors can be changed in place", "mul_", "cos_"
    VERSION_COUNTER = "version-counter", "a saved tensor that was changed in place is detected"
    MULTI_OUTPUT = "multi-output", "one node can have several outputs", "split"
    VIEWS = (
        "views",
        "tensors can be views of others",
        "view",
        "transpose",
        "expand",
        "requires_grad_",
    )
    STRIDES = "strides", "the strides of a tensor can be read", "stride"
    STORAGE = "storage", "the address of a tensor's data can be read", "data_ptr"
    CHANNELS_LAST = "channels-last", "tensors can be laid out channels-last", "channels_last"
    LAZY_BITS = (
        "lazy-bits",
        "conjugation and negation can be lazy views",
        "conj",
        "neg_view",
        "is_conj",
        "is_neg",
    )
    COMPLEX = "dtype-complex", "complex64 and complex128 tensors have gradients"
    BFLOAT16 = "dtype-bfloat16", "bfloat16 tensors have gradients"
    INTEGER = "dtype-integer", "integer and bool tensors can be saved for backward"
    FLOAT64 = "dtype-float64", "float64 tensors have gradients"
    CUSTOM_FUNCTION = "custom-function", "a user's forward and backward can be one node", "custom_function"
    SAVED_TENSOR_HOOKS = (
        "saved-tensor-hooks",
        "a context packs and unpacks the tensors saved inside it",
        "saved_tensors_hooks",
    )
    SAVED_TENSOR_ACCESS = "saved-tensor-access", "a node's saved tensors can be read", "saved_tensors"
    SAVED_TENSOR_REGISTER = (
        "saved-tensor-register-hooks",
        "one saved tensor can be given its own pair of hooks",
        "raw_saved_tensors",
        "saved_tensor_register_hooks",
    )
    DISABLE_SAVED_TENSOR_HOOKS = (
        "disable-saved-tensor-hooks",
        "saved-tensor hooks can be forbidden in a context",
        "disable_saved_tensors_hooks",
    )
    SAVE_ON_CPU = "save-on-cpu", "a context keeps saved tensors on the CPU", "save_on_cpu"
    ACCELERATOR = "accelerator", "tensors live on a device other than the host's CPU", "memory_allocated"
    SERIALIZATION = "serialization", "a tensor can be saved and loaded", "save", "load", "unserializable_hook"
    WEAK_REFERENCES = "weak-references", "tensors and handles are freed when the last reference goes"
    THREADS = "threads", "several threads can each build a graph and run backward"
    HOST = "host", "tensors live in the memory of the host's CPU"
    CALLER_THREAD = "caller-thread", "backward on this device runs in the thread that called it"
    MODULES = (
        "modules",
        "modules take keyword arguments, and forward hooks",
        "module",
        "register_forward_pre_hook",
        "register_forward_hook",
    )
    MODULE_BACKWARD_HOOKS = (
        "module-backward-hooks",
        "modules take backward hooks",
        "register_full_backward_hook",
    )
    MODULE_BACKWARD_PRE_HOOKS = (
        "module-backward-pre-hooks",
        "modules take hooks that run before their backward",
        "register_full_backward_pre_hook",
    )
    MODULE_HOOK_OPTIONS = (
        "module-hook-options",
        "hooks of a module take prepend, and those around forward with_kwargs and always_call",
    )
    GLOBAL_MODULE_HOOKS = (
        "global-module-hooks",
        "hooks can be put on all modules at once",
        "register_module_forward_pre_hook",
        "register_module_forward_hook",
        "register_module_full_backward_pre_hook",
        "register_module_full_backward_hook",
    )
    MULTI_GRAD = (
        "multi-grad-hooks",
        "one hook can wait for the gradients of several tensors, or for the first of them",
        "register_multi_grad_hook",
    )
    DATA_PARALLEL = (
        "data-parallel",
        "a module can be run in one replica a device",
        "data_parallel",
        "replica_count",
    )


class ErrorKind(StrEnum):
    """The errors that rules speak of; a backend maps each to its own exception types."""

    GRAPH_FREED = "graph-freed"
    """backward, or a read of a saved tensor, after the graph's saved tensors were freed"""
    NO_GRADIENT = "no-gradient"
    """a hook or retain_grad on a tensor that does not require grad"""
    NOT_A_LEAF = "not-a-leaf"
    """a post-accumulate hook on a non-leaf"""
    HOOK_RETURN_TYPE = "hook-return-type"
    """a hook returned something that is no tensor"""
    HOOK_RETURN_SHAPE = "hook-return-shape"
    """a hook returned a gradient of another shape"""
    HOOK_RETURN_DTYPE = "hook-return-dtype"
    """a hook returned a gradient of another dtype"""
    HOOK_RETURN_COUNT = "hook-return-count"
    """a Node hook returned too many or too few gradients"""
    UNPACK_RETURN_TYPE = "unpack-return-type"
    """an unpack hook returned something that is no tensor"""
    PACK_IN_PLACE = "pack-in-place"
    """a pack hook changed its input in place"""
    SAVED_TENSOR_MODIFIED = "saved-tensor-modified"
    """a tensor saved for backward was changed in place afterwards"""
    SAVED_HOOKS_DISABLED = "saved-hooks-disabled"
    """saved-tensor hooks were used where they are forbidden"""
    SAVED_HOOKS_ALREADY_SET = "saved-hooks-already-set"
    """a saved tensor was given a second pair of hooks"""
    MODULE_HOOK_RETURN = "module-hook-return"
    """a hook of a module returned something that it may not"""
    MODULE_IN_PLACE = "module-in-place"
    """an input or output of a module that has backward hooks was changed in place"""
    MULTI_GRAD_MODE = "multi-grad-mode"
    """a multi-grad hook was asked for in a mode that does not exist"""


class Backend(Protocol):
    """What a rule may ask for. Each verb raises the framework's own errors.

    Five more attributes are optional: ``reset()`` is called before each rule, to undo what a failed one left behind,
    ``examples`` says how many examples of a property are worth their time, and ``findings`` is the path of the file of
    what `hooklaw fuzz` is known to find. ``replay_program(program)`` replays a fuzzed program in the backend's own way,
    say compiled: it returns a `hooklaw.fuzz.replay.Replayed` or raises a `NotReplayedError` that says why not, and only
    the order of the events of one name counts; ``code_of_program(program)`` returns that program as code.
    """

    name: str
    """As written on the command line, e.g. ``torch-eager:cuda``."""
    capabilities: frozenset[Capability]
    lacks: Mapping[Capability, str]
    """Why a capability is not declared; one that is not named here is said to be not declared."""
    errors: Mapping[ErrorKind, tuple[type[BaseException], ...]]
    """A kind that is not named here is a RuntimeError, as in PyTorch."""
    versions: Mapping[str, str]
    """Versions that matter for the verdict: the framework first, then e.g. ``gpu`` and ``driver``."""
    notes: Mapping[str, str]
    """How a verb is carried out where it is not obvious, e.g. which form of DataParallel ran."""
    expectations: Path | None
    """The backend's expectation file."""

    # values, core verbs
    def tensor(self, data: Any, *, requires_grad: bool = False, dtype: str = "float32") -> Any:
        """Make a leaf on the backend's device from nested lists of numbers; dtype by PyTorch's name."""
        ...

    def is_tensor(self, value: Any) -> bool:
        """Tell whether the value is a tensor of this framework."""
        ...

    def tolist(self, tensor: Any) -> Any:
        """Return the values as nested lists of Python numbers, or one number for a 0-d tensor."""
        ...

    def shape(self, tensor: Any) -> tuple[int, ...]:
        """Return the sizes."""
        ...

    def dtype(self, tensor: Any) -> str:
        """Return PyTorch's name of the dtype, e.g. ``float32``."""
        ...

    def device(self, tensor: Any) -> str:
        """Return a name of the device, equal for tensors on one device."""
        ...

    def requires_grad(self, tensor: Any) -> bool:
        """Tell whether gradients flow to the tensor."""
        ...

    def is_leaf(self, tensor: Any) -> bool:
        """Tell whether the tensor was made by the user."""
        ...

    def grad_of(self, tensor: Any) -> Any:
        """Return ``.grad``: a tensor or None."""
        ...

    def set_grad(self, tensor: Any, value: Any) -> None:
        """Assign ``.grad``: a tensor or None."""
        ...

    def detach(self, tensor: Any) -> Any:
        """Return a tensor with the same data and no history."""
        ...

    def clone(self, tensor: Any) -> Any:
        """Return a differentiable copy."""
        ...

    def sum(self, tensor: Any) -> Any:
        """Sum all elements to a 0-d tensor; saves nothing."""
        ...

    def exp(self, tensor: Any) -> Any:
        """Raise e to each element; saves its output, once."""
        ...

    # running, core verbs
    def call(self, fn: Callable[..., Any], *tensors: Any) -> Any:
        """Run the forward part of a rule: here a mode compiles, checkpoints, or just calls."""
        ...

    def backward(
        self,
        root: Any,
        gradient: Any = None,
        *,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Sequence[Any] | None = None,
    ) -> None:
        """Accumulate gradients of the root into leaves."""
        ...

    def grad(  # noqa: PLR0913 - torch.autograd.grad's own arguments
        self,
        outputs: Any,
        inputs: Sequence[Any],
        grad_outputs: Any = None,
        *,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        allow_unused: bool = False,
    ) -> tuple[Any, ...]:
        """Return the gradients of the outputs with respect to the inputs."""
        ...

    # hooks on tensors and nodes
    def register_hook(self, tensor: Any, hook: type_of_hook) -> Any:
        """Put ``hook(grad)`` on a tensor; returns a handle with ``remove()``."""
        ...

    def retain_grad(self, tensor: Any) -> None:
        """Keep the gradient of a non-leaf in ``.grad``."""
        ...

    def retains_grad(self, tensor: Any) -> bool:
        """Tell whether a non-leaf keeps its gradient."""
        ...

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: type_of_hook) -> Any:
        """Put ``hook(tensor)`` on a leaf, to run once ``.grad`` was updated; returns a handle."""
        ...

    def grad_fn(self, tensor: Any) -> Any:
        """Return the Node that made the tensor, or None for a leaf."""
        ...

    def accumulate_grad(self, leaf: Any) -> Any:
        """Return the AccumulateGrad Node of a leaf; whoever puts hooks on it must keep it."""
        ...

    def node_name(self, node: Any) -> str:
        """Return the Node's name."""
        ...

    def node_next(self, node: Any) -> list[Any]:
        """Return the Nodes that this one feeds, None where an input needs no gradient."""
        ...

    def node_metadata(self, node: Any) -> dict[Any, Any]:
        """Return the Node's mapping for user data."""
        ...

    def node_register_prehook(self, node: Any, hook: type_of_hook) -> Any:
        """Put ``hook(grad_outputs)`` before the Node's execution; returns a handle."""
        ...

    def node_register_hook(self, node: Any, hook: type_of_hook) -> Any:
        """Put ``hook(grad_inputs, grad_outputs)`` after the Node's execution; returns a handle."""
        ...

    def register_multi_grad_hook(self, tensors: Sequence[Any], hook: type_of_hook, *, mode: str = "all") -> Any:
        """Put ``hook(grads)`` on all of the tensors, or in mode ``any`` ``hook(grad)`` on the first one of them."""
        ...

    # modes
    def is_grad_enabled(self) -> bool:
        """Tell whether operations are being recorded in this thread."""
        ...

    def no_grad(self) -> AbstractContextManager[Any]:
        """Record nothing inside."""
        ...

    def enable_grad(self) -> AbstractContextManager[Any]:
        """Record inside."""
        ...

    def inference_mode(self) -> AbstractContextManager[Any]:
        """Enter inference mode."""
        ...

    # further operations
    def sin(self, tensor: Any) -> Any:
        """Return the sine."""
        ...

    def cos(self, tensor: Any) -> Any:
        """Return the cosine."""
        ...

    def mul_(self, tensor: Any, factor: Any) -> Any:
        """Multiply in place by a tensor or a number."""
        ...

    def cos_(self, tensor: Any) -> Any:
        """Replace by the cosine in place."""
        ...

    def split(self, tensor: Any, size: int) -> tuple[Any, ...]:
        """Split along the first dimension: one node, several outputs."""
        ...

    def view(self, tensor: Any, *shape: int) -> Any:
        """View with another shape."""
        ...

    def transpose(self, tensor: Any, first: int, second: int) -> Any:
        """View with two dimensions swapped."""
        ...

    def expand(self, tensor: Any, *shape: int) -> Any:
        """View with dimensions of size 1 repeated, stride 0."""
        ...

    def requires_grad_(self, tensor: Any) -> Any:
        """Make a tensor without history, such as a view of one, a leaf that requires grad; returns it."""
        ...

    def stride(self, tensor: Any) -> tuple[int, ...]:
        """Return the strides in elements."""
        ...

    def data_ptr(self, tensor: Any) -> int:
        """Return the address of the first element."""
        ...

    def channels_last(self, tensor: Any) -> Any:
        """Return the 4-d tensor's values laid out channels-last, differentiable."""
        ...

    def conj(self, tensor: Any) -> Any:
        """Return the lazy conjugate view of a complex tensor."""
        ...

    def neg_view(self, tensor: Any) -> Any:
        """Return the lazy negated view of a real tensor."""
        ...

    def is_conj(self, tensor: Any) -> bool:
        """Tell whether the conjugation is pending."""
        ...

    def is_neg(self, tensor: Any) -> bool:
        """Tell whether the negation is pending."""
        ...

    def custom_function(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
        """Make one Node of ``forward(ctx, *tensors)`` and ``backward(ctx, *grad_outputs)``.

        ctx has ``save_for_backward(*tensors)``, the property ``saved_tensors``, and takes attributes.
        """
        ...

    # saved tensors
    def saved_tensors_hooks(self, pack: type_of_hook, unpack: type_of_hook) -> AbstractContextManager[Any]:
        """Pack every tensor saved inside; unpack it whenever it is read."""
        ...

    def disable_saved_tensors_hooks(self, message: str) -> AbstractContextManager[Any]:
        """Forbid saved-tensor hooks inside, with this message."""
        ...

    def save_on_cpu(self, *, pin_memory: bool = False) -> AbstractContextManager[Any]:
        """Keep tensors saved inside on the CPU."""
        ...

    def saved_tensors(self, node: Any) -> list[Any]:
        """Read every tensor the Node saved, which unpacks each once; the order is the framework's."""
        ...

    def raw_saved_tensors(self, node: Any) -> list[Any]:
        """Return the Node's SavedTensor objects without reading them, in the order of `saved_tensors`."""
        ...

    def saved_tensor_register_hooks(self, saved: Any, pack: type_of_hook, unpack: type_of_hook) -> None:
        """Give one SavedTensor its own pair of hooks."""
        ...

    # the rest
    def memory_allocated(self) -> int:
        """Return the bytes that tensors hold on the device now."""
        ...

    def save(self, tensor: Any) -> bytes:
        """Serialize a tensor."""
        ...

    def load(self, data: bytes) -> Any:
        """Return the tensor that was serialized."""
        ...

    def unserializable_hook(self, hook: type_of_hook) -> type_of_hook:
        """Mark a hook so that serializing its tensor does not warn."""
        ...

    def module(self, parameters: Mapping[str, Any], forward: Callable[..., Any]) -> Any:
        """Make a module whose call runs ``forward(module, *inputs, **kwargs)``; parameters are its attributes."""
        ...

    def register_forward_pre_hook(
        self, module: Any, hook: type_of_hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> Any:
        """Put ``hook(module, args)``, or ``hook(module, args, kwargs)``, before forward; returns a handle."""
        ...

    def register_forward_hook(
        self,
        module: Any,
        hook: type_of_hook,
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> Any:
        """Put ``hook(module, args, output)``, or with kwargs before output, after forward; returns a handle."""
        ...

    def register_full_backward_pre_hook(self, module: Any, hook: type_of_hook, *, prepend: bool = False) -> Any:
        """Put ``hook(module, grad_output)`` before the module's backward; returns a handle."""
        ...

    def register_full_backward_hook(self, module: Any, hook: type_of_hook, *, prepend: bool = False) -> Any:
        """Put ``hook(module, grad_input, grad_output)`` on the module's backward; returns a handle."""
        ...

    def register_module_forward_pre_hook(self, hook: type_of_hook) -> Any:
        """Put ``hook(module, args)`` before the forward of every module; returns a handle."""
        ...

    def register_module_forward_hook(
        self, hook: type_of_hook, *, with_kwargs: bool = False, always_call: bool = False
    ) -> Any:
        """Put a forward hook on every module; returns a handle."""
        ...

    def register_module_full_backward_pre_hook(self, hook: type_of_hook) -> Any:
        """Put ``hook(module, grad_output)`` before the backward of every module; returns a handle."""
        ...

    def register_module_full_backward_hook(self, hook: type_of_hook) -> Any:
        """Put ``hook(module, grad_input, grad_output)`` on the backward of every module; returns a handle."""
        ...

    def data_parallel(self, module: Any) -> Callable[..., Any]:
        """Wrap a module so that a call splits its input's first dimension over replicas and gathers."""
        ...

    def replica_count(self) -> int:
        """Return how many replicas `data_parallel` runs, two or more."""
        ...


def check_contract(backend: Any, known_as: str) -> None:
    """Raise BackendContractError unless the object declares itself as a backend and has what it declares."""
    for attribute in ("name", "capabilities", "lacks", "errors", "versions", "notes", "expectations"):
        if not hasattr(backend, attribute):
            raise BackendContractError(
                f"backend {known_as!r} has no attribute {attribute!r}: docs/add-a-backend.md names the seven it needs",
            )
    _check_kinds(backend, known_as)
    _check_names(backend.capabilities, Capability, known_as, "capability")
    _check_names(backend.lacks, Capability, known_as, "capability")
    _check_names(backend.errors, ErrorKind, known_as, "error kind")
    for verb in CORE_VERBS:
        _check_verb(backend, verb, known_as, "which every backend needs")
    for capability in sorted(backend.capabilities):
        for verb in Capability(capability).verbs:
            _check_verb(backend, verb, known_as, f"which its capability {str(capability)!r} needs")


def _check_kinds(backend: Any, known_as: str) -> None:
    if not isinstance(backend.capabilities, AbstractSet):
        raise BackendContractError(f"backend {known_as!r}: its capabilities are no set")
    for attribute in ("lacks", "errors", "versions", "notes"):
        if not isinstance(getattr(backend, attribute), Mapping):
            raise BackendContractError(f"backend {known_as!r}: its {attribute} are no mapping")


def _check_names(names: Iterable[str], kind: type[StrEnum], known_as: str, what: str) -> None:
    for name in names:
        if name not in set(kind):
            every = ", ".join(sorted(kind))
            raise BackendContractError(
                f"backend {known_as!r} declares the unknown {what} {name!r}: choose from {every}"
            )


def _check_verb(backend: Any, verb: str, known_as: str, why: str) -> None:
    if not callable(getattr(backend, verb, None)):
        raise BackendContractError(f"backend {known_as!r} lacks the verb {verb!r}, {why}")
