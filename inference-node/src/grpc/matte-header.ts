/** Checks a Matte call's header against the contract and against what this node can do. */
import { ContractError } from '#contract/errors.ts';
import {
  type InputFormat,
  inputFormatFromProto,
  isTransparentFormat,
  type OutputFormat,
  outputFormatFromProto,
} from '#contract/formats.ts';
import { IMAGE_BYTES_MAX, IMAGE_PIXELS_MAX, IMAGE_SIDE_PX_MAX } from '#contract/limits.ts';
import {
  type MatteHeader,
  Priority,
  InputFormat as ProtoInput,
  ResultKind as ProtoKind,
  OutputFormat as ProtoOutput,
  Switch,
} from '#gen/matting/v1/matte_service.ts';
import type { EnginePriority } from '../engine/pool/engine-pool.ts';
import type { PictureCapabilities } from '../picture/pool/picture-pool.ts';
import type { Size } from '../picture/size.ts';
import type { ImageOrder, ResultKind, RunnablePlan } from '../pipeline.ts';

const JOB_ID_LENGTH_MAX = 64;
const SHA256_BYTES = 32;

/** A header that passed its checks. */
export interface MatteOrder extends ImageOrder {
  readonly jobId: string;
  readonly attempt: number;
  readonly contentLength: number;
  /** Undefined: not to be checked. */
  readonly sha256: Buffer | undefined;
  /** Refused where no engine would take it within this; undefined: however long it waits. */
  readonly waitMsMax: number | undefined;
  /** As the caller declared it, if it did: for the memory's count. The bytes decide the format. */
  readonly inputFormat: InputFormat | undefined;
}

/** The operator's choices. */
export interface PictureDefaults {
  readonly refinement: boolean;
  readonly foregroundEstimation: boolean;
}

/** What a node can be asked for. */
export interface NodeAbilities {
  /** Where a header names none. */
  readonly plan: RunnablePlan;
  /** Every plan this node has the models for, `plan` among them. */
  readonly plans: readonly RunnablePlan[];
  /** Where a header leaves them open. */
  readonly defaults: PictureDefaults;
  readonly pictures: PictureCapabilities;
}

/**
 * @throws ContractError INVALID_REQUEST, IMAGE_TOO_LARGE, IMAGE_RESOLUTION_TOO_LARGE,
 *   UNSUPPORTED_IMAGE_FORMAT, UNSUPPORTED_OUTPUT_FORMAT, NODE_INCAPABLE
 */
export function checkMatteHeader(header: MatteHeader, node: NodeAbilities): MatteOrder {
  if (header.jobId.length > JOB_ID_LENGTH_MAX) {
    throw invalid(`job_id has more than ${JOB_ID_LENGTH_MAX} characters`);
  }
  if (header.contentLength === 0) throw invalid('content_length is 0');
  if (header.contentLength > IMAGE_BYTES_MAX) {
    throw new ContractError('IMAGE_TOO_LARGE', `the file has more than ${IMAGE_BYTES_MAX} bytes`);
  }
  const { sha256 } = header;
  if (sha256.length !== 0 && sha256.length !== SHA256_BYTES) {
    throw invalid(`sha256 is neither empty nor ${SHA256_BYTES} bytes`);
  }
  const outputFormat = readOutputFormat(header.outputFormat);
  const declared = readDeclared(header);
  requireCodecs(header, outputFormat, declared, node.pictures);
  return {
    jobId: header.jobId,
    attempt: header.attempt,
    contentLength: header.contentLength,
    sha256: sha256.length === 0 ? undefined : Buffer.from(sha256),
    waitMsMax: header.waitMsMax === 0 ? undefined : header.waitMsMax,
    declared,
    inputFormat: inputFormatFromProto(header.inputFormat),
    outputFormat,
    resultKind: readResultKind(header.resultKind),
    priority: readPriority(header.priority),
    plan: requirePlan(header, node),
    refinement: readSwitch(header.refinement, node.defaults.refinement),
    foregroundEstimation: readSwitch(
      header.foregroundEstimation,
      node.defaults.foregroundEstimation,
    ),
  };
}

function invalid(detail: string): ContractError {
  return new ContractError('INVALID_REQUEST', detail);
}

