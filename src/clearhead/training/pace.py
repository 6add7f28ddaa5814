"""Notices when steps become slower than planned."""


class Pace:
    """Notices when steps become several times slower than planned. The run only reports it."""

    SLOWER = 3.0  # times as slow as planned
    STEPS = 20  # number of steps whose mean is compared

    def __init__(self, planned: float | None) -> None:
        self.planned = planned
        """The planned seconds of a step; None: those of the first steps, except the very first
        ones."""
        self.times: list[float] = []
        self.is_slow = False

    def after_step(self, seconds: float) -> str:
        """Return the message to report; empty if there is nothing new."""
        self.times.append(seconds)
        if len(self.times) < self.STEPS:
            return ""
        mean, self.times = sum(self.times) / len(self.times), []
        if self.planned is None:
            self.planned = mean
        was_slow, self.is_slow = self.is_slow, mean > self.SLOWER * self.planned
        if not self.is_slow or was_slow:
            return ""
        return (
            f"note: a step takes {mean:.3f} s, {mean / self.planned:.1f} times as long as planned "
            f"({self.planned:.3f} s); other programs may be using the processor"
        )
