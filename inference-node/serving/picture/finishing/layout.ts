import { frameWanted, marginsOf, withinLimits } from '@matting/proto/contract/finishing/frame.ts';
import type { Box, Finishing, Size } from '@matting/proto/contract/finishing.ts';

/*
 * Lays out the result as the comments of `Finishing` in matte_service.proto say. Sides are
 * fractions, rounded once: contents are stretched by less than a pixel rather than leave a gap.
 * Unscaled pixels stay whole.
 */

export interface Layout {
  readonly frame: Size;
  /** The shown part of the input, in whole pixels unless `withSurroundings` scaled it. */
  readonly source: Box;
  readonly target: Box;
}

interface Request {
  readonly input: Size;
  /** Undefined: there is no subject, or neither crop nor scale needs it. */
  readonly subject: Box | undefined;
  readonly finishing: Finishing;
}

/** Ignores crop and scale without a subject. */
export function layOut(input: Size, subject: Box | undefined, finishing: Finishing): Layout {
  const { crop, scalePercent } = finishing;
  const usesSubject = crop !== undefined || scalePercent !== undefined;
  const request = { input, subject: usesSubject ? subject : undefined, finishing };
  const contents = contentsOf(request);
  const scale = request.subject === undefined ? 1 : (scalePercent ?? 100) / 100;
  const wanted = frameWanted(finishing, input, request.subject && contents);
  const fit = Math.min(
    (wanted.width * scale) / contents.width,
    (wanted.height * scale) / contents.height,
  );
  const alignment = alignmentOf(input, subject, finishing.position);
  const frame = withinLimits(wanted, finishing.sizeMaxMegapixels);
  const along = (axis: Axis): Span => {
    const grown = frame[axis.side] / wanted[axis.side];
    const scaled = finishing.enlarge === false ? Math.min(1, fit * grown) : fit * grown;
    const px = contents[axis.side] * scaled;
    const middlePx = (alignment[axis.side].middlePx - contents[axis.start]) * scaled;
    return spanOf(px, middlePx, frame[axis.side], alignment[axis.side].share);
  };
  return showIn(frame, input, contents, along(ACROSS), along(DOWN));
}

interface Axis {
  readonly side: 'width' | 'height';
  readonly start: 'left' | 'top';
}
const ACROSS: Axis = { side: 'width', start: 'left' };
const DOWN: Axis = { side: 'height', start: 'top' };

interface Span {
  readonly start: number;
  readonly length: number;
}

function contentsOf({ input, subject, finishing }: Request): Box {
  if (subject === undefined) return { left: 0, top: 0, ...input };
  const { crop } = finishing;
  if (crop === undefined) return subject;
  const { top, right, bottom, left } = marginsOf(subject, crop);
  return {
    left: subject.left - left,
    top: subject.top - top,
    width: subject.width + left + right,
    height: subject.height + top + bottom,
  };
}

interface Alignment {
  readonly middlePx: number;
  /**
   * `ofSpace`: share of the free space that lies before the contents, 0 to 1. `ofFrame`: position
   * of the contents' middle in the frame, the same as in the input.
   */
  readonly share: { readonly ofSpace: number } | { readonly ofFrame: number };
}

function alignmentOf(
  input: Size,
  subject: Box = { left: 0, top: 0, ...input },
  position: Finishing['position'],
): Record<Axis['side'], Alignment> {
  const percent = typeof position === 'object' ? position : { xPercent: 50, yPercent: 50 };
  const along = ({ side, start }: Axis, ofSpace: number): Alignment => {
    const middlePx = subject[start] + subject[side] / 2;
    const isOriginal = position === 'original';
    return { middlePx, share: isOriginal ? { ofFrame: middlePx / input[side] } : { ofSpace } };
  };
  return {
    width: along(ACROSS, percent.xPercent / 100),
    height: along(DOWN, percent.yPercent / 100),
  };
}

function spanOf(px: number, middlePx: number, framePx: number, share: Alignment['share']): Span {
  const length = Math.min(framePx, Math.max(1, Math.round(px)));
  const space = framePx - length;
  const start = 'ofSpace' in share ? share.ofSpace * space : share.ofFrame * framePx - middlePx;
  return { start: Math.min(space, Math.max(0, Math.round(start))), length };
}

function showIn(frame: Size, input: Size, contents: Box, across: Span, down: Span): Layout {
  const clip = ({ side, start }: Axis, span: Span) => {
    const from = Math.max(0, contents[start]);
    const to = Math.min(input[side], contents[start] + contents[side]);
    const toFrame = (px: number) =>
      span.start + Math.round(((px - contents[start]) / contents[side]) * span.length);
    const first = Math.min(span.start + span.length - 1, toFrame(from));
    const last = Math.max(first + 1, toFrame(to));
    return { from, length: to - from, first, targetLength: last - first };
  };
  const x = clip(ACROSS, across);
  const y = clip(DOWN, down);
  return {
    frame,
    source: { left: x.from, top: y.from, width: x.length, height: y.length },
    target: { left: x.first, top: y.first, width: x.targetLength, height: y.targetLength },
  };
}

export function withSurroundings({ frame, source, target }: Layout, input: Size): Layout {
  const along = ({ side, start }: Axis) => {
    const scale = source[side] / target[side];
    const toFrame = (px: number) => target[start] + Math.round((px - source[start]) / scale);
    const first = Math.max(0, toFrame(0));
    const last = Math.min(frame[side], toFrame(input[side]));
    const from = Math.max(0, source[start] + (first - target[start]) * scale);
    const to = Math.min(input[side], source[start] + (last - target[start]) * scale);
    return { from, length: to - from, first, targetLength: last - first };
  };
  const [x, y] = [along(ACROSS), along(DOWN)];
  return {
    frame,
    source: { left: x.from, top: y.from, width: x.length, height: y.length },
    target: { left: x.first, top: y.first, width: x.targetLength, height: y.targetLength },
  };
}

/** Clips to the shown part; at least a pixel. */
export function boxInResult({ source, target }: Layout, box: Box): Box {
  const along = ({ side, start }: Axis): Span => {
    const toFrame = (px: number) =>
      (Math.min(source[side], Math.max(0, px - source[start])) * target[side]) / source[side];
    const first = Math.min(target[side] - 1, Math.floor(toFrame(box[start])));
    const last = Math.max(first + 1, Math.ceil(toFrame(box[start] + box[side])));
    return { start: target[start] + first, length: last - first };
  };
  const [x, y] = [along(ACROSS), along(DOWN)];
  return { left: x.start, top: y.start, width: x.length, height: y.length };
}
