import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { RoomOptions } from './port-room.ts';

/** Half of a throttled mobile plan (64 kbit/s). */
export const PACE_BYTES_PER_SECOND_MIN = 4096;
export const PACE_DEBT_MS_MAX = 30_000;
/** Keyless connections with an unread answer. Above the bound the slowest are closed. */
export const UNREAD_STRANGERS_MAX = 2048;
/**
 * Unread bytes of all connections. Above the bound the account with most loses its slowest reader;
 * keyless connections count as one account. All readers of results may hold as much
 * (result-download.ts).
 */
export const UNREAD_BYTES_MAX = 128 * 1024 * 1024;
const SAMPLE_INTERVAL_MS = 1000;
/** This many new connections trigger an earlier check. */
const SAMPLE_CONNECTIONS_MAX = 256;

export interface PaceOptions extends Pick<RoomOptions, 'ownerOf'> {
  readonly onEnded?: ((cause: 'slow_reader' | 'crowded') => void) | undefined;
  readonly debtMsMax?: number;
  readonly unreadStrangersMax?: number;
  readonly unreadBytesMax?: number;
}

interface Reader {
  /** Several if the caller sent another request before it had read. */
  readonly answers: Set<ServerResponse>;
  takenBytes: number;
  debtMs: number;
}

interface SlowReader {
  readonly socket: Socket;
  /** undefined: a stranger. */
  readonly owner: string | undefined;
  readonly debtMs: number;
  readonly bytes: number;
}

/**
 * A minimum pace for readers of answers, since a slow one holds buffers and a connection. Only time
 * in which bytes wait counts. A reader may fall PACE_DEBT_MS_MAX behind PACE_BYTES_PER_SECOND_MIN:
 * a phone in a tunnel for 30 s and a plan throttled to 64 kbit/s get their file. A slower reader
 * can continue with `Range`. Write large answers in pieces of about 64 KiB, because progress within
 * one is unknown.
 */
export function requireReadingPace(server: Server, options: PaceOptions): void {
  const { debtMsMax = PACE_DEBT_MS_MAX } = options;
  const intervalMs = Math.min(SAMPLE_INTERVAL_MS, debtMsMax / 4);
  const readers = new Map<Socket, Reader>();
  let timer: NodeJS.Timeout | undefined;
  let sampledAtMs = 0;
  let sampleAtSize = SAMPLE_CONNECTIONS_MAX;
  const sample = () => {
    const nowMs = performance.now();
    // A blocked process cannot see its readers' progress, so the time beyond two samples is not
    // counted.
    const elapsedMs = Math.min(nowMs - sampledAtMs, 2 * intervalMs);
    sampledAtMs = nowMs;
    const slow: SlowReader[] = [];
    for (const [socket, reader] of readers) {
      const waits = grade(socket, reader, elapsedMs);
      const { debtMs, answers } = reader;
      if (debtMs > debtMsMax) cut(socket, 'slow_reader');
      else if (waits) {
        const owner = options.ownerOf?.(socket);
        slow.push({ socket, owner, debtMs, bytes: bytesOf(answers) });
      }
    }
    for (const { socket } of tooMany(slow, options)) cut(socket, 'crowded');
    sampleAtSize = readers.size + SAMPLE_CONNECTIONS_MAX;
  };
  const cut = (socket: Socket, cause: 'slow_reader' | 'crowded') => {
    readers.delete(socket);
    options.onEnded?.(cause);
    socket.destroy();
  };
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    const { socket } = request;
    const reader = readers.get(socket) ?? newReader(socket);
    reader.answers.add(response);
    readers.set(socket, reader);
    response.once('close', () => {
      reader.answers.delete(response);
      if (reader.answers.size === 0 && readers.get(socket) === reader) readers.delete(socket);
      if (readers.size > 0) return;
      clearInterval(timer);
      timer = undefined;
    });
    if (timer === undefined) {
      sampledAtMs = performance.now();
      timer = setInterval(sample, intervalMs).unref();
    } else if (readers.size >= sampleAtSize) sample();
  });
}

function newReader(socket: Socket): Reader {
  return { answers: new Set(), takenBytes: takenBytes(socket), debtMs: 0 };
}

function bytesOf(answers: Iterable<ServerResponse>): number {
  let bytes = 0;
  for (const { writableLength } of answers) bytes += writableLength;
  return bytes;
}

/** @returns the slowest readers above the bounds of strangers and of bytes */
function tooMany(
  slow: readonly SlowReader[],
  { unreadStrangersMax = UNREAD_STRANGERS_MAX, unreadBytesMax = UNREAD_BYTES_MAX }: PaceOptions,
): SlowReader[] {
  const byOwner = Map.groupBy(slow, ({ owner }) => owner);
  const held = [...byOwner].map(([owner, own]) => {
    const slowestLast = own.toSorted((one, other) => one.debtMs - other.debtMs);
    return { owner, slowestLast, bytes: own.reduce((sum, { bytes }) => sum + bytes, 0) };
  });
  const strangers = held.find(({ owner }) => owner === undefined);
  const gone = strangers?.slowestLast.splice(unreadStrangersMax) ?? [];
  if (strangers) for (const { bytes } of gone) strangers.bytes -= bytes;
  let leftBytes = held.reduce((sum, { bytes }) => sum + bytes, 0);
  while (leftBytes > unreadBytesMax) {
    const most = held.reduce((one, other) => (other.bytes > one.bytes ? other : one));
    const slowest = most.slowestLast.pop();
    if (slowest === undefined) break;
    gone.push(slowest);
    most.bytes -= slowest.bytes;
    leftBytes -= slowest.bytes;
  }
  return gone;
}

/** @returns whether bytes wait for the reader */
function grade(socket: Socket, reader: Reader, elapsedMs: number): boolean {
  const taken = takenBytes(socket);
  const earnedMs = ((taken - reader.takenBytes) / PACE_BYTES_PER_SECOND_MIN) * 1000;
  reader.takenBytes = taken;
  const waits = socket.writableLength > 0;
  reader.debtMs = Math.max(0, reader.debtMs + (waits ? elapsedMs : 0) - earnedMs);
  return waits;
}

/** @returns bytes that the system took; `bytesWritten` also counts buffered ones */
function takenBytes(socket: Socket): number {
  return socket.bytesWritten - socket.writableLength;
}
