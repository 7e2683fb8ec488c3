"""The Redfish emulator of sushy-tools with machines that are real processes.

A machine is the process whose number stands in $MACHINES/NAME.pid. ForceOff kills it and its group, On starts one.
Usage: bmc.py --config FILE --fake
"""

import os
import signal
import subprocess
import sys

from sushy_tools import error
from sushy_tools.emulator import main as emulator
from sushy_tools.emulator.resources.systems import fakedriver

MACHINES = os.environ["MACHINES"]


def running(pid):
    """A zombie does nothing any more: its parent has only not collected it yet."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class ProcessDriver(fakedriver.FakeDriver):
    def _file(self, identity):
        return os.path.join(MACHINES, self._get(identity)["name"] + ".pid")

    def _pid(self, identity):
        try:
            with open(self._file(identity)) as file:
                return int(file.read())
        except (OSError, ValueError):
            return None

    def get_power_state(self, identity):
        pid = self._pid(identity)
        return "On" if pid is not None and running(pid) else "Off"

    def set_power_state(self, identity, state):
        pid = self._pid(identity)
        if state == "ForceOff":
            if pid is not None and running(pid):
                os.killpg(pid, signal.SIGKILL)
        elif state in ("On", "ForceOn"):
            machine = subprocess.Popen(["sleep", "600"], start_new_session=True)
            with open(self._file(identity), "w") as file:
                file.write(str(machine.pid))
        else:
            raise error.NotSupportedError(f"no {state} here")


fakedriver.FakeDriver = ProcessDriver
sys.exit(emulator.main())
