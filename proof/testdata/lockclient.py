"""A small client of ticketing-v0. It keeps one connection, and DEFECT=resends makes it wrong:
it then sends an acquire again when its connection ends."""
import base64, hashlib, os, socket, struct

class Client:
    def __init__(self, addr):
        self.addr, self.resends = addr.rsplit(":", 1), os.environ.get("DEFECT") == "resends"
        self.connect()

    def connect(self):
        self.sock = socket.create_connection((self.addr[0], int(self.addr[1])), 5)
        self.file = self.sock.makefile("rb")
        nonce = self.file.readline().split()[1]
        self.sock.sendall(base64.urlsafe_b64encode(hashlib.sha256(nonce).digest()).rstrip(b"=") + b"\n")

    def acquire(self, key, wait, lease):
        """Returns (outcome, token)."""
        for _ in range(2 if self.resends else 1):
            try:
                self.sock.settimeout(wait)
                self.sock.sendall(struct.pack(">cHH", b"A", wait, lease) + key.encode() + b"\n")
                op = self.file.read(1)
                if op == b"T":
                    self.file.readline()
                    return "timeout", None
                token = self.file.read(8)
                if op == b"A" and len(token) == 8 and self.file.readline() == key.encode() + b"\n":
                    return "acquired", str(int.from_bytes(token, "big"))
            except OSError:
                pass
            self.sock.close()
            self.connect()
        return "indeterminate", None

    def release(self, key):
        self.sock.sendall(b"R" + key.encode() + b"\n")
        return {b"R": "released", b"N": "not_held"}.get(self.file.readline()[:1], "indeterminate")
