/**
 * What a job needs of a node, and what a node can do of it. Nodes go by the same rules: how large a
 * result gets (proto/contract/finishing/frame.ts), and what a picture counts there
 * (proto/contract/picture-memory.ts). Pure.
 */
import { type FrameRange, frameRange } from '#contract/finishing/frame.ts';
import type { Channels, Finishing, Size } from '#contract/finishing.ts';
import type { InputFormat, OutputFormat } from '#contract/formats.ts';
import { BACKGROUND_PIXELS_MAX, IMAGE_PIXELS_MAX } from '#contract/limits.ts';
import { countedMegapixels } from '#contract/picture-memory.ts';
import type { Job, JobInput } from '../jobs/job.ts';

/** What a boot of a node can do, as it says of itself. */
export interface NodeAbility {
  /** A UUID of that start of the node's process. */
  readonly bootId: string;
  readonly inputFormats: ReadonlySet<InputFormat>;
  readonly outputFormats: ReadonlySet<OutputFormat>;
  readonly imagePixelsMax: number;
  /** The same for a JPEG XL input or output; 0: it takes none. */
  readonly jxlPixelsMax: number;
  /** The largest that it admits while nothing else is there, as `admittedMegapixels` counts. */
  readonly megapixelsAloneMax: number;
}

/** As far as they are known before the image is there. */
export interface AskedNeeds {
  /** null: the image is not there yet. */
  readonly inputFormat: InputFormat | null;
  /** As stored in the file; null where the header does not show it. */
  readonly pixels: number | null;
  readonly outputFormat: OutputFormat;
  /** Absent: a plain cut-out. */
  readonly finishing?: FinishingNeeds;
}

export interface JobNeeds extends AskedNeeds {
  readonly inputFormat: InputFormat;
}

export interface FinishingNeeds {
  readonly steps: Finishing;
  readonly channels: Channels;
  /** Pixels of the result. */
  readonly frame: FrameRange;
  /** The picture behind the subject; null where there is none, or none yet. */
  readonly background: BackgroundNeeds | null;
}

interface BackgroundNeeds {
  readonly inputFormat: InputFormat;
  readonly pixels: number;
}

/** What a job asks for; absent and null: not. */
export interface AskedOfNode {
  readonly outputFormat: OutputFormat;
  readonly channels?: Channels;
  readonly finishing?: Finishing | null | undefined;
  readonly background?: Pick<NonNullable<Job['background']>, 'input'> | null | undefined;
}

type Picture = Pick<JobInput, 'format' | 'width' | 'height'>;

/** What a node must be able to do for the job. */
export function needsOf(input: Picture, asked: AskedOfNode): JobNeeds {
  const size = sizeOf(input);
  const pixels = size === undefined ? null : size.width * size.height;
  return { inputFormat: input.format, pixels, ...askedOf(asked, size) };
}

/** The same as long as its image is not there. */
export function needsBeforeImage(asked: AskedOfNode): AskedNeeds {
  return { inputFormat: null, pixels: null, ...askedOf(asked, undefined) };
}

function askedOf(
  { outputFormat, channels = 'rgba', finishing, background }: AskedOfNode,
  size: Size | undefined,
): Pick<JobNeeds, 'outputFormat' | 'finishing'> {
  if (!finishing) return { outputFormat };
  const frame = frameRange(finishing, size, { turned: true });
  const behind = behindOf(background?.input);
  return { outputFormat, finishing: { steps: finishing, channels, frame, background: behind } };
}

/** undefined: the header does not show it. */
export function sizeOf({ width, height }: Omit<Picture, 'format'>): Size | undefined {
  return width === null || height === null ? undefined : { width, height };
}

/** Nothing is known of one that is still to be downloaded. */
function behindOf(input: Picture | null | undefined): BackgroundNeeds | null {
  if (!input) return null;
  const size = sizeOf(input);
  const pixels = size === undefined ? BACKGROUND_PIXELS_MAX : size.width * size.height;
  return { inputFormat: input.format, pixels };
}

/**
 * Megapixels that a node has to work on: an unknown size counts as the largest, a frame that is
 * larger than the image in its place.
 */
export function megapixelsOf({ pixels, finishing }: AskedNeeds): number {
  return Math.max(pixels ?? IMAGE_PIXELS_MAX, finishing?.frame.most ?? 0) / 1e6;
}

/** Megapixels that the image takes of what a node may have at once, as the node counts them. */
export function admittedMegapixels(needs: AskedNeeds): number {
  const { inputFormat, pixels, outputFormat, finishing } = needs;
  return countedMegapixels({
    inputFormat: inputFormat ?? undefined,
    outputFormat,
    resultKind: finishing?.channels === 'alpha' ? 'mask' : 'cutout',
    pixels: pixels ?? undefined,
    finishing: finishing && {
      framePixels: finishing.frame.most,
      background: finishing.background ?? undefined,
    },
  });
}

/** What keeps a node from a job, in the order in which it is looked at. */
export const SHORTFALLS = [
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
  if (inputFormat !== null && !node.inputFormats.has(inputFormat)) return 'input-format';
  if (inputFormat === 'jxl' && jxlPixelsMax <= 0) return 'input-format';
  if (pixels !== null && pixels > node.imagePixelsMax) return 'input-size';
  if (inputFormat === 'jxl' && (pixels ?? 0) > jxlPixelsMax) return 'input-size';
  if (!node.outputFormats.has(outputFormat)) return 'output-format';
  if (outputFormat === 'jxl' && jxlPixelsMax <= 0) return 'output-format';
  if (outputFormat === 'jxl' && (finishing?.frame.least ?? pixels ?? 0) > jxlPixelsMax) {
    return 'output-size';
  }
  if (finishing?.background && !reads(node, finishing.background)) return 'background';
  if (inputFormat === null) return undefined;
  return admittedMegapixels(needs) > node.megapixelsAloneMax ? 'memory' : undefined;
}

function reads(node: NodeAbility, { inputFormat, pixels }: BackgroundNeeds): boolean {
  const isRead = node.inputFormats.has(inputFormat);
  return isRead && (inputFormat !== 'jxl' || pixels <= node.jxlPixelsMax);
}

/** Whether the node can do the job at all, however long it waits. */
export function canDo(node: NodeAbility, needs: AskedNeeds): boolean {
  return shortfallOf(node, needs) === undefined;
}

/** Whether the node can do it wherever the subject turns out to be. */
export function canSurelyDo(node: NodeAbility, needs: JobNeeds): boolean {
  const most = needs.finishing?.frame.most ?? 0;
  return needs.outputFormat !== 'jxl' || most <= node.jxlPixelsMax;
}
