"""From what a person typed to token ids: through the model's chat template, or raw."""

from __future__ import annotations

from typing import Any

from engine.errors import RequestRefused

ROLES = ("system", "user", "assistant")


def encode_chat(tokenizer: Any, messages: list[dict[str, str]]) -> list[int]:
    """Token ids of a conversation, ending where the model's answer begins.

    ``messages`` are ``{"role": "system" | "user" | "assistant", "content": text}``. A tokenizer without a chat template gets
    the contents joined by blank lines. Raises :class:`RequestRefused` when the messages do not fit the template.
    """
    for message in messages:
        if not isinstance(message, dict) or message.get("role") not in ROLES or not isinstance(message.get("content"), str):
            raise RequestRefused("bad_messages", "Each message needs a role (system, user or assistant) and a text as content.")
    if not messages or not any(message["content"].strip() for message in messages):
        raise RequestRefused("empty_prompt", "The prompt is empty; write at least one word.")
    if not tokenizer.chat_template:
        return encode_prompt(tokenizer, "\n\n".join(message["content"] for message in messages))
    try:
        encoded = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=True)
    except Exception as error:      # the template is the model's own Jinja code and raises what it likes
        raise RequestRefused("bad_messages", f"The model's chat template refused these messages: {str(error)[:200]}.") from error
    return [int(token) for token in encoded["input_ids"]]


def encode_prompt(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a raw prompt, with the special tokens that the tokenizer puts around a text.

    Raises :class:`RequestRefused` when nothing is left to compute.
    """
    ids = [int(token) for token in tokenizer(text)["input_ids"]]
    if not text or not ids:
        raise RequestRefused("empty_prompt", "The prompt is empty; write at least one word.")
    return ids


def encode_user_text(tokenizer: Any, text: str, chat: bool) -> list[int]:
    """Token ids of what a person typed: as one user turn of a chat, or raw."""
    return encode_chat(tokenizer, [{"role": "user", "content": text}]) if chat else encode_prompt(tokenizer, text)
