import type { ServerHttp2Stream } from 'node:http2';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { HEADER_BYTES_MAX, MESSAGE_BYTES_SMALL } from '@matting/proto/contract/limits.ts';
import { refuseStream } from './refused-stream.ts';

/** Precedes each message: a compression flag and four bytes of length. */
const PREFIX_BYTES = 5;

/** Bytes of incomplete headers on one connection, without headers up to MESSAGE_BYTES_SMALL. */
const HEADERS_BYTES_MAX = 1024 * 1024;

export const MESSAGE_FAULTS = [
  'message_too_large',
  'message_compressed',
  'message_late',
  'over_limit',
] as const;
type MessageFault = (typeof MESSAGE_FAULTS)[number];

const FAULTS: Readonly<Record<MessageFault, ContractError>> = {
  message_too_large: new ContractError(
    'INVALID_REQUEST',
    `a message has more than ${MESSAGE_BYTES_SMALL} bytes, or a header more than ${HEADER_BYTES_MAX}`,
  ),
  over_limit: new ContractError(
    'CALLER_OVER_LIMIT',
    'the caller sends too many large headers at once on this connection',
  ),
  message_compressed: new ContractError(
    'INVALID_REQUEST',
    'compressed messages are taken from known callers only',
  ),
  message_late: new ContractError('CALL_DEADLINE_EXCEEDED', 'no whole message came in time'),
};

interface MessageBounds {
  /** Known callers may compress their messages. */
  readonly isKnown: boolean;
  /**
   * A method that carries files. Only its first message, the header, is bounded (HEADER_BYTES_MAX).
   */
  readonly isLarge: boolean;
  /** The connection's incomplete large headers. undefined: unbounded. */
  readonly headers?: { bytes: number } | undefined;
  readonly firstMessageWaitMaxMs: number;
  /** Called when the first message is complete. */
  readonly onFirst: () => void;
  /** Called before the refusal. */
  readonly onFault: (fault: MessageFault) => void;
}

/**
 * grpc-js buffers a message up to one bound for all methods, without a time limit. This checks the
 * announced length before the bytes are kept, and the time of the first message.
 */
export function boundMessages(stream: ServerHttp2Stream, bounds: MessageBounds): void {
  const { isKnown, isLarge, headers = { bytes: 0 }, firstMessageWaitMaxMs } = bounds;
  const bytesMax = isLarge ? HEADER_BYTES_MAX : MESSAGE_BYTES_SMALL;
  const prefix = Buffer.alloc(PREFIX_BYTES);
  let prefixBytes = 0;
  let leftBytes = 0;
  let headerBytes = 0;
  let first = true;
  const fail = (fault: MessageFault) => {
    stop();
    bounds.onFault(fault);
    refuseStream(stream, FAULTS[fault]);
  };
  const late = () => fail('message_late');
  const timer = isLarge ? undefined : setTimeout(late, firstMessageWaitMaxMs);
  const stop = () => {
    clearTimeout(timer);
    stream.off('data', check);
    headers.bytes -= headerBytes;
    headerBytes = 0;
  };
  const check = (data: Buffer) => {
    let at = 0;
    while (at < data.length) {
      if (leftBytes > 0) {
        const taken = Math.min(leftBytes, data.length - at);
        leftBytes -= taken;
        at += taken;
      } else {
        prefix[prefixBytes] = data[at]!;
        prefixBytes += 1;
        at += 1;
        if (prefixBytes < PREFIX_BYTES) continue;
        prefixBytes = 0;
        leftBytes = prefix.readUInt32BE(1);
        if (leftBytes > bytesMax) return fail('message_too_large');
        // A compressed message's size does not bound its content.
        if (prefix[0] !== 0 && !isKnown) return fail('message_compressed');
        if (leftBytes > MESSAGE_BYTES_SMALL) headerBytes = leftBytes;
        headers.bytes += headerBytes;
        if (headers.bytes > HEADERS_BYTES_MAX) return fail('over_limit');
      }
      if (leftBytes > 0 || !first) continue;
      first = false;
      clearTimeout(timer);
      bounds.onFirst();
      if (isLarge) return stop();
    }
  };
  // This listener must precede grpc-js' own, which must not get the excess.
  stream.prependListener('data', check);
  // If the call ends without a message, grpc-js answers it.
  stream.once('end', () => clearTimeout(timer));
  stream.once('close', stop);
}
