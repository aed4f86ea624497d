"""Files to named tensors and a config. The only place that knows file formats; loads torch only to read weights."""

from headspan.checkpoint.checkpoint import Checkpoint, StackSummary, Summary, summary
from headspan.checkpoint.opening import open_checkpoint
from headspan.checkpoint.stored_stack import StoredStack

__all__ = ["Checkpoint", "StackSummary", "StoredStack", "Summary", "open_checkpoint", "summary"]
