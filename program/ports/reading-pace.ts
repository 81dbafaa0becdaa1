/**
 * A minimum pace for readers of answers. A reader that takes nothing, or very little, would keep
 * an answer's buffers and its connection for as long as a byte moves. Only time counts in which
 * bytes wait for the reader, so work that takes long costs a reader nothing.
 *
 * A reader may fall PACE_DEBT_MS_MAX behind PACE_BYTES_PER_SECOND_MIN: a phone in a tunnel for
 * 30 s is waited for, one whose plan is throttled to 64 kbit/s gets its file, and a reader that is
 * slower for long is cut off; `Range` goes on from there. Within one write it is unknown how far the
 * system is: large answers are to be written in pieces of some 64 KiB.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** Half of what a throttled mobile plan has (64 kbit/s). */
export const PACE_BYTES_PER_SECOND_MIN = 4096;
export const PACE_DEBT_MS_MAX = 30_000;
/**
 * Connections without a key whose answer waits to be read; beyond it those that are slowest go.
 * Each holds some 100 KB, and results have fewer (result-readers.ts of the control plane).
 */
export const UNREAD_STRANGERS_MAX = 2048;
const SAMPLE_INTERVAL_MS = 1000;

export const READER_ENDS = ['slow_reader', 'crowded'] as const;
export type ReaderEnd = (typeof READER_ENDS)[number];

export interface ReadingPaceOptions {
  /** Whether a connection has shown a key. None has where absent. */
  readonly isKnown?: (socket: Socket) => boolean;
  /** A reader was cut off: too slow, or one of too many that are slow. */
  readonly onEnded?: (cause: ReaderEnd) => void;
  /** PACE_DEBT_MS_MAX where absent. */
  readonly debtMsMax?: number;
  /** UNREAD_STRANGERS_MAX where absent. */
  readonly unreadStrangersMax?: number;
}

interface Reader {
  /** Answers under way: a caller may ask again before it has read. */
  answers: number;
  takenBytes: number;
  debtMs: number;
}

/** Watches from now on; ends by itself when there is no reader. */
export function requireReadingPace(server: Server, options: ReadingPaceOptions): void {
  const { debtMsMax = PACE_DEBT_MS_MAX } = options;
  const intervalMs = Math.min(SAMPLE_INTERVAL_MS, debtMsMax / 4);
  const readers = new Map<Socket, Reader>();
  let timer: NodeJS.Timeout | undefined;
  let sampledAtMs = 0;
  const sample = () => {
    const nowMs = performance.now();
    // A process that stood still cannot tell whether its readers did.
    const elapsedMs = Math.min(nowMs - sampledAtMs, 2 * intervalMs);
    sampledAtMs = nowMs;
    const strangers: [Socket, Reader][] = [];
    for (const [socket, reader] of readers) {
      const slow = grade(socket, reader, elapsedMs);
      if (reader.debtMs > debtMsMax) cut(socket, 'slow_reader');
      else if (slow && !options.isKnown?.(socket)) strangers.push([socket, reader]);
    }
    const spareMax = options.unreadStrangersMax ?? UNREAD_STRANGERS_MAX;
    if (strangers.length <= spareMax) return;
    strangers.sort(([, one], [, other]) => other.debtMs - one.debtMs);
    for (const [socket] of strangers.slice(0, strangers.length - spareMax)) cut(socket, 'crowded');
  };
  const cut = (socket: Socket, cause: ReaderEnd) => {
    readers.delete(socket);
    options.onEnded?.(cause);
    socket.destroy();
  };
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    const { socket } = request;
    const reader = readers.get(socket) ?? { answers: 0, takenBytes: takenBytes(socket), debtMs: 0 };
    reader.answers += 1;
    readers.set(socket, reader);
    response.once('close', () => {
      reader.answers -= 1;
      if (reader.answers === 0 && readers.get(socket) === reader) readers.delete(socket);
      if (readers.size > 0) return;
      clearInterval(timer);
      timer = undefined;
    });
    if (timer !== undefined) return;
    sampledAtMs = performance.now();
    timer = setInterval(sample, intervalMs).unref();
  });
}

/** Whether something waits for it that it has not taken. */
function grade(socket: Socket, reader: Reader, elapsedMs: number): boolean {
  const taken = takenBytes(socket);
  const earnedMs = ((taken - reader.takenBytes) / PACE_BYTES_PER_SECOND_MIN) * 1000;
  reader.takenBytes = taken;
  const waits = socket.writableLength > 0;
  reader.debtMs = Math.max(0, reader.debtMs + (waits ? elapsedMs : 0) - earnedMs);
  return waits;
}

/** Bytes that the system took from us: `bytesWritten` alone counts those that wait as well. */
function takenBytes(socket: Socket): number {
  return socket.bytesWritten - socket.writableLength;
}
