"""What a backend may declare, with the verbs that go with it, and the kinds of error that rules speak of."""

from enum import StrEnum
from typing import Self

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
    MATERIALIZE_GRADS = "materialize-grads", "autograd.grad can return zeros in the place of None"
    GRADIENT_EDGES = (
        "gradient-edges",
        "the place where a tensor's gradient is computed can be asked for, and its gradient taken there",
        "get_gradient_edge",
    )
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
    INFERENCE_TENSORS = "inference-tensors", "what was made in inference mode cannot be saved for backward later"
    SIN_COS = "sin-cos", "sine and cosine are differentiable", "sin", "cos"
    IN_PLACE = "in-place", "tensors can be changed in place", "mul_", "cos_"
    VERSION_COUNTER = "version-counter", "a saved tensor that was changed in place is detected"
    INCREMENT_VERSION = "increment-version", "a change that nobody recorded can be made known", "increment_version"
    ANOMALY = "detect-anomaly", "a backward can be told to look for gradients that are no numbers", "detect_anomaly"
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
    FUNCTION_MARKS = (
        "function-marks",
        "such a forward can mark inputs that it changed, and outputs that are not differentiable",
    )
    FUNCTION_OPTIONS = "function-options", "such a function takes the options of torch.autograd.Function"
    NEEDS_INPUT_GRAD = "needs-input-grad", "such a backward can ask which of its inputs need a gradient"
    REQUIRES_GRAD_FLAG = (
        "requires-grad-flag",
        "a tensor can be told to require grad, or not to",
        "set_requires_grad",
    )
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
    ALLOW_MUTATION = (
        "allow-mutation",
        "a context lets saved tensors be changed in place",
        "allow_mutation_on_saved_tensors",
    )
    CHECKPOINT = "checkpoint", "a region can be recomputed in backward instead of saving its tensors", "checkpoint"
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
    MODULE_FORWARD = "module-forward", "a module's forward can be called without its hooks", "forward"
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
    LEGACY_MODULE_BACKWARD_HOOKS = (
        "legacy-module-backward-hooks",
        "modules take the older kind of backward hooks, which belong to the last Node of forward",
        "register_backward_hook",
        "register_module_backward_hook",
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
    REGISTRATION_HOOKS = (
        "registration-hooks",
        "hooks can be put on the registration of parameters, buffers and modules",
        "add_module",
        "register_buffer",
        "register_module_parameter_registration_hook",
        "register_module_buffer_registration_hook",
        "register_module_module_registration_hook",
    )
    STATE_DICT = (
        "state-dict",
        "the state of modules, and of optimizers if there are any, is saved and loaded with hooks around it",
        "add_module",
        "state_dict",
        "load_state_dict",
        "register_state_dict_pre_hook",
        "register_state_dict_post_hook",
        "register_load_state_dict_pre_hook",
        "register_load_state_dict_post_hook",
    )
    OPTIMIZERS = (
        "optimizers",
        "optimizers take hooks around their step",
        "sgd",
        "step",
        "zero_grad",
        "register_step_pre_hook",
        "register_step_post_hook",
        "register_optimizer_step_pre_hook",
        "register_optimizer_step_post_hook",
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
    """a hook, retain_grad or backward on a tensor that does not require grad"""
    ROOT_GRADIENT = "root-gradient"
    """the gradient of backward's root has another shape, or is missing where the root is no single number"""
    NO_INPUTS = "no-inputs"
    """backward was given inputs, and none was among them"""
    UNUSED_INPUT = "unused-input"
    """autograd.grad was asked for an input that the outputs do not depend on"""
    UNUSED_CONFLICT = "unused-conflict"
    """autograd.grad was to return zeros for unused inputs, and to refuse them"""
    OUTSIDE_MUTATION = "outside-mutation"
    """backward ran outside the context in which saved tensors could be changed, and forward inside"""
    NESTED_MUTATION = "nested-mutation"
    """that context was entered twice"""
    CHECKPOINT_REENTRANT = "checkpoint-reentrant"
    """a reentrant checkpoint met another kind of backward than it supports"""
    CHECKPOINT_KIND = "checkpoint-kind"
    """a checkpoint was not told whether it is reentrant"""
    CHECKPOINT_MISMATCH = "checkpoint-mismatch"
    """what a checkpoint recomputed is not like what was computed first"""
    REQUIRES_GRAD_OF_NON_LEAF = "requires-grad-of-non-leaf"
    """a tensor that operations made was told not to require grad"""
    LEAF_IN_PLACE = "leaf-in-place"
    """a leaf that requires grad was changed in place while recording"""
    INFERENCE_TENSOR = "inference-tensor"
    """a tensor that was made in inference mode was to be saved for backward"""
    NOT_A_NUMBER = "not-a-number"
    """a gradient was no number where backward had been told to look for that"""
    ONCE_DIFFERENTIABLE = "once-differentiable"
    """a gradient was differentiated that came from a backward which allows it once"""
    SAVED_TENSORS_CLEARED = "saved-tensors-cleared"
    """saved tensors were read again that the first reading had cleared"""
    FUNCTION_RETURN_COUNT = "function-return-count"
    """the backward of a custom Function returned too few gradients, or too many"""
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
    MODULE_HOOK_KINDS = "module-hook-kinds"
    """a module, or all of them, was given backward hooks of both kinds"""
    MODULE_IN_PLACE = "module-in-place"
    """an input or output of a module that has backward hooks was changed in place"""
    STATE_HOOK_RETURN = "state-hook-return"
    """a hook on the state of a module returned something"""
    LOAD_HOOK_RETURN = "load-hook-return"
    """a hook on the loading of a module's state returned something"""
    STATE_KEYS = "state-keys"
    """the state that was loaded has other keys than the module"""
    STEP_HOOK_RETURN = "step-hook-return"
    """a hook before an optimizer's step returned something that it may not"""
    MULTI_GRAD_MODE = "multi-grad-mode"
    """a multi-grad hook was asked for in a mode that does not exist"""
