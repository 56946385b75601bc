"""OpenAI's request and response bodies, to and from ours."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from engine.errors import CommandRefused
from viz.generation import Answer, Generation


class Style(Enum):
    """Which of the two endpoints is answered."""

    TEXT = "text_completion"
    CHAT = "chat.completion"


#: theirs → our sampling parameter
RENAMED = {
    "max_tokens": "max_new_tokens",
    "max_completion_tokens": "max_new_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "seed": "seed",
    "stop": "stop",
    "n": "n",
    "repetition_penalty": "repetition_penalty",
    "ignore_eos": "ignore_eos",
}
#: accepted when they ask for nothing that is not done here
NEUTRAL = {
    "frequency_penalty": (0, 0.0),
    "presence_penalty": (0, 0.0),
    "echo": (False,),
    "best_of": (1,),
    "suffix": ("",),
    "logit_bias": ({},),
    "tools": ([],),
    "parallel_tool_calls": (True, False),
    "store": (False,),
}
IGNORED = {
    "user",
    "metadata",
    "service_tier",
    "stream_options",
    "model",
    "stream",
    "prompt",
    "messages",
    "logprobs",
    "top_logprobs",
    "response_format",
    "tool_choice",
    "return_token_ids",
    "min_tokens",
    "skip_special_tokens",
    "use_beam_search",
}
DEFAULT_MAX_TOKENS = {Style.TEXT: 16, Style.CHAT: 256}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A checked request body."""

    submissions: list[dict[str, Any]]
    stream: bool
    include_usage: bool
    logprobs: bool
    model: str
    room: str | None


def read_body(body: dict[str, Any], style: Style) -> Wanted:
    """Check a body. Raises :class:`CommandRefused` for what cannot be done; nothing is silently ignored that would matter."""
    for name, value in body.items():
        if name in NEUTRAL and value is not None and value not in NEUTRAL[name]:
            raise CommandRefused("unsupported", f"{name} is not supported by this server.")
        if name not in NEUTRAL and name not in RENAMED and name not in IGNORED:
            raise CommandRefused("unknown_field", f"There is no field {str(name)[:40]!r} in this endpoint.")
    kind = body.get("response_format") or {"type": "text"}
    if not isinstance(kind, dict) or kind.get("type") != "text":
        raise CommandRefused("unsupported", "response_format can only be text here.")
    params = {ours: body[theirs] for theirs, ours in RENAMED.items() if body.get(theirs) is not None}
    params.setdefault("max_new_tokens", DEFAULT_MAX_TOKENS[style])
    params.setdefault("temperature", 1.0)
    wants_logprobs = _logprobs(body, style, params)
    stream = body.get("stream") or False
    options = body.get("stream_options") or {}
    if not isinstance(stream, bool) or not isinstance(options, dict) or not isinstance(body.get("model", ""), str):
        raise CommandRefused("bad_field", "stream must be true or false, stream_options an object, and model a text.")
    model = body.get("model", "")
    room = model.rsplit("@", 1)[1] if "@" in model else None
    submissions = [{**prompt, "params": params} for prompt in _prompts(body, style)]
    return Wanted(submissions, stream, bool(options.get("include_usage")), wants_logprobs, model, room)


def _prompts(body: dict[str, Any], style: Style) -> list[dict[str, Any]]:
    if style is Style.CHAT:
        messages = body.get("messages")
        if not isinstance(messages, list):
            raise CommandRefused("missing_field", "messages is needed, a list of messages.")
        return [{"messages": [_message(message) for message in messages]}]
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return [{"prompt": prompt}]
    if isinstance(prompt, list) and prompt and all(isinstance(one, int) and not isinstance(one, bool) for one in prompt):
        return [{"prompt_tokens": prompt}]
    if isinstance(prompt, list) and prompt and all(isinstance(one, str) for one in prompt):
        return [{"prompt": one} for one in prompt]
    if isinstance(prompt, list) and prompt and all(isinstance(one, list) for one in prompt):
        return [{"prompt_tokens": one} for one in prompt]
    raise CommandRefused("bad_field", "prompt must be a text, a list of texts, a list of token numbers, or a list of such lists.")


