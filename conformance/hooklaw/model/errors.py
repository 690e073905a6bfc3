"""The engine's errors: one exception for each ErrorKind, derived from the type that PyTorch raises."""


class GraphFreedError(RuntimeError):
    """A saved tensor was read after an earlier backward had freed it."""


class NoGradientError(RuntimeError):
    """The gradient of a tensor that does not require grad was used."""


class NotALeafError(RuntimeError):
    """A post-accumulate-grad hook was registered on a non-leaf."""


class ViewDetachedError(RuntimeError):
    """A view was detached in place."""


class LeafInPlaceError(RuntimeError):
    """A leaf that requires grad was changed in place in grad mode."""


class HookTypeError(TypeError):
    """A hook returned something that is not a gradient."""


class HookShapeError(RuntimeError):
    """A hook returned a gradient of another shape."""


class HookDtypeError(RuntimeError):
    """A hook returned a gradient of another dtype."""


class HookCountError(RuntimeError):
    """A Node hook returned more or fewer gradients than it was given."""


class FunctionCountError(RuntimeError):
    """The backward of a custom Function returned more or fewer gradients than its forward had inputs."""


class OnceDifferentiableError(RuntimeError):
    """A gradient from a once_differentiable backward was differentiated."""


class SavedTensorsClearedError(RuntimeError):
    """Saved tensors were read again after they had been cleared on access."""


class UnusedInputError(RuntimeError):
    """An input of grad was unused, without allow_unused."""


class UnusedConflictError(ValueError):
    """materialize_grads=True was given with allow_unused=False."""


class NotANumberError(RuntimeError):
    """A Node returned NaN under anomaly detection."""


class InferenceTensorError(RuntimeError):
    """An inference tensor was saved for backward, or changed outside of inference mode."""


class ModuleHookError(RuntimeError):
    """A hook of a module returned something that is not allowed."""


class HookKindsError(RuntimeError):
    """A module was given full and legacy backward hooks."""


class ModuleInPlaceError(RuntimeError):
    """An input or output of a module that has backward hooks was changed in place."""


class StateHookError(RuntimeError):
    """A state_dict post-hook returned something."""


class LoadHookError(AssertionError):
    """A load_state_dict post-hook returned something."""


class StateKeysError(RuntimeError):
    """A loaded state does not match the module."""


class StepHookError(RuntimeError):
    """A step pre-hook of an optimizer returned something that is not allowed."""


class UnpackTypeError(TypeError):
    """An unpack hook returned something that is not a tensor."""


class OutsideMutationError(AssertionError):
    """A tensor saved inside allow_mutation_on_saved_tensors was read outside of it."""


class NestedMutationError(RuntimeError):
    """allow_mutation_on_saved_tensors was entered inside itself."""


class PackInPlaceError(RuntimeError):
    """A pack hook changed its input in place."""


class SavedTensorModifiedError(RuntimeError):
    """A tensor was changed in place after it was saved for backward."""


class SavedHooksDisabledError(RuntimeError):
    """Saved-tensor hooks were used inside disable_saved_tensors_hooks."""


class CheckpointKindError(RuntimeError):
    """checkpoint was called without use_reentrant."""


class CheckpointReentrantError(RuntimeError):
    """A reentrant checkpoint was run through by grad or by a backward with inputs."""


class CheckpointMismatchError(RuntimeError):
    """A checkpoint recomputed other tensors than it computed in forward."""


class CheckpointOptionError(ValueError):
    """A checkpoint was given an option that its kind does not have."""


class CheckpointSelectiveError(RuntimeError):
    """What a selective checkpoint had saved was changed in place, or used in a second backward."""


class CheckpointPolicyError(ValueError):
    """A selective checkpoint was given a list of something else than operations."""


class SavedHooksSetError(RuntimeError):
    """A saved tensor was given a second pair of hooks."""
