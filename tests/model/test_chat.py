"""What a person typed becomes the tokens the model was trained to see."""

from __future__ import annotations

import pytest

from engine.errors import RequestRefused
from engine.model.chat import encode_chat, encode_prompt, encode_user_text


def test_a_chat_prompt_ends_where_the_answer_begins(default_model):
    tokenizer = default_model.tokenizer
    text = tokenizer.decode(encode_user_text(tokenizer, "What is the capital of France?", chat=True))
    assert text.startswith("<|im_start|>system\n")
    assert text.endswith("<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n")


def test_a_raw_prompt_is_only_itself(default_model):
    tokenizer = default_model.tokenizer
    assert tokenizer.decode(encode_user_text(tokenizer, "Once upon a time", chat=False)) == "Once upon a time"


def test_the_model_answers_a_chat_prompt(default_model):
    import torch

    ids = encode_chat(default_model.tokenizer, [{"role": "user", "content": "What is the capital of France?"}])
    output = default_model.model.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False)
    assert "Paris" in default_model.tokenizer.decode(output[0, len(ids):])


def test_a_tokenizer_without_a_template_gets_the_contents(default_model):
    from copy import copy

    plain = copy(default_model.tokenizer)
    plain.chat_template = None
    assert encode_chat(plain, [{"role": "user", "content": "Hello"}]) == encode_prompt(plain, "Hello")


@pytest.mark.parametrize("messages", [
    [], [{"role": "user", "content": "  "}], [{"role": "wizard", "content": "x"}], [{"content": "x"}], ["x"],
    [{"role": "user", "content": ["x"]}],
])
def test_messages_that_say_nothing_are_refused(default_model, messages):
    with pytest.raises(RequestRefused):
        encode_chat(default_model.tokenizer, messages)


def test_an_empty_prompt_is_refused(default_model):
    with pytest.raises(RequestRefused, match="empty"):
        encode_prompt(default_model.tokenizer, "")
