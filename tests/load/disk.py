"""A disk that stalls: python3 disk.py BACK MOUNTPOINT HANG

Shows the folder BACK at MOUNTPOINT. While the file HANG exists, every sync waits, and whoever asked for it waits in the
kernel, where SIGKILL does not end it.
"""
import errno
import os
import sys
import time

try:
    from fusepy import FUSE, FuseOSError, Operations
except ImportError:
    from fuse import FUSE, FuseOSError, Operations

BACK, POINT, HANG = sys.argv[1:4]


def wait():
    while os.path.exists(HANG):
        # Somebody did wait.
        open(HANG + ".felt", "w").close()
        time.sleep(0.02)


class Disk(Operations):
    def __call__(self, op, path, *args):
        try:
            return getattr(self, op)(BACK + path, *args)
        except FuseOSError:
            raise
        except OSError as error:
            raise FuseOSError(error.errno or errno.EIO)

    def access(self, path, mode):
        if not os.access(path, mode):
            raise FuseOSError(errno.EACCES)

    def getattr(self, path, fh=None):
        found = os.lstat(path)
        names = ["st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_atime", "st_mtime", "st_ctime"]
        return {name: getattr(found, name) for name in names}

    def readdir(self, path, fh):
        return [".", ".."] + os.listdir(path)

    def mkdir(self, path, mode):
        os.mkdir(path, mode)

    def rmdir(self, path):
        os.rmdir(path)

    def unlink(self, path):
        os.unlink(path)

    def rename(self, old, new):
        os.rename(old, BACK + new)

    def chmod(self, path, mode):
        os.chmod(path, mode)

    def chown(self, path, uid, gid):
        os.chown(path, uid, gid)

    def utimens(self, path, times=None):
        os.utime(path, times)

    def open(self, path, flags):
        # The kernel gives the place of each write itself.
        return os.open(path, flags & ~os.O_APPEND)

    def create(self, path, mode, fi=None):
        return os.open(path, os.O_RDWR | os.O_CREAT, mode)

    def read(self, path, size, offset, fh):
        return os.pread(fh, size, offset)

    def write(self, path, data, offset, fh):
        return os.pwrite(fh, data, offset)

    def truncate(self, path, length, fh=None):
        os.truncate(path, length)

    def release(self, path, fh):
        os.close(fh)

    def fsync(self, path, datasync, fh):
        wait()
        os.fsync(fh)

    def fsyncdir(self, path, datasync, fh):
        wait()


FUSE(Disk(), POINT, foreground=True, nothreads=False)
