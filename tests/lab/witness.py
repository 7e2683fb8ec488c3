#!/usr/bin/env python3
"""Asks the clients' network who has the service's address, ten times a second, and writes down all who answer.

    witness.py INTERFACE MY_ADDRESS ADDRESS FILE

A line a question: the boot clock in nanoseconds, then the hardware addresses that answered, none or one where all is well.
"""
import select
import socket
import struct
import sys
import time

ROUND = 0.1
ARP, REQUEST, REPLY = 0x0806, 1, 2


def answers(sock, question, address, me):
    """Those who answer one question until the next is due."""
    sock.send(question)
    end, found = time.monotonic() + ROUND, set()
    while (left := end - time.monotonic()) > 0:
        if not select.select([sock], [], [], left)[0]:
            break
        frame = sock.recv(2048)
        kind, sender, owner, to = struct.unpack("!6xH6s4s6x4s", frame[14:42])
        if kind == REPLY and owner == address and to == me:
            found.add(sender.hex(":"))
    return sorted(found)


def main():
    interface, mine, wanted, path = sys.argv[1:]
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ARP))
    sock.bind((interface, ARP))
    hardware = sock.getsockname()[4]
    me, address = socket.inet_aton(mine), socket.inet_aton(wanted)
    ethernet = b"\xff" * 6 + hardware + struct.pack("!H", ARP)
    question = ethernet + struct.pack("!HHBBH6s4s6s4s", 1, 0x0800, 6, 4, REQUEST, hardware, me, b"\0" * 6, address)
    with open(path, "w", buffering=1) as file:
        while True:
            asked = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            file.write(" ".join([str(asked), *answers(sock, question, address, me)]) + "\n")


main()
