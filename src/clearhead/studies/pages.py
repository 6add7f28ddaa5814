"""Writes a study's result as Markdown, in both languages, with a picture and the result lines from
which they are made."""

import html
import math
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from clearhead.errors import ClearheadError, call
from clearhead.files import write_whole
from clearhead.studies.comparing import StudyResult
from clearhead.studies.picture import picture
from clearhead.studies.result_lines import as_text
from clearhead.studies.study_file import GRADIENTS, LANGUAGES, StudyPlan
from clearhead.studies.wording import (
    budget,
    chance_of,
    columns_with_sentences,
    difference_of,
    finding_of,
    heading,
    unequal_of,
    value_of,
    words,
)

SUFFIX = {"en": "", "zh": ".zh-CN"}
LONGEST = 200  # characters of a version or of a processor's name


def write_pages(result: StudyResult, folder: Path) -> list[Path]:
    """Write NAME.md, NAME.zh-CN.md, their pictures and NAME.jsonl."""
    if not result.arms:
        remedy = f"run it first: {call('study.run', result.plan.given)}"
        raise ClearheadError(f"{result.plan.name} has no finished run to show; {remedy}")
    folder.mkdir(parents=True, exist_ok=True)
    name = result.plan.name
    files = {f"{name}.jsonl": "".join(map(as_text, result.lines))}
    for language in LANGUAGES:
        files[f"{name}{SUFFIX[language]}.md"] = page(result, language)
        files[f"{name}{SUFFIX[language]}.svg"] = picture(result, language)
    for file, text in files.items():
        write_whole(folder / file, text)
    return [folder / file for file in files]


def page(result: StudyResult, language: str) -> str:
    """Return the whole page."""
    plan, say = result.plan, words(language)
    other = next(other for other in LANGUAGES if other != language)
    lines = [
        f"# {plain(plan.title[language])}",
        "",
        f"[{say['other']}]({plan.name}{SUFFIX[other]}.md)",
        "",
        plain(plan.question[language]),
        "",
        say["about"].format(
            arms=len(plan.names),
            seeds=len(plan.seeds),
            budget=budget(plan, language),
            finished=result.n_finished,
            runs=result.n_runs,
        ),
    ]
    if missing := _missing(result):
        minutes = _core_minutes(result) * (result.n_runs - result.n_finished)
        lines += ["", say["missing"].format(missing=say["and"].join(missing), minutes=minutes)]
    lines += ["", f"![{say['picture']}]({plan.name}{SUFFIX[language]}.svg)"]
    for column in plan.columns:
        lines += ["", f"## {heading(column, language)}", "", *_table(result, column, language)]
    if any("gradients" in line for line in result.lines):
        lines += ["", f"## {say['norms']}", "", say["about_norms"], "", *_norms(result, language)]
    lines += ["", f"## {say['costs']}", "", *_costs(result, language)]
    lines += ["", f"## {say['method']}", "", _method(result, language), ""]
    lines += [_provenance(result, language), "", "```bash"]
    given = shlex.quote(plan.given)
    lines += [f"clearhead study run {given}", f"clearhead study page {given}", "```", ""]
    return "\n".join(lines)


def _table(result: StudyResult, column: str, language: str) -> list[str]:
    plan, say = result.plan, words(language)
    baseline = _title(plan, plan.baseline, language)
    difference = say["difference"].format(baseline=baseline)
    head = [say["arm"], say["seeds"], say["mean"], difference, say["finding"], say["unequal"]]
    rows = [head, ["---"] * len(head)]
    for arm in result.arms:
        title = _title(plan, arm.name, language)
        rows.append(
            [
                title if arm.lr is None else f"{title}{say['comma']}{say['lr']} {arm.lr:g}",
                str(arm.n_seeds),
                value_of(arm, column),
                difference_of(arm, column),
                finding_of(arm, column, language),
                unequal_of(arm, language, times=True),
            ]
        )
    return [_row(cells) for cells in rows]


def _norms(result: StudyResult, language: str) -> list[str]:
    """For each layer, the geometric mean of its norms over the seeds."""
    say, plan = words(language), result.plan
    rows = [[say["arm"], say["stack"], *(say[when] for when in GRADIENTS)], ["---"] * 4]
    for arm in result.arms:
        lines = [
            line["gradients"]
            for line in result.lines
            if (line["arm"], line["lr"]) == (arm.name, arm.lr) and "gradients" in line
        ]
        lines = [line for line in lines if _sizes(line) == _sizes(lines[0])]
        for stack in lines[0][GRADIENTS[0]] if lines else ():
            cells = [
                ", ".join(
                    f"{geometric_mean(norms):.2g}"
                    for norms in zip(*(line[when][stack] for line in lines), strict=True)
                )
                for when in GRADIENTS
            ]
            rows.append([_title(plan, arm.name, language), say[stack], *cells])
    return [_row(cells) for cells in rows]


