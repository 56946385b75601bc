"""Text comes out whole characters at a time, and never a character of a stop text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from engine.model.detokenize import REPLACEMENT, TextStream


def byte_level() -> PreTrainedTokenizerFast:
    """Byte-level BPE with a token for each byte and a few merges, one of which ends in the middle of a character."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ġ", "w"), ("h", "e"), ("he", "l"), ("ð", "Ł")]
    vocab = {text: i for i, text in enumerate(["<eos>", *letters, *(a + b for a, b in merges)])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")


def sentencepiece_like() -> PreTrainedTokenizerFast:
    """Words that begin with a mark for the space, bytes for everything unknown, and a decoder that drops the first space."""
    words = ["▁", "▁hello", "▁world", "▁wo", "rld", "l", "o", "▁a", "é", ".", "h", "e"]
    vocab = {text: i for i, text in enumerate(["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")


BYTES, PIECES = byte_level(), sentencepiece_like()


def byte_tokens(tokenizer, text: str) -> list[int]:
    """The text as one token a byte: the hardest cut there is."""
    if tokenizer is BYTES:
        table = {text: token for text, token in BYTES.get_vocab().items() if len(text) == 1}
        return [
            table[mark] for mark in pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)[0][0]
        ]
    return [tokenizer.convert_tokens_to_ids(f"<0x{byte:02X}>") for byte in text.encode()]


def streamed(stream: TextStream, tokens: list[int]) -> list[str]:
    return [stream.push(token)[0] for token in tokens] + [stream.flush()]


@pytest.mark.parametrize("tokenizer", [BYTES, PIECES], ids=["byte-level", "sentencepiece"])
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters=REPLACEMENT), min_size=1, max_size=30))
@settings(max_examples=150, deadline=None)
def test_no_piece_has_half_a_character_and_all_pieces_make_the_text(tokenizer, text):
    tokens = byte_tokens(tokenizer, text)
    pieces = streamed(TextStream(tokenizer), tokens)
    assert not any(REPLACEMENT in piece for piece in pieces)
    assert "".join(pieces) == tokenizer.decode(tokens, clean_up_tokenization_spaces=False)


@given(tokens=st.lists(st.integers(0, len(BYTES) - 1), max_size=40))
@settings(max_examples=200, deadline=None)
def test_any_tokens_give_the_decoded_text_but_for_an_unfinished_end(tokens):
    whole = BYTES.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert "".join(streamed(TextStream(BYTES), tokens)).rstrip(REPLACEMENT) == whole.rstrip(REPLACEMENT)


def test_an_emoji_appears_with_its_last_byte():
    stream, tokens = TextStream(BYTES), byte_tokens(BYTES, "a🙂")
    assert [stream.push(token)[0] for token in tokens] == ["a", "", "", "", "🙂"]


def test_an_output_cut_inside_a_character_ends_before_it():
    stream, tokens = TextStream(BYTES), byte_tokens(BYTES, "ok 한")
    assert "".join(streamed(stream, tokens[:-1])) == "ok "


def test_bytes_that_never_become_a_character_do_not_hold_the_text_up_for_ever():
    stream, bad = TextStream(BYTES), byte_tokens(BYTES, "é")[1]
    pieces = [stream.push(bad)[0] for _ in range(40)]
    assert REPLACEMENT in "".join(pieces)


def test_sentencepiece_words_keep_their_spaces():
    tokens = PIECES.convert_tokens_to_ids(["▁hello", "▁wo", "rld", "▁a"])
    assert streamed(TextStream(PIECES), tokens)[:4] == ["hello", " wo", "rld", " a"]
    assert streamed(TextStream(PIECES, context=tokens[:1]), tokens[1:])[:2] == [" wo", "rld"]


def test_special_tokens_have_no_text_and_cost_nothing():
    stream = TextStream(BYTES)
    assert [stream.push(BYTES.eos_token_id) for _ in range(1000)] == [("", False)] * 1000
    assert stream._window == []


@given(
    text=st.text(st.sampled_from("abc"), min_size=1, max_size=24),
    stops=st.lists(st.text(st.sampled_from("abc"), min_size=1, max_size=4), min_size=1, max_size=3),
)
@settings(max_examples=300, deadline=None)
def test_text_ends_before_the_first_stop_text(text, stops):
    """Whatever the cut, and also when a stop text spans tokens or one is the beginning of another."""
    stream, out, stopped = TextStream(BYTES, stops), "", False
    for token in byte_tokens(BYTES, text):
        piece, stopped = stream.push(token)
        out += piece
        if stopped:
            break
    found = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    if not found:
        assert not stopped
        assert out + stream.flush() == text
    else:
        completed = min(end for end, _ in found)
        assert stopped
        assert out == text[:min(start for end, start in found if end == completed)]
        assert stream.flush() == "" and stream.push(byte_tokens(BYTES, "a")[0]) == ("", True)


def test_text_that_may_become_a_stop_text_is_held_back_until_it_is_not():
    stream = TextStream(BYTES, ["END"])
    assert [stream.push(token)[0] for token in byte_tokens(BYTES, "xENEND")] == ["x", "", "", "EN", "", ""]


def test_a_long_unicode_text_streams_through_the_default_tokenizer(default_model):
    text = "naïve café — 한국어 텍스트, 日本語, emoji 👩‍👩‍👧 and 🏳️‍🌈, ümlaut; end."
    tokens = default_model.tokenizer(text)["input_ids"]
    pieces = streamed(TextStream(default_model.tokenizer), tokens)
    assert "".join(pieces) == text
    assert not any(REPLACEMENT in piece for piece in pieces)