function readOutputFormat(value: ProtoOutput): OutputFormat {
  if (value === ProtoOutput.OUTPUT_FORMAT_UNSPECIFIED) return 'png';
  const format = outputFormatFromProto(value);
  if (format === undefined) {
    throw new ContractError('UNSUPPORTED_OUTPUT_FORMAT', 'output_format is not known here');
  }
  if (!isTransparentFormat(format)) {
    const detail = `${format} is written of a result with finishing only`;
    throw new ContractError('UNSUPPORTED_OUTPUT_FORMAT', detail);
  }
  return format;
}

function readDeclared({ width, height }: MatteHeader): Size | undefined {
  if (width === 0 && height === 0) return undefined;
  if (width === 0 || height === 0)
    throw invalid('width and height are given together or not at all');
  if (width > IMAGE_SIDE_PX_MAX || height > IMAGE_SIDE_PX_MAX) {
    throw new ContractError(
      'IMAGE_RESOLUTION_TOO_LARGE',
      `the image has more than ${IMAGE_SIDE_PX_MAX} pixels a side`,
    );
  }
  if (width * height > IMAGE_PIXELS_MAX) {
    throw new ContractError(
      'IMAGE_RESOLUTION_TOO_LARGE',
      `the image has more than ${IMAGE_PIXELS_MAX} pixels`,
    );
  }
  return { width, height };
}

function readResultKind(value: ProtoKind): ResultKind {
  if (value === ProtoKind.RESULT_KIND_UNSPECIFIED) return 'cutout';
  if (value === ProtoKind.RESULT_KIND_CUTOUT) return 'cutout';
  if (value === ProtoKind.RESULT_KIND_MASK) return 'mask';
  throw invalid('result_kind is not known here');
}

function readPriority(value: Priority): EnginePriority {
  if (value === Priority.PRIORITY_SYNC) return 'sync';
  if (value === Priority.PRIORITY_UNSPECIFIED || value === Priority.PRIORITY_ASYNC) return 'async';
  throw invalid('priority is not known here');
}

/** Another node may have the codec; without a declared format or size the decoder decides. */
function requireCodecs(
  header: MatteHeader,
  outputFormat: OutputFormat,
  declared: Size | undefined,
  pictures: PictureCapabilities,
): void {
  const given = header.inputFormat;
  const inputFormat = inputFormatFromProto(given);
  if (inputFormat === undefined && given !== ProtoInput.INPUT_FORMAT_UNSPECIFIED) {
    throw new ContractError('UNSUPPORTED_IMAGE_FORMAT', 'input_format is not known here');
  }
  if (inputFormat !== undefined && !pictures.inputFormats.includes(inputFormat)) {
    throw new ContractError('NODE_INCAPABLE', `this node cannot read ${inputFormat}`);
  }
  if (!pictures.outputFormats.includes(outputFormat)) {
    throw new ContractError('NODE_INCAPABLE', `this node cannot write ${outputFormat}`);
  }
  const jxl = inputFormat === 'jxl' || outputFormat === 'jxl';
  if (jxl && declared !== undefined) {
    if (declared.width * declared.height > pictures.jxlPixelsMax) {
      throw new ContractError(
        'NODE_INCAPABLE',
        `this node takes JPEG XL up to ${pictures.jxlPixelsMax} pixels`,
      );
    }
  }
}

function readSwitch(value: Switch, otherwise: boolean): boolean {
  if (value === Switch.SWITCH_UNSPECIFIED) return otherwise;
  if (value === Switch.SWITCH_ON) return true;
  if (value === Switch.SWITCH_OFF) return false;
  throw invalid('refinement and foreground_estimation are on, off or unspecified');
}

/** The node's plan, another it has the models for, or one of its models alone. */
function requirePlan({ model, plan: name }: MatteHeader, node: NodeAbilities): RunnablePlan {
  if (name !== '') {
    if (model !== '') throw invalid('a header names a plan or a model, not both');
    const plan = node.plans.find(candidate => candidate.name === name);
    // The name is the caller's text: the status does not repeat it.
    if (plan === undefined)
      throw new ContractError('NODE_INCAPABLE', 'this node does not have that plan');
    return plan;
  }
  const { plan } = node;
  if (model === '') return plan;
  const run = plan.runs.find(candidate => candidate.model.model === model);
  if (run === undefined) throw new ContractError('NODE_INCAPABLE', 'this node has not that model');
  return plan.runs.length === 1 ? plan : { name: model, runs: [{ ...run, role: 'subject' }] };
}
