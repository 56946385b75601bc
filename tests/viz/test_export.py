"""Exports: the offline page holds everything and reaches for nothing, and the command and its route refuse with sentences."""

from __future__ import annotations

import base64
import gzip
import json
import re
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from tests.viz.runs import packed, small_run
from viz.export import main
from viz.offline_html import PREFIX, collect_modules, offline_html
from viz.page_head import page_data
from viz.recording import open_recording
from viz.routes_export import KINDS, MAX_BODY, ExportRoutes

EXAMPLE = Path(__file__).parents[2] / "viz" / "static" / "examples" / "smollm2.jsonl.gz"
XSS = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


# --- the offline page ------------------------------------------------------------------------------------------------

def test_every_import_is_inside_the_page():
    """Each module that any module names, directly or through others, is in the import map under that very name."""
    data = page_data()
    modules = collect_modules("offline.js", [f"panels/{name}.js" for name in data["panels"]])
    assert {f"panels/{name}.js" for name in data["panels"]} <= set(modules)
    for name, source in modules.items():
        for target in re.findall(r"""(?:\bfrom|\bimport)\s+['"]([^'"]+)['"]""", source):
            assert target.startswith(PREFIX) and target[len(PREFIX):] in modules, (name, target)


def test_the_page_names_no_address_that_a_browser_would_fetch():
    page = offline_html(small_run())
    shell = re.sub(r"base64,[A-Za-z0-9+/=]+", "base64,", page)
    shell = re.sub(r'(<script type="application/json" id="bs-data">).*?(</script>)', r"\1\2", shell, flags=re.DOTALL)
    assert not re.findall(r"""(?:src|href)=["'](?!data:)[^"']+""", shell)
    assert not re.findall(r"@import|url\((?!['\"]?data:)", shell)
    assert "connect-src 'none'" in shell and "default-src 'none'" in shell


def test_no_text_of_a_recording_stands_in_the_page_as_markup():
    run = small_run()
    run.header.update(title=XSS, model=XSS)
    run.events[0]["requests"][0]["prompt"] = XSS
    page = offline_html(run)
    assert XSS not in page and "<script>alert(1)" not in page and "<img src=x" not in page
    held = re.search(r'id="bs-recording">([A-Za-z0-9+/=]+)</script>', page).group(1)
    assert open_recording(base64.b64decode(held)) == run


def test_the_page_is_one_file_of_a_few_megabytes():
    assert len(offline_html(open_recording(EXAMPLE))) < 6_000_000


# --- the command -----------------------------------------------------------------------------------------------------

def test_the_command_writes_what_is_asked_for(tmp_path, capsys):
    source = tmp_path / "run.jsonl.gz"
    source.write_bytes(packed(small_run()))
    arguments = [str(source), "--html", str(tmp_path / "a.html"), "--perfetto", str(tmp_path / "a.json"), "--csv", str(tmp_path / "a.csv")]
    assert main(arguments) == 0
    assert (tmp_path / "a.html").read_text().startswith("<!doctype html>")
    assert json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    assert (tmp_path / "a-requests.csv").read_text().startswith("id,state") and (tmp_path / "a-steps.csv").read_text().startswith("step,")
    assert "3 events, 2 steps" in capsys.readouterr().out


@pytest.mark.parametrize(("data", "sentence"), [
    (b"hello", "Line 1 is not JSON"), (gzip.compress(b"{}\n"), "not a Batchscope run card"), (packed(small_run())[:60], "not whole")])
def test_the_command_refuses_with_one_sentence_and_writes_nothing(tmp_path, capsys, data, sentence):
    source = tmp_path / "run.jsonl.gz"
    source.write_bytes(data)
    assert main([str(source), "--html", str(tmp_path / "a.html")]) == 1
    said = capsys.readouterr().err
    assert sentence in said and len(said.strip().splitlines()) == 1 and not (tmp_path / "a.html").exists()


def test_the_command_says_what_is_missing(tmp_path, capsys):
    assert main([str(tmp_path / "none.gz"), "--csv", str(tmp_path / "a")]) == 1
    assert "none.gz could not be opened" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([str(tmp_path / "none.gz")])


# --- the route -------------------------------------------------------------------------------------------------------

@pytest.fixture
def client():
    with TestClient(Starlette(routes=ExportRoutes().all())) as client:
        yield client


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_route_gives_a_file_to_save(client, kind):
    answer = client.post(f"/api/export/{kind}", content=packed(small_run()))
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-disposition"].startswith("attachment"), "an exported page must never run under this origin"
    if kind == "html":
        assert answer.text.startswith("<!doctype html>")
    elif kind == "perfetto":
        assert answer.json()["traceEvents"]
    else:
        assert sorted(zipfile.ZipFile(BytesIO(answer.content)).namelist()) == ["batchscope-requests.csv", "batchscope-steps.csv"]


def test_the_route_refuses_with_sentences(client):
    assert "not JSON" in client.post("/api/export/html", content=b"hello").text
    assert client.post("/api/export/html", content=gzip.compress(b'{"format":"' + b"a" * (200 * 2**20))).status_code == 422
    assert client.post("/api/export/exe", content=b"").status_code == 404
    assert client.post("/api/export/html", content=b"0" * (MAX_BODY + 1)).status_code == 413
    assert client.get("/api/export/html").status_code == 405
