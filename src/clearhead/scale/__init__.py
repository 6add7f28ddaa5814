"""Plans training on many accelerators, before you rent them."""

from clearhead.config.tasks import Assumptions
from clearhead.scale.figures import Figure
from clearhead.scale.plan import WITHOUT_RECIPE, ClusterPlan, plan

__all__ = ["WITHOUT_RECIPE", "Assumptions", "ClusterPlan", "Figure", "plan"]
