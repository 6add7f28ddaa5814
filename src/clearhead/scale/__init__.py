"""Training on many accelerators: what it takes, before any is rented."""

from clearhead.scale.figures import Figure
from clearhead.scale.plan import WITHOUT_RECIPE, Assumptions, ClusterPlan, plan

__all__ = ["WITHOUT_RECIPE", "Assumptions", "ClusterPlan", "Figure", "plan"]
