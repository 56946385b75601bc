"""The lesson language gives the same answers in Python and in the browser, and nothing beyond it can be written in it."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from lessons.expression import Expression, ExpressionError

HERE = Path(__file__).parent
CASES = json.loads((HERE / "expression_cases.json").read_text(encoding="utf-8"))
MODULE = HERE.parents[1] / "viz" / "static" / "lessons" / "expression.js"


def python_answer(text):
    try:
        return Expression(text).evaluate(CASES["names"])
    except ExpressionError:
        return "error"


@pytest.mark.parametrize("text,expected", CASES["cases"], ids=[case[0][:40] or "(empty)" for case in CASES["cases"]])
def test_python_gives_the_stated_answer(text, expected):
    answer = python_answer(text)
    assert answer == expected and isinstance(answer, bool) == isinstance(expected, bool)


def test_the_browser_gives_the_same_answers():
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed; the browser tests run the same module")
    program = f"""
    const {{ evaluate, ExpressionError }} = await import({json.dumps(MODULE.as_uri())});
    const {{ names, cases }} = JSON.parse(await new Promise((done) => {{
      let text = ''; process.stdin.on('data', (part) => text += part); process.stdin.on('end', () => done(text)); }}));
    const answers = cases.map(([text]) => {{
      try {{ return evaluate(text, names); }} catch (error) {{ if (!(error instanceof ExpressionError)) throw error; return 'error'; }} }});
    process.stdout.write(JSON.stringify(answers));
    """
    run = subprocess.run([node, "--input-type=module", "-e", program], input=json.dumps(CASES), capture_output=True, text=True,
                         timeout=240, check=False)
    assert run.returncode == 0, run.stderr
    answers = json.loads(run.stdout)
    wrong = [(case[0], case[1], answer) for case, answer in zip(CASES["cases"], answers)
             if answer != case[1] or isinstance(answer, bool) != isinstance(case[1], bool)]
    assert wrong == []


def test_an_endless_expression_is_refused():
    for text in ("1+" * 300 + "1", "min(" * 120 + "1" + ")" * 120):
        with pytest.raises(ExpressionError):
            Expression(text)


def test_names_are_known_before_the_run():
    assert Expression("static.steps > 2 * continuous.steps").names >= {"static.steps", "continuous.steps"}
