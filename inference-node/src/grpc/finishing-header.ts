/** Checks what a header asks for beside a plain cut-out: its finishing, and formats that need it. */
import { ContractError } from '#contract/errors.ts';
import type { Finishing } from '#contract/finishing.ts';
import { finishingFromProto } from '#contract/finishing-wire.ts';
import { isTransparentFormat, type OutputFormat } from '#contract/formats.ts';
import type { Finishing as ProtoFinishing } from '#gen/matting/v1/matte_service.ts';
import type { PictureCapabilities } from '../picture/pool/picture-pool.ts';
import type { ResultKind } from '../pipeline.ts';
import { BACKGROUND, checkFileFields, type FileOrder } from './file-header.ts';

/** A header's finishing. */
export interface FinishingOrder {
  readonly finishing: Finishing;
  /** Undefined: no picture is its background. */
  readonly background: FileOrder | undefined;
  /** As it came, for the result's header. */
  readonly message: ProtoFinishing;
}

/** What the finishing has to fit. */
export interface ResultShape {
  readonly outputFormat: OutputFormat;
  readonly resultKind: ResultKind;
}

/**
 * Undefined: none is asked for.
 * @throws ContractError INVALID_REQUEST, UNSUPPORTED_OUTPUT_FORMAT, IMAGE_TOO_LARGE,
 *   IMAGE_RESOLUTION_TOO_LARGE, UNSUPPORTED_IMAGE_FORMAT, NODE_INCAPABLE
 */
export function checkFinishing(
  message: ProtoFinishing | undefined,
  result: ResultShape,
  pictures: PictureCapabilities,
): FinishingOrder | undefined {
  if (message === undefined) {
    if (isTransparentFormat(result.outputFormat)) return undefined;
    const detail = `${result.outputFormat} is written of a result with finishing only`;
    throw new ContractError('UNSUPPORTED_OUTPUT_FORMAT', detail);
  }
  const finishing = finishingFromProto(message);
  requireFitting(finishing, result);
  const picture =
    message.background?.$case === 'backgroundPicture' ? message.background.value : undefined;
  const background = picture && checkFileFields(picture, BACKGROUND, pictures);
  return { finishing, background, message };
}

function requireFitting(
  { background }: Finishing,
  { outputFormat, resultKind }: ResultShape,
): void {
  if (resultKind === 'mask' && background !== undefined) {
    throw new ContractError('INVALID_REQUEST', 'finishing: a MASK has no background');
  }
  if (resultKind === 'mask' && outputFormat === 'zip') {
    throw new ContractError('UNSUPPORTED_OUTPUT_FORMAT', 'zip is written of a CUTOUT only');
  }
  const isOpaque =
    background?.kind === 'picture' || (background !== undefined && (background.rgba & 255) === 255);
  if (outputFormat === 'jpeg' && !isOpaque) {
    const detail = 'jpeg has no transparency: it needs an opaque background';
    throw new ContractError('UNSUPPORTED_OUTPUT_FORMAT', detail);
  }
}