def _message(message: Any) -> Any:
    """Content parts of type text are joined; other parts are refused. What is no message is left to the engine to refuse."""
    if not isinstance(message, dict):
        return message
    content = message.get("content")
    if isinstance(content, list):
        if any(
            not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str) for part in content
        ):
            raise CommandRefused("unsupported", "Only text content is supported.")
        content = "".join(part["text"] for part in content)
    role = "system" if message.get("role") == "developer" else message.get("role")
    return {"role": role, "content": content}


def _logprobs(body: dict[str, Any], style: Style, params: dict[str, Any]) -> bool:
    if style is Style.CHAT:
        if not body.get("logprobs"):
            return False
        params["logprobs"] = (
            max(1, body.get("top_logprobs") or 0) if isinstance(body.get("top_logprobs"), (int, type(None))) else -1
        )
        return True
    if body.get("logprobs") is None or body["logprobs"] is False:
        return False
    params["logprobs"] = body["logprobs"] if body["logprobs"] not in (0, True) else 1
    return True


# --- answers ------------------------------------------------------------------------------------------------------------------


def completion_body(generation: Generation, style: Style, head: dict[str, Any], wanted: Wanted) -> dict[str, Any]:
    choices = []
    for answer in generation.in_order():
        choice: dict[str, Any] = {"index": answer.index, "finish_reason": _finish(answer), "logprobs": None}
        if style is Style.CHAT:
            choice["message"] = {"role": "assistant", "content": answer.text}
        else:
            choice["text"] = answer.text
        if wanted.logprobs:
            choice["logprobs"] = _logprobs_body(answer.tokens, style)
        choices.append(choice)
    return {**head, "object": style.value, "choices": choices, "usage": usage(generation)}


async def stream_chunks(
    generation: Generation, style: Style, head: dict[str, Any], wanted: Wanted
) -> AsyncIterator[dict[str, Any]]:
    """The chunks of a streamed answer. Raises :class:`CommandRefused` when a request failed."""
    head = {**head, "object": "chat.completion.chunk" if style is Style.CHAT else style.value}
    if style is Style.CHAT:
        for answer in generation.in_order():
            yield {
                **head,
                "choices": [{"index": answer.index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}],
            }
    ended: set[int] = set()
    async for answer, text, token in generation.pieces():
        if answer.failed is not None:
            raise CommandRefused("request_failed", answer.failed)
        if text or (token is not None and wanted.logprobs):
            logprobs = _logprobs_body([token], style) if wanted.logprobs and token is not None else None
            yield {**head, "choices": [_piece(style, answer.index, text, None, logprobs)]}
        elif token is None and answer.finish is not None and answer.index not in ended:
            ended.add(answer.index)
            yield {**head, "choices": [_piece(style, answer.index, "", _finish(answer), None)]}
    if wanted.include_usage:
        yield {**head, "choices": [], "usage": usage(generation)}


def _piece(style: Style, index: int, text: str, finish: str | None, logprobs: Any) -> dict[str, Any]:
    if style is Style.CHAT:
        return {
            "index": index,
            "delta": {"content": text} if text or finish is None else {},
            "finish_reason": finish,
            "logprobs": logprobs,
        }
    return {"index": index, "text": text, "finish_reason": finish, "logprobs": logprobs}


def _finish(answer: Answer) -> str:
    return answer.finish if answer.finish in ("stop", "length") else "stop"


def _logprobs_body(tokens: list[dict[str, Any]], style: Style) -> dict[str, Any]:
    if style is Style.CHAT:
        return {
            "content": [
                {
                    "token": token["text"],
                    "logprob": token.get("logprob", 0.0),
                    "bytes": list(token["text"].encode()),
                    "top_logprobs": [
                        {"token": f"token_id:{other}", "logprob": value, "bytes": None} for other, value in token.get("top", ())
                    ],
                }
                for token in tokens
            ]
        }
    offsets, place = [], 0
    for token in tokens:
        offsets.append(place)
        place += len(token["text"])
    return {
        "tokens": [token["text"] for token in tokens],
        "token_logprobs": [token.get("logprob", 0.0) for token in tokens],
        "top_logprobs": [{f"token_id:{other}": value for other, value in token.get("top", ())} for token in tokens],
        "text_offset": offsets,
    }


def usage(generation: Generation) -> dict[str, int]:
    answers = generation.in_order()
    prompt = sum(answer.prompt_tokens for answer in answers)
    output = sum(answer.outputs for answer in answers)
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
