/** HTTP/2 by its frames, for clients that break its rules. */

/** RFC 9113 section 4.1. */
export function frame(
  type: number,
  flags: number,
  streamId: number,
  payload: Buffer = Buffer.alloc(0),
): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(streamId, 5);
  return Buffer.concat([head, payload]);
}

/** Literals without indexing (RFC 7541 section 6.2.2) need no state. */
function headerBlock(headers: Readonly<Record<string, string>>): Buffer {
  const text = (value: string) => Buffer.concat([Buffer.from([value.length]), Buffer.from(value)]);
  return Buffer.concat(
    Object.entries(headers).flatMap(([name, value]) => [Buffer.from([0]), text(name), text(value)]),
  );
}

export const PREFACE = Buffer.concat([
  Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
  frame(4, 0, 0),
]);
/** A call without a token. */
export const HEALTH_CHECK = headerBlock({
  ':method': 'POST',
  ':scheme': 'http',
  ':path': '/grpc.health.v1.Health/Check',
  ':authority': 'node',
  'content-type': 'application/grpc',
  te: 'trailers',
});
export const END_HEADERS = 4;
