"""A file system that stops answering: python3 hang.py MOUNTPOINT HANG

`device` can be written, `agent` is a program that says `off`. While the file HANG exists, a sync of the one and every
look at the other wait, and whoever asked waits in the kernel, where SIGKILL does not end it.
"""
import errno
import os
import stat
import sys
import time

try:
    from fusepy import FUSE, FuseOSError, Operations
except ImportError:
    from fuse import FUSE, FuseOSError, Operations

HANG = sys.argv[2]
AGENT = b"#!/bin/sh\necho off\nexit 2\n"


def wait():
    while os.path.exists(HANG):
        time.sleep(0.02)


class Hanging(Operations):
    def getattr(self, path, fh=None):
        if path == "/agent":
            wait()
        modes = {"/": stat.S_IFDIR | 0o755, "/agent": stat.S_IFREG | 0o755, "/device": stat.S_IFREG | 0o644}
        if path not in modes:
            raise FuseOSError(errno.ENOENT)
        size = len(AGENT) if path == "/agent" else 0
        return {"st_mode": modes[path], "st_size": size, "st_nlink": 1, "st_uid": 0, "st_gid": 0}

    def readdir(self, path, fh):
        return [".", "..", "agent", "device"]

    def open(self, path, flags):
        return 0

    def read(self, path, size, offset, fh):
        return AGENT[offset : offset + size]

    def write(self, path, data, offset, fh):
        return len(data)

    def truncate(self, path, length, fh=None):
        return None

    def flush(self, path, fh):
        return 0

    def fsync(self, path, datasync, fh):
        wait()
        return 0


FUSE(Hanging(), sys.argv[1], foreground=True, nothreads=False, attr_timeout=0, entry_timeout=0, allow_other=True)
