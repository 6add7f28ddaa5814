"""The actions that a command of `clearhead learn` or a key in `clearhead learn --watch` starts."""

from clearhead.course.exercises import EXERCISES, Exercise
from clearhead.course.folder import LearnFolder
from clearhead.course.phrasebook import phrases
from clearhead.course.state import spare_name
from clearhead.course.telling import wrap


def move_on(folder: LearnFolder, passed: Exercise | None = None) -> None:
    """Move on to the next exercise that has not been passed, after the current one or after
    `passed`."""
    folder.read_again()
    if (following := folder.next_after(passed or folder.current)) is not None:
        folder.state.current = following.name
        folder.save()


def tell_passed(folder: LearnFolder, exercise: Exercise, n: int, *, watching: bool) -> str:
    """Print the last line about an exercise that was passed. While watching, a key moves on."""
    say = phrases(folder.state.language)
    if (following := folder.next_after(exercise)) is None:
        return say["all_passed"].format(n=len(EXERCISES))
    said = say["passed_watch" if watching else "passed_check"]
    return said.format(file=exercise.file, n=n, following=following.file)


def tell_hint(folder: LearnFolder, exercise: Exercise) -> str:
    """Show the next hint, or after the last one, what else the learner can ask for."""
    number, text = folder.hint(exercise)
    n_hints = len(exercise.texts(folder.state.language)["hints"])
    say = phrases(folder.state.language)
    lines = wrap(say["hint"].format(n=number, all=n_hints, name=exercise.name, text=text))
    return "\n".join([*lines, say["last_hint"]] if number == n_hints else lines)


def show_solution(folder: LearnFolder, exercise: Exercise, yes: bool) -> None:
    """Ask the learner, show the solution, and record that it was shown."""
    say = phrases(folder.state.language)
    if yes or folder.has_passed(exercise) or _agrees(say["ask_solution"]):
        print(folder.solution(exercise))


def restore(folder: LearnFolder, exercise: Exercise, yes: bool) -> None:
    """Ask the learner, and restore the original file."""
    say = phrases(folder.state.language)
    spare = spare_name(folder.path / exercise.file, "bak").name
    if not yes and not _agrees(say["ask_reset"].format(file=exercise.file, kept=spare)):
        print(say["left"])
        return
    kept = folder.reset(exercise)
    said = say["restored"] if kept is None else say["kept"]
    print(said.format(file=exercise.file, kept=kept.name if kept else ""))


def _agrees(question: str) -> bool:
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        return False
