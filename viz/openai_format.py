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
    "min_tokens": "min_new_tokens",
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
    "use_beam_search": (False,),
    "store": (False,),
    "length_penalty": (1, 1.0),
    "stop_token_ids": ([],),
    "include_stop_str_in_output": (False,),
    "priority": (0,),
    "chat_template_kwargs": ({},),
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
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "request_id",
}
DEFAULT_MAX_TOKENS = {Style.TEXT: 16, Style.CHAT: 256}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A checked request body."""

    submissions: list[dict[str, Any]]
    stream: bool
    include_usage: bool
    continuous_usage: bool
    logprobs: bool
    model: str
    room: str | None


def read_body(body: dict[str, Any], style: Style) -> Wanted:
    """Check a body. Raises :class:`CommandRefused` for what cannot be done; nothing is silently ignored that would matter."""
    for name, value in body.items():
        if value is None:  # asks for nothing, whatever it is called
            continue
        if name in NEUTRAL and value not in NEUTRAL[name]:
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
    model = body.get("model") or ""
    if not isinstance(stream, bool) or not isinstance(options, dict) or not isinstance(model, str):
        raise CommandRefused("bad_field", "stream must be true or false, stream_options an object, and model a text.")
    room = model.rsplit("@", 1)[1] if "@" in model else None
    submissions = [{**prompt, "params": params} for prompt in _prompts(body, style)]
    include, continuous = bool(options.get("include_usage")), bool(options.get("continuous_usage_stats"))
    return Wanted(submissions, stream, include or continuous, continuous, wants_logprobs, model, room)


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
    """The chunks of a streamed answer: one for each token and none beside them, because whoever measures takes the first chunk for the
    first token and the time between two chunks for that between two tokens. So the role comes with the first token, the reason of the
    end with the last, and a token that has no text yet is a chunk without text. Raises :class:`CommandRefused` when a request failed.
    """
    head = {**head, "object": "chat.completion.chunk" if style is Style.CHAT else style.value}
    if wanted.include_usage:
        head["usage"] = None
    begun: set[int] = set()
    ended: set[int] = set()
    async for answer, text, token in generation.pieces():
        if answer.failed is not None:
            raise CommandRefused("request_failed", answer.failed)
        if answer.index in ended:
            continue
        last = answer.finish is not None and answer.queued <= 1  # only the empty piece of its end is behind this one
        if not text and token is None and not last:
            continue
        logprobs = _logprobs_body([token], style) if wanted.logprobs and token is not None else None
        piece = _piece(style, answer, text, _finish(answer) if last else None, logprobs, first=answer.index not in begun)
        begun.add(answer.index)
        if last:
            ended.add(answer.index)
        yield {**head, "choices": [piece], **({"usage": _usage_so_far(generation)} if wanted.continuous_usage else {})}
    if wanted.include_usage:
        yield {**head, "choices": [], "usage": usage(generation)}


def _piece(style: Style, answer: Answer, text: str, finish: str | None, logprobs: Any, *, first: bool) -> dict[str, Any]:
    rest = {"index": answer.index, "finish_reason": finish, "logprobs": logprobs}
    if style is Style.TEXT:
        return {**rest, "text": text}
    return {**rest, "delta": {**({"role": "assistant"} if first else {}), "content": text}}


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
    return _usage(generation, sum(answer.outputs for answer in generation.in_order()))


def _usage_so_far(generation: Generation) -> dict[str, int]:
    """Of the tokens that were sent, without those that have come meanwhile and wait to be."""
    waiting = sum(answer.queued - (answer.finish is not None and answer.queued > 0) for answer in generation.in_order())
    return _usage(generation, max(0, sum(answer.outputs for answer in generation.in_order()) - waiting))


def _usage(generation: Generation, output: int) -> dict[str, int]:
    prompt = sum(answer.prompt_tokens for answer in generation.in_order())
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
