"""A plugin in Python that attacks as the value of a record says."""

import os
import random
import signal
import socket
import sys
import threading
import time

import reprieve_plugin as plugin


def connect(kind, address):
    s = socket.socket(*kind)
    s.settimeout(1)
    s.connect(address)
    s.send(b"x")


def host(a):
    name, port = a.rsplit(":", 1)
    return name, int(port)


def read(a):
    with open(a, "rb") as f:
        f.read(1)


def write(a):
    with open(a, "ab") as f:
        f.write(b"x")


def fork(_):
    if os.fork() == 0:
        os._exit(0)


def ctypes(_):
    import ctypes

    ctypes.CDLL(None)


def shared(_):
    import mmap

    mmap.mmap(-1, 1 << 30)


def memory(_):
    all = []
    for _ in range(4096):
        all.append(bytearray(b"x" * (1 << 20)))


def threads(_):
    def wait():
        time.sleep(3)

    for _ in range(3000):
        threading.Thread(target=wait, daemon=True).start()


def recurse(_):
    sys.setrecursionlimit(10**9)

    def down(n):
        return down(n + 1) + 1

    down(0)


ATTACKS = {
    "tcp": lambda a: connect((socket.AF_INET, socket.SOCK_STREAM), host(a)),
    "udp": lambda a: connect((socket.AF_INET, socket.SOCK_DGRAM), host(a)),
    "unix": lambda a: connect((socket.AF_UNIX, socket.SOCK_STREAM), "\0" + a[1:] if a.startswith("@") else a),
    "read": read,
    "list": os.listdir,
    "write": write,
    "fill": lambda _: write(os.environ["PLUGIN_UNIX_SOCKET_DIR"] + "/full"),
    "fork": fork,
    "spawn": lambda a: os.posix_spawn(a, [a, "-c", ""], {}),
    "exec": lambda a: os.execv(a, [a, "-c", ""]),
    "ctypes": ctypes,
    "kill": lambda a: os.kill(int(a), signal.SIGKILL) if os.getpid() != int(a) else exit_(),
    "symlink": lambda _: os.symlink("/etc/passwd", os.environ["PLUGIN_UNIX_SOCKET_DIR"] + "/l"),
    "shared": shared,
    "memory": memory,
    "threads": threads,
    "chroot": lambda _: os.chroot("/app"),
    "exit": lambda _: exit_(),
    "recurse": recurse,
}


def exit_():
    os._exit(7)


class Villain(plugin.Transform):
    def repair(self, e):
        verb, _, arg = (e.value or b"").decode(errors="replace").partition(": ")
        if verb == "see":
            return plugin.repaired(value=" ".join(sorted(os.listdir(arg))).encode())
        if verb == "year":  # past the fixed time of the library
            return plugin.repaired(value=str(time.gmtime().tm_year).encode())
        if verb == "probe":
            return plugin.repaired(value=("%s %s" % (time.time(), random.random())).encode())
        if verb in ATTACKS:
            try:
                ATTACKS[verb](arg)
            except (OSError, ImportError, MemoryError, RuntimeError, AttributeError):
                return plugin.rejected("blocked")
            return plugin.repaired(value=b"THROUGH")
        return plugin.repaired(value=b"fixed")
