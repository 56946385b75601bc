"""From the fields of a `submit` command to token ids and sampling parameters, each fault with a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.errors import BatchscopeError, RequestRefused
from engine.limits import Limits
from engine.model.chat import ROLES, encode_chat, encode_prompt
from engine.sampling_params import SamplingParams

MAX_MESSAGES = 256
REQUEST_FIELDS = ("prompt", "messages", "prompt_tokens", "chat", "params")


@dataclass(frozen=True, slots=True)
class Submission:
    """One checked request, ready for ``Room.submit``."""

    tokens: list[int]
    params: SamplingParams
    text: str


def read_requests(fields: dict[str, Any], tokenizer: Any, limits: Limits, *, host: bool) -> list[Submission | BatchscopeError]:
    """The requests of one `submit`: one, or those of its list ``requests``.

    In a list each request stands alone: a refused one is returned as its error, and the others are kept. Raises
    :class:`RequestRefused` when the command itself is wrong.
    """
    if "requests" not in fields:
        return [read_request(fields, tokenizer, limits, host=host)]
    if set(fields) & set(REQUEST_FIELDS):
        raise RequestRefused("bad_field", "submit takes either one request or a list named requests, not both.")
    requests = fields["requests"]
    if not 0 < len(requests) <= limits.max_requests_per_submit:
        raise RequestRefused(
            "bad_field", f"requests must hold 1 to {limits.max_requests_per_submit} requests, not {len(requests)}."
        )
    outcome: list[Submission | BatchscopeError] = []
    for request in requests:
        try:
            if not isinstance(request, dict):
                raise RequestRefused(
                    "bad_field", "Each entry of requests must be an object with prompt, messages or prompt_tokens."
                )
            unknown = set(request) - set(REQUEST_FIELDS)
            if unknown:
                raise RequestRefused(
                    "unknown_field", f"A request has no field {min(unknown)[:40]!r}; its fields are: {', '.join(REQUEST_FIELDS)}."
                )
            outcome.append(read_request(request, tokenizer, limits, host=host))
        except BatchscopeError as problem:
            outcome.append(problem)
    return outcome


def read_request(fields: dict[str, Any], tokenizer: Any, limits: Limits, *, host: bool) -> Submission:
    """One request. Raises :class:`RequestRefused`."""
    params = SamplingParams.from_dict(fields.get("params") or {})
    if not host and params.max_new_tokens > limits.max_output_tokens:
        raise RequestRefused(
            "output_too_long", f"max_new_tokens may be at most {limits.max_output_tokens} here, not {params.max_new_tokens}."
        )
    given = [name for name in ("prompt", "messages", "prompt_tokens") if fields.get(name) is not None]
    if len(given) != 1:
        raise RequestRefused(
            "bad_field",
            "A request needs exactly one of prompt, messages and prompt_tokens"
            + (f", not {' and '.join(given)}." if given else "."),
        )
    chat = fields.get("chat", False)
    if not isinstance(chat, bool):
        raise RequestRefused("bad_field", "chat must be true or false.")
    if given == ["prompt_tokens"]:
        tokens = _tokens(fields["prompt_tokens"], tokenizer)
        text = tokenizer.decode(tokens[:4096]) if tokenizer is not None else ""
    elif given == ["messages"] or chat:
        messages = fields.get("messages")
        if messages is None:
            messages = [{"role": "user", "content": fields["prompt"]}]
        tokens, text = _chat(messages, tokenizer, limits)
    else:
        text = fields["prompt"]
        _check_text(text, limits)
        tokens = encode_prompt(tokenizer, text)
    if not tokens:
        raise RequestRefused("empty_prompt", "The prompt is empty; send at least one token.")
    if not host and len(tokens) > limits.max_prompt_tokens:
        raise RequestRefused(
            "prompt_too_long", f"The prompt has {len(tokens)} tokens; at most {limits.max_prompt_tokens} are allowed here."
        )
    return Submission(tokens, params, text)


def _check_text(text: Any, limits: Limits) -> None:
    if not isinstance(text, str):
        raise RequestRefused("bad_field", "prompt must be a text.")
    if not text:
        raise RequestRefused("empty_prompt", "The prompt is empty; type at least one character.")
    if len(text) > limits.max_prompt_chars:
        raise RequestRefused(
            "prompt_too_long", f"The prompt has {len(text)} characters; at most {limits.max_prompt_chars} are allowed."
        )


def _tokens(tokens: Any, tokenizer: Any) -> list[int]:
    if not isinstance(tokens, list) or any(isinstance(token, bool) or not isinstance(token, int) for token in tokens):
        raise RequestRefused("bad_field", "prompt_tokens must be a list of whole numbers.")
    size = len(tokenizer) if tokenizer is not None else None
    for token in tokens:
        if token < 0 or (size is not None and token >= size):
            raise RequestRefused(
                "bad_token", f"prompt_tokens contains {str(token)[:20]}, but the vocabulary ends at {(size or 0) - 1}."
            )
    return tokens


def _chat(messages: Any, tokenizer: Any, limits: Limits) -> tuple[list[int], str]:
    """Token ids of a conversation through the model's own template, and the conversation as text to show."""
    if not isinstance(messages, list) or not 0 < len(messages) <= MAX_MESSAGES:
        raise RequestRefused("bad_messages", f"messages must be a list of 1 to {MAX_MESSAGES} messages.")
    total = 0
    for message in messages:
        if (
            not isinstance(message, dict)
            or set(message) != {"role", "content"}
            or message["role"] not in ROLES
            or not isinstance(message["content"], str)
        ):
            raise RequestRefused(
                "bad_messages", f"Each message must be an object with role ({', '.join(ROLES)}) and content, a text."
            )
        total += len(message["content"])
    if not messages[-1]["content"]:
        raise RequestRefused("empty_prompt", "The last message is empty; type at least one character.")
    if total > limits.max_prompt_chars:
        raise RequestRefused(
            "prompt_too_long", f"The messages have {total} characters; at most {limits.max_prompt_chars} are allowed."
        )
    shown = (
        messages[0]["content"]
        if len(messages) == 1
        else "\n".join(f"{message['role']}: {message['content']}" for message in messages)
    )
    return encode_chat(tokenizer, messages), shown
