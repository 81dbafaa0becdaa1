/** Checks a Matte call's header against the contract and against what this node can do. */
import { ContractError } from '#contract/errors.ts';
import { type OutputFormat, outputFormatFromProto } from '#contract/formats.ts';
import {
  type MatteHeader,
  Priority,
  ResultKind as ProtoKind,
  OutputFormat as ProtoOutput,
  Switch,
} from '#gen/matting/v1/matte_service.ts';
import type { EnginePriority } from '../engine/pool/engine-pool.ts';
import { requireMakeable } from '../picture/makeable.ts';
import type { PictureCapabilities } from '../picture/pool/picture-pool.ts';
import type { ImageOrder, ResultKind, RunnablePlan } from '../pipeline.ts';
import { checkFileFields, type FileOrder, IMAGE } from './file-header.ts';
import { checkFinishing, type FinishingOrder } from './finishing-header.ts';

const JOB_ID_LENGTH_MAX = 64;

/** A header that passed its checks. */
export interface MatteOrder extends ImageOrder, FileOrder {
  readonly jobId: string;
  readonly attempt: number;
  /** Undefined: the result is a plain cut-out or matte. */
  readonly asked: FinishingOrder | undefined;
  /** Refused where no engine would take it within this; undefined: however long it waits. */
  readonly waitMsMax: number | undefined;
  /** Where the storage is that has the files; undefined: the caller sends and takes their bytes. */
  readonly directOrigin: string | undefined;
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
 * @param directOrigin the header's, as it was checked.
 * @throws ContractError INVALID_REQUEST, IMAGE_TOO_LARGE, IMAGE_RESOLUTION_TOO_LARGE,
 *   UNSUPPORTED_IMAGE_FORMAT, UNSUPPORTED_OUTPUT_FORMAT, INVALID_PARAMETER, NODE_INCAPABLE
 */
export function checkMatteHeader(
  header: MatteHeader,
  node: NodeAbilities,
  directOrigin?: string,
): MatteOrder {
  if (header.jobId.length > JOB_ID_LENGTH_MAX) {
    throw invalid(`job_id has more than ${JOB_ID_LENGTH_MAX} characters`);
  }
  const outputFormat = readOutputFormat(header.outputFormat);
  const resultKind = readResultKind(header.resultKind);
  const file = checkFileFields(header, IMAGE, node.pictures);
  const asked = checkFinishing(header.finishing, { outputFormat, resultKind }, node.pictures);
  requireEncoder(outputFormat, node.pictures);
  const choices = { outputFormat, finishing: asked?.finishing };
  requireMakeable(choices, file.declared, node.pictures, { turned: true });
  return {
    jobId: header.jobId,
    directOrigin,
    attempt: header.attempt,
    ...file,
    waitMsMax: header.waitMsMax === 0 ? undefined : header.waitMsMax,
    outputFormat,
    resultKind,
    finishing: asked?.finishing,
    asked,
    backgroundDeclared: asked?.background?.declared,
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
  return format;
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

function requireEncoder(outputFormat: OutputFormat, pictures: PictureCapabilities): void {
  if (pictures.outputFormats.includes(outputFormat)) return;
  throw new ContractError('NODE_INCAPABLE', `this node cannot write ${outputFormat}`);
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
