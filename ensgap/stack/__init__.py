"""Stacks: all members of all replicates trained together."""

from ensgap.stack.optim import OptimizerConfig
from ensgap.stack.stack import BatchedStack, Kernels, LoopStack, Precision, Stack

__all__ = ["BatchedStack", "Kernels", "LoopStack", "OptimizerConfig", "Precision", "Stack"]
