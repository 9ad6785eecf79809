"""Unpacking an uploaded tar safely.

Takes a tar or tar.gz and an empty folder; writes regular files and folders below it. Invariant: no links, no devices,
no path outside the folder, no more bytes and entries than allowed, and bounded memory, whatever the archive says.
The caller brings the files to the disk: an archive that is refused must not wait for it.
"""

import errno
import lzma
import zlib
from pathlib import Path, PurePosixPath

from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.control_plane.uploads.services.tar_reading import TarMember, tar_members

MAX_ENTRIES = 10_000
MAX_DEPTH = 32  # folders in a path; each missing one is a level of recursion in `mkdir`


def archive_unpack(*, archive: Path, folder: Path, max_bytes: int) -> int:
    """Unpack the archive and return the number of bytes. Raises ApplicationError naming `file`."""
    try:
        return _unpack(archive, folder, max_bytes)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        # The same name twice, a file where a folder is, a name too long, a damaged gzip stream.
        detail = error.strerror or str(error)
        raise field_error("file", f"is not a tar or tar.gz that can be unpacked: {detail}") from error
    except (EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise field_error("file", f"is not a tar or tar.gz that can be unpacked: {error}") from error


def _unpack(archive: Path, folder: Path, max_bytes: int) -> int:
    num_bytes = 0
    for index, member in enumerate(tar_members(archive)):
        if index >= MAX_ENTRIES:
            raise field_error("file", f"the archive has more than {MAX_ENTRIES} entries")
        target = _target(member, folder)
        if member.is_folder:
            target.mkdir(parents=True, exist_ok=True)
            continue
        num_bytes += member.size
        if num_bytes > max_bytes:
            raise field_error("file", f"the archive unpacks to more than {max_bytes} bytes")
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy(member, target)
    return num_bytes


def _target(member: TarMember, folder: Path) -> Path:
    path = PurePosixPath(member.name)
    if not (member.is_file or member.is_folder):
        raise field_error("file", f"the archive has {member.name!r}, which is neither a file nor a folder")
    if path.is_absolute() or ".." in path.parts or "\x00" in member.name:
        raise field_error("file", f"the archive has the path {member.name!r}, which leaves its folder")
    if len(path.parts) > MAX_DEPTH:
        raise field_error(
            "file", f"the archive has a path of {len(path.parts)} names; at most {MAX_DEPTH} are accepted"
        )
    return folder.joinpath(*path.parts)


def _copy(member: TarMember, target: Path) -> None:
    with target.open("xb") as file:
        for chunk in member.chunks():
            file.write(chunk)
