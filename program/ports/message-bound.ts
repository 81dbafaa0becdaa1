/**
 * Checks the bytes of a gRPC stream ahead of grpc-js, which gathers a message of any length up to
 * its one bound for all methods, for as long as the caller likes. Here a message is judged by the
 * length it announces, before its bytes are kept, and the first one has to be whole in time.
 */
import type { Http2Stream } from 'node:http2';

export interface MessageBounds {
  /** Bytes of a message as it is sent. */
  readonly messageBytesMax: number;
  /** What it unfolds to is not bounded by what is sent. */
  readonly compressionAllowed: boolean;
  /** From the call's headers to the end of its first message; undefined: the handler's own. */
  readonly firstMessageWaitMaxMs: number | undefined;
  /** What follows the first message has the server's own bound. */
  readonly firstOnly: boolean;
}

export interface MessageEvents {
  /** The first message is whole. */
  readonly onFirst: () => void;
  /** At most once; what it makes of the stream must close it, or grpc-js reads on. */
  readonly onFault: (fault: MessageFault) => void;
}

export const MESSAGE_FAULTS = ['message_too_large', 'message_compressed', 'message_late'] as const;
export type MessageFault = (typeof MESSAGE_FAULTS)[number];

/** A flag for compression and four bytes of length, before each message. */
const PREFIX_BYTES = 5;

/**
 * Must be called after grpc-js has begun to listen to the stream, which sets its pace.
 */
export function boundMessages(
  stream: Http2Stream,
  bounds: MessageBounds,
  { onFirst, onFault }: MessageEvents,
): void {
  const prefix = Buffer.alloc(PREFIX_BYTES);
  let prefixBytes = 0;
  let leftBytes = 0;
  let first = true;
  const waitMs = bounds.firstMessageWaitMaxMs;
  const timer = waitMs === undefined ? undefined : setTimeout(() => fail('message_late'), waitMs);
  const stop = () => {
    clearTimeout(timer);
    stream.off('data', check);
  };
  const fail = (fault: MessageFault) => {
    stop();
    onFault(fault);
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
        if (leftBytes > bounds.messageBytesMax) return fail('message_too_large');
        if (prefix[0] !== 0 && !bounds.compressionAllowed) return fail('message_compressed');
      }
      if (leftBytes > 0 || !first) continue;
      first = false;
      clearTimeout(timer);
      onFirst();
      if (bounds.firstOnly) return stop();
    }
  };
  // Ahead of the listener that is there: what is over the bound never gets to it.
  stream.prependListener('data', check);
  // Without a message the call is grpc-js' to answer.
  stream.once('end', () => clearTimeout(timer));
  stream.once('close', stop);
}
