# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What a task asks of ``node_state``, checked and as plain data."""

from __future__ import annotations

import dataclasses
import glob
import os.path
import re
import typing as t

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.content import CONTENTS, Content, content_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.options import CONTROLLER_SOURCES
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.packages import package_names

_ABSENT_FLAGS = ("recursive", "if_empty", "if_unpacked", "pattern")
_ABSENT_WORDS = ("unless_target_of", "remedy", "ours")
_ABSENT_KEYS = ("path", *_ABSENT_WORDS, *_ABSENT_FLAGS)


@dataclasses.dataclass(frozen=True)
class Directory:
    """A directory with its mode, in four octal digits, and its owner and group, by name or number."""

    path: str
    mode: str
    owner: str = "root"
    group: str = "root"


@dataclasses.dataclass(frozen=True)
class File:
    """A file. ``validate`` has the words of a command that must accept it, with ``%s`` for its name.

    ``ours`` is a regular expression: a file that is there and in which nothing matches it is somebody else's. Then ``remedy`` helps.
    """

    path: str
    content: Content
    mode: str
    owner: str = "root"
    group: str = "root"
    validate: tuple[str, ...] = ()
    unsafe_writes: bool = False
    ours: str = ""
    remedy: str = ""


@dataclasses.dataclass(frozen=True)
class Link:
    """A symbolic link and what is written into it."""

    path: str
    target: str


@dataclasses.dataclass(frozen=True)
class Archive:
    """A directory that is unpacked from an archive. ``build`` has the words of a command to run in it.

    ``built_for`` is the release of a distribution as vendors name it: ``ubuntu24.04``, ``redhat9``.
    """

    path: str
    sha256: str
    src: str = ""
    controller_src: str = ""
    staged_src: str = ""
    built_for: str = ""
    strip_components: int = 1
    timeout_s: int = 900
    build: tuple[str, ...] = ()
    build_timeout_s: int = 3600


@dataclasses.dataclass(frozen=True)
class Absent:
    """A path that must not exist. ``unless_target_of`` is a link that protects what it points at, ``remedy`` what helps.

    ``pattern``: the path is a shell pattern, and means what matches it and is not listed elsewhere. ``ours``: as of a File.
    """

    path: str
    recursive: bool = False
    unless_target_of: str = ""
    remedy: str = ""
    if_empty: bool = False
    if_unpacked: bool = False
    pattern: bool = False
    ours: str = ""


@dataclasses.dataclass(frozen=True)
class Unit:
    """A unit of systemd; None leaves its state or its place at boot as it is."""

    name: str
    state: str | None = None
    enabled: bool | None = None
    restart_on: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Request:
    """All that a node should hold. ``packages`` are items as ``package_names`` takes them."""

    packages: tuple[t.Any, ...] = ()
    directories: tuple[Directory, ...] = ()
    archives: tuple[Archive, ...] = ()
    files: tuple[File, ...] = ()
    links: tuple[Link, ...] = ()
    absent: tuple[Absent, ...] = ()
    units: tuple[Unit, ...] = ()


#: The options that list items, in the order of the documentation.
LISTS = ("packages", "directories", "archives", "files", "links", "absent", "units")


