"""Public trace files become workloads, and broken ones are refused at their line."""

import json

import pytest

from engine.errors import CommandRefused
from engine.workload import load_trace
from engine.workload.traces import azure_trace, sharegpt_trace

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:48.0000000,10,1
"""


def conversation(question="What is rain?", answer="Water that falls from clouds."):
    return {"id": "a", "conversations": [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]}


def test_an_azure_trace_keeps_distances_and_lengths(tmp_path):
    (tmp_path / "code.csv").write_text(AZURE)
    plan = load_trace(tmp_path / "code.csv").plan()
    assert [(one.prompt_length, one.output_length) for one in plan] == [(374, 44), (10, 1), (396, 109)]
    assert [one.at for one in plan] == pytest.approx([0, 1.31941, 4.314579])


def test_the_2024_form_with_time_zones_is_read_too():
    plan = azure_trace("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:01+00:00,9,3\n").plan()
    assert plan[1].at == pytest.approx(0.99007)


def test_only_the_first_requests_are_read():
    assert len(azure_trace(AZURE, limit=2).plan()) == 2


@pytest.mark.parametrize(("text", "message"), [
    ("", "line 1"), ("a,b,c\n1,2,3\n", "line 1"), ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "no requests"),
    (AZURE + "yesterday,1,1\n", "line 5"), (AZURE + "2023-11-16 18:15:48,0,1\n", "line 5: ContextTokens"),
    (AZURE + "2023-11-16 18:15:48,5\n", "line 5: GeneratedTokens"), (AZURE + "2023-11-16 18:15:48,5,9999999999999\n", "line 5"),
    (AZURE + "2023-11-16 18:15:48,١,1\n", "line 5"), (AZURE + "2023-11-16 18:15:48,-3,1\n", "line 5"),
])
def test_a_broken_csv_is_refused_at_its_line(text, message):
    with pytest.raises(CommandRefused, match=message):
        azure_trace(text)


def test_sharegpt_without_a_tokenizer_keeps_lengths_at_four_characters_a_token():
    plan = sharegpt_trace(json.dumps([conversation("x" * 400, "y" * 40)])).plan()
    assert (plan[0].prompt, plan[0].prompt_length, plan[0].output_length) == (None, 100, 10)


def test_sharegpt_with_a_tokenizer_keeps_the_words():
    class Words:
        def encode(self, text, add_special_tokens):
            return text.split()

    plan = sharegpt_trace(json.dumps([conversation()]), tokenizer=Words()).plan()
    assert (plan[0].prompt, plan[0].output_length) == ("What is rain?", 5)


def test_sharegpt_skips_what_does_not_start_with_question_and_answer():
    odd = [{}, 3, None, {"conversations": []}, {"conversations": [{"from": "gpt", "value": "Hi"}, {"from": "human", "value": "Yo"}]},
           {"conversations": [{"from": "human", "value": 3}, {"from": "gpt", "value": "x"}]}, conversation("", "x")]
    plan = sharegpt_trace(json.dumps([*odd, conversation()]), arrivals={"kind": "poisson", "rate": 2}).plan()
    assert len(plan) == 1 and plan[0].at > 0


@pytest.mark.parametrize("text", ["", "{}", "[]", "[" * 100_000, '[{"conversations": 1}]', "[1, 2", "9" * 5000])
def test_a_broken_json_is_refused_in_a_sentence(text):
    with pytest.raises(CommandRefused) as refusal:
        sharegpt_trace(text)
    assert str(refusal.value)[-1] == "."


@pytest.mark.parametrize("name", ["trace.txt", "missing.csv"])
def test_other_files_are_refused_by_name(tmp_path, name):
    with pytest.raises(CommandRefused, match=name):
        load_trace(tmp_path / name)


def test_a_binary_file_is_refused(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(CommandRefused, match="UTF-8"):
        load_trace(tmp_path / "t.csv")


def test_limits_on_the_number_of_requests_hold():
    for limit in (0, -1, 10**6):
        with pytest.raises(CommandRefused):
            azure_trace(AZURE, limit=limit)
