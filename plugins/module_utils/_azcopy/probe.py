# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Before a copy starts: is this AzCopy usable here, and does the endpoint answer at all?"""

from __future__ import annotations

import dataclasses
import errno
import http.client
import os
import re
import socket
import ssl
import subprocess
import time
import urllib.request

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.messages import find_cause, find_panic
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.refusal import untrusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.url import BlobUrl
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.part_file import is_final

# The version whose behavior the supervisor was measured and tested against.
TESTED_VERSION = "10.32.2"
_OLDEST = (10, 16, 0)  # the first with --as-subdir, --list-of-files for downloads, and JSON numbers as used here
_PROBE_TIMEOUT_S = 20
_NOT_LOADED = "error while loading shared libraries: "
# Where AzCopy looks for the authorities that it trusts: the first file that is there (crypto/x509, root_linux.go).
_AUTHORITIES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


@dataclasses.dataclass(frozen=True)
class AzcopyProbe:
    """What is known of an AzCopy binary."""

    path: str
    version: str
    warnings: list[str]


_PROBED: dict[tuple[str, int, int], AzcopyProbe] = {}


def probe(azcopy: str) -> AzcopyProbe:
    """Run ``azcopy --version`` once per binary, and say what is wrong with one that cannot be used."""
    path = os.path.realpath(azcopy)
    try:
        status = os.stat(path)
    except OSError as exc:
        if not is_final(exc):
            raise cannot_start(azcopy, exc) from exc
        raise ClusterError(
            "azcopy_missing",
            f"AzCopy is not at `{azcopy}` ({exc.strerror}).",
            # No option's name: what runs in the background is collected by a task that does not know which variable it was.
            f"Install AzCopy {TESTED_VERSION}, or correct the path of the program.",
        ) from exc
    key = (path, status.st_mtime_ns, status.st_size)
    if key not in _PROBED:
        _PROBED[key] = _run_probe(path)
    return _PROBED[key]


def _run_probe(path: str) -> AzcopyProbe:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AZCOPY_")}
    environment.update(LC_ALL="C", AZCOPY_DISABLE_SYSLOG="true", AZCOPY_LOG_LOCATION=os.devnull)
    try:
        # stdin at end of file is harmless here: --version ends before AzCopy starts to read it.
        result = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise ClusterError(
            "io",
            f"`{path} --version` did not answer within {_PROBE_TIMEOUT_S} s.",
            "Check the file system that holds the program.",
        ) from exc
    except OSError as exc:
        raise cannot_start(path, exc) from exc
    return _judge(path, result.returncode, result.stdout.decode("utf-8", "replace"))


def cannot_start(path: str, exc: OSError) -> ClusterError:
    """The error for a program that the system does not start: ``io`` where it may do so later."""
    if not is_final(exc):
        return ClusterError(
            "io",
            f"`{path}` cannot be started now: {exc.strerror}.",
            "Check the file system that holds it, and the memory and processes of the node. Then run again.",
        )
    if exc.errno == errno.EACCES:
        return ClusterError("azcopy_unsuitable", f"`{path}` is not executable.", f"Run `chmod 0755 {path}`.")
    if exc.errno == errno.ENOEXEC:
        return ClusterError(
            "azcopy_unsuitable",
            f"`{path}` is not a program for this machine ({os.uname().machine}).",
            "Install the AzCopy build for this architecture.",
        )
    if exc.errno == errno.ENOENT:  # the file is there, so its interpreter or loader is not
        return ClusterError(
            "azcopy_unsuitable",
            f"`{path}` needs a program loader that this machine does not have.",
            "Install the AzCopy build for this distribution and architecture.",
        )
    return ClusterError("azcopy_unsuitable", f"`{path}` cannot be started: {exc.strerror}.", "Install AzCopy again.")


