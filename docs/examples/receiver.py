"""A receiver of notifications: checks the signature, tells repeats by job_id, answers first and
works afterwards. Python 3.9 or later, no package: CALLBACK_SECRET=... python3 receiver.py
It listens on http://localhost:8095: docs/webhooks.md, "Callbacks to your own machine".
"""
import base64
import hashlib
import hmac
import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOLERANCE_S = 300
BODY_BYTES_MAX = 1_048_576

secret = os.environ.get("CALLBACK_SECRET", "")
# whsec_ and Base64 stand for bytes, any other text for itself.
if secret.startswith("whsec_"):
    encoded = secret[len("whsec_"):]
    key = base64.b64decode(encoded + "=" * (-len(encoded) % 4))
else:
    key = secret.encode()
if len(key) < 24:
    raise SystemExit("set CALLBACK_SECRET to the callback_secret you submit with")

# In your service: a table with job_id as its primary key.
done = set()


def holds(message_id, timestamp, signatures, body):
    if not timestamp.isdigit() or abs(time.time() - int(timestamp)) > TOLERANCE_S:
        return False
    signed = f"{message_id}.{timestamp}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return any(
        hmac.compare_digest(one, f"v1,{expected}") for one in signatures.split(" ")
    )


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        if length > BODY_BYTES_MAX:
            self.send_error(413)
            return
        # The bytes as they came: JSON that was read and written again is not what was signed.
        body = self.rfile.read(length)
        names = ("webhook-id", "webhook-timestamp", "webhook-signature")
        if not holds(*(self.headers.get(name, "") for name in names), body):
            self.send_response(401)
            self.send_header("content-length", "0")
            self.end_headers()
            return
        event = json.loads(body)
        repeat = event["job_id"] in done
        done.add(event["job_id"])
        self.send_response(204)
        self.end_headers()
        print(event["type"], event["job_id"], "(a repeat)" if repeat else "", flush=True)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8095"))), Receiver)
print("listening on", server.server_address, flush=True)
server.serve_forever()
