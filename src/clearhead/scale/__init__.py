"""Training on many accelerators: what it takes, before any is rented."""

from clearhead.scale.figures import Figure
from clearhead.scale.plan import Assumptions, ClusterPlan, plan

__all__ = ["Assumptions", "ClusterPlan", "Figure", "plan"]
