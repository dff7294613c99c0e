# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Our marked lines in a file that belongs to somebody else: found, put in, and taken out with every other byte kept."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

_MARK = "hpcai.gpu_cluster cluster_ssh"
_MADE = " (made this file)"


@dataclasses.dataclass(frozen=True)
class Block:
    """Our lines in a file that belongs to somebody else. ``made``: the file did not exist before them."""

    lines: tuple[str, ...]
    made: bool = False


def split_block(text: str, cluster: str) -> tuple[Block | None, str, str]:
    """Our block of a file, and what stands before and after it."""
    begin = f"# BEGIN {_MARK} {cluster}"
    end = f"# END {_MARK} {cluster}\n"
    match = re.search(rf"^{re.escape(begin)}({re.escape(_MADE)})?\n", text, re.MULTILINE)
    if match is None:
        return None, text, ""
    stop = text.find(end, match.end())
    if stop < 0:
        raise ClusterError(
            "damaged", f"The block {begin!r} has no end.", f"Remove the block's lines by hand, or add the line {end!r}."
        )
    body = text[match.end() : stop]
    return Block(tuple(body.splitlines()), bool(match.group(1))), text[: match.start()], text[stop + len(end) :]


def join_block(block: Block | None, before: str, after: str, cluster: str) -> str:
    """The file with our block. A new one goes to the top: so taking it away again leaves every other byte as it was."""
    if block is None or not block.lines:
        return before + after
    begin = f"# BEGIN {_MARK} {cluster}{_MADE if block.made else ''}\n"
    return before + begin + "".join(line + "\n" for line in block.lines) + f"# END {_MARK} {cluster}\n" + after


def set_block(text: str | None, cluster: str, lines: t.Sequence[str]) -> str | None:
    """The content of a file with exactly these lines of ours. None stands for a file that does not exist."""
    have, before, after = split_block(text or "", cluster)
    if have is None:
        # A new block stands first, not last.
        before, after = "", before
    made = have.made if have else text is None
    content = join_block(Block(tuple(lines), made), before, after, cluster)
    if not content and (text is None or (made and have is not None)):
        return None
    return content


__all__ = ["Block", "join_block", "set_block", "split_block"]
