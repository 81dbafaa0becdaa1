/** A ContractError becomes a gRPC status with its code and retryable flag in trailers, and back. */
import { Metadata, type ServiceError, type StatusObject, status } from '@grpc/grpc-js';
import { ContractError, ERROR_CATALOGUE, type ErrorCode, isErrorCode } from './errors.ts';

export const ERROR_CODE_TRAILER = 'matting-error-code';
const RETRYABLE_TRAILER = 'matting-retryable';

/** Statuses without our trailer come from the transport or a proxy. */
const BARE_STATUS: Partial<Record<status, ErrorCode>> = {
  [status.CANCELLED]: 'CALL_CANCELLED',
  [status.DEADLINE_EXCEEDED]: 'CALL_DEADLINE_EXCEEDED',
  [status.UNAVAILABLE]: 'NODE_UNAVAILABLE',
  [status.UNAUTHENTICATED]: 'INVALID_NODE_TOKEN',
  [status.UNIMPLEMENTED]: 'NODE_INCAPABLE',
};

/** Statuses of codes about a refused image. */
const BLAMES_REQUEST: ReadonlySet<status> = new Set([status.INVALID_ARGUMENT, status.OUT_OF_RANGE]);

/** An unknown error becomes NODE_FAULT without its message; the caller logs it. */
export function toStatus(error: unknown): StatusObject {
  const known =
    error instanceof ContractError
      ? error
      : new ContractError('NODE_FAULT', 'internal error', { cause: error });
  const metadata = new Metadata();
  metadata.set(ERROR_CODE_TRAILER, known.code);
  metadata.set(RETRYABLE_TRAILER, String(known.retryable));
  return { code: ERROR_CATALOGUE[known.code].grpc, details: known.message, metadata };
}

export function fromServiceError(error: ServiceError): ContractError {
  const sent = error.metadata?.get(ERROR_CODE_TRAILER)[0];
  const flag = error.metadata?.get(RETRYABLE_TRAILER)[0];
  if (typeof sent === 'string' && isErrorCode(sent)) {
    const retryable = flag === undefined ? undefined : flag === 'true';
    return new ContractError(sent, error.details, { cause: error, retryable });
  }
  // A newer program has unknown codes. One that blames the request is not the node's fault: another
  // node would refuse, too.
  if (sent !== undefined && flag === 'false' && BLAMES_REQUEST.has(error.code)) {
    return new ContractError('PROCESSING_FAILED', error.details, {
      cause: error,
      retryable: false,
    });
  }
  return new ContractError(BARE_STATUS[error.code] ?? 'NODE_FAULT', error.details, {
    cause: error,
  });
}