def _sizes(gradients: dict[str, dict[str, list[float]]]) -> dict[str, int]:
    return {stack: len(norms) for stack, norms in gradients[GRADIENTS[0]].items()}


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean; 0 if one of the numbers is 0. It uses logarithms, because a
    product of tiny norms would vanish."""
    if not all(values):
        return 0.0
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def _costs(result: StudyResult, language: str) -> list[str]:
    say, plan = words(language), result.plan
    columns = ("parameters", "tokens", "core_seconds")
    head = [say["arm"], *(say[column] for column in columns)]
    rows = [head, ["---"] * len(head)]
    for arm in result.arms:
        cells = [f"{arm.costs[c]:,.0f}" if c in arm.costs else "–" for c in columns]
        rows.append([_title(plan, arm.name, language), *cells])
    return [_row(cells) for cells in rows]


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _method(result: StudyResult, language: str) -> str:
    say, plan = words(language), result.plan
    rates = sorted({arm.lr for arm in plan.arms if arm.lr is not None})
    shown = say["and"].join(f"{rate:g}" for rate in rates)
    sentences = [
        _interval(result, language),
        _pairing(result, language),
        say["no_difference"],
        chance_of(result, language, "on_page"),
        say["sweep"].format(rates=shown) if rates else "",
    ]
    return say["space"].join(filter(None, sentences))


def _interval(result: StudyResult, language: str) -> str:
    say, with_sentences = words(language), columns_with_sentences(result)
    seeds_alone = [column for column in result.plan.columns if column not in with_sentences]
    if not with_sentences:
        return say["interval_seeds"]
    if not seeds_alone:
        return say["interval_sentences"]
    return say["interval_some"].format(columns=say["and"].join(seeds_alone))


def _pairing(result: StudyResult, language: str) -> str:
    say, plan = words(language), result.plan
    compared = [arm.name for arm in result.arms if arm.differences]
    apart = [name for name in compared if not plan.is_paired(name)]
    if not compared:
        return ""
    if not apart:
        return say["paired"]
    if len(apart) == len(compared):
        return say["unpaired"]
    titles = say["and"].join(_title(plan, name, language) for name in apart)
    return say["paired"] + say["space"] + say["unpaired_some"].format(arms=titles)


def _provenance(result: StudyResult, language: str) -> str:
    say = words(language)

    def of(name: str) -> str:
        return say["and"].join(texts(name))

    def texts(name: str) -> list[str]:
        return sorted({plain(line.get(name, "?")[:LONGEST]) for line in result.lines})

    dates = texts("date")
    measured = say["by"].format(
        dates=dates[0] if dates[0] == dates[-1] else f"{dates[0]} – {dates[-1]}",
        versions=of("clearhead"),
        torch=of("torch"),
        processor=of("processor"),
        file=f"{result.plan.name}.jsonl",
    )
    return say["space"].join(filter(None, [_by_version(result, language), measured]))


def _title(plan: StudyPlan, name: str, language: str) -> str:
    return plain(plan.title_of(name, language))


def plain(text: str) -> str:
    """Return text of a study or of its folder, which may come from somebody else, as one line of
    Markdown that becomes neither HTML nor a link."""
    one_line = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"[\\\[\]|]", r"\\\g<0>", one_line)


def _by_version(result: StudyResult, language: str) -> str:
    """Which arms were measured with which code; "" if all with the same."""
    say, plan = words(language), result.plan
    arms: dict[str, list[str]] = {}
    for line in result.lines:
        arm_names = arms.setdefault(plain(line.get("clearhead", "?")[:LONGEST]), [])
        if line["arm"] not in arm_names:
            arm_names.append(line["arm"])
    if len(arms) < 2:
        return ""
    *few, (last, most) = sorted(arms.items(), key=lambda each: len(each[1]))
    shown = [
        (version, say["and"].join(_title(plan, name, language) for name in names))
        for version, names in few
    ]
    rest = {name for _, names in few for name in names}
    others = say["other_arms"] if rest.isdisjoint(most) else say["all_arms"]
    parts = [say["version"].format(version=v, arms=a) for v, a in [*shown, (last, others)]]
    return say["versions"].format(which=say["semicolon"].join(parts))


def _missing(result: StudyResult) -> list[str]:
    plan: StudyPlan = result.plan
    done = {(line["arm"], line["lr"], line["seed"]) for line in result.lines}
    return [
        f"{arm.key}-{seed}"
        for seed in plan.seeds
        for arm in plan.arms
        if (arm.name, arm.lr, seed) not in done
    ]


def _core_minutes(result: StudyResult) -> float:
    """The mean core-minutes of a run."""
    seconds = [line["core_seconds"] for line in result.lines if line.get("core_seconds")]
    return sum(seconds) / len(seconds) / 60 if seconds else 0.0
