import { constants, type ServerHttp2Stream } from 'node:http2';
import type { ContractError } from '@matting/proto/contract/errors.ts';
import { toStatus } from '@matting/proto/contract/grpc-status.ts';

/** Sends the status, or a reset if a part of the answer was already sent. */
export function refuseStream(stream: ServerHttp2Stream, error: ContractError): void {
  if (stream.destroyed || stream.closed) return;
  if (stream.headersSent) {
    stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    return;
  }
  const { code, details, metadata } = toStatus(error);
  const answer = {
    [constants.HTTP2_HEADER_STATUS]: 200,
    [constants.HTTP2_HEADER_CONTENT_TYPE]: 'application/grpc+proto',
    'grpc-status': code,
    'grpc-message': encodeURI(details),
    ...metadata.toHttp2Headers(),
  };
  stream.respond(answer, { endStream: true });
  stream.close(constants.NGHTTP2_NO_ERROR);
}
