"""Stacks: all members of all replicates trained together."""

from ensgap.stack.batch_ensemble import FastInit
from ensgap.stack.batch_ensemble_stack import BatchEnsembleStack
from ensgap.stack.optim import OptimizerConfig
from ensgap.stack.stack import BatchedStack, Kernels, LoopStack, Precision, Stack
from ensgap.stack.vectorize import Vectorized, Way, make_member, vectorize, vectorize_members

__all__ = [
    "BatchEnsembleStack",
    "BatchedStack",
    "FastInit",
    "Kernels",
    "LoopStack",
    "OptimizerConfig",
    "Precision",
    "Stack",
    "Vectorized",
    "Way",
    "make_member",
    "vectorize",
    "vectorize_members",
]
