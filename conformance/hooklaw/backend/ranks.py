"""The verbs of a rule that runs in several processes: groups of ranks, and what is replicated or sharded over them."""

# a verb of the protocol has a docstring and no body
# pyright: reportReturnType=false

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

type_of_hook = Callable[..., Any]


class RankVerbs(Protocol):
    """What a backend can do in a rank; each rule of several processes runs in all ranks."""

    def init_process_group(self, rank: int, world_size: int, store: str) -> None:
        """Join a process group over this machine's loopback; `store` is the path of a file that all ranks share.

        Called once in each rank, before its first rule. Raises NotRunError where no group can be made.
        """

    def get_rank(self) -> int:
        """Return this process's number in the group, from 0."""

    def get_world_size(self) -> int:
        """Return the number of processes in the group."""

    def all_reduce(self, tensor: Any) -> None:
        """Replace the tensor's values, in all ranks, by the sum over all ranks."""

    def new_group(self, ranks: Sequence[int]) -> Any:
        """Make a process group of these ranks; all ranks call this."""

    def distributed_data_parallel(self, module: Any, **options: Any) -> Any:
        """Wrap a module so that backward averages its gradients over the ranks.

        `options` are ``find_unused_parameters`` and ``forward_sync_buffers``, and with the capabilities init-sync,
        static-graph, gradient-buckets and process-subgroups ``init_sync``, ``static_graph``, ``bucket_cap_mb``,
        ``gradient_as_bucket_view`` and ``process_group``.
        """

    def no_sync(self, parallel: Any) -> AbstractContextManager[Any]:
        """Let passes inside accumulate the gradients of this rank alone."""

    def join(self, parallel: Any, **options: bool) -> AbstractContextManager[Any]:
        """Let ranks run unequal numbers of passes inside; `options` are those of PyTorch's ``join``."""

    def register_comm_hook(self, parallel: Any, state: Any, hook: type_of_hook) -> None:
        """Register ``hook(state, bucket)``, which returns a future of the reduced gradients of a bucket.

        A bucket has the methods ``buffer``, ``gradients``, ``parameters``, ``index``, ``is_last`` and ``set_buffer``.
        """

    def future(self, value: Any) -> Any:
        """Return a completed future that holds a value."""

    def all_reduce_future(self, tensor: Any) -> Any:
        """Begin an all-reduce, and return a future of it: ``future.then(function)`` is a future of what is returned."""

    def fully_shard(self, module: Any, **options: Any) -> Any:
        """Shard the parameters of a module in place, or those of several modules as one group.

        `options` are ``reshard_after_forward`` and ``ignored_params``, and with the capability hybrid-sharding
        ``mesh``, the shape of a mesh of all ranks.
        """

    def is_sharded(self, tensor: Any) -> bool:
        """Whether a tensor has its elements in several ranks."""

    def local_tensor(self, tensor: Any, *, grad_placement: str = "") -> Any:
        """Return the rank's part of a sharded tensor; `grad_placement` is the placement of the part's gradient."""

    def full_tensor(self, tensor: Any, *, grad_placement: str = "") -> Any:
        """Return a sharded tensor as a whole; all ranks call this, and `grad_placement` places its gradient."""

    def unshard(self, module: Any) -> None:
        """Make the parameters of a fully sharded module whole."""

    def reshard(self, module: Any) -> None:
        """Leave each rank its part of the parameters of a fully sharded module."""

    def set_requires_gradient_sync(self, module: Any, *, requires_gradient_sync: bool) -> None:
        """Set whether passes of a fully sharded module reduce gradients."""

    def set_all_reduce_hook(self, module: Any, hook: type_of_hook) -> None:
        """Set ``hook(reduced)``, which is called with the reduced gradients of a fully sharded module."""

    def set_requires_all_reduce(self, module: Any, *, requires_all_reduce: bool) -> None:
        """Set whether passes of a module that is sharded and replicated reduce gradients over the replicas."""

    def register_fsdp_forward_method(self, module: Any, name: str) -> None:
        """Run the hooks of a fully sharded module around a method of this name too."""

    def fully_sharded_data_parallel(self, module: Any, *, no_shard: bool = False) -> Any:
        """Wrap a module so that its parameters are sharded, or with `no_shard` that they are kept whole.

        A communication hook of the wrapper is ``hook(state, gradient, part)``, with `no_shard` ``hook(state,
        gradient)``, and stores what it makes of the gradient in its last argument.
        """

    def copy_(self, tensor: Any, values: Any) -> None:
        """Copy a tensor's values into another tensor in place."""

    def distribute_tensor(self, tensor: Any, placement: str) -> Any:
        """Return a leaf distributed over all ranks, with the values of the first rank.

        A placement is "shard", for which each rank has some of the rows, "replicate", or "partial", for which the
        tensor is the sum of what the ranks have; with the capability tensor-parallel also "shard-columns".
        """

    def from_local(self, tensor: Any, placement: str) -> Any:
        """Return a distributed tensor of which each rank gives its part."""

    def redistribute(self, tensor: Any, placement: str) -> Any:
        """Return a distributed tensor with another placement."""

    def placement(self, tensor: Any) -> str:
        """Return the placement of a tensor, or an empty string if it is not distributed."""

    def distribute_module(
        self, module: Any, *, input_fn: type_of_hook | None = None, output_fn: type_of_hook | None = None
    ) -> None:
        """Replicate a module's parameters as distributed tensors, with ``input_fn(module, inputs)`` before forward.

        ``output_fn(module, outputs)`` runs after forward; what the functions return takes the place of their argument.
        """

    def linear(self, weight: Any, bias: Any = None) -> Any:
        """Make a linear layer with a weight, and with a bias if one is given."""

    def layer_norm(self, weight: Any, bias: Any) -> Any:
        """Make a layer norm over the last dimension."""

    def cross_entropy(self, logits: Any, target: Any) -> Any:
        """Return the mean cross-entropy of logits, given the index of the class of each row."""

    def loss_parallel(self) -> AbstractContextManager[Any]:
        """Let the cross-entropy inside, and its backward, take logits that are distributed by columns."""

    def parallel_style(self, name: str, **options: Any) -> Any:
        """Return a style by PyTorch's name, such as ``ColwiseParallel``.

        `options` have layouts as placements; for several tensors as a tuple, where an empty text stands for None.
        """

    def parallelize_module(self, module: Any, plan: Any) -> None:
        """Split a module in place over all ranks by a style, or its submodules by a dictionary of styles."""

    def default_comm_hook(self, name: str) -> type_of_hook:
        """Return a communication hook of the framework by PyTorch's name, e.g. ``fp16_compress_hook``."""
