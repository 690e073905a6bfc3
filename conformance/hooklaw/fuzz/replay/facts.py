"""What a run notes of its program: it decides of what something is said, and what is worth a look."""

from dataclasses import dataclass, field


@dataclass(eq=False)
class Noted:
    """Names of tensors and modules by what became of them, and what has happened at all."""

    views: set[str] = field(default_factory=set[str])
    """Tensors that were made as views."""
    handed: set[str] = field(default_factory=set[str])
    """Tensors that modules returned, which may be views of what they were given."""
    shared: set[str] = field(default_factory=set[str])
    """Gradients, views of them, and views of what did not require grad: others may have the same numbers."""
    taken: set[str] = field(default_factory=set[str])
    """Gradients that leaves have accumulated, under names of their own."""
    owned: set[str] = field(default_factory=set[str])
    """Leaves that have, or whose gradients have, the layout of another tensor."""
    passes: int = 0
    """How many backward passes are running, one inside another."""
    created: bool = False
    """Whether a pass was to make gradients that are differentiable."""
    nests: bool = False
    """Whether a region runs a pass of its own: of one that fails torch keeps for a while what was ready to run."""
    changed: bool = False
    """Whether something was changed in place."""
    parameters: set[str] = field(default_factory=set[str])
    """Tensors that belong to modules."""
    functions: dict[str, str] = field(default_factory=dict[str, str])
    """What modules compute."""
    hooked: set[str] = field(default_factory=set[str])
    """Modules that have had hooks."""
    mutable: bool = False
    """Whether a context was entered in which saved tensors may be changed in place: it keeps some of them alive."""
    replicated: bool = False
    """Whether a module was called in replicas: what these save, when and how, is nobody's affair."""
    skipped: set[int] = field(default_factory=set[int])
    """Instructions that were not carried out, for want of a name or because nothing is said of what they do."""
    consumed: set[str] = field(default_factory=set[str])
    """What something was made of."""
    frozen: set[str] = field(default_factory=set[str])
    """Of that, what was then told not to require grad."""
    savers: set[str] = field(default_factory=set[str])
    """Tensors whose Nodes have saved their inputs or themselves, until something is changed in place."""
    inferred: set[str] = field(default_factory=set[str])
    """Tensors that were made in inference mode, and views of them."""
