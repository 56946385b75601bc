"""``python -m engine.bench run`` compares configurations, labels simulation, and writes all that is needed to repeat a run."""

import json

import pytest

from engine.bench.__main__ import commands, run_command
from engine.bench.run import cross_product, parse_limits
from engine.errors import CommandRefused, ConfigRefused

SIMULATED = ["run", "--device", "simulated:h100", "--model", "llama-8b"]


def test_help_lists_the_commands_without_importing_them(capsys):
    assert run_command(["--help"]) == 0
    assert {"run", "schedule", "calibrate"} <= set(commands()) and "run " in capsys.readouterr().out
    assert run_command([]) == 2 and run_command(["dance"]) == 2


def test_two_configurations_are_compared_and_written_with_a_run_card(tmp_path, capsys):
    target = tmp_path / "out.json"
    assert run_command([*SIMULATED, "--workload", "thrash", "--requests", "12", "--set", "max_batch_tokens=16,64",
                        "--limit-seconds", "ttft=5", "--json", str(target)]) == 0
    printed = capsys.readouterr().out
    assert "SIMULATED" in printed and "max_batch_tokens=16" in printed
    written = json.loads(target.read_text())
    card = written["card"]
    assert card["simulated"] and card["seed"] == 0 and card["workload"]["num_requests"] == 12 and card["versions"]["python"]
    assert {"model", "device", "dtype", "started"} <= set(card)
    assert [one["config"]["max_batch_tokens"] for one in written["runs"]] == [16, 64]
    assert all(one["report"]["requests"] == {"total": 12, "finished": 12} and one["report"]["goodput"] for one in written["runs"])


def test_the_same_command_gives_the_same_figures(tmp_path, capsys):
    reports = []
    for name in ("a", "b"):
        run_command([*SIMULATED, "--workload", "chat", "--requests", "10", "--json", str(tmp_path / name)])
        reports.append(json.loads((tmp_path / name).read_text())["runs"][0]["report"])
    assert reports[0] == reports[1]


def test_a_trace_is_run_as_recorded(tmp_path, capsys):
    (tmp_path / "trace.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,374,4\n2023-11-16 18:15:56,30,2\n")
    assert run_command([*SIMULATED, "--trace", str(tmp_path / "trace.csv"), "--json", str(tmp_path / "out.json")]) == 0
    report = json.loads((tmp_path / "out.json").read_text())["runs"][0]["report"]
    assert report["prompt_tokens"] == 404 and report["output_tokens"] == 6 and report["seconds"] > 10


def test_refused_requests_are_counted_and_told(tmp_path, capsys):
    (tmp_path / "w.json").write_text(json.dumps({"items": [{"prompt": 9000, "output": 4}, {"prompt": 5, "output": 4}]}))
    assert run_command([*SIMULATED, "--workload", str(tmp_path / "w.json"), "--set", "num_blocks=10"]) == 0
    printed = capsys.readouterr().out
    assert "1 requests were refused" in printed and "1/1" in printed


@pytest.mark.parametrize("arguments", [
    ["--workload", "nosuch"], ["--device", "simulated:abacus"], ["--device", "gpu"], ["--set", "max_batch_tokens"], ["--set", "nope=3"],
    ["--set", "max_batch_tokens=0"], ["--limit-seconds", "speed=3"], ["--rate", "2", "--users", "3"], ["--trace", "missing.csv"]])
def test_mistakes_on_the_command_line_are_told_in_a_sentence(arguments, capsys):
    assert run_command(["run", "--device", "simulated:h100", *arguments]) == 2
    assert capsys.readouterr().err.strip().endswith(".")


def test_values_of_knobs_are_read_as_people_write_them():
    made = cross_product({"block_size": 8}, ["chunked_prefill=true,False", "num_blocks=auto", "scheduler_type=static", "safety_margin=0.1"])
    assert [config.chunked_prefill for _, config in made] == [True, False]
    assert all(config.num_blocks is None and config.block_size == 8 and config.safety_margin == 0.1 for _, config in made)
    with pytest.raises(ConfigRefused, match="at most"):
        cross_product({}, [f"max_batch_tokens={','.join(map(str, range(1, 70)))}"])


def test_limits_are_positive_seconds():
    assert parse_limits("ttft=0.5,tpot=2") == {"ttft": 0.5, "tpot": 2.0} and parse_limits("") == {}
    for bad in ("ttft=0", "ttft=-1", "ttft=nan", "ttft", "x=1"):
        with pytest.raises(CommandRefused):
            parse_limits(bad)
