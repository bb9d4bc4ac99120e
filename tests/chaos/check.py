"""What must hold in a run's folder after a fault, and at the run's end. Every function answers a list of violations."""
import hashlib
import json
import re
import struct

PIECE = 1 << 20
CHECKPOINT = re.compile(r"run/checkpoints/(step_\d+)")


def logged_steps(run):
    """The steps in metrics.jsonl, in its order; half a line at the end is none."""
    try:
        lines = (run / "metrics.jsonl").read_bytes().split(b"\n")
    except OSError:
        return []
    steps = []
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and "loss" in entry:
            steps.append(entry["step"])
    return steps


def whole_checkpoints(run):
    """The steps of those that have their names, oldest first."""
    try:
        names = [entry.name for entry in (run / "checkpoints").iterdir()]
    except OSError:
        return []
    return sorted(int(name[5:]) for name in names if re.fullmatch(r"step_\d{8}", name))


def file_digest(content):
    """As src/base/file_digest.h defines it: of the digests of pieces of 1 MiB, of which the last may be empty."""
    count = len(content) // PIECE + 1
    pieces = (hashlib.sha256(content[at * PIECE:(at + 1) * PIECE]).digest() for at in range(count))
    return hashlib.sha256(struct.pack("<Q", count) + b"".join(pieces)).hexdigest()


def checkpoint_problem(folder):
    """Why the checkpoint is not as it was written, by the digests in its state; None if it is."""
    try:
        state = json.loads((folder / "state.json").read_bytes())
        digests = state["sha256"]
    except (OSError, ValueError, KeyError) as error:
        return f"{folder.name}: no state with digests ({type(error).__name__})"
    files = {entry.name for entry in folder.iterdir()} - {"state.json"}
    if files != set(digests):
        return f"{folder.name}: holds {sorted(files)}, its state lists {sorted(digests)}"
    for name, digest in digests.items():
        if file_digest((folder / name).read_bytes()) != digest:
            return f"{folder.name}: {name} is not as it was written"
    return None


def ledger_events(run):
    """The events, None if there is no ledger, and a text if it cannot be read."""
    try:
        return json.loads((run / "ledger.json").read_bytes())["events"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, OSError) as error:
        return f"ledger.json cannot be read ({type(error).__name__})"


def segment(run):
    """The name of the nonce that the ledger is under and the step that it began after; None if there is no ledger."""
    try:
        ledger = json.loads((run / "ledger.json").read_bytes())
        return ledger["segment"], ledger["from"]["steps"]
    except (OSError, ValueError, KeyError):
        return None


def counted(events):
    return sum(event["last_step"] - (event["first_step"] - 1) for event in events)


def ledger_covers(run, begun):
    """`begun`: the last step that is known to have run."""
    events = ledger_events(run)
    if isinstance(events, str):
        return [events]
    if events is None:
        return [f"no ledger, and step {begun} was made"] if begun > 0 else []
    reached = max((event["last_step"] for event in events), default=0)
    return [f"the ledger counts to step {reached}, step {begun} was made"] if reached < begun else []


def after_fault(run, begun, newest_before):
    """`newest_before`: the newest checkpoint that was whole before the fault, 0 if there was none."""
    found = ledger_covers(run, begun)
    steps = whole_checkpoints(run)
    if newest_before > (steps[-1] if steps else 0):
        found.append(f"the checkpoint of step {newest_before} is gone, the newest is {steps[-1] if steps else 'none'}")
    for step in steps:
        problem = checkpoint_problem(run / "checkpoints" / f"step_{step:08}")
        if problem:
            found.append(problem)
    return found


