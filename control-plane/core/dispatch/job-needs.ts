/**
 * Decides what a job needs of a node and what keeps a node from it, by the rules of proto/contract
 * that nodes use. Pure.
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

export interface AskedNeeds {
  /** null: the image is not there yet. */
  readonly inputFormat: InputFormat | null;
  /** Pixels as stored in the file; null if the header does not show them. */
  readonly pixels: number | null;
  readonly outputFormat: OutputFormat;
  /** If it is absent, the result is a plain cut-out. */
  readonly finishing?: FinishingNeeds;
  /** The plan or model that it names; absent: the default. */
  readonly model?: string;
  /** Capabilities that the node must have for hints and mattes; absent: none. */
  readonly capabilities?: readonly Capability[];
  /** The file of hints that are a picture; absent: there is none. */
  readonly hintsFile?: FileNeeds;
  /** A wish, which `settleCropRun` makes needs of where a node can do it. */
  readonly cropRun?: CropRun | undefined;
}

interface FileNeeds {
  readonly inputFormat: InputFormat;
  readonly pixels: number;
}

export interface JobNeeds extends AskedNeeds {
  readonly inputFormat: InputFormat;
}

interface FinishingNeeds {
  readonly steps: Finishing;
  readonly channels: Channels;
  readonly frame: FrameRange;
  /** null: none, or none yet. */
  readonly background: FileNeeds | null;
}

export interface AskedOfNode {
  readonly outputFormat: OutputFormat;
  readonly channels?: Channels;
  readonly finishing?: Finishing | null | undefined;
  readonly background?: Pick<JobBackground, 'input'> | null | undefined;
  readonly model?: string | null | undefined;
  /** true: some, not known which. */
  readonly hints?: Hints | true | null | undefined;
  readonly hintsFile?: Picture | null | undefined;
  readonly correctable?: FamilyJob['correctable'] | undefined;
  readonly correction?: Pick<JobCorrection, 'cropRun'> | null | undefined;
}

export type Picture = Pick<JobInput, 'format' | 'width' | 'height'>;

export function needsOf(input: Picture, asked: AskedOfNode): JobNeeds {
  const size = sizeOf(input);
  const pixels = size === undefined ? null : size.width * size.height;
  return { inputFormat: input.format, pixels, ...askedOf(asked, size) };
}

export function needsBeforeImage(asked: AskedOfNode): AskedNeeds {
  return { inputFormat: null, pixels: null, ...askedOf(asked, undefined) };
}

function askedOf(
  asking: AskedOfNode,
  size: Size | undefined,
): Omit<AskedNeeds, 'inputFormat' | 'pixels'> {
  const { outputFormat, channels = 'rgba', finishing, background, model, correction } = asking;
  const named = {
    ...(model ? { model } : {}),
    ...(correction?.cropRun && { cropRun: correction.cropRun }),
  };
  const asked = { outputFormat, ...named, ...hintNeeds(asking) };
  if (!finishing) return asked;
  const frame = frameRange(finishing, size, { turned: true });
  const behind = fileNeeds(background?.input);
  return { ...asked, finishing: { steps: finishing, channels, frame, background: behind } };
}

function hintNeeds({ hints, hintsFile, correctable }: AskedOfNode): Partial<AskedNeeds> {
  if (!hints && !correctable) return {};
  const file = fileNeeds(hintsFile);
  const ofHints = hints === true ? ANY_HINTS : capabilitiesOfHints(hints ?? {});
  const capabilities = [...ofHints, ...(correctable ? (['matte'] as const) : [])];
  return { capabilities, ...(file && { hintsFile: file }) };
}

/** Nodes that follow one of them follow all but many points: the run of the job judges those. */
const ANY_HINTS: readonly Capability[] = ['hints.keep'];

function fileNeeds(input: Picture | null | undefined): FileNeeds | null {
  if (!input) return null;
  const size = sizeOf(input);
  const pixels = size === undefined ? BACKGROUND_PIXELS_MAX : size.width * size.height;
  return { inputFormat: input.format, pixels };
}

/** Counts as the node counts the megapixels that it may have at once. */
export function admittedMegapixels(needs: AskedNeeds): number {
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

/** A shortfall keeps a node from a job; they stand in the order in which dispatch looks at them. */
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

/** Undefined: it can do it, however long it waits. What is not known is given a chance. */
export function shortfallOf(node: NodeAbility, needs: AskedNeeds): Shortfall | undefined {
  const { inputFormat, pixels, outputFormat, finishing } = needs;
  const { jxlPixelsMax } = node;
  const { model } = needs;
  if (model === undefined ? node.onlyByName : !node.models?.has(model)) return 'model';
  if (unknownTo(node, needs) !== undefined) return 'field';
  if (inputFormat !== null && !node.inputFormats.has(inputFormat)) return 'input-format';
  if (inputFormat === 'jxl' && jxlPixelsMax <= 0) return 'input-format';
  if (pixels !== null && pixels > node.imagePixelsMax) return 'input-size';
  if (inputFormat === 'jxl' && (pixels ?? 0) > jxlPixelsMax) return 'input-size';
  if (!node.outputFormats.has(outputFormat)) return 'output-format';
  if (outputFormat === 'jxl' && jxlPixelsMax <= 0) return 'output-format';
  if (outputFormat === 'jxl' && (finishing?.frame.least ?? pixels ?? 0) > jxlPixelsMax) {
    return 'output-size';
  }
  const behind = finishing?.background;
  if (behind && !node.inputFormats.has(behind.inputFormat)) return 'background';
  if (behind?.inputFormat === 'jxl' && behind.pixels > jxlPixelsMax) return 'background';
  if (inputFormat === null) return undefined;
  return admittedMegapixels(needs) > node.megapixelsAloneMax ? 'memory' : undefined;
}

/** The first field of the request that the node does not follow. */
export function unknownTo(
  { capabilities }: NodeAbility,
  { finishing, capabilities: others = [] }: AskedNeeds,
): Capability | undefined {
  const needed = [...capabilitiesOfFinishing(finishing?.steps ?? {}), ...others];
  return needed.find(it => !capabilities?.has(it));
}

export function canDo(node: NodeAbility, needs: AskedNeeds): boolean {
  return shortfallOf(node, needs) === undefined;
}

/** Wherever the subject turns out to be. */
export function canSurelyDo(node: NodeAbility, needs: JobNeeds): boolean {
  const most = needs.finishing?.frame.most ?? 0;
  return needs.outputFormat !== 'jxl' || most <= node.jxlPixelsMax;
}
