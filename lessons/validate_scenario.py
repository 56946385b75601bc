"""Checks of ``scenario.json``: the runs, the steps with their questions and challenges, the figures."""

from __future__ import annotations

from typing import Any

from engine.config import EngineConfig
from engine.errors import BatchscopeError
from engine.workload.workload import Workload
from lessons import format as f
from lessons.findings import SCENARIO, Findings
from lessons.measure import METRICS
from lessons.scenario import ScenarioError, workload_of


class ScenarioChecks(Findings):
    """What may stand in a scenario is told in ``lessons/README.md``."""

    def head(self) -> None:
        scenario = self.lesson.scenario
        if self.whole(("number",), scenario["number"], 1, 99, "number") and int(self.lesson.name[:2]) != scenario["number"]:
            self.say(SCENARIO, ("number",), f"the number must be that of the folder, {int(self.lesson.name[:2])}.")
        self.whole(("minutes",), scenario["minutes"], *f.MINUTES, "minutes")
        self.device(("device",), scenario["device"])
        panels = scenario["panels"]
        if not isinstance(panels, list) or not panels:
            self.say(SCENARIO, ("panels",), "panels must be a list with at least one panel.")
        else:
            for index, name in enumerate(panels):
                if name not in f.PANELS:
                    self.say(SCENARIO, ("panels", index), f"there is no panel \"{str(name)[:40]}\"; the panels are {', '.join(f.PANELS)}.")
        limits = scenario.get("limits", {})
        if self.fields(SCENARIO, ("limits",), limits, {"ttft", "itl"}):
            for name, value in limits.items():
                if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
                    self.say(SCENARIO, ("limits", name), f"the limit {name} must be a number of seconds above 0.")
        if "score" in scenario:
            self.expression(SCENARIO, ("score",), scenario["score"])

    def device(self, path: tuple[Any, ...], device: Any) -> None:
        from engine.executor.catalog import parse_device
        if device == "model":
            return
        try:
            if not str(device).startswith("simulated:"):
                raise ValueError
            parse_device(str(device))
        except (BatchscopeError, ValueError) as error:
            self.say(SCENARIO, path, f"device must be \"model\" or \"simulated:\" and a known GPU. {error}".strip())

    def steps_are_a_list(self) -> bool:
        steps = self.lesson.scenario["steps"]
        good = isinstance(steps, list) and 0 < len(steps) <= f.MAX_STEPS and all(isinstance(step, dict) for step in steps)
        if not good:
            self.say(SCENARIO, ("steps",), f"steps must be a list of 1 to {f.MAX_STEPS} objects.")
        return good

    def a_run(self, name: str, run: dict[str, Any]) -> None:
        path = ("runs", name)
        if not name.isidentifier() or name in ("mine", *METRICS, *f.PREDICATE_NAMES):
            self.say(SCENARIO, path, f"\"{name[:40]}\" cannot name a run: it must be a plain word that names nothing else.")
        self.fields(SCENARIO, path, run, f.RUN_FIELDS)
        like = run.get("like")
        if like is not None and (like not in self.lesson.runs or like == name or "like" in self.lesson.runs[like]):
            self.say(SCENARIO, (*path, "like"), f"like must name another run that is written out, not \"{str(like)[:40]}\".")
            return
        if like is None and ("requests" in run) == ("workload" in run):
            self.say(SCENARIO, path, f"the run {name} needs either requests or a workload.")
        if "device" in run:
            self.device((*path, "device"), run["device"])
        if "max_steps" in run:
            self.whole((*path, "max_steps"), run["max_steps"], 1, f.MAX_ENGINE_STEPS, "max_steps")
        for index, entry in enumerate(run.get("requests", ()) if isinstance(run.get("requests"), list) else ()):
            self.fields(SCENARIO, (*path, "requests", index), entry, f.REQUEST_FIELDS)
        try:
            EngineConfig.from_dict(self.config_of(name))
        except BatchscopeError as error:
            self.say(SCENARIO, (*path, "config"), f"the config of {name} does not work: {error.message}")
        try:
            Workload.from_dict(workload_of(self.lesson, name))
        except (BatchscopeError, ScenarioError) as error:
            self.say(SCENARIO, (*path, "requests") if "requests" in run else (*path, "workload"), f"the requests of {name} do not work: {error}")
        self.script(path, name, run.get("script", []))

    def config_of(self, name: str) -> dict[str, Any]:
        run = self.lesson.runs[name]
        base = self.lesson.runs.get(run.get("like"), {})
        return {**(base.get("config") or {}), **(run.get("config") or {})}

    def script(self, path: tuple[Any, ...], name: str, script: Any) -> None:
        if not isinstance(script, list):
            self.say(SCENARIO, (*path, "script"), "script must be a list.")
            return
        before = 0
        for index, entry in enumerate(script):
            here = (*path, "script", index)
            if not self.fields(SCENARIO, here, entry, f.SCRIPT_FIELDS, ("at",)):
                continue
            if not self.whole((*here, "at"), entry["at"], before, f.MAX_ENGINE_STEPS, "at (not before the entry above)"):
                continue
            before = entry["at"]
            if ("configure" in entry) == ("cancel" in entry):
                self.say(SCENARIO, here, "an entry of the script either configures or cancels.")
            elif "configure" in entry:
                try:
                    EngineConfig.from_dict({**self.config_of(name), **entry["configure"]})
                except (BatchscopeError, TypeError) as error:
                    self.say(SCENARIO, (*here, "configure"), f"this change does not work: {error}")

    # --- steps ------------------------------------------------------------------------------------------------------------------

    def steps(self) -> None:
        steps, seen = self.lesson.steps, set()
        for index, step in enumerate(steps):
            path = ("steps", index)
            if not self.fields(SCENARIO, path, step, f.STEP_FIELDS, ("id", "kind", "run", "points_at", "advance")):
                continue
            if step["id"] in seen:
                self.say(SCENARIO, (*path, "id"), f"the id \"{step['id']}\" is taken by a step above.")
            seen.add(step["id"])
            if step["kind"] not in f.KINDS:
                self.say(SCENARIO, (*path, "kind"), f"kind must be one of {', '.join(f.KINDS)}.")
            if step["run"] not in self.lesson.runs:
                self.say(SCENARIO, (*path, "run"), f"there is no run named \"{str(step['run'])[:40]}\"; the runs are {', '.join(self.lesson.runs)}.")
            elif self.lesson.runs[step["run"]].get("record") is False:
                self.say(SCENARIO, (*path, "run"), f"the run \"{step['run']}\" is not recorded, so no step can show it.")
            if step["points_at"] not in self.lesson.scenario["panels"]:
                self.say(SCENARIO, (*path, "points_at"), f"the step points at \"{str(step['points_at'])[:40]}\", which is not among the lesson's panels.")
            self.expression(SCENARIO, (*path, "advance"), step["advance"], predicate=True)
            if "answered" in str(step["advance"]) and "question" not in step:
                self.say(SCENARIO, (*path, "advance"), "the step waits for an answer but asks nothing.")
            if "question" in step:
                self.question((*path, "question"), step)
            if step["kind"] == "prediction" and "question" not in step:
                self.say(SCENARIO, path, "a prediction needs a question.")
            if (step["kind"] == "challenge") != ("challenge" in step):
                self.say(SCENARIO, path, "a step of kind challenge, and only such a step, has a challenge.")
            if "challenge" in step:
                self.challenge((*path, "challenge"), step["challenge"])
        order = [step.get("kind") for step in steps]
        wanted = [kind for kind in f.KINDS if kind not in order]
        if wanted:
            self.say(SCENARIO, ("steps",), f"the lesson has no step of kind {wanted[0]}; it goes prediction, run, explanation, challenge.")
        elif not order.index("prediction") < order.index("run") < len(order) - 1 - order[::-1].index("explanation") < order.index("challenge"):
            self.say(SCENARIO, ("steps",), "the steps must go prediction, run, explanation, challenge, in this order.")

    def question(self, path: tuple[Any, ...], step: dict[str, Any]) -> None:
        question = step["question"]
        if not self.fields(SCENARIO, path, question, f.QUESTION_FIELDS, ("type",)):
            return
        if question["type"] == "choice":
            choices = question.get("choices")
            if not isinstance(choices, list) or not 2 <= len(choices) <= 6:
                self.say(SCENARIO, path, "a choice needs 2 to 6 choices, each a predicate of which the run makes exactly one true.")
                return
            for index, choice in enumerate(choices):
                self.expression(SCENARIO, (*path, "choices", index), choice)
        elif question["type"] == "number":
            if "answer" not in question:
                self.say(SCENARIO, path, "a question for a number needs an answer, computed from the runs.")
            else:
                self.expression(SCENARIO, (*path, "answer"), question["answer"])
            tolerance = question.get("tolerance", 0)
            if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 0 <= tolerance <= 1:
                self.say(SCENARIO, (*path, "tolerance"), "tolerance is a share between 0 and 1 of the right answer.")
        else:
            self.say(SCENARIO, (*path, "type"), "the type of a question is choice or number.")

    def challenge(self, path: tuple[Any, ...], challenge: Any) -> None:
        if not self.fields(SCENARIO, path, challenge, f.CHALLENGE_FIELDS, ("run", "knobs", "goal", "solution")):
            return
        if challenge["run"] not in self.lesson.runs:
            self.say(SCENARIO, (*path, "run"), f"there is no run named \"{str(challenge['run'])[:40]}\".")
            return
        self.expression(SCENARIO, (*path, "goal"), challenge["goal"])
        knobs, solution = challenge["knobs"], challenge["solution"]
        if not isinstance(knobs, dict) or not knobs or not isinstance(solution, dict):
            self.say(SCENARIO, (*path, "knobs"), "a challenge needs knobs with the values to choose from, and a solution.")
            return
        base = self.config_of(challenge["run"])
        for name, values in knobs.items():
            if not isinstance(values, list) or len(values) < 2:
                self.say(SCENARIO, (*path, "knobs", name), f"the knob {name} needs a list of at least two values.")
                continue
            for value in values:
                try:
                    EngineConfig.from_dict({**base, name: value})
                except BatchscopeError as error:
                    self.say(SCENARIO, (*path, "knobs", name), error.message)
        for name, value in solution.items():
            if value not in (knobs.get(name) if isinstance(knobs.get(name), list) else []):
                self.say(SCENARIO, (*path, "solution"), f"the solution sets {name[:40]} to {value}, which the challenge does not offer.")
        try:
            EngineConfig.from_dict({**base, **solution})
        except BatchscopeError as error:
            self.say(SCENARIO, (*path, "solution"), f"the solution does not work: {error.message}")

    def figures(self) -> None:
        figures = self.lesson.scenario.get("figures", {})
        if not isinstance(figures, dict):
            self.say(SCENARIO, ("figures",), "figures must be an object of figures by id.")
            return
        for name, figure in figures.items():
            path = ("figures", name)
            if not self.fields(SCENARIO, path, figure, f.FIGURE_FIELDS, ("kind",)):
                continue
            if figure["kind"] not in f.FIGURE_KINDS:
                self.say(SCENARIO, (*path, "kind"), f"the kind of a figure is one of {', '.join(f.FIGURE_KINDS)}.")
            elif figure["kind"] in ("curve", "bars"):
                for index, point in enumerate(figure.get("points", ())):
                    for part in (1, *range(2, len(point))) if isinstance(point, list) else ():
                        self.expression(SCENARIO, (*path, "points", index, part), point[part])
                if not figure.get("points"):
                    self.say(SCENARIO, path, "this figure needs points: a list of [label, expression].")
            elif figure.get("run") not in self.lesson.runs:
                self.say(SCENARIO, (*path, "run"), f"there is no run named \"{str(figure.get('run'))[:40]}\" to draw.")
