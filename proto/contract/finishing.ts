/** The wire message `Finishing` in the programs. matte_service.proto describes each field. */

import type { FinishingNumbers } from './finishing/table.ts';
import type { OutputFormat } from './formats.ts';

/** At least 0. */
export type Length = { readonly px: number } | { readonly percent: number };

/** Distances from the input's left or top. */
export interface Region {
  readonly left: Length;
  readonly top: Length;
  readonly right: Length;
  readonly bottom: Length;
}

/** Around the subject's box; percent of its width (left, right) or height. */
export interface CropMargins {
  readonly top: Length;
  readonly right: Length;
  readonly bottom: Length;
  readonly left: Length;
}

/** original: as in the input; otherwise 0 to 100 of the remaining space. */
export type Position = 'original' | { readonly xPercent: number; readonly yPercent: number };

export type Background =
  /** red << 24 | green << 16 | blue << 8 | alpha, unsigned; straight alpha. */
  | { readonly kind: 'colour'; readonly rgba: number }
  /** A file next to the image. */
  | { readonly kind: 'picture' }
  /** The picture's own background, on white. */
  | { readonly kind: 'original' };

/** Lengths are % of the longer side of the subject's box in the result. */
export interface Shadow {
  /** %. */
  readonly opacity: number;
  readonly blur: number;
  readonly offsetX: number;
  readonly offsetY: number;
}

export const SHADOW = { absent: { opacity: 50, blur: 3, offsetX: 0, offsetY: 2 } } as const;

export const NO_MARGINS: CropMargins = {
  top: { px: 0 },
  right: { px: 0 },
  bottom: { px: 0 },
  left: { px: 0 },
};
/** Default quality. AVIF has this or better. */
export const QUALITY_ABSENT: Partial<Record<OutputFormat, number>> = {
  jpeg: 90,
  webp: 90,
  avif: 80,
};

/** alpha: the matte alone, in grey. */
export type Channels = 'rgba' | 'alpha';

/**
 * Absent fields change nothing; without any field use undefined. outputWidth and outputHeight
 * together are at most FRAME_PIXELS_MAX. The quality applies to cut-outs in formats of
 * QUALITY_ABSENT.
 */
export interface Finishing extends FinishingNumbers {
  readonly region?: Region;
  readonly crop?: CropMargins;
  readonly position?: Position;
  readonly background?: Background;
  /** The subject is not enlarged; the frame keeps its size. */
  readonly enlarge?: false;
  /** The frame's proportions. Not with both output sides. */
  readonly aspectRatio?: Size;
  /** Not with the picture's own background. */
  readonly shadow?: Shadow;
}

export function given<Fields extends object>(fields: Fields) {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as {
    [Name in keyof Fields]?: NonNullable<Fields[Name]>;
  };
}

/**
 * No pixel of the result is transparent, so a format without alpha can hold it. A node puts a
 * background picture on white.
 */
export function isOpaque(finishing: Finishing | undefined): boolean {
  const background = finishing?.background;
  if (background === undefined) return false;
  return background.kind !== 'colour' || (background.rgba & 0xff) === 0xff;
}

export interface Size {
  readonly width: number;
  readonly height: number;
}

export interface Box {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

export interface Subject {
  /** In the oriented input. */
  readonly inputBox: Box;
  /** In the result, clipped at its edges. */
  readonly resultBox: Box;
  /** Covered share of the input's area, 0 to 1. */
  readonly share: number;
  /** At an edge of the input. Absent: no, or not reported. */
  readonly cutOff?: boolean;
  /** Much of it is half transparent. Absent: no, or not reported. */
  readonly unsure?: boolean;
}

export interface Sight {
  /** Of the oriented input, in pixels. */
  readonly inputWidth: number;
  readonly inputHeight: number;
  /** null: no subject. */
  readonly subject: Subject | null;
}

/** Warnings for callers, before they use a result. */
const RESULT_WARNINGS = ['no_subject', 'subject_unsure', 'subject_cut_off'] as const;
export type ResultWarning = (typeof RESULT_WARNINGS)[number];

/** @param sight null: not reported */
export function warningsOf(sight: Sight | null): ResultWarning[] {
  if (sight === null) return [];
  const { subject } = sight;
  if (subject === null) return ['no_subject'];
  return [
    ...(subject.unsure ? (['subject_unsure'] as const) : []),
    ...(subject.cutOff ? (['subject_cut_off'] as const) : []),
  ];
}
