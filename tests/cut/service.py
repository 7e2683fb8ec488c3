"""A small TCP server that does not want to stop: it answers `ping`, is slow with all else, and ignores SIGTERM."""

import signal
import socket
import sys
import threading


def answer(client):
    try:
        while request := client.recv(5):
            if request == b"ping\n":
                client.sendall(b"pong\n")
    except OSError:
        pass


def serve(listener):
    while True:
        client, _ = listener.accept()
        threading.Thread(target=answer, args=[client], daemon=True).start()


signal.signal(signal.SIGTERM, signal.SIG_IGN)
for port in sys.argv[1:]:
    listener = socket.create_server(("::", int(port)), family=socket.AF_INET6, dualstack_ipv6=True)
    threading.Thread(target=serve, args=[listener], daemon=True).start()
while True:
    signal.pause()
