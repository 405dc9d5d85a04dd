"""Where data files come from: the folder named by CARD_DATA, else the cache, else the original source.

A file that is downloaded lands in the cache (`cache_folder()`), so the network is asked once. Checksums are
sha256; a file that does not match is refused with its name, wherever it came from.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import pooch


def cache_folder() -> Path:
    """The folder for downloads: the user's cache directory, in a subfolder card-diffusion."""
    return Path(pooch.os_cache("card-diffusion"))


def data_folder() -> Path | None:
    """The folder named by the environment variable CARD_DATA, if it is set."""
    named = os.environ.get("CARD_DATA")
    if not named:
        return None
    if not Path(named).is_dir():
        raise NotADirectoryError(f"CARD_DATA names {named!r}, which is not a folder; correct or unset it")
    return Path(named)


def locate(candidates: Iterable[str]) -> Path | None:
    """The first of the relative paths that exists under CARD_DATA or else in the cache."""
    roots = [root for root in (data_folder(), cache_folder()) if root is not None]
    paths = [root / relative for root in roots for relative in candidates]
    return next((path for path in paths if path.exists()), None)


def download(url: str, name: str, sha256: str | None = None) -> Path:
    """Fetch `url` into the cache as `name`, unless it is there, and check it."""
    target = cache_folder() / name
    try:
        path = pooch.retrieve(url, sha256 and f"sha256:{sha256}", target.name, target.parent)
    except ValueError as error:
        raise ValueError(f"what {url} sent is not the file wanted: {error}") from None
    except (OSError, ImportError) as error:
        raise FileNotFoundError(
            f"{name} is neither under the folder named by CARD_DATA nor in the cache, and downloading {url} "
            f"failed ({type(error).__name__}: {error}). Save the file as {target}, or set CARD_DATA to a "
            "folder that holds it."
        ) from None
    return Path(path)


def verify(path: Path, sha256: str) -> Path:
    """The path, if its content has the checksum."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise ValueError(
            f"{path} is damaged or is another file: its sha256 is {found[:16]}…, wanted is {sha256[:16]}…. "
            "Remove it to have it fetched again."
        )
    return path
