"""The cache directory saves time and never costs a run: half-written entries are remade, unwritable places are said."""

from __future__ import annotations

import threading

import pytest

from engine.model.cache_dir import COMPLETE, cache_root, find_entry, make_entry, writable_reason


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BATCHSCOPE_CACHE", str(tmp_path / "cache"))


def fill_with(text):
    return lambda folder: (folder / "weights").write_text(text)


def test_the_place_follows_the_environment(tmp_path, monkeypatch):
    assert cache_root() == tmp_path / "cache"
    monkeypatch.delenv("BATCHSCOPE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "batchscope"


def test_an_entry_is_found_only_after_it_was_made():
    assert find_entry("model") is None
    entry = make_entry("model", fill_with("full"))
    assert find_entry("model") == entry
    assert (entry / "weights").read_text() == "full"


def test_an_interrupted_write_is_detected_and_made_again():
    half = cache_root() / "model"
    half.mkdir(parents=True)
    (half / "weights").write_text("ha")
    assert find_entry("model") is None
    assert (make_entry("model", fill_with("full")) / "weights").read_text() == "full"


def test_a_failing_write_leaves_nothing_behind():
    def full_disk(folder):
        (folder / "weights").write_text("ha")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        make_entry("model", full_disk)
    assert find_entry("model") is None
    assert list(cache_root().iterdir()) == []


def test_two_makers_at_once_leave_one_complete_entry():
    both_inside = threading.Barrier(2, timeout=30)
    problems = []

    def make(text):
        def fill(folder):
            (folder / "weights").write_text(text)
            both_inside.wait()
        try:
            make_entry("model", fill)
        except Exception as error:
            problems.append(error)

    makers = [threading.Thread(target=make, args=(text,)) for text in ("one", "two")]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert problems == []
    assert (find_entry("model") / "weights").read_text() in ("one", "two")
    assert sorted(path.name for path in cache_root().iterdir()) == ["model"]
    assert sorted(path.name for path in find_entry("model").iterdir()) == [COMPLETE, "weights"]


def test_unwritable_and_full_places_are_named_in_a_sentence(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert "cannot be written" in writable_reason(blocked / "below")
    assert "MiB are needed" in writable_reason(tmp_path, bytes_needed=2**60)
    assert writable_reason(tmp_path, bytes_needed=1) is None
