"""Fixtures for the loaders' tests: a data source on this machine, so that downloads are run for real."""

import threading
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@dataclass
class Source:
    """Files put under `folder` can be fetched from `url`; what is fetched lands in `cache`."""

    folder: Path
    cache: Path
    url: str
    server: ThreadingHTTPServer

    def put(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(name="no_data")
def no_data_fixture(monkeypatch, tmp_path):
    """Neither CARD_DATA nor anything in the cache; returns the empty cache folder."""
    monkeypatch.delenv("CARD_DATA", raising=False)
    monkeypatch.setattr("pooch.os_cache", lambda name: tmp_path / "cache" / name)
    return tmp_path / "cache" / "card-diffusion"


@pytest.fixture(name="source")
def source_fixture(no_data, monkeypatch, tmp_path):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    folder = tmp_path / "served"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    source = Source(folder, no_data, f"http://127.0.0.1:{server.server_port}", server)
    yield source
    source.stop()