def _judge(path: str, rc: int, output: str) -> AzcopyProbe:
    cause = find_cause(output) if rc else None
    if cause is not None and cause.kind in ("azcopy_unsuitable", "io"):
        raise cause
    panic = find_panic(output.splitlines())
    # A shell that wraps it tells a signal by its own status.
    number = -rc if rc < 0 else rc - 128 if 128 < rc < 160 else 0
    if number or panic or _NOT_LOADED in output:
        said = panic or output.strip()
        raise ClusterError(
            "azcopy_crashed",
            f"`{path} --version` {f'was killed by signal {number}' if number else f'crashed: {said[:200]}'}.",
            "Run again; if it happens again, look at the memory of the node.",
        )
    version = re.search(r"azcopy version (\d+)\.(\d+)\.(\d+)(\S*)", output)
    if rc != 0 or not version:
        raise ClusterError(
            "azcopy_unsuitable",
            f"`{path} --version` ended with {rc} and said: {output.strip()[:200] or 'nothing'}.",
            f"Install AzCopy {TESTED_VERSION}.",
        )
    numbers = tuple(int(part) for part in version.groups()[:3])
    text = ".".join(version.groups()[:3]) + version.group(4)
    if numbers < _OLDEST:
        raise ClusterError(
            "azcopy_unsuitable", f"AzCopy {text} is too old.", f"Install {TESTED_VERSION}, the tested version."
        )
    warnings = []
    if text != TESTED_VERSION:
        warnings.append(
            f"AzCopy {text} is not the tested version {TESTED_VERSION}: results are checked all the same, "
            "but errors may be named less precisely."
        )
    return AzcopyProbe(path, text, warnings)


def check_reachable(url: BlobUrl, *, timeout_s: float = 15) -> None:
    """Raise ``unreachable`` unless something at the endpoint answers HTTP; AzCopy itself would try for half an hour.

    ``tls_untrusted`` when its certificate is not trusted, which AzCopy would try again for ever. Any answer will do, also
    a refusal. Behind a proxy nothing is tested: only AzCopy's way through it counts.
    """
    if url.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(url.host):
        return
    deadline = time.monotonic() + timeout_s
    while True:
        left = deadline - time.monotonic()
        try:
            _ask(url, max(0.5, left))
        except ssl.SSLCertVerificationError as exc:
            # Python may have other authorities than the system, and so than AzCopy.
            try:
                _ask(url, max(0.5, left), system_authorities=True)
            except ssl.SSLCertVerificationError:
                raise untrusted(f"{url.scheme}://{url.host}", exc) from None
            except (OSError, http.client.HTTPException):
                return
        except ssl.SSLError:
            return  # it speaks TLS, in a way that AzCopy may understand
        except (OSError, http.client.HTTPException) as exc:
            if left > 1.5 and not isinstance(exc, socket.timeout):
                time.sleep(1)
                continue
            raise ClusterError(
                "unreachable",
                f"The storage endpoint {url.scheme}://{url.host} does not answer: {_reason(exc)}.",
                "Check URL, name resolution, routes and firewall from this node.",
            ) from exc
        return


def _ask(url: BlobUrl, timeout_s: float, *, system_authorities: bool = False) -> None:
    connection: http.client.HTTPConnection
    if url.scheme == "https":
        context = ssl.create_default_context()
        if system_authorities:
            found = [path for path in (os.environ.get("SSL_CERT_FILE"), *_AUTHORITIES) if path and os.path.exists(path)]
            if found:
                context.load_verify_locations(found[0])
        connection = http.client.HTTPSConnection(url.hostname, url.port, timeout=timeout_s, context=context)
    else:
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=timeout_s)
    try:
        connection.request("HEAD", f"/{url.account}")
        connection.getresponse()
    finally:
        connection.close()


def _reason(exc: Exception) -> str:
    if isinstance(exc, socket.timeout):
        return "it accepts connections but sends nothing, or packets are dropped (timeout)"
    return getattr(exc, "strerror", None) or str(exc) or type(exc).__name__


__all__ = ["TESTED_VERSION", "AzcopyProbe", "cannot_start", "check_reachable", "probe"]
