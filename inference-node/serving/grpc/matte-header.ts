/** Checks a Matte call's header against the contract and against what this node can do. */
import { ContractError, invalidParameter } from '@matting/proto/contract/errors.ts';
import {
  type Finishing,
  isOpaque,
  QUALITY_ABSENT,
  type Size,
} from '@matting/proto/contract/finishing.ts';
import { finishingFromProto } from '@matting/proto/contract/finishing-wire.ts';
import {
  type InputFormat,
  inputFormatFromProto,
  isTransparentFormat,
  type OutputFormat,
  outputFormatFromProto,
} from '@matting/proto/contract/formats.ts';
import { hintsFromProto } from '@matting/proto/contract/hints-wire.ts';
import {
  BACKGROUND_BYTES_MAX,
  BACKGROUND_PIXELS_MAX,
  IMAGE_BYTES_MAX,
  IMAGE_PIXELS_MAX,
  IMAGE_SIDE_PX_MAX,
  MATTE_BYTES_MAX,
} from '@matting/proto/contract/limits.ts';
import {
  type MatteFile,
  type MatteHeader,
  Priority,
  type Finishing as ProtoFinishing,
  InputFormat as ProtoInput,
  ResultKind as ProtoKind,
  OutputFormat as ProtoOutput,
  Switch,
} from '@matting/proto/gen/matting/v1/matte_service.ts';
import type { EnginePriority } from '../engine/pool/engine-pool.ts';
import type { Selectable } from '../models/selectable.ts';
import { requireJxlPixels, requireMakeable } from '../picture/makeable.ts';
import type { PictureCapabilities } from '../picture/pool/picture-pool.ts';
import type { ImageOrder, ReceivedFiles, ResultKind, RunnablePlan } from '../pipeline.ts';

const JOB_ID_LENGTH_MAX = 64;

export interface MatteOrder extends ImageOrder, FileOrder {
  readonly jobId: string;
  readonly attempt: number;
  readonly finishingOrder: FinishingOrder | undefined;
  readonly hintsFile: FileOrder | undefined;
  /** Replaces the models. */
  readonly givenMatte: ByteOrder | undefined;
  /** Refused if no engine becomes free within it. Undefined: any wait. */
  readonly waitMsMax: number | undefined;
}

export interface NodeAbilities {
  readonly plan: RunnablePlan;
  readonly selectable: Pick<Selectable, 'name' | 'kind' | 'sha256'>;
  readonly pictures: PictureCapabilities;
}

/**
 * @throws ContractError INVALID_REQUEST, IMAGE_TOO_LARGE, IMAGE_RESOLUTION_TOO_LARGE,
 * UNSUPPORTED_IMAGE_FORMAT, UNSUPPORTED_OUTPUT_FORMAT, INVALID_PARAMETER, NODE_INCAPABLE
 */
export function checkMatteHeader(header: MatteHeader, node: NodeAbilities): MatteOrder {
  if (header.jobId.length > JOB_ID_LENGTH_MAX) {
    throw invalid(`job_id must have at most ${JOB_ID_LENGTH_MAX} characters.`);
  }
  const outputFormat = readOutputFormat(header.outputFormat);
  const resultKind = readResultKind(header.resultKind);
  const file = checkFileFields(header, IMAGE, node.pictures);
  const finishingOrder = checkFinishing(
    header.finishing,
    { outputFormat, resultKind },
    node.pictures,
  );
  const hintsFile = header.hints?.picture && checkHintsFile(header.hints.picture, node.pictures);
  if (!node.pictures.outputFormats.includes(outputFormat)) {
    throw new ContractError('NODE_INCAPABLE', `This node cannot write ${outputFormat}.`);
  }
  const choices = { outputFormat, finishing: finishingOrder?.finishing };
  requireMakeable(choices, file.declared, node.pictures, { turned: true });
  return {
    jobId: header.jobId,
    attempt: header.attempt,
    ...file,
    waitMsMax: header.waitMsMax === 0 ? undefined : header.waitMsMax,
    outputFormat,
    resultKind,
    finishing: finishingOrder?.finishing,
    finishingOrder,
    backgroundDeclared: finishingOrder?.background?.declared,
    hints: header.hints && hintsFromProto(header.hints),
    hintsFile,
    hintsDeclared: hintsFile?.declared,
    cropRuns: mayRunOnCrops(header),
    matte: header.matte,
    givenMatte: header.givenMatte && checkBytes(header.givenMatte, MATTE),
    thumbnail: header.thumbnail,
    priority: readPriority(header.priority),
    plan: requirePlan(header, node),
    refinement: isOn(header.refinement),
    foregroundEstimation: isOn(header.foregroundEstimation),
  };
}

/** A given matte excludes runs, unless the caller names the plan or model that may run. */
function mayRunOnCrops({ hints, givenMatte, model, plan }: MatteHeader): boolean {
  const isHinted =
    hints !== undefined &&
    (hints.picture !== undefined || hints.keep.length + hints.erase.length > 0);
  return isHinted && (givenMatte === undefined || model + plan !== '');
}

