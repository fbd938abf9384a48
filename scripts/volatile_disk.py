"""A disk for a virtual machine that loses what was not flushed when its power is cut.

It speaks the NBD protocol on a socket. What is written is in the image at once, and the content
before is remembered until the next flush. cut() then leaves each block of 4 KiB as it was at the
last flush or after any write since then: writes are lost, kept, reordered and torn.

A disk that ignores flushes remembers everything since its start.

It can also fail: see Fault. The errors are made here, and not by blkdebug of QEMU, because only the
disk knows what a write has left and what was never written, because its errors can begin and end
while the machine runs, and because the host has to know how many there were.
"""

import os
import random
import socket
import struct
import threading

BLOCK = 4096  # ext4 of Linux 6.1 does not mount a journal whose commit block is torn
MAGIC, OPTION, REPLY_MAGIC = b"NBDMAGIC", b"IHAVEOPT", 0x3e889045565a9
EXPORT_NAME, ABORT, GO = 1, 2, 7
ACK, INFO, UNSUPPORTED = 1, 3, 0x80000001
FLAGS = 1 | 4 | 8  # has flags, flush, FUA
READ, WRITE, DISCONNECT, FLUSH = 0, 1, 2, 3
FUA = 1
EIO, EINVAL = 5, 22
NAMES = {READ: "read", WRITE: "write", FLUSH: "flush"}


class Fault:
    """Which requests fail with EIO.

    errors  each request of one of the kinds `fails`, with a probability
    gone    all
    thin    writes to blocks that are zero, as they are if the disk below is full

    A write that fails at random has written its first blocks, or none. A flush that fails has made
    nothing durable; the next one can."""

    def __init__(self, name, seed, fails=("read", "write", "flush"), probability=1.0):
        self.name, self.fails, self.probability = name, fails, probability
        self.chance = random.Random(seed)
        self.counts = dict.fromkeys(NAMES.values(), 0)

    def hits(self, kind, before=b""):
        if self.name == "thin":
            is_hit = kind == WRITE and any(not any(before[at:at + BLOCK])
                                           for at in range(0, len(before), BLOCK))
        else:
            is_hit = NAMES.get(kind) in self.fails and self.chance.random() < self.probability
        if is_hit:
            self.counts[NAMES[kind]] += 1
        return is_hit

    def cut_short(self, content):
        """What a write that fails has written."""
        if self.name != "errors":
            return b""
        blocks = len(content) // BLOCK
        return content[:BLOCK * self.chance.choice((0, 0, self.chance.randint(0, blocks)))]


class VolatileDisk:
    def __init__(self, image, path, ignores_flushes=False, flush_seconds=0):
        self.image = os.open(image, os.O_RDWR)
        self.size = os.fstat(self.image).st_size
        self.ignores_flushes = ignores_flushes
        self.flush_seconds = flush_seconds
        self.undo = []  # (offset, content before), in the order of the writes
        self.flushes = 0
        self.fault = None
        self.is_off = threading.Event()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(1)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def power_off(self):
        """From now on nothing is written or flushed."""
        self.is_off.set()

    def cut(self, seed):
        """After power_off() and the end of the virtual machine. Returns how many blocks were
        undecided, and how many are not as they were written last."""
        self.thread.join()
        chance = random.Random(seed)
        versions = {}  # of a block: its contents, the durable one first
        for offset, before in self.undo:
            for at in range(0, len(before), BLOCK):
                versions.setdefault(offset + at, []).append(before[at:at + BLOCK])
        policy = chance.choice(("none", "prefix", "any", "any"))
        kept = chance.randint(0, len(self.undo))  # writes, of a prefix
        left = {}
        if policy == "prefix":
            for offset, before in self.undo[kept:]:
                for at in range(0, len(before), BLOCK):
                    left.setdefault(offset + at, before[at:at + BLOCK])
        else:
            for block, contents in versions.items():
                n = 0 if policy == "none" else chance.randint(0, len(contents))
                if n < len(contents):  # otherwise it stays as it was written last
                    left[block] = contents[n]
        for block, content in left.items():
            os.pwrite(self.image, content, block)
        return len(versions), len(left)

    def close(self):
        os.close(self.image)

    # --- the protocol ---

    def serve(self):
        connection, _ = self.listener.accept()
        self.listener.close()
        try:
            if self.negotiate(connection):
                while self.serve_request(connection):
                    pass
        except (ConnectionError, EOFError):
            pass
        connection.close()

    @staticmethod
    def receive(connection, n):
        data = bytearray()
        while len(data) < n:
            part = connection.recv(n - len(data))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def negotiate(self, connection):
        connection.sendall(MAGIC + OPTION + struct.pack(">H", 3))
        self.receive(connection, 4)
        while True:
            head = self.receive(connection, 16)
            option, length = struct.unpack(">II", head[8:])
            self.receive(connection, length)
            export = struct.pack(">QH", self.size, FLAGS)
            if option == EXPORT_NAME:
                connection.sendall(export)
                return True

            def reply(kind, data=b"", option=option):
                head = struct.pack(">QIII", REPLY_MAGIC, option, kind, len(data))
                connection.sendall(head + data)

            if option == GO:
                reply(INFO, struct.pack(">H", 0) + export)
                reply(ACK)
                return True
            if option == ABORT:
                reply(ACK)
                return False
            reply(UNSUPPORTED)

    def serve_request(self, connection):
        head = self.receive(connection, 28)
        _, flags, kind, handle, offset, length = struct.unpack(">IHHQQI", head)
        error, data = 0, b""
        if kind == DISCONNECT or self.is_off.is_set():
            return False
        fault = self.fault  # another thread sets it
        if kind == READ:
            data = os.pread(self.image, length, offset)
            if fault and fault.hits(READ):
                error, data = EIO, b""
        elif kind == WRITE:
            error = self.write(fault, offset, self.receive(connection, length))
        elif kind != FLUSH:
            error = EINVAL
        if not error and (kind == FLUSH or flags & FUA):
            if self.is_off.wait(self.flush_seconds):
                return False
            if fault and fault.hits(FLUSH):
                error = EIO
            else:
                self.flush()
        connection.sendall(struct.pack(">IIQ", 0x67446698, error, handle) + data)
        return True

    def write(self, fault, offset, content):
        before = os.pread(self.image, len(content), offset)
        error = 0
        if fault and fault.hits(WRITE, before):
            error, content = EIO, fault.cut_short(content)
        self.undo.append((offset, before[:len(content)]))
        os.pwrite(self.image, content, offset)
        return error

    def flush(self):
        self.flushes += 1
        if not self.ignores_flushes:
            self.undo.clear()
