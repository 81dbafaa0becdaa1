/**
 * Removes 1xx answers from the bytes that a connection for one request receives. RFC 9110 lets a
 * server send them unasked, but undici closes a connection at "100 Continue".
 */
import type { Socket } from 'node:net';
import { PieceCount, SmallPiecesError } from '@matting/program/piece-count.ts';

/** Servers send one or two, or one a second. */
const INTERIM_ANSWERS_MAX = 100;

/** 101 is excluded: another protocol follows it. */
const INTERIM = /^HTTP\/1\.\d 1(?!01)\d\d\b/;
const STATUS_BYTES = 'HTTP/1.1 100 '.length;
const HEAD_END = /\r?\n\r?\n/;

/** @param headBytesMax bound of one interim answer */
export function skipInterimAnswers(socket: Socket, headBytesMax: number): void {
  const read = socket.read.bind(socket);
  // The held head is read again for each piece.
  const pieces = new PieceCount();
  let skipped = 0;
  let held: Buffer = Buffer.alloc(0);
  const pass = () => {
    socket.read = read;
    return held;
  };
  socket.read = (size?: number) => {
    const chunk: Buffer | null = read(size);
    if (chunk === null) return null;
    if (!pieces.take(chunk.length)) {
      socket.destroy(new SmallPiecesError());
      return null;
    }
    held = Buffer.concat([held, chunk]);
    for (;;) {
      if (held.length < STATUS_BYTES) return null;
      const text = held.toString('latin1', 0, headBytesMax);
      if (!INTERIM.test(text)) return pass();
      const end = HEAD_END.exec(text);
      if (end === null && held.length < headBytesMax) return null;
      skipped += 1;
      if (end === null || skipped > INTERIM_ANSWERS_MAX) {
        socket.destroy(new Error('the peer sends interim answers without end'));
        return null;
      }
      held = held.subarray(end.index + end[0].length);
    }
  };
}
