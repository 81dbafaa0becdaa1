import { regionIn, requireFrame } from '@matting/proto/contract/finishing/frame.ts';
import type { Size, Subject } from '@matting/proto/contract/finishing.ts';
import type { OutputFormat } from '@matting/proto/contract/formats.ts';
import { encodePixels } from '../codecs/encode.ts';
import { encodeThumbnail } from '../codecs/thumbnail.ts';
import { type Backdrop, backdropOf } from '../finishing/backdrop.ts';
import { drawShadow, frameCutOut, framePlane, isWhole } from '../finishing/draw-frame.ts';
import { boxInResult, type Layout, layOut, withSurroundings } from '../finishing/layout.ts';
import { type CastShadow, castShadow } from '../finishing/shadow.ts';
import { findSubject } from '../finishing/subject.ts';
import { type FinishChoices, jxlPixelsMax, requireJxlPixels } from '../makeable.ts';
import { estimateForeground } from '../matte/foreground.ts';
import type { RoleMatte } from '../matte/merge-mattes.ts';
import { applyAlpha, clearOutside, multiplySourceAlpha } from '../matte/picture-alpha.ts';
import { pastePart, spreadAlpha } from '../matte/picture-part.ts';
import { refineMerged, stretchMerged } from '../matte/refine.ts';
import type { FinishTimings } from '../picture-protocol.ts';
import { freePixels, type RawPixels, type RgbaPicture, viewAsBytes } from '../rgba-picture.ts';
import { writeMatte } from './matte-file.ts';
import {
  applyHints,
  type MatteSources,
  type MergedSources,
  mergeSources,
} from './merge-sources.ts';

interface FinishedFile {
  readonly file: Buffer;
  readonly thumbnail: Buffer | undefined;
  readonly matte: Buffer | undefined;
  readonly size: Size;
  readonly subject: Subject | undefined;
  readonly timings: FinishTimings;
}

interface FinishExtras extends Omit<MatteSources, 'mattes'> {
  /** Set if the mattes were merged before; `mattes` is then empty. */
  readonly mergedSources?: MergedSources | undefined;
  /** The finishing's background picture. Its pixels are overwritten and freed. */
  readonly background?: RgbaPicture | undefined;
  /** Called with the size of the result before it is made. */
  readonly onFramed?: (frame: Size) => void;
}

type Step = (work: Work) => void | Promise<void>;

/** The steps of each timing, in order. A step returns at once if the request does not need it. */
const STEPS: Readonly<Record<keyof FinishTimings, readonly Step[]>> = {
  refineMs: [
    requireUnframed,
    merge,
    storeMatte,
    refine,
    recolour,
    placePart,
    keepSourceAlpha,
    clearRegions,
    locateSubject,
    cutOut,
  ],
  finishMs: [layOutFrame, showSurroundings, prepareBackdrop, shade, drawInPlace, drawMask, draw],
  encodeMs: [encodeSmall, encode],
};

/**
 * Frees the picture's pixels.
 * @throws ContractError NODE_INCAPABLE, PROCESSING_FAILED, INVALID_PARAMETER
 */
export async function finishPicture(
  picture: RgbaPicture,
  mattes: readonly RoleMatte[],
  choices: FinishChoices,
  extras: FinishExtras = {},
): Promise<FinishedFile> {
  const work = { picture, mattes, choices, extras } as Work;
  const timings = { refineMs: 0, finishMs: 0, encodeMs: 0 };
  for (const [timing, steps] of Object.entries(STEPS) as [keyof FinishTimings, Step[]][]) {
    const startedMs = performance.now();
    for (const step of steps) await step(work);
    freeUnused(work);
    timings[timing] = performance.now() - startedMs;
  }
  if (choices.finishing === undefined) timings.finishMs = 0;
  const { file, thumbnail, matte, subject } = work;
  const { width, height } = work.pixels!;
  return { file: file!, thumbnail, matte, size: { width, height }, subject, timings };
}

/** The steps set all fields that are not readonly, in this order. */
interface Work {
  readonly picture: RgbaPicture;
  readonly mattes: readonly RoleMatte[];
  readonly choices: FinishChoices;
  readonly extras: FinishExtras;
  sources: MergedSources;
  matte?: Buffer;
  /** Covers the part that the sources show; from `placePart` on, the whole picture. */
  alpha: Buffer;
  subject?: Subject;
  layout?: Layout;
  backdrop?: Backdrop | undefined;
  shadow?: CastShadow;
  pixels?: RawPixels;
  thumbnail?: Buffer | undefined;
  file?: Buffer;
}

/** After drawing, steps read only the result's pixels; after encoding, none. */
function freeUnused({ picture, sources, alpha, extras, pixels, file }: Work): void {
  if (pixels === undefined) return;
  const planes = [picture.rgba, sources.view.rgba, sources.merged.alpha, alpha, pixels.data];
  if (extras.background !== undefined) planes.push(extras.background.rgba);
  for (const plane of planes) {
    if (file !== undefined || plane.buffer !== pixels.data.buffer) freePixels(plane);
  }
}

/** The result shows the picture as it was: the matte decides only its frame. */
function keepsGround({ choices }: Work): boolean {
  return choices.finishing?.background?.kind === 'original';
}

