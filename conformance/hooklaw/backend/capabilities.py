"""Capability, which a backend declares, and ErrorKind, which it maps to exception types."""

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Self

CORE_VERBS = (
    "tensor", "is_tensor", "tolist", "shape", "dtype", "device", "requires_grad", "is_leaf", "grad_of", "set_grad",
    "detach", "clone", "sum", "exp", "call", "backward",
)  # fmt: skip


class Capability(StrEnum):
    """What a backend can do, and the verbs this needs. A backend declares capabilities; a rule names those it needs."""

    verbs: tuple[str, ...]
    promise: str

    def __new__(cls, name: str, promise: str, *verbs: str) -> Self:
        """Make a member of a name, a promise to show to users, and verbs."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.promise = promise
        member.verbs = verbs
        return member

    TENSOR_HOOKS = "tensor-hooks", "hooks can be registered on tensors", "register_hook"
    RETAIN_GRAD = "retain-grad", "a non-leaf tensor can retain its gradient", "retain_grad"
    RETAINS_GRAD = "retains-grad", "whether a tensor retains its gradient can be read", "retains_grad"
    POST_ACCUMULATE = (
        "post-accumulate-hooks",
        "hooks can run after a leaf's gradient has been accumulated",
        "register_post_accumulate_grad_hook",
    )
    NODES = (
        "nodes",
        "the Nodes of the graph can be accessed",
        "grad_fn",
        "accumulate_grad",
        "node_name",
        "node_next",
    )
    NODE_HOOKS = "node-hooks", "hooks can be registered on Nodes", "node_register_hook", "node_register_prehook"
    NODE_TYPE = "node-type", "it can be asked whether an object is a Node", "is_node"
    NODE_METADATA = "node-metadata", "a Node has a dict for user data", "node_metadata"
    AUTOGRAD_GRAD = "autograd-grad", "gradients can be returned as values, without a change of .grad", "grad"
    MATERIALIZE_GRADS = "materialize-grads", "autograd.grad can return zeros instead of None"
    BATCHED_GRADIENTS = "batched-gradients", "autograd.grad accepts a batch of grad_outputs"
    GRADIENT_EDGES = (
        "gradient-edges",
        "autograd.grad accepts gradient edges as inputs",
        "get_gradient_edge",
    )
    SEED_GRADIENT = "seed-gradient", "backward accepts the gradient of its root"
    EDGE_ROOTS = (
        "edge-roots",
        "backward starts at gradient edges and accepts them as inputs, and autograd.grad accepts them as outputs",
        "backward_from_edge",
    )
    SEVERAL_ROOTS = "several-roots", "backward starts at several tensors at once", "backward_from_all"
    BACKWARD_INPUTS = "backward-inputs", "backward accepts inputs"
    RETAIN_GRAPH = "retain-graph", "a graph can be retained for another backward"
    GRAPH_FREEING = (
        "graph-freeing",
        "a pass that does not retain the graph frees its saved tensors, and another pass through them is an error",
    )
    MISUSE_ERRORS = (
        "misuse-errors",
        "a pass from a wrong root, with a wrong gradient, or for an input that was not used, is an error",
    )
    CREATE_GRAPH = "create-graph", "a gradient can itself be differentiated"
    BACKWARD_CREATE_GRAPH = "backward-create-graph", "gradients that backward accumulates can be differentiated"
    GRAD_MODE = (
        "grad-mode",
        "grad mode can be switched and read",
        "is_grad_enabled",
        "no_grad",
        "enable_grad",
    )
    INFERENCE_MODE = "inference-mode", "there is an inference mode", "inference_mode"
    INFERENCE_TENSORS = "inference-tensors", "inference tensors cannot be saved for backward"
    DETACH_IN_PLACE = "detach-in-place", "a tensor can be detached in place", "detach_"
    SIN_COS = "sin-cos", "sine and cosine are differentiable", "sin", "cos"
    IN_PLACE = "in-place", "tensors can be changed in place", "mul_", "cos_"
    VERSION_COUNTER = "version-counter", "an in-place change of a saved tensor is detected"
    INCREMENT_VERSION = "increment-version", "the version counter can be incremented by hand", "increment_version"
    ANOMALY = "detect-anomaly", "backward can check gradients for NaN", "detect_anomaly"
    MULTI_OUTPUT = "multi-output", "a Node can have several outputs", "split"
    BROADCASTING = "broadcasting", "operations broadcast operands of different shapes"
    VIEWS = (
        "views",
        "tensors can be views of other tensors",
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
    FLOAT16 = "dtype-float16", "float16 tensors have gradients"
    BFLOAT16 = "dtype-bfloat16", "bfloat16 tensors have gradients"
    INTEGER = "dtype-integer", "integer and bool tensors can be saved for backward"
    FLOAT64 = "dtype-float64", "float64 tensors have gradients"
    CUSTOM_FUNCTION = "custom-function", "a user can define a Function with forward and backward", "custom_function"
    FUNCTION_MARKS = (
        "function-marks",
        "the forward of a custom Function can call mark_non_differentiable and set_materialize_grads",
    )
    MARK_DIRTY = "mark-dirty", "the forward of a custom Function can call mark_dirty for an input that it changes"
    FUNCTION_OPTIONS = "function-options", "a custom Function takes the options of torch.autograd.Function"
    NEEDS_INPUT_GRAD = "needs-input-grad", "a custom Function has ctx.needs_input_grad"
    REQUIRES_GRAD_FLAG = (
        "requires-grad-flag",
        "requires_grad of a tensor can be set",
        "set_requires_grad",
    )
    SAVED_TENSOR_HOOKS = (
        "saved-tensor-hooks",
        "a context packs and unpacks the tensors saved inside it",
        "saved_tensors_hooks",
    )
    SAVED_TENSOR_ACCESS = "saved-tensor-access", "the saved tensors of a Node can be read", "saved_tensors"
    SAVED_TENSOR_REGISTER = (
        "saved-tensor-register-hooks",
        "a pair of hooks can be registered on a single saved tensor",
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
        "a context allows in-place changes of saved tensors",
        "allow_mutation_on_saved_tensors",
    )
    CHECKPOINT = (
        "checkpoint",
        "a function can be recomputed in backward instead of saving its tensors",
        "checkpoint",
    )
    CHECKPOINT_OPTIONS = (
        "checkpoint-options",
        "a checkpoint takes early_stop, determinism_check and context_fn",
        "set_checkpoint_early_stop",
    )
    CHECKPOINT_SEQUENTIAL = (
        "checkpoint-sequential",
        "a list of functions can be checkpointed in segments",
        "checkpoint_sequential",
    )
    CHECKPOINT_DEBUG = (
        "checkpoint-debug",
        "the errors of a checkpoint can include the operations that ran",
        "set_checkpoint_debug_enabled",
    )
    GRAPH_EXEC_GROUP = (
        "graph-exec-group",
        "a context lets several backward passes share one recomputation of a checkpoint",
        "graph_exec_group",
    )
    SELECTIVE_CHECKPOINT = (
        "selective-checkpoint",
        "a checkpoint can save what chosen operations return",
        "create_selective_checkpoint_contexts",
    )
    FUNC = (
        "func",
        "a function can be transformed into one that computes its gradients, and hooks work inside",
        "func_grad",
        "func_vjp",
    )
    VMAP = "vmap", "a function can be mapped over a dimension, its gradient too", "vmap"
    SELECTIVE_OFFLOAD = "selective-offload", "the policy of a selective checkpoint can offload what operations return"
    RANDOM = "random-numbers", "random numbers come from a generator that can be seeded", "manual_seed", "rand_like"
    AUTOCAST = "autocast", "operations can choose their dtype in a context", "autocast", "is_autocast_enabled"
    SAVE_ON_CPU = "save-on-cpu", "a context keeps saved tensors on the CPU", "save_on_cpu"
    ACCELERATOR = "accelerator", "tensors live on a device other than the host's CPU", "memory_allocated"
    SERIALIZATION = "serialization", "a tensor can be saved and loaded", "save", "load", "unserializable_hook"
    WEAK_REFERENCES = "weak-references", "tensors and handles are freed with their last reference"
    THREADS = "threads", "several threads can each build a graph and run backward"
    HOST = "host", "tensors live in the memory of the host's CPU"
    CALLER_THREAD = "caller-thread", "backward on this device runs in the thread that called it"
    MODULES = (
        "modules",
        "modules take keyword arguments and forward hooks",
        "module",
        "register_forward_pre_hook",
        "register_forward_hook",
    )
    MODULE_PARTS = "module-parts", "modules hold submodules and buffers", "add_module", "register_buffer"
    MODULE_FORWARD = "module-forward", "a module's forward can be called without its hooks", "forward"
    MODULE_SWITCHES = (
        "module-switches",
        "a module can freeze its parameters, reset their gradients, and be put in evaluation mode",
        "add_module",
        "train",
        "is_training",
        "module_requires_grad_",
        "module_zero_grad",
    )
    MODULE_BACKWARD_HOOKS = (
        "module-backward-hooks",
        "modules take backward hooks",
        "register_full_backward_hook",
    )
    MODULE_BACKWARD_PRE_HOOKS = (
        "module-backward-pre-hooks",
        "modules take backward pre-hooks",
        "register_full_backward_pre_hook",
    )
    LEGACY_MODULE_BACKWARD_HOOKS = (
        "legacy-module-backward-hooks",
        "modules take legacy backward hooks, which belong to the last Node of forward",
        "register_backward_hook",
        "register_module_backward_hook",
    )
    FORWARD_PRE_HOOK_KWARGS = "forward-pre-hook-kwargs", "the forward pre-hooks of a module take with_kwargs"
    FORWARD_HOOK_KWARGS = "forward-hook-kwargs", "the forward hooks of a module take with_kwargs"
    FORWARD_HOOK_PREPEND = "forward-hook-prepend", "the forward hooks and forward pre-hooks of a module take prepend"
    BACKWARD_HOOK_PREPEND = (
        "backward-hook-prepend",
        "the backward hooks and backward pre-hooks of a module take prepend",
    )
    ALWAYS_CALL = "always-call", "forward hooks take always_call"
    GLOBAL_MODULE_HOOKS = (
        "global-module-hooks",
        "hooks can be registered on all modules at once",
        "register_module_forward_pre_hook",
        "register_module_forward_hook",
        "register_module_full_backward_pre_hook",
        "register_module_full_backward_hook",
    )
    GLOBAL_HOOK_KWARGS = "global-hook-kwargs", "forward hooks on all modules at once take with_kwargs"
    REGISTRATION_HOOKS = (
        "registration-hooks",
        "hooks can run when parameters, buffers and modules are registered",
        "add_module",
        "register_buffer",
        "register_module_parameter_registration_hook",
        "register_module_buffer_registration_hook",
        "register_module_module_registration_hook",
    )
    STATE_DICT = (
        "state-dict",
        "modules, and optimizers if there are any, have state dicts and hooks around saving and loading",
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
        "a hook can wait for the gradients of several tensors, or for the first of them",
        "register_multi_grad_hook",
    )
    DATA_PARALLEL = (
        "data-parallel",
        "a module can run in replicas, one on each device",
        "data_parallel",
        "replica_count",
    )
    PROCESSES = (
        "processes",
        "several processes can form a process group, each as a rank of it",
        "init_process_group",
        "get_rank",
        "get_world_size",
        "all_reduce",
    )
    DISTRIBUTED_DATA_PARALLEL = (
        "distributed-data-parallel",
        "a module can be replicated in all ranks, with gradients that backward averages",
        "distributed_data_parallel",
        "no_sync",
    )
    PROCESS_SUBGROUPS = (
        "process-subgroups",
        "some of the ranks can form a group of their own, over which distributed data parallel averages",
        "new_group",
    )
    INIT_SYNC = "init-sync", "distributed data parallel can leave each rank the parameters that it has"
    BUFFER_SYNC = (
        "buffer-sync",
        "distributed data parallel makes the buffers of all ranks those of rank 0 before forward, unless told not to",
    )
    STATIC_GRAPH = "static-graph", "distributed data parallel can be told that the graph is the same in each pass"
    GRADIENT_BUCKETS = (
        "gradient-buckets",
        "distributed data parallel takes the size of its buckets, and gradients can be views of them",
    )
    COMM_HOOKS = (
        "communication-hooks",
        "a hook can reduce the gradients of distributed data parallel in place of the all-reduce",
        "register_comm_hook",
        "future",
        "all_reduce_future",
    )
    DEFAULT_COMM_HOOKS = (
        "default-communication-hooks",
        "there are communication hooks that all-reduce, compress, or do nothing",
        "default_comm_hook",
    )
    FULLY_SHARD = (
        "fully-shard",
        "the parameters of a module can be sharded over the ranks in place, and are whole in its forward",
        "fully_shard",
        "is_sharded",
        "local_tensor",
        "full_tensor",
        "unshard",
        "reshard",
        "set_requires_gradient_sync",
        "set_all_reduce_hook",
        "register_fsdp_forward_method",
    )
    FULLY_SHARDED_DATA_PARALLEL = (
        "fully-sharded-data-parallel",
        "a wrapper of a module can shard its parameters over the ranks, and takes a communication hook",
        "fully_sharded_data_parallel",
        "register_comm_hook",
        "no_sync",
        "copy_",
    )
    HYBRID_SHARDING = (
        "hybrid-sharding",
        "the parameters of a module can be sharded over the second dimension of a mesh, and replicated over the first",
        "set_requires_all_reduce",
    )
    DISTRIBUTED_TENSORS = (
        "distributed-tensors",
        "tensors and modules can be distributed over all ranks by a placement, and take hooks",
        "distribute_tensor",
        "from_local",
        "local_tensor",
        "full_tensor",
        "redistribute",
        "placement",
        "distribute_module",
    )
    TENSOR_PARALLEL = (
        "tensor-parallel",
        "the layers of a module can be split over all ranks, by columns, rows or the sequence",
        "linear",
        "layer_norm",
        "cross_entropy",
        "loss_parallel",
        "parallel_style",
        "parallelize_module",
    )
    UNEVEN_INPUTS = "uneven-inputs", "the ranks of distributed data parallel can have unequal numbers of inputs", "join"


ONLY_WITH = {
    ("grad", "materialize_grads"): Capability.MATERIALIZE_GRADS,
    ("grad", "is_grads_batched"): Capability.BATCHED_GRADIENTS,
    ("register_forward_pre_hook", "with_kwargs"): Capability.FORWARD_PRE_HOOK_KWARGS,
    ("register_forward_pre_hook", "prepend"): Capability.FORWARD_HOOK_PREPEND,
    ("register_forward_hook", "with_kwargs"): Capability.FORWARD_HOOK_KWARGS,
    ("register_forward_hook", "prepend"): Capability.FORWARD_HOOK_PREPEND,
    ("register_forward_hook", "always_call"): Capability.ALWAYS_CALL,
    ("register_full_backward_pre_hook", "prepend"): Capability.BACKWARD_HOOK_PREPEND,
    ("register_full_backward_hook", "prepend"): Capability.BACKWARD_HOOK_PREPEND,
    ("register_module_forward_hook", "with_kwargs"): Capability.GLOBAL_HOOK_KWARGS,
    ("register_module_forward_hook", "always_call"): Capability.ALWAYS_CALL,
}
"""The keywords of verbs that rules give only if a capability is declared."""
SEVERAL_PROCESSES = (
    Capability.PROCESSES,
    Capability.DISTRIBUTED_DATA_PARALLEL,
    Capability.PROCESS_SUBGROUPS,
    Capability.INIT_SYNC,
    Capability.BUFFER_SYNC,
    Capability.STATIC_GRAPH,
    Capability.GRADIENT_BUCKETS,
    Capability.COMM_HOOKS,
    Capability.DEFAULT_COMM_HOOKS,
    Capability.UNEVEN_INPUTS,
    Capability.FULLY_SHARD,
    Capability.FULLY_SHARDED_DATA_PARALLEL,
    Capability.HYBRID_SHARDING,
    Capability.DISTRIBUTED_TENSORS,
    Capability.TENSOR_PARALLEL,
)
"""What takes a group of processes."""


class ErrorKind(StrEnum):
    """The kinds of error that rules expect; a backend maps each to its own exception types."""

    GRAPH_FREED = "graph-freed"
    """backward, or a read of a saved tensor, after the graph's saved tensors were freed"""
    NO_GRADIENT = "no-gradient"
    """a hook, retain_grad or backward on a tensor that does not require grad"""
    ROOT_GRADIENT = "root-gradient"
    """the gradient of backward's root has another shape, or is missing although the root is not a scalar"""
    NO_INPUTS = "no-inputs"
    """backward was given an empty list of inputs"""
    UNUSED_INPUT = "unused-input"
    """autograd.grad was asked for an input that the outputs do not depend on"""
    UNUSED_CONFLICT = "unused-conflict"
    """autograd.grad was given materialize_grads=True and allow_unused=False"""
    OUTSIDE_MUTATION = "outside-mutation"
    """backward ran outside of allow_mutation_on_saved_tensors, and forward inside"""
    NESTED_MUTATION = "nested-mutation"
    """allow_mutation_on_saved_tensors was entered inside itself"""
    CHECKPOINT_REENTRANT = "checkpoint-reentrant"
    """a reentrant checkpoint was run through by a backward that it does not support, or all its outputs are detached"""
    CHECKPOINT_KIND = "checkpoint-kind"
    """checkpoint was called without use_reentrant"""
    CHECKPOINT_OPTION = "checkpoint-option"
    """a checkpoint was given an option that its kind does not have"""
    CHECKPOINT_SELECTIVE = "checkpoint-selective"
    """what a selective checkpoint had saved was changed in place, or used in a second backward"""
    CHECKPOINT_POLICY = "checkpoint-policy"
    """a selective checkpoint was given a list of something else than operations"""
    CHECKPOINT_MISMATCH = "checkpoint-mismatch"
    """a checkpoint recomputed other tensors than it computed in forward"""
    REQUIRES_GRAD_OF_NON_LEAF = "requires-grad-of-non-leaf"
    """requires_grad of a non-leaf was set to False"""
    VIEW_DETACHED = "view-detached"
    """a view was detached in place"""
    LEAF_IN_PLACE = "leaf-in-place"
    """a leaf that requires grad was changed in place in grad mode"""
    INFERENCE_TENSOR = "inference-tensor"
    """an inference tensor was saved for backward, or changed outside of inference mode"""
    NOT_A_NUMBER = "not-a-number"
    """a gradient was NaN under anomaly detection"""
    ONCE_DIFFERENTIABLE = "once-differentiable"
    """a gradient from a once_differentiable backward was differentiated"""
    SAVED_TENSORS_CLEARED = "saved-tensors-cleared"
    """saved tensors were read again after they had been cleared on access"""
    FUNCTION_RETURN_COUNT = "function-return-count"
    """the backward of a custom Function returned too many or too few gradients"""
    NOT_A_LEAF = "not-a-leaf"
    """a post-accumulate-grad hook was registered on a non-leaf"""
    HOOK_RETURN_TYPE = "hook-return-type"
    """a hook returned something that is not a tensor"""
    HOOK_RETURN_SHAPE = "hook-return-shape"
    """a hook returned a gradient of another shape"""
    HOOK_RETURN_DTYPE = "hook-return-dtype"
    """a hook returned a gradient of another dtype"""
    HOOK_RETURN_COUNT = "hook-return-count"
    """a Node hook returned too many or too few gradients"""
    UNPACK_RETURN_TYPE = "unpack-return-type"
    """an unpack hook returned something that is not a tensor"""
    PACK_IN_PLACE = "pack-in-place"
    """a pack hook changed its input in place"""
    SAVED_TENSOR_MODIFIED = "saved-tensor-modified"
    """a tensor was changed in place after it was saved for backward"""
    SAVED_HOOKS_DISABLED = "saved-hooks-disabled"
    """saved-tensor hooks were used inside disable_saved_tensors_hooks"""
    SAVED_HOOKS_ALREADY_SET = "saved-hooks-already-set"
    """a saved tensor was given a second pair of hooks"""
    MODULE_HOOK_RETURN = "module-hook-return"
    """a hook of a module returned something that is not allowed"""
    MODULE_HOOK_KINDS = "module-hook-kinds"
    """full and legacy backward hooks were registered on one module, or globally"""
    MODULE_IN_PLACE = "module-in-place"
    """an input or output of a module that has backward hooks was changed in place"""
    STATE_HOOK_RETURN = "state-hook-return"
    """a state_dict post-hook of a module returned something"""
    LOAD_HOOK_RETURN = "load-hook-return"
    """a load_state_dict post-hook of a module returned something"""
    STATE_KEYS = "state-keys"
    """a loaded state has other keys than the module"""
    STEP_HOOK_RETURN = "step-hook-return"
    """a step pre-hook of an optimizer returned something that is not allowed"""
    COMM_HOOK_TWICE = "comm-hook-twice"
    """a second communication hook was registered on one distributed module"""
    COMM_HOOK_RETURN = "comm-hook-return"
    """a communication hook returned something other than a future of one tensor"""
    COMM_HOOK_SIGNATURE = "comm-hook-signature"
    """a communication hook has parameters or annotations that cannot be those of one"""
    UNUSED_PARAMETER = "unused-parameter"
    """a parameter of a distributed module had no gradient in the pass before, and it was not said that this may be"""
    NOTHING_TO_REDUCE = "nothing-to-reduce"
    """a module without a parameter that requires grad was to be distributed"""
    OUT_OF_INPUTS = "out-of-inputs"
    """a rank ran out of inputs, where the ranks were to stop then"""
    MULTI_GRAD_MODE = "multi-grad-mode"
    """a multi-grad hook was registered in a mode that does not exist"""


def verbs_of(capabilities: Collection[Capability]) -> set[str]:
    """Return the verbs of a backend that declares these capabilities."""
    return {*CORE_VERBS, *(verb for each in Capability if each in capabilities for verb in each.verbs)}


def capabilities_of(verb: str) -> list[Capability]:
    """Return the capabilities that have a verb."""
    return [each for each in Capability if verb in each.verbs]


def said_of(missing: Collection[Capability], lacks: Mapping[Capability, str]) -> str:
    """Return the names of capabilities that a backend lacks, each with the reason that the backend gives."""
    return " or ".join(f"{each} ({lacks[each]})" if each in lacks else str(each) for each in missing)
