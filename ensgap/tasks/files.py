"""Data files: where they are looked for, how they are fetched once, and how a damaged one is noticed."""

import gzip
import hashlib
import lzma
import os
import shutil
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs
from filelock import FileLock

from ensgap.errors import UserError


def data_root(data_dir: Path | None) -> Path:
    """`--data-dir`, else the environment variable ENSGAP_DATA, else the platform's cache directory."""
    given = data_dir or (Path(os.environ["ENSGAP_DATA"]) if os.environ.get("ENSGAP_DATA") else None)
    return (given or Path(platformdirs.user_cache_dir("ensgap")) / "data").expanduser()


def fetch_once(folder: Path, present: Callable[[Path], bool], download: Callable[[Path], None], name: str) -> Path:
    """The folder of a data set, downloaded if it is not there: by one process while others wait, and moved into place
    only when it is complete.
    """
    if present(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / f".{folder.name}.lock"):
            if not present(folder):
                with _complete_or_nothing(folder) as temporary, warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of the libraries; what fails is said in one sentence
                    print(f"Downloading {name} into {folder}", flush=True)
                    download(temporary)
    except Exception as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise UserError(
            f"{name} is not in {folder} and could not be downloaded ({reason}); put its files there, or name the "
            "directory that has them with --data-dir or ENSGAP_DATA."
        ) from None
    return folder


@contextmanager
def _complete_or_nothing(folder: Path) -> Iterator[Path]:
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield temporary
        folder.mkdir(exist_ok=True)
        for item in temporary.iterdir():
            if not (folder / item.name).exists():
                item.replace(folder / item.name)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_bytes(path: Path) -> bytes:
    """A file's content, unpacked if its name ends in .gz or .xz."""
    unpack: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.decompress, ".xz": lzma.decompress}
    try:
        return unpack.get(path.suffix, bytes)(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"The file {path} is missing.") from None
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise damaged(path, str(error)) from None


def check_md5(path: Path, content: bytes, expected: str) -> bytes:
    """The content, if it is the published one."""
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != expected:
        raise damaged(path, f"its MD5 is {found}, not the published {expected}")
    return content


def damaged(path: Path, why: str) -> UserError:
    """What to say of a file that cannot be right."""
    return UserError(f"The file {path} is damaged ({why}); delete it and get it again.")


def writable_cache(root: Path) -> Path:
    """Where prepared data may be kept: beside the data, or, if that is read-only, in the platform's cache directory."""
    folder = root / "prepared" if os.access(root, os.W_OK) else Path(platformdirs.user_cache_dir("ensgap")) / "prepared"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