function isCutOut(work: Work): boolean {
  return work.choices.resultKind === 'cutout' && !keepsGround(work);
}

function requireUnframed({ picture, choices: { finishing, outputFormat } }: Work): void {
  if (finishing === undefined) requireWritable(outputFormat, picture);
}

function merge(work: Work): void {
  const { picture, mattes, choices, extras } = work;
  const { mergedSources, given, hintsPlane } = extras;
  work.sources = mergedSources ?? mergeSources(picture, { mattes, given, hintsPlane }, choices);
  applyHints(work.sources, picture);
}

async function storeMatte(work: Work): Promise<void> {
  if (work.choices.matte) work.matte = await writeMatte(work.sources);
}

function refine(work: Work): void {
  const { merged, view } = work.sources;
  work.alpha = (work.choices.refinement ? refineMerged : stretchMerged)(merged, view);
}

/** Uses the model's alpha, by which the background was mixed in, not the file's own. */
function recolour(work: Work): void {
  if (!isCutOut(work) || !work.choices.foregroundEstimation) return;
  estimateForeground(work.sources.view, work.alpha);
}

function placePart(work: Work): void {
  const { part, view } = work.sources;
  if (part === undefined) return;
  pastePart(view, work.picture, part);
  work.alpha = spreadAlpha(work.alpha, part, work.picture);
}

function keepSourceAlpha({ alpha, picture }: Work): void {
  multiplySourceAlpha(alpha, picture);
}

function clearRegions({ alpha, picture, choices: { hints, finishing } }: Work): void {
  for (const region of [hints?.subjectBox, finishing?.region]) {
    if (region !== undefined) clearOutside(alpha, picture, regionIn(picture, region));
  }
}

function locateSubject(work: Work): void {
  const seen = findSubject(work.alpha, work.picture);
  if (seen === undefined) return;
  const { box, share, unsure, cutOff } = seen;
  work.subject = { inputBox: box, resultBox: box, share, unsure, cutOff };
}

function cutOut(work: Work): void {
  if (isCutOut(work)) applyAlpha(work.picture, work.alpha);
}

function layOutFrame(work: Work): void {
  const { picture, subject, extras } = work;
  const { finishing, outputFormat } = work.choices;
  if (finishing === undefined) return;
  const layout = layOut(picture, subject?.inputBox, finishing);
  requireFrame(finishing, picture, layout.frame.width * layout.frame.height);
  requireWritable(outputFormat, layout.frame);
  extras.onFramed?.(layout.frame);
  work.layout = layout;
  if (subject === undefined) return;
  work.subject = { ...subject, resultBox: boxInResult(layout, subject.inputBox) };
}

function showSurroundings(work: Work): void {
  if (work.layout === undefined || !keepsGround(work)) return;
  work.layout = withSurroundings(work.layout, work.picture);
}

function prepareBackdrop(work: Work): void {
  const { finishing, outputFormat } = work.choices;
  work.backdrop = backdropOf(finishing?.background, work.extras.background, outputFormat);
}

function shade(work: Work): void {
  const { alpha, picture, layout, subject } = work;
  const shadow = work.choices.finishing?.shadow;
  if (shadow === undefined || layout === undefined || subject === undefined) return;
  work.shadow = castShadow(alpha, picture, { layout, subject: subject.inputBox, shadow });
}

/** Needs no further pixels: nothing is framed, or the frame changes nothing. */
function drawInPlace(work: Work): void {
  const { picture, layout, backdrop, shadow, alpha } = work;
  if (layout !== undefined && (!isWhole(layout, picture) || backdrop !== undefined)) return;
  if (shadow !== undefined) drawShadow(picture.rgba, picture, shadow, 'beneath');
  const { rgba, width, height } = picture;
  work.pixels =
    work.choices.resultKind === 'mask'
      ? { data: alpha, width, height, channels: 1 }
      : { data: viewAsBytes(rgba), width, height, channels: 4 };
}

function drawMask(work: Work): void {
  const { pixels, layout, choices, alpha, picture } = work;
  if (pixels !== undefined || layout === undefined || choices.resultKind !== 'mask') return;
  work.pixels = { data: framePlane(alpha, picture, layout), ...layout.frame, channels: 1 };
}

function draw(work: Work): void {
  const { pixels, layout, picture, backdrop, shadow } = work;
  if (pixels !== undefined || layout === undefined) return;
  const { rgba } = frameCutOut(picture, layout, { backdrop, shadow });
  work.pixels = { data: viewAsBytes(rgba), ...layout.frame, channels: 4 };
}

/**
 * Comes before the file, whose encoder may overwrite the pixels. The result does not depend on it,
 * so the log gets its error.
 */
async function encodeSmall(work: Work): Promise<void> {
  if (!work.choices.thumbnail) return;
  try {
    work.thumbnail = await encodeThumbnail(work.pixels!);
  } catch (error) {
    console.error(`no thumbnail: ${(error as Error).message}`);
  }
}

async function encode(work: Work): Promise<void> {
  const { outputFormat, finishing } = work.choices;
  work.file = await encodePixels(work.pixels!, outputFormat, finishing?.quality);
}

function requireWritable(outputFormat: OutputFormat, { width, height }: Size): void {
  if (outputFormat === 'jxl') requireJxlPixels(width * height, jxlPixelsMax());
}