def weights_digest(model):
    files = sorted(model.glob("*.safetensors"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest() if files else None


def names_below(folder):
    """Every file and folder; the files of TensorBoard, one per start, as one name."""
    return {
        "tensorboard/events" if "tensorboard/events" in str(path) else str(path.relative_to(folder))
        for path in folder.rglob("*")
    } - {"lost+found"}


def same_files(reference, names):
    """A run that was stopped has a checkpoint of its own then, which can be among the newest that are kept: they are as
    many as in the undisturbed run, the last one is the same, and none is older than the one in its place there."""
    def by_age(all_names):
        steps = sorted({found[1] for name in all_names if (found := CHECKPOINT.match(name))}, reverse=True)
        places = {step: f"run/checkpoints/{place}" for place, step in enumerate(steps)}
        return steps, {CHECKPOINT.sub(lambda found: places[found[1]], name) for name in all_names}

    (expected, wanted), (steps, have) = by_age(reference), by_age(names)
    return have == wanted and steps[:1] == expected[:1] and all(a >= b for a, b in zip(steps, expected))


class Outcome:
    """What a finished run has come to."""

    def __init__(self, folder):
        run, model = folder / "run", folder / "model"
        self.steps = logged_steps(run)
        self.weights = weights_digest(model)
        self.names = names_below(folder)
        events = ledger_events(run)
        self.events = events if isinstance(events, list) else []
        self.problems = [events] if isinstance(events, str) else [] if events else ["no ledger"]
        try:
            statement = json.loads((model / "privacy.json").read_bytes())
            self.epsilon, self.stated_steps = statement["epsilon"], statement["steps"]
        except (OSError, ValueError, KeyError) as error:
            self.epsilon, self.stated_steps = None, 0
            self.problems.append(f"privacy.json cannot be read ({type(error).__name__})")
        for step in whole_checkpoints(run):
            problem = checkpoint_problem(run / "checkpoints" / f"step_{step:08}")
            if problem:
                self.problems.append(problem)


def at_end(reference, outcome, executed=None, epsilon_of=None, differs=True):
    """`reference` and `outcome`: of the undisturbed run and of this one.

    A run that was always an exact replay must equal the reference. One that continued under a fresh nonce has other
    weights, and must have counted at least `executed` steps: those that were made in all its starts. `epsilon_of` says
    what so many steps cost. `differs`: whether a step was made under a fresh nonce, so that the weights are others.
    """
    found = list(outcome.problems)
    last = len(reference.steps)
    if outcome.steps != reference.steps:
        missing = sorted(set(reference.steps) - set(outcome.steps))
        found.append(f"metrics.jsonl has {len(outcome.steps)} steps, not 1 to {last}; missing: {missing[:5]}")
    if outcome.epsilon is None or outcome.epsilon < reference.epsilon:
        found.append(f"epsilon {outcome.epsilon} is below {reference.epsilon}")
    if counted(outcome.events) < last or max((event["last_step"] for event in outcome.events), default=0) < last:
        found.append(f"the ledger counts {counted(outcome.events)} steps of {last}")
    if outcome.stated_steps != counted(outcome.events):
        found.append(f"privacy.json states {outcome.stated_steps} steps, the ledger {counted(outcome.events)}")
    if not same_files(reference.names, outcome.names):
        more, fewer = sorted(outcome.names - reference.names), sorted(reference.names - outcome.names)
        found.append("files: " + ", ".join([f"{name} is left over" for name in more] + [f"no {name}" for name in fewer]))
    if outcome.weights is None:
        found.append("no weights were exported")
    if executed is None:
        if outcome.weights != reference.weights:
            found.append("the weights are not those of the undisturbed run")
        if outcome.epsilon != reference.epsilon:
            found.append(f"epsilon is {outcome.epsilon}, that of the undisturbed run is {reference.epsilon}")
        if len(outcome.events) != 1:
            found.append(f"{len(outcome.events)} events in the ledger of an exact replay")
        return found
    if differs and outcome.weights == reference.weights:
        found.append("a fresh nonce was announced, and the weights are those of the run's own nonce")
    if counted(outcome.events) < executed:
        found.append(f"the ledger counts {counted(outcome.events)} steps, {executed} were made")
    if epsilon_of and outcome.epsilon is not None:
        least = epsilon_of(executed) * (1 - 1e-9)  # the same sum, perhaps in another order
        if outcome.epsilon < least:
            found.append(f"epsilon {outcome.epsilon} is below {least}, that of the {executed} steps that were made")
    return found
