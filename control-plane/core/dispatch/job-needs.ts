/**
 * Computes a job's needs, and which of them a node lacks, by the rules that nodes use. Pure.
 */

import type { NodeAbility } from '@matting/nodes/node-view.ts';
import {
  type Capability,
  capabilitiesOfFinishing,
  capabilitiesOfHints,
} from '@matting/proto/contract/capabilities.ts';
import { type FrameRange, frameRange } from '@matting/proto/contract/finishing/frame.ts';
import type { Channels, Finishing, Size } from '@matting/proto/contract/finishing.ts';
import type { InputFormat, OutputFormat } from '@matting/proto/contract/formats.ts';
import type { Hints } from '@matting/proto/contract/hints.ts';
import { BACKGROUND_PIXELS_MAX } from '@matting/proto/contract/limits.ts';
import { countedMegapixels } from '@matting/proto/contract/picture-memory.ts';
import type { CropRun, FamilyJob, JobCorrection } from '../jobs/job-family.ts';
import { type JobBackground, type JobInput, sizeOf } from '../jobs/job-request.ts';

export interface RequestNeeds {
  /** null before the image has come. */
  readonly inputFormat: InputFormat | null;
  readonly pixels: number | null;
  readonly outputFormat: OutputFormat;
  /** Absent: a plain cut-out. */
  readonly finishing?: FinishingNeeds;
  /** Absent: the default plan. */
  readonly model?: string;
  /** Capabilities for hints, mattes and crops. `finishing` implies others. */
  readonly capabilities?: readonly Capability[];
  readonly hintsFile?: FileNeeds;
  /** Not a need yet: `settleCropRun` turns it into one or drops it. */
  readonly cropRun?: CropRun | undefined;
}

interface FileNeeds {
  readonly inputFormat: InputFormat;
  readonly pixels: number;
}

export interface JobNeeds extends RequestNeeds {
  readonly inputFormat: InputFormat;
}

interface FinishingNeeds {
  readonly steps: Finishing;
  readonly channels: Channels;
  readonly frame: FrameRange;
  /** null: there is none, or the picture has not come yet. */
  readonly background: FileNeeds | null;
}

export interface ProcessingOptions {
  readonly outputFormat: OutputFormat;
  readonly channels?: Channels;
  readonly finishing?: Finishing | null | undefined;
  readonly background?: Pick<JobBackground, 'input'> | null | undefined;
  readonly model?: string | null | undefined;
  /** true: the job has hints, and the queue's list does not contain their shapes. */
  readonly hints?: Hints | true | null | undefined;
  readonly hintsFile?: Picture | null | undefined;
  readonly correctable?: FamilyJob['correctable'] | undefined;
  readonly correction?: Pick<JobCorrection, 'cropRun'> | null | undefined;
}

export type Picture = Pick<JobInput, 'format' | 'width' | 'height'>;

export function needsOf(input: Picture, options: ProcessingOptions): JobNeeds {
  const size = sizeOf(input);
  const pixels = size === undefined ? null : size.width * size.height;
  return { inputFormat: input.format, pixels, ...optionNeeds(options, size) };
}

export function needsBeforeImage(options: ProcessingOptions): RequestNeeds {
  return { inputFormat: null, pixels: null, ...optionNeeds(options, undefined) };
}

function optionNeeds(
  options: ProcessingOptions,
  size: Size | undefined,
): Omit<RequestNeeds, 'inputFormat' | 'pixels'> {
  const { outputFormat, channels = 'rgba', finishing, model, correction } = options;
  const needs = {
    outputFormat,
    ...(model ? { model } : {}),
    ...(correction?.cropRun && { cropRun: correction.cropRun }),
    ...hintNeeds(options),
  };
  if (!finishing) return needs;
  const frame = frameRange(finishing, size, { turned: true });
  const background = fileNeeds(options.background?.input);
  return { ...needs, finishing: { steps: finishing, channels, frame, background } };
}

