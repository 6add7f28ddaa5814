"""Training on many accelerators: what it takes, before any is rented."""

from clearhead.config.tasks import Assumptions
from clearhead.scale.figures import Figure
from clearhead.scale.plan import WITHOUT_RECIPE, ClusterPlan, plan

__all__ = ["WITHOUT_RECIPE", "Assumptions", "ClusterPlan", "Figure", "plan"]
