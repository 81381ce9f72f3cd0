"""Stacks: all members of all replicates trained together as one batched computation."""

from ensgap.stack.layers import StackedBatchNorm, StackedLinear, member_state
from ensgap.stack.optim import StackOptimizer

__all__ = ["StackOptimizer", "StackedBatchNorm", "StackedLinear", "member_state"]
