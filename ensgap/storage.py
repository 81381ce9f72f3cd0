"""Where a study's files are: a folder, or a place in a bucket (`s3://…`, `gs://…`, what pyarrow or fsspec opens)."""

import errno
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from ensgap.errors import UserError
from ensgap.secrets import mask


@dataclass(frozen=True)
class BucketPath:
    """A place in a bucket, with as much of pathlib's interface as a study needs."""

    shown: str  # its address without passwords, for people
    key: str  # bucket and path, for the file system
    filesystem: Any = field(repr=False)  # pyarrow.fs.FileSystem

    def __str__(self) -> str:
        return self.shown

    def __truediv__(self, name: str) -> "BucketPath":
        return BucketPath(f"{self.shown}/{name}", f"{self.key}/{name}", self.filesystem)

    @property
    def name(self) -> str:
        """The last part."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> "BucketPath":
        """All but the last part."""
        return BucketPath(self.shown.rpartition("/")[0], self.key.rpartition("/")[0], self.filesystem)

    def exists(self) -> bool:
        """Whether there is a file, or anything below."""
        return bool(self.filesystem.get_file_info(self.key).type != _types().NotFound)

    def read_bytes(self) -> bytes:
        """The file's content; FileNotFoundError where there is none."""
        with self.filesystem.open_input_file(self.key) as file:
            return bytes(file.readall())

    def write_bytes(self, content: bytes) -> None:
        """Write a whole object; where folders must be made first, they are."""
        try:
            stream = self.filesystem.open_output_stream(self.key)
        except FileNotFoundError:
            self.filesystem.create_dir(self.parent.key, recursive=True)
            stream = self.filesystem.open_output_stream(self.key)
        with stream:
            stream.write(content)

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete the file."""
        try:
            self.filesystem.delete_file(self.key)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def glob(self, pattern: str) -> Iterator["BucketPath"]:
        """The files below whose way from here fits a pattern of as many parts."""
        from pyarrow.fs import FileSelector  # type: ignore[import-untyped]

        depth = len(PurePosixPath(pattern).parts)
        for info in self.filesystem.get_file_info(FileSelector(self.key, recursive=depth > 1, allow_not_found=True)):
            below = PurePosixPath(info.path).relative_to(PurePosixPath(self.key))
            if info.type == _types().File and len(below.parts) == depth and below.match(pattern):
                yield self / str(below)


Place = Path | BucketPath


def open_place(address: str | Path) -> Place:
    """A folder on disk or, where the address says so, a place in a bucket."""
    text = str(address)
    if "://" not in text:
        return Path(text)
    from pyarrow import ArrowInvalid  # type: ignore[import-untyped]
    from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

    try:
        try:
            filesystem, key = FileSystem.from_uri(text)
        except ArrowInvalid as error:
            if "nrecognized filesystem type" not in str(error):
                raise
            import fsspec  # type: ignore[import-untyped]

            opened, key = fsspec.core.url_to_fs(text)
            filesystem = PyFileSystem(FSSpecHandler(opened))
    except (ValueError, ImportError, OSError) as error:
        raise UserError(f"The address {mask(text)} cannot be opened ({mask(str(error))}).") from None
    if not key.strip("/"):
        raise UserError(f"The address {mask(text)} cannot be opened (it names no place); give it as s3://bucket/path.")
    if text.startswith("file://"):
        return Path(key)
    return BucketPath(mask(text).partition("?")[0].rstrip("/"), key.rstrip("/"), filesystem)


def write_whole(place: Place, content: bytes) -> None:
    """Write a file, whole or not at all; folders are made as needed."""
    if isinstance(place, BucketPath):
        place.write_bytes(content)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(f".{place.name}.{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(place)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


_LASTING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG)


def is_lasting(error: OSError) -> bool:
    """Whether trying again is of no use: the disk is full, or not to be written."""
    return error.errno in _LASTING


def describe_trouble(place: Place, error: OSError) -> str:
    """What to do about a place that cannot be written."""
    return (
        f"{place} cannot be written ({error.strerror or error}); what is there stays readable: make room or choose "
        "another place, and continue with --resume."
    )


def _types() -> Any:
    from pyarrow.fs import FileType

    return FileType
