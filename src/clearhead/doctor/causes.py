"""Orders causes before consequences: a finding that follows from another is folded under it."""

from dataclasses import replace

from .findings import Finding

_EVERYTHING = "*"
# A finding, and what it explains (checks, or cases of them), the most fundamental first.
_RULES: tuple[tuple[str, str], ...] = (
    ("registered.hidden", _EVERYTHING),
    ("output.weights", _EVERYTHING),
    ("output.not_finite", _EVERYTHING),
    ("determinism.state", _EVERYTHING),
    ("determinism.eval", _EVERYTHING),
    ("determinism.mode", _EVERYTHING),
    (
        "determinism.input",
        "causal context batch cache loss_value greedy.eval greedy.not_best knows_the_future",
    ),
    ("registered.built", "residual save_load norms determinism gradients"),
    ("weights.axis", "causal context batch cache padding pad_value knows_the_future relative"),
    (
        "batch.eval",
        "causal context positions source padding pad_value cache greedy.eval greedy.not_best "
        "knows_the_future mixing relative lengths accumulation batch_generation weights "
        "attention_scale",
    ),
    ("batch.train", "modes knows_the_future"),
    (
        "mixing.outside_attention",
        "causal cache padding pad_value batch knows_the_future context greedy.eval "
        "greedy.not_best weights",
    ),
    ("weights.not_itself", "positions mixing padding cache"),
    ("norms.scale", "residual first_loss norms.size dtypes overfits embedding_scale"),
    ("norms.size", "residual first_loss"),
    ("residual.none", "context source gradients dtypes positions overfits"),
    (
        "target_leak.encoder",
        "causal source knows_the_future cache encodes_once positions padding gradients",
    ),
    (
        "causal",
        "cache knows_the_future first_loss.low greedy.eval greedy.not_best padding pad_value modes "
        "weights.not_itself target_leak mask_strength padding_finite batch_generation lengths "
        "loss_value.other",
    ),
    (
        "context",
        "positions source padding pad_value relative cache gradients knows_the_future weights "
        "attention_scale padding_finite overfits residual",
    ),
    ("source.swapped", "causal lengths padding pad_value positions weights cache residual"),
    ("residual.skips", "gradients overfits"),
    ("source.unused", "gradients encodes_once padding pad_value positions.source weights lengths"),
    ("lengths", "limit padding weights encodes_once"),
    ("relative.values", "relative positions padding"),
    ("relative.places", "cache"),
    ("shared.norm", "gradients"),
    ("shared.layers", "residual"),
    ("sinusoids.whole", "positions"),
    ("positions", "gradients.none padding.left"),
    ("gradients", "overfits gradient_value tied"),
    ("modes.differ", "knows_the_future padding_finite"),
    ("loss_value", "ignored_targets accumulation knows_the_future overfits"),
    ("ignored_targets.counted", "accumulation ignored_targets"),
    ("attention_scale", "overfits dtypes first_loss gradients"),
    ("cache", "greedy.eval greedy.not_best beams batch_generation"),
    ("padding", "pad_value padding_finite batch_generation cache.padded"),
    ("greedy", "stops beams batch_generation temperature top_k"),
    ("first_loss", "overfits dtypes"),
    ("shared.layers", "shared.norm deepcopy"),
)
_RANK = {"error": 0, "warning": 1, "note": 2}


def fold(findings: list[Finding]) -> tuple[Finding, ...]:
    """Return each finding with the case from which it follows, if there is one. Headlines come
    first, in the order of the causes, and each is followed by its consequences."""
    findings = sorted(findings, key=lambda f: _RANK[f.severity])  # the worst of a case leads it
    roots = {finding.case: _cause(finding, findings) for finding in findings}

    def root(case: str) -> str | None:
        cause, seen = roots.get(case), {case}
        while cause is not None and roots.get(cause) is not None and cause not in seen:
            seen.add(cause)
            cause = roots[cause]
        return cause

    folded: list[Finding] = []
    for finding in findings:
        again = any(other.case == finding.case and other.because is None for other in folded)
        because = finding.case if again else root(finding.case)
        folded.append(replace(finding, because=because))
    groups: list[list[Finding]] = []
    for headline in [finding for finding in folded if finding.because is None]:
        following = [f for f in folded if f.because == headline.case]
        worst = min((headline, *following), key=lambda f: _RANK[f.severity]).severity
        groups.append([replace(headline, severity=worst), *following])
    groups.sort(key=lambda group: (_RANK[group[0].severity], _rule(group[0])))
    return tuple(finding for group in groups for finding in group)


def _rule(finding: Finding) -> int:
    """Return the rank of a headline among the causes; other headlines come last."""
    order = [index for index, (rule, _) in enumerate(_RULES) if _matches(finding, rule)]
    return min(order, default=len(_RULES))


def _cause(finding: Finding, findings: list[Finding]) -> str | None:
    if finding.severity == "note":
        return None
    # Only by what is more fundamental: nothing explains its own explanation.
    for rule, effects in _RULES[: _rule(finding)]:
        for other in findings:
            if not _matches(other, rule) or (other.check == finding.check and "." not in rule):
                continue
            if other.case == finding.case or other.severity == "note":
                continue
            if effects == _EVERYTHING or any(_matches(finding, e) for e in effects.split()):
                return other.case
    return None


def _matches(finding: Finding, pattern: str) -> bool:
    return pattern in (finding.check, finding.case)