def wanted_items(params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The parameters without the items whose ``when`` is false, and without the ``when`` of the others."""
    wanted = dict(params)
    for option in LISTS:
        if isinstance(params.get(option), (list, tuple)):
            wanted[option] = [_without_when(item) for item in params[option] if _is_wanted(item, option)]
    return wanted


def wanted_numbers(params: t.Mapping[str, t.Any]) -> dict[str, list[int]]:
    """Which of the items ``wanted_items`` leaves, by their numbers in the task."""
    return {
        option: [number for number, item in enumerate(params[option]) if _is_wanted(item, option)]
        for option in LISTS
        if isinstance(params.get(option), (list, tuple))
    }


def _is_wanted(item: t.Any, option: str) -> bool:
    when = item.get("when", True) if isinstance(item, t.Mapping) else True
    try:
        return bool(boolean(when))
    except TypeError:
        raise ClusterError(
            "bad_input", f"`when` of an item of `{option}` is {when!r}, which is not a boolean.", "Write true or false."
        ) from None


def _without_when(item: t.Any) -> t.Any:
    return {key: value for key, value in item.items() if key != "when"} if isinstance(item, t.Mapping) else item


def _bad(message: str, remedy: str) -> ClusterError:
    return ClusterError("bad_input", message, remedy)


def check_path(path: str, option: str = "") -> str:
    """Accept only an absolute path in its normal form: a surprise in a path is how the wrong thing gets deleted.

    ``option`` is where the task has it, as ``files[0].path``.
    """
    place = f" in `{option}`" if option else ""
    if not path.startswith("/") or "\n" in path or "\0" in path or path.startswith("//"):
        raise _bad(f"{path!r} is not an absolute path.", f"Write the whole path{place}, from the root.")
    if os.path.normpath(path) != path.rstrip("/") and path != "/":
        raise _bad(f"{path!r} is not in its normal form.", f"Write it without '.', '..' and doubled slashes{place}.")
    return path.rstrip("/") or "/"


def check_mode(mode: str, path: str) -> str:
    """Accept modes as they are written in octal. An unquoted ``0644`` reaches us as the number 420."""
    if not re.fullmatch(r"0[0-7]{3,4}", mode):
        raise _bad(f"The mode {mode!r} of {path} is not octal.", 'Quote it and begin with a zero, for example "0644".')
    return f"{int(mode, 8):04o}"


def parse_absent(items: t.Sequence[t.Any], *, of_task: bool = False) -> list[Absent]:
    """Each item is a path, or a mapping with the fields of ``Absent``."""
    wanted = []
    for number, item in enumerate(items):
        option = f"absent[{number}]" + ("" if isinstance(item, str) else ".path")
        entry = {"path": item} if isinstance(item, str) else item
        if not isinstance(entry, t.Mapping) or not isinstance(entry.get("path"), str):
            raise _bad(f"An item of absent is {item!r}.", "Give a path, or a mapping with the key path.")
        unknown = sorted(set(entry) - set(_ABSENT_KEYS))
        if unknown:
            raise _bad(f"An item of absent has the unknown key {unknown[0]!r}.", f"Known: {', '.join(_ABSENT_KEYS)}.")
        path = check_path(entry["path"], option if of_task else "")
        flags: dict[str, t.Any] = {key: entry.get(key, False) for key in _ABSENT_FLAGS}
        wrong = [key for key, value in flags.items() if not isinstance(value, bool)]
        if wrong:
            raise _bad(f"{wrong[0]} of {path} is not a boolean.", "Write true or false.")
        if path == "/" or (flags["recursive"] and path.count("/") < 2):
            raise _bad(f"{path} will not be removed.", "Only paths below a top-level directory can be removed.")
        if flags["pattern"] and (flags["recursive"] or glob.has_magic(os.path.basename(path))):
            raise _bad(
                f"{path} will not be removed.", "A pattern needs a last part that is a name, and is never recursive."
            )
        words: dict[str, t.Any] = {key: entry.get(key) or "" for key in _ABSENT_WORDS}
        if not all(isinstance(value, str) for value in words.values()):
            raise _bad(
                f"unless_target_of, remedy and ours of {path} are words.",
                "Give the path of a link, a sentence, and a regular expression.",
            )
        _check_ours(words["ours"], path)
        wanted.append(Absent(path=path, **words, **flags))
    return wanted


def _check_ours(ours: str, path: str) -> None:
    try:
        re.compile(ours)
    except re.error as exc:
        raise _bad(f"ours of {path} is no regular expression: {exc}.", "Correct it.") from exc


def _fields(kind: type, item: t.Mapping[str, t.Any], place: str) -> dict[str, t.Any]:
    """What of an item is a field, with its path checked and its mode in four digits. What was not given is left out.

    ``place`` is the item's, as ``files[0]``.
    """
    names = [field.name for field in dataclasses.fields(kind)]
    values = {name: item[name] for name in names if item.get(name) is not None}
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    if "path" in values:
        values["path"] = check_path(values["path"], f"{place}.path" if place else "")
    if "mode" in values:
        values["mode"] = check_mode(values["mode"], values["path"])
    return values


def _file(item: t.Mapping[str, t.Any], place: str) -> File:
    for source in CONTROLLER_SOURCES:
        if item.get(source) is not None:
            raise _bad(
                f"The `{source}` of {item['path']} is on the controller.",
                "Use the module in a task, through its action.",
            )
    if all(item.get(option) is None for option in CONTENTS):
        raise _bad(
            f"{item['path']} has no content.",
            'Give it one of `content`, `src`, `template` and `program`. An empty file has the content "".',
        )
    fields = {key: value for key, value in _fields(File, item, place).items() if key != "content"}
    file = File(content=content_of(item), **fields)
    if file.validate and not any("%s" in word for word in file.validate):
        raise _bad(f"validate of {file.path} has no %s.", "Write %s where the name of the file belongs.")
    _check_ours(file.ours, file.path)
    return file


def _archive(item: t.Mapping[str, t.Any], place: str) -> Archive:
    archive = Archive(**{**_fields(Archive, item, place), "sha256": item["sha256"].lower()})
    if not re.fullmatch(r"[0-9a-f]{64}", archive.sha256):
        what = "is not 64 hexadecimal digits" if archive.sha256 else "is not set"
        raise _bad(
            f"The sha256 of the archive for {archive.path} {what}.",
            "Compute it with `sha256sum` from a copy that you trust"
            + (f", and write it into `{place}.sha256`." if place else "."),
        )
    if bool(archive.src) == bool(archive.controller_src):
        raise _bad(f"{archive.path} needs one of src and controller_src.", "Say where the archive comes from.")
    return archive


def _placed(params: t.Mapping[str, t.Any], option: str, *, of_task: bool) -> list[tuple[t.Mapping[str, t.Any], str]]:
    """The items of an option, each with its place, as ``files[0]``."""
    return [(item, f"{option}[{number}]" if of_task else "") for number, item in enumerate(params[option])]


def request_of(params: t.Mapping[str, t.Any], *, of_task: bool = False) -> Request:
    """The request of a task. All that can be wrong in it is found before the node is touched.

    ``of_task``: the items are those of the task, so that an error may say where in it they stand, as ``files[0].path``.
    """
    params = wanted_items(params)
    package_names(params["packages"], "")
    request = Request(
        packages=tuple(params["packages"]),
        absent=tuple(parse_absent(params["absent"], of_task=of_task)),
        directories=tuple(
            Directory(**_fields(Directory, *found)) for found in _placed(params, "directories", of_task=of_task)
        ),
        archives=tuple(_archive(*found) for found in _placed(params, "archives", of_task=of_task)),
        files=tuple(_file(*found) for found in _placed(params, "files", of_task=of_task)),
        links=tuple(Link(**_fields(Link, *found)) for found in _placed(params, "links", of_task=of_task)),
        units=tuple(Unit(**_fields(Unit, *found)) for found in _placed(params, "units", of_task=of_task)),
    )
    _check_once(request)
    return request


def _check_once(request: Request) -> None:
    seen: dict[str, str] = {}
    for kind in ("absent", "directories", "archives", "files", "links"):
        for item in getattr(request, kind):
            # A path that is to go twice is gone once.
            if item.path in seen and kind != "absent":
                raise _bad(f"{item.path} is listed under {seen[item.path]} and {kind}.", "List every path once.")
            seen[item.path] = kind
    _check_below(request, {path: kind for path, kind in seen.items() if kind != "absent"})


def _check_below(request: Request, wanted: t.Mapping[str, str]) -> None:
    """Refuse paths below one that goes with all that it holds. They are compared before that, and would be back one run later."""
    for absent in request.absent if wanted else ():
        below = [path for path in wanted if absent.recursive and path.startswith(f"{absent.path}/")]
        if below:
            raise _bad(
                f"{absent.path} is listed under absent with all that it holds, and {below[0]} under {wanted[below[0]]}.",
                "List under absent what must go of it, or remove it in a task before.",
            )


#: A request that asks for nothing, for those who call NodeState from Python.
NOTHING: dict[str, t.Any] = {
    key: [] for key in ("packages", "directories", "archives", "files", "links", "absent", "units")
}


def directory_request(path: str, mode: str = "0755", owner: str = "root", group: str = "root") -> dict[str, t.Any]:
    """An item of ``directories`` with every suboption, as the module would fill it in."""
    return {"path": path, "mode": mode, "owner": owner, "group": group}


def file_request(
    path: str, content: str, mode: str = "0644", owner: str = "root", group: str = "root", *, sensitive: bool = False
) -> dict[str, t.Any]:
    """An item of ``files`` that holds this text, as the module takes it. ``mode`` is octal. What is ``sensitive`` no diff shows."""
    return {
        "path": path,
        "content": content,
        "secret_content": None,
        "sensitive": sensitive,
        "mode": mode,
        "owner": owner,
        "group": group,
        "validate": [],
    }


__all__ = [
    "LISTS",
    "NOTHING",
    "Absent",
    "Archive",
    "Directory",
    "File",
    "Link",
    "Request",
    "Unit",
    "check_mode",
    "check_path",
    "directory_request",
    "file_request",
    "parse_absent",
    "request_of",
    "wanted_items",
    "wanted_numbers",
]
