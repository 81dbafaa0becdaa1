/** What a Matte call says first, and what the header of its result is held to. Knows no stream. */
import { isDeepStrictEqual } from 'node:util';
import { ContractError } from '#contract/errors.ts';
import type { Sight } from '#contract/finishing.ts';
import { finishingToProto } from '#contract/finishing-wire.ts';
import {
  inputFormatToProto,
  outputFormatFromProto,
  outputFormatToProto,
} from '#contract/formats.ts';
import {
  type BackgroundPicture,
  type MatteRequest,
  Priority,
  type ResultHeader,
  ResultKind,
  Switch,
} from '#gen/matting/v1/matte_service.ts';
import type { MatteCall } from './matte-call.ts';

/** The first message of a call. */
export function headerMessage(request: MatteCall): MatteRequest {
  return {
    message: {
      $case: 'header',
      value: {
        jobId: request.jobId,
        directOrigin: request.direct?.origin ?? '',
        attempt: request.attempt,
        contentLength: request.inputBytes,
        sha256: Buffer.alloc(0),
        inputFormat: inputFormatToProto(request.inputFormat),
        width: request.width ?? 0,
        height: request.height ?? 0,
        outputFormat: outputFormatToProto(request.outputFormat),
        resultKind: resultKindOf(request),
        priority: request.sync ? Priority.PRIORITY_SYNC : Priority.PRIORITY_ASYNC,
        plan: '',
        refinement: Switch.SWITCH_UNSPECIFIED,
        foregroundEstimation: Switch.SWITCH_UNSPECIFIED,
        model: '',
        finishing: request.finishing && finishingToProto(request.finishing, fileOf(request)),
        // At least 1, since 0 would be no bound.
        waitMsMax: request.waitMsMax ? Math.max(1, Math.round(request.waitMsMax)) : 0,
      },
    },
  };
}

function resultKindOf({ channels = 'rgba' }: MatteCall): ResultKind {
  return channels === 'alpha' ? ResultKind.RESULT_KIND_MASK : ResultKind.RESULT_KIND_CUTOUT;
}

function fileOf({ background }: MatteCall): BackgroundPicture | undefined {
  if (background === undefined) return undefined;
  const { bytes, format, width, height } = background;
  return {
    contentLength: bytes,
    sha256: Buffer.alloc(0),
    inputFormat: inputFormatToProto(format),
    width: width ?? 0,
    height: height ?? 0,
  };
}

/**
 * A picture without all that was asked for is not the job's, as a node makes one that knows less
 * fields than this control plane: it cannot do this job, and another may.
 * @throws ContractError NODE_INCAPABLE
 */
export function requireFinished(request: MatteCall, header: ResultHeader): void {
  const { finishing } = request;
  if (finishing === undefined) return;
  const isSame =
    header.finishing !== undefined &&
    isDeepStrictEqual(header.finishing, finishingToProto(finishing, fileOf(request))) &&
    header.resultKind === resultKindOf(request) &&
    outputFormatFromProto(header.format) === request.outputFormat;
  if (isSame) return;
  const detail = 'the node did not apply the finishing that was asked for';
  throw new ContractError('NODE_INCAPABLE', detail);
}

/** null: the node does not say what it saw. */
export function sightFromProto(header: ResultHeader): Sight | null {
  const { inputWidth, inputHeight, subject } = header;
  if (inputWidth === 0 || inputHeight === 0) return null;
  const { inputBox, resultBox, share = 0 } = subject ?? {};
  const seen = inputBox && resultBox ? { inputBox, resultBox, share } : null;
  return { inputWidth, inputHeight, subject: seen };
}
