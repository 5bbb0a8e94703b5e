"""Free ports; and what running processes have, as /proc tells: sockets, and libtrain's shared memory."""

import contextlib
import os
import random
import socket
import struct
from dataclasses import dataclass

TCP_LISTEN = "0A"


@dataclass(frozen=True, order=True)
class Socket:
    kind: str  # tcp, tcp6, udp, udp6, unix
    listens: bool
    local: str  # host:port, or the name of a Unix socket, which starts with @ where it is no file
    remote: str = ""


def free_ports(count):
    """Different ones, below those that the kernel chooses: it gives none of them to another socket before its use."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="utf-8") as limits:
        end = max(int(limits.read().split()[0]), 16384)
    with contextlib.ExitStack() as stack:
        ports = []
        while len(ports) < count:
            port = random.randrange(8192, end)
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
                ports.append(port)
        return ports


def free_port():
    return free_ports(1)[0]


def _targets(process):
    """What the descriptors of a process stand for; none where it has ended."""
    folder = f"/proc/{process}/fd"
    try:
        descriptors = os.listdir(folder)
    except OSError:
        return []
    targets = []
    for descriptor in descriptors:
        try:
            targets.append(os.readlink(f"{folder}/{descriptor}"))
        except OSError:
            continue  # closed by now
    return targets


def shared_memory_of(process):
    """The inodes of libtrain's pieces of shared memory that it has mapped."""
    try:
        with open(f"/proc/{process}/maps", encoding="utf-8") as maps:
            return {line.split()[4] for line in maps if "/memfd:libtrain" in line}
    except OSError:
        return set()


def sockets_of(process):
    """All of its sockets, in order."""
    inodes = {target[len("socket:["):-1] for target in _targets(process) if target.startswith("socket:[")}
    found = []
    for kind in ("tcp", "tcp6", "udp", "udp6"):
        for inode, words in _table(process, kind).items():
            if inode in inodes:
                local, remote = _address(words[1]), _address(words[2])
                listens = words[3] == TCP_LISTEN or kind.startswith("udp")
                found.append(Socket(kind, listens, local, "" if listens else remote))
    for inode, words in _table(process, "unix").items():
        if inode in inodes:
            found.append(Socket("unix", len(words) > 7, words[7] if len(words) > 7 else ""))
    return sorted(found)


def unix_names():
    """The names of all Unix sockets of this network namespace."""
    return {words[7] for words in _table("self", "unix").values() if len(words) > 7}


def _table(process, name):
    """The lines by their inode: the kernel gives them in pieces, and one twice if a connection is made in between."""
    inode, most = (6, 7) if name == "unix" else (9, -1)
    with open(f"/proc/{process}/net/{name}", encoding="utf-8") as table:
        lines = [line.split(maxsplit=most) for line in table.read().splitlines()[1:]]
    return {words[inode]: words for words in lines}


def _address(text):
    """From "0100007F:A9C7": words in the order of this machine's bytes."""
    host, port = text.split(":")
    packed = b"".join(struct.pack("=I", int(host[at:at + 8], 16)) for at in range(0, len(host), 8))
    return f"{socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)}:{int(port, 16)}"
