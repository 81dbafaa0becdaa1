/** Bounds the messages of one call of gRPC, and the time of the first one. */
import type { ServerHttp2Stream } from 'node:http2';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { HEADER_BYTES_MAX, MESSAGE_BYTES_SMALL } from '@matting/proto/contract/limits.ts';
import { refuseStream } from './refused-stream.ts';

/** A flag for compression and four bytes of length, before each message. */
const PREFIX_BYTES = 5;

/** Bytes of the headers over MESSAGE_BYTES_SMALL that a connection sends at once. */
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
  /** The caller is known: its messages may be compressed. */
  readonly isKnown: boolean;
  /** The method carries files: its first message alone is bounded, by HEADER_BYTES_MAX. */
  readonly isLarge: boolean;
  /** The large headers of the connection that are not whole yet; undefined: not bounded. */
  readonly headers?: { bytes: number } | undefined;
  readonly firstMessageWaitMaxMs: number;
  /** Called when the first message is whole. */
  readonly onFirst: () => void;
  /** Called before the call is refused. */
  readonly onFault: (fault: MessageFault) => void;
}

/**
 * Ahead of grpc-js, which gathers a message of any length up to its one bound for all methods, for
 * as long as the caller likes. Here a message is judged by the length it announces, before its
 * bytes are kept, and the first one has to be whole in time.
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
        // The size of a compressed message does not bound what it unfolds to.
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
  // Ahead of the listener that is there: what is over the bound never gets to it.
  stream.prependListener('data', check);
  // Without a message the call is grpc-js' to answer.
  stream.once('end', () => clearTimeout(timer));
  stream.once('close', stop);
}