export function filesOf({ finishingOrder, hintsFile, givenMatte, ...image }: MatteOrder) {
  const files = {
    image: { name: 'the image', file: image },
    background: { name: 'the background', file: finishingOrder?.background },
    hints: { name: 'the picture of hints', file: hintsFile },
    givenMatte: { name: 'the given matte', file: givenMatte },
  } satisfies Record<keyof ReceivedFiles, { name: string; file: ByteOrder | undefined }>;
  return Object.entries(files).flatMap(([key, { name, file }]) =>
    file === undefined ? [] : [{ key: key as keyof ReceivedFiles, name, file: file as ByteOrder }],
  );
}

function invalid(detail: string): ContractError {
  return new ContractError('INVALID_REQUEST', detail);
}

function readOutputFormat(value: ProtoOutput): OutputFormat {
  if (value === ProtoOutput.OUTPUT_FORMAT_UNSPECIFIED) return 'png';
  const format = outputFormatFromProto(value);
  if (format === undefined) {
    throw new ContractError(
      'UNSUPPORTED_OUTPUT_FORMAT',
      'This node does not know the output_format.',
    );
  }
  return format;
}

function readResultKind(value: ProtoKind): ResultKind {
  if (value === ProtoKind.RESULT_KIND_UNSPECIFIED) return 'cutout';
  if (value === ProtoKind.RESULT_KIND_CUTOUT) return 'cutout';
  if (value === ProtoKind.RESULT_KIND_MASK) return 'mask';
  throw invalid('This node does not know the result_kind.');
}

function readPriority(value: Priority): EnginePriority {
  if (value === Priority.PRIORITY_SYNC) return 'sync';
  if (value === Priority.PRIORITY_UNSPECIFIED || value === Priority.PRIORITY_ASYNC) return 'async';
  throw invalid('This node does not know the priority.');
}

function isOn(value: Switch): boolean {
  if (value === Switch.SWITCH_UNSPECIFIED || value === Switch.SWITCH_ON) return true;
  if (value === Switch.SWITCH_OFF) return false;
  throw invalid('refinement and foreground_estimation must be on, off or unspecified.');
}

/** The node's plan, if the header names it or none. A model may be named as a plan. */
function requirePlan(header: MatteHeader, { plan, selectable }: NodeAbilities): RunnablePlan {
  const { model, plan: planName, selectableSha256: sha256 } = header;
  if (planName !== '' && model !== '')
    throw invalid('The header names a plan and a model. Name one of them.');
  const kind = model === '' ? 'plan' : 'model';
  const name = planName || model || plan.name;
  // Does not repeat the name, which is the caller's text.
  if (name !== selectable.name || (model !== '' && selectable.kind === 'plan')) {
    const detail = `This node does not have this ${kind}. It serves: ${selectable.name}.`;
    throw new ContractError('NODE_INCAPABLE', detail);
  }
  if (sha256 !== '' && sha256 !== selectable.sha256) {
    throw new ContractError('NODE_INCAPABLE', `This node has another ${kind} under this name.`);
  }
  return plan;
}

interface FinishingOrder {
  readonly finishing: Finishing;
  readonly background: FileOrder | undefined;
  readonly message: ProtoFinishing;
}

