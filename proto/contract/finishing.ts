/**
 * Finishing changes a cut-out before it is encoded. This is the wire message `Finishing` of
 * matte_service.proto as the programs use it. That message's comments are the reference of each
 * field.
 */

import type { FinishingNumbers } from './finishing/table.ts';
import type { OutputFormat } from './formats.ts';

/** Exactly one of the two; at least 0. */
export type Length = { readonly px: number } | { readonly percent: number };

/** Edges, each measured from the input's left or top. */
export interface Region {
  readonly left: Length;
  readonly top: Length;
  readonly right: Length;
  readonly bottom: Length;
}

/** Margins around the subject's box; percent is of its width (left, right) or height. */
export interface CropMargins {
  readonly top: Length;
  readonly right: Length;
  readonly bottom: Length;
  readonly left: Length;
}

/** original: where the subject was in the input; else 0 to 100 of the space that is left. */
export type Position = 'original' | { readonly xPercent: number; readonly yPercent: number };

export type Background =
  /** red << 24 | green << 16 | blue << 8 | alpha, as an unsigned number; alpha is straight. */
  | { readonly kind: 'colour'; readonly rgba: number }
  /** A file that travels beside the image. */
  | { readonly kind: 'picture' }
  /** The picture's own ground, on white. */
  | { readonly kind: 'original' };

/** A soft black shadow. Lengths are % of the longer side of the subject's box in the result. */
export interface Shadow {
  /** %. */
  readonly opacity: number;
  readonly blur: number;
  readonly offsetX: number;
  readonly offsetY: number;
}

export const SHADOW = { absent: { opacity: 50, blur: 3, offsetX: 0, offsetY: 2 } } as const;

/** The subject's own box, without room around it. */
export const NO_MARGINS: CropMargins = {
  top: { px: 0 },
  right: { px: 0 },
  bottom: { px: 0 },
  left: { px: 0 },
};
/** Quality of a result if none is given. AVIF has this or better. */
export const QUALITY_ABSENT: Partial<Record<OutputFormat, number>> = {
  jpeg: 90,
  webp: 90,
  avif: 80,
};

/** rgba: the cut-out; alpha: its matte alone, in grey. */
export type Channels = 'rgba' | 'alpha';

/**
 * An absent field asks for nothing. Without any field there is no finishing: use undefined.
 * The numbers are those of the table: outputWidth and outputHeight together are at most
 * FRAME_PIXELS_MAX (limits.ts), the quality is of a cut-out in a format of QUALITY_ABSENT.
 */
export interface Finishing extends FinishingNumbers {
  readonly region?: Region;
  readonly crop?: CropMargins;
  readonly position?: Position;
  readonly background?: Background;
  /** The subject keeps its own pixels at most; the frame keeps its size. */
  readonly enlarge?: false;
  /** The proportions of the frame. Not with both output sides. */
  readonly aspectRatio?: Size;
  /** Not with the picture's own ground. */
  readonly shadow?: Shadow;
}

/** Leaves out what is undefined. */
export function given<Fields extends object>(fields: Fields) {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as {
    [Name in keyof Fields]?: NonNullable<Fields[Name]>;
  };
}

/**
 * Whether no pixel of the result stays transparent, so that a format without alpha can hold it. A
 * node lays a picture in the background on white. A field that cuts something out is judged here.
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
  /** The subject's box in the oriented input. */
  readonly inputBox: Box;
  /** The subject's box in the result, cut off at its edges. */
  readonly resultBox: Box;
  /** Share of the input's area that the subject covers, 0 to 1. */
  readonly share: number;
  /** The edges of the input cut it off; absent: they do not, or the node does not say. */
  readonly cutOff?: boolean;
  /** Much of it is neither opaque nor transparent; absent as above. */
  readonly unsure?: boolean;
}

export interface Sight {
  /** Pixels of the oriented input. */
  readonly inputWidth: number;
  readonly inputHeight: number;
  /** null: no subject. */
  readonly subject: Subject | null;
}

/** The names in answers of what callers should know before they use a result. */
const RESULT_WARNINGS = ['no_subject', 'subject_unsure', 'subject_cut_off'] as const;
export type ResultWarning = (typeof RESULT_WARNINGS)[number];

/** @param sight null: the node did not say what it saw */
export function warningsOf(sight: Sight | null): ResultWarning[] {
  if (sight === null) return [];
  const { subject } = sight;
  if (subject === null) return ['no_subject'];
  return [
    ...(subject.unsure ? (['subject_unsure'] as const) : []),
    ...(subject.cutOff ? (['subject_cut_off'] as const) : []),
  ];
}
