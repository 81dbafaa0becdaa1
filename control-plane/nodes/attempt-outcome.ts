/**
 * The outcome of an attempt, by the error that ended it. core/dispatch/job-run.ts acts on it.
 *
 * | kind        | when                                                                      |
 * |-------------|---------------------------------------------------------------------------|
 * | done        | the result is complete and its checksum is right                          |
 * | refused     | the node did not admit the image, for a cause that may pass; or it had no |
 * |             | room or no ability for it after all                                       |
 * | rejected    | the node did not admit the image, because the request is malformed        |
 * | lost        | the node admitted the image; then it, an engine or a worker was gone      |
 * | node-fault  | the node's own error or a broken answer                                   |
 * | image-fault | the image or its header is at fault                                       |
 * | local-fault | our own storage failed                                                    |
 * | aborted     | we cancelled it: the lease was lost, or the control plane shuts down      |
 */

import { status } from '@grpc/grpc-js';
import { ContractError, type ErrorCode } from '@matting/proto/contract/errors.ts';
import type { Sight } from '@matting/proto/contract/finishing.ts';
import type { OutputFormat } from '@matting/proto/contract/formats.ts';
import { ERROR_CODE_TRAILER, fromServiceError } from '@matting/proto/contract/grpc-status.ts';
import type { StageTimings } from '@matting/proto/gen/matting/v1/matte_service.ts';
import type { Fullness } from './node-view.ts';

export interface UsedModel {
  readonly name: string;
  /** The model's role in its plan: subject, opinion, second_look, surer_look, refine. */
  readonly role: string;
}

export interface MatteResult {
  readonly format: OutputFormat;
  readonly bytes: number;
  readonly width: number;
  readonly height: number;
  /** Hexadecimal, checked against the received bytes. */
  readonly sha256: string;
  readonly sight: Sight | null;
  readonly plan: string;
  readonly models: readonly UsedModel[];
  readonly timings: StageTimings | undefined;
  readonly thumbnail?: Buffer | undefined;
  /** Encoded by the node. undefined: the call did not request a matte. */
  readonly matte?: Buffer | undefined;
}

export type AttemptOutcome =
  | { readonly kind: 'done'; readonly result: MatteResult }
  | { readonly kind: 'refused'; readonly error: ContractError }
  | { readonly kind: 'rejected'; readonly error: ContractError }
  | { readonly kind: 'lost'; readonly withProcess: boolean; readonly error: ContractError }
  | { readonly kind: 'node-fault'; readonly error: ContractError }
  | { readonly kind: 'image-fault'; readonly error: ContractError }
  /** `reading`: a file of the job could not be read; otherwise the result could not be stored. */
  | { readonly kind: 'local-fault'; readonly error: unknown; readonly reading: boolean }
  | { readonly kind: 'aborted' };

export class LocalFault extends Error {
  readonly reading: boolean;

  constructor(cause: unknown, reading = false) {
    super('storage failed under an attempt', { cause });
    this.name = 'LocalFault';
    this.reading = reading;
  }
}

/** A lost connection or peer, as grpc-js reports it. */
const TRANSPORT_LOSS: ReadonlySet<status> = new Set([
  status.UNAVAILABLE,
  status.CANCELLED,
  // The status of a call whose socket was reset.
  status.INTERNAL,
]);

export function outcomeOf(error: unknown, admitted: boolean, aborted: boolean): AttemptOutcome {
  if (aborted) return { kind: 'aborted' };
  if (error instanceof LocalFault) {
    return { kind: 'local-fault', error: error.cause, reading: error.reading };
  }
  const known = toContractError(error);
  const { about } = known.spec;
  if (about === 'picture' || about === 'options') return { kind: 'image-fault', error: known };
  if (!admitted) return { kind: kindBefore(error, known), error: known };
  if (isTransportLoss(error)) return { kind: 'lost', withProcess: false, error: known };
  switch (known.code) {
    case 'ENGINE_LOST':
    case 'PICTURE_WORKER_LOST':
      return { kind: 'lost', withProcess: true, error: known };
    case 'NODE_UNAVAILABLE':
    case 'CALL_CANCELLED':
    case 'CALL_DEADLINE_EXCEEDED':
      return { kind: 'lost', withProcess: false, error: known };
    case 'NODE_INCAPABLE':
    case 'NODE_OVERLOADED':
    case 'NODE_SHORT_OF_MEMORY':
      return { kind: 'refused', error: known };
    default:
      return { kind: 'node-fault', error: known };
  }
}

/** A status without an error code of ours comes from the transport, and its cause may pass. */
function kindBefore(error: unknown, { code }: ContractError) {
  if (code === 'INVALID_REQUEST') return 'rejected';
  return code === 'NODE_FAULT' && !isBare(error) ? 'node-fault' : 'refused';
}

/** Whether the node is full for all images or only for this size. undefined: it is not full. */
export function fullnessBy(outcome: AttemptOutcome): Fullness | undefined {
  if (outcome.kind !== 'refused' || outcome.error.code === 'NODE_INCAPABLE') return undefined;
  return outcome.error.code === 'NODE_SHORT_OF_MEMORY' ? 'for-its-size' : 'for-all';
}

/** undefined: no evidence about the node, such as a refusal for lack of room or of a codec. */
export function verdictOn(outcome: AttemptOutcome): 'well' | 'fault' | undefined {
  switch (outcome.kind) {
    case 'done':
    case 'image-fault':
      return 'well';
    case 'lost':
    case 'node-fault':
      return 'fault';
    case 'refused':
      return HONEST_REFUSALS.has(outcome.error.code) ? undefined : 'fault';
    case 'rejected':
    case 'local-fault':
    case 'aborted':
      return undefined;
  }
}

const HONEST_REFUSALS: ReadonlySet<ErrorCode> = new Set([
  'NODE_OVERLOADED',
  'NODE_SHORT_OF_MEMORY',
  'NODE_INCAPABLE',
]);

interface GrpcError extends Error {
  readonly code: status;
  readonly details: string;
  readonly metadata: Parameters<typeof fromServiceError>[0]['metadata'];
}

function isGrpcError(error: unknown): error is GrpcError {
  return error instanceof Error && 'metadata' in error && 'details' in error && 'code' in error;
}

function toContractError(error: unknown): ContractError {
  if (error instanceof ContractError) return error;
  if (isGrpcError(error)) return fromServiceError(error);
  return new ContractError('NODE_FAULT', 'the call ended in an unknown way', { cause: error });
}

/** True if the error lacks the trailer with our error code: the transport set its status. */
function isBare(error: unknown): error is GrpcError {
  return isGrpcError(error) && error.metadata.get(ERROR_CODE_TRAILER).length === 0;
}

function isTransportLoss(error: unknown): boolean {
  return isBare(error) && TRANSPORT_LOSS.has(error.code);
}