function hintNeeds({ hints, hintsFile, correctable }: ProcessingOptions): Partial<RequestNeeds> {
  if (!hints && !correctable) return {};
  const file = fileNeeds(hintsFile);
  const ofHints = hints === true ? ANY_HINTS : capabilitiesOfHints(hints ?? {});
  const capabilities = [...ofHints, ...(correctable ? (['matte'] as const) : [])];
  return { capabilities, ...(file && { hintsFile: file }) };
}

/** A node with one of these can follow any hints, except many points, which `JobRun` checks. */
const ANY_HINTS: readonly Capability[] = ['hints.keep'];

function fileNeeds(input: Picture | null | undefined): FileNeeds | null {
  if (!input) return null;
  const size = sizeOf(input);
  const pixels = size === undefined ? BACKGROUND_PIXELS_MAX : size.width * size.height;
  return { inputFormat: input.format, pixels };
}

/** Counts as the node's admission does. */
export function admittedMegapixels(needs: RequestNeeds): number {
  const { inputFormat, pixels, outputFormat, finishing } = needs;
  return countedMegapixels({
    inputFormat: inputFormat ?? undefined,
    outputFormat,
    resultKind: finishing?.channels === 'alpha' ? 'mask' : 'cutout',
    pixels: pixels ?? undefined,
    hints: needs.hintsFile,
    finishing: finishing && {
      framePixels: finishing.frame.most,
      background: finishing.background ?? undefined,
    },
  });
}

/** In the order of the checks. */
export const SHORTFALLS = [
  'model',
  'field',
  'input-format',
  'input-size',
  'output-format',
  'output-size',
  'background',
  'memory',
] as const;
export type Shortfall = (typeof SHORTFALLS)[number];

/** Undefined: the node can do the job, as far as its needs are known. */
export function shortfallOf(node: NodeAbility, needs: RequestNeeds): Shortfall | undefined {
  const { inputFormat, pixels, outputFormat, finishing } = needs;
  const { jxlPixelsMax } = node;
  const { model } = needs;
  if (model === undefined ? node.onlyByName : !node.models?.has(model)) return 'model';
  if (missingCapability(node, needs) !== undefined) return 'field';
  if (inputFormat !== null && !node.inputFormats.has(inputFormat)) return 'input-format';
  if (inputFormat === 'jxl' && jxlPixelsMax <= 0) return 'input-format';
  if (pixels !== null && pixels > node.imagePixelsMax) return 'input-size';
  if (inputFormat === 'jxl' && (pixels ?? 0) > jxlPixelsMax) return 'input-size';
  if (!node.outputFormats.has(outputFormat)) return 'output-format';
  if (outputFormat === 'jxl' && jxlPixelsMax <= 0) return 'output-format';
  if (outputFormat === 'jxl' && (finishing?.frame.least ?? pixels ?? 0) > jxlPixelsMax) {
    return 'output-size';
  }
  const background = finishing?.background;
  if (background && !node.inputFormats.has(background.inputFormat)) return 'background';
  if (background?.inputFormat === 'jxl' && background.pixels > jxlPixelsMax) return 'background';
  if (inputFormat === null) return undefined;
  return admittedMegapixels(needs) > node.megapixelsAloneMax ? 'memory' : undefined;
}

export function missingCapability(
  { capabilities }: NodeAbility,
  { finishing, capabilities: others = [] }: RequestNeeds,
): Capability | undefined {
  const needed = [...capabilitiesOfFinishing(finishing?.steps ?? {}), ...others];
  return needed.find(it => !capabilities?.has(it));
}

export function canDo(node: NodeAbility, needs: RequestNeeds): boolean {
  return shortfallOf(node, needs) === undefined;
}

/** Compares the largest possible result, since its size may depend on where the subject is. */
export function canWriteAnyFrame(node: NodeAbility, needs: JobNeeds): boolean {
  const most = needs.finishing?.frame.most ?? 0;
  return needs.outputFormat !== 'jxl' || most <= node.jxlPixelsMax;
}