function checkFinishing(
  message: ProtoFinishing | undefined,
  result: Pick<ImageOrder, 'outputFormat' | 'resultKind'>,
  pictures: PictureCapabilities,
): FinishingOrder | undefined {
  if (message === undefined) {
    if (isTransparentFormat(result.outputFormat)) return undefined;
    const detail = `output_format ${result.outputFormat} needs finishing.`;
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
  finishing: Finishing,
  { outputFormat, resultKind }: Pick<ImageOrder, 'outputFormat' | 'resultKind'>,
): void {
  const { background, quality, shadow } = finishing;
  if (resultKind === 'mask' && background !== undefined) {
    throw new ContractError('INVALID_REQUEST', 'A MASK cannot have a background.');
  }
  if (resultKind === 'mask' && shadow !== undefined) throw invalid('A MASK cannot have a shadow.');
  const isLossy = resultKind === 'cutout' && QUALITY_ABSENT[outputFormat] !== undefined;
  if (quality !== undefined && !isLossy) {
    throw invalid('finishing.quality needs a CUTOUT as JPEG, WebP or AVIF.');
  }
  if (resultKind === 'mask' && outputFormat === 'zip') {
    throw new ContractError('UNSUPPORTED_OUTPUT_FORMAT', 'output_format zip needs a CUTOUT.');
  }
  if (outputFormat === 'jpeg' && !isOpaque(finishing)) {
    const detail = 'output_format jpeg has no transparency. Send an opaque background.';
    throw new ContractError('UNSUPPORTED_OUTPUT_FORMAT', detail);
  }
}

const SHA256_BYTES = 32;

type FileFields = Pick<
  MatteHeader,
  'contentLength' | 'sha256' | 'inputFormat' | 'width' | 'height'
>;

export interface ByteOrder {
  readonly contentLength: number;
  readonly sha256: Buffer | undefined;
}

interface FileOrder extends ByteOrder {
  /** Declared format, to count memory. The bytes decide the format. */
  readonly inputFormat: InputFormat | undefined;
  /** Declared size. The decoder refuses a larger image. */
  readonly declared: Size | undefined;
}

interface FileKind {
  readonly name: string;
  readonly prefix: string;
  readonly bytesMax: number;
  readonly pixelsMax: number;
}

const IMAGE: FileKind = {
  name: 'The image',
  prefix: '',
  bytesMax: IMAGE_BYTES_MAX,
  pixelsMax: IMAGE_PIXELS_MAX,
};
const HINTS: FileKind = {
  name: 'The picture of hints',
  prefix: 'hints.picture.',
  bytesMax: BACKGROUND_BYTES_MAX,
  pixelsMax: BACKGROUND_PIXELS_MAX,
};
const MATTE: FileKind = {
  name: 'The given matte',
  prefix: 'given_matte.',
  bytesMax: MATTE_BYTES_MAX,
  pixelsMax: IMAGE_PIXELS_MAX,
};
const BACKGROUND: FileKind = {
  name: 'The background',
  prefix: 'background_picture.',
  bytesMax: BACKGROUND_BYTES_MAX,
  pixelsMax: BACKGROUND_PIXELS_MAX,
};

function checkFileFields(
  fields: FileFields,
  kind: FileKind,
  pictures: PictureCapabilities,
): FileOrder {
  const declared = readDeclared(fields, kind);
  return {
    ...checkBytes(fields, kind),
    inputFormat: readFormat(fields.inputFormat, kind, declared, pictures),
    declared,
  };
}

function checkHintsFile(fields: FileFields, pictures: PictureCapabilities): FileOrder {
  const file = checkFileFields(fields, HINTS, pictures);
  const { inputFormat } = file;
  if (inputFormat === undefined || inputFormat === 'png' || inputFormat === 'webp') return file;
  throw invalidParameter('hints_file', 'must be PNG or WebP');
}

function checkBytes({ contentLength, sha256 }: MatteFile, kind: FileKind): ByteOrder {
  if (contentLength === 0) throw invalidFile(kind, 'content_length must not be 0.');
  if (contentLength > kind.bytesMax) {
    const detail = `${kind.name} is too large. The limit is ${kind.bytesMax} bytes.`;
    throw new ContractError('IMAGE_TOO_LARGE', detail);
  }
  if (sha256.length !== 0 && sha256.length !== SHA256_BYTES) {
    throw invalidFile(kind, `sha256 must be empty or have ${SHA256_BYTES} bytes.`);
  }
  return { contentLength, sha256: sha256.length === 0 ? undefined : Buffer.from(sha256) };
}

function invalidFile({ prefix }: FileKind, detail: string): ContractError {
  return new ContractError('INVALID_REQUEST', `${prefix}${detail}`);
}

function readDeclared({ width, height }: FileFields, kind: FileKind): Size | undefined {
  if (width === 0 && height === 0) return undefined;
  if (width === 0 || height === 0) {
    throw invalidFile(kind, 'width and height must be given together.');
  }
  if (width > IMAGE_SIDE_PX_MAX || height > IMAGE_SIDE_PX_MAX) {
    const detail = `${kind.name} has too many pixels. The limit is ${IMAGE_SIDE_PX_MAX} pixels per side.`;
    throw new ContractError('IMAGE_RESOLUTION_TOO_LARGE', detail);
  }
  if (width * height > kind.pixelsMax) {
    const detail = `${kind.name} has too many pixels. The limit is ${kind.pixelsMax} pixels.`;
    throw new ContractError('IMAGE_RESOLUTION_TOO_LARGE', detail);
  }
  return { width, height };
}

/** Another node may have the codec. If nothing is declared, the decoder decides. */
function readFormat(
  value: ProtoInput,
  kind: FileKind,
  declared: Size | undefined,
  pictures: PictureCapabilities,
): InputFormat | undefined {
  const format = inputFormatFromProto(value);
  if (format === undefined && value !== ProtoInput.INPUT_FORMAT_UNSPECIFIED) {
    const detail = `This node does not know the ${kind.prefix}input_format.`;
    throw new ContractError('UNSUPPORTED_IMAGE_FORMAT', detail);
  }
  if (format !== undefined && !pictures.inputFormats.includes(format)) {
    throw new ContractError('NODE_INCAPABLE', `This node cannot read ${format}.`);
  }
  if (format === 'jxl' && declared !== undefined) {
    requireJxlPixels(declared.width * declared.height, pictures.jxlPixelsMax);
  }
  return format;
}
