"""What the engine refuses: one exception a kind, each of the type that PyTorch raises."""


class GraphFreedError(RuntimeError):
    """A saved tensor was asked for that an earlier backward has freed."""


class NoGradientError(RuntimeError):
    """Something was asked of the gradient of a tensor that has none."""


class NotALeafError(RuntimeError):
    """Only a leaf accumulates a gradient."""


class LeafInPlaceError(RuntimeError):
    """A leaf that requires grad was changed in place while recording."""


class HookTypeError(TypeError):
    """A hook returned something that is no gradient."""


class HookShapeError(RuntimeError):
    """A hook returned a gradient of another shape."""


class HookDtypeError(RuntimeError):
    """A hook returned a gradient of another dtype."""


class HookCountError(RuntimeError):
    """A Node hook returned more or fewer gradients than it was given."""


class FunctionCountError(RuntimeError):
    """The backward of a custom Function returned more or fewer gradients than its forward had inputs."""


class OnceDifferentiableError(RuntimeError):
    """A gradient was differentiated that comes from a backward which is differentiable once."""


class SavedTensorsClearedError(RuntimeError):
    """Saved tensors were read again that the first reading had cleared."""


class UnusedInputError(RuntimeError):
    """A gradient was asked for that is none, with no word of allowing that."""


class UnusedConflictError(ValueError):
    """Unused inputs were to get zeros, and to be refused."""


class NotANumberError(RuntimeError):
    """A gradient was no number where backward looks for that."""


class InferenceTensorError(RuntimeError):
    """What was made in inference mode was to be saved for backward, or changed outside of it."""


class ModuleHookError(RuntimeError):
    """A hook of a module returned something that it may not."""


class HookKindsError(RuntimeError):
    """A module was given backward hooks of both kinds."""


class ModuleInPlaceError(RuntimeError):
    """An input or output of a module that has backward hooks was changed in place."""


class StateHookError(RuntimeError):
    """A hook on the saving of a module's state returned something."""


class LoadHookError(AssertionError):
    """A hook on the loading of a module's state returned something."""


class StateKeysError(RuntimeError):
    """The state that was loaded does not fit the module."""


class StepHookError(RuntimeError):
    """A hook before an optimizer's step returned something that it may not."""


class UnpackTypeError(TypeError):
    """An unpack hook returned something that is no tensor."""


class OutsideMutationError(AssertionError):
    """What was saved where it may be changed in place was asked for after the end of that context."""


class NestedMutationError(RuntimeError):
    """A context in which saved tensors may be changed in place was entered inside another one."""


class PackInPlaceError(RuntimeError):
    """A pack hook changed its input in place."""


class SavedTensorModifiedError(RuntimeError):
    """A tensor saved for backward was changed in place afterwards."""


class SavedHooksDisabledError(RuntimeError):
    """Saved-tensor hooks were used where they are forbidden."""


class CheckpointKindError(RuntimeError):
    """A checkpoint was not told whether it is reentrant."""


class CheckpointReentrantError(RuntimeError):
    """A reentrant checkpoint met a backward that is limited to some inputs."""


class CheckpointMismatchError(RuntimeError):
    """What a checkpoint has computed again is not what it computed at first."""


class SavedHooksSetError(RuntimeError):
    """A saved tensor was given a second pair of hooks."""
