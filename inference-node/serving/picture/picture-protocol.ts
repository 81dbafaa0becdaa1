/**
 * Messages between the pool and a picture worker's process (frames over descriptor 3).
 *
 *   ready, then for each image:
 *   decode -> opened -> decoded,  resample -> resampled,  choose -> chosen,
 *   merge and look -> crop,  finish -> framed -> finished,  release -> settled
 *
 * `resample` comes for each further look, and `choose` before and after each extra run; `merge` once
 * if there are hints, then a `look` for each crop. `opened` comes first for a background picture,
 * where there is one; `framed` only with finishing. All but release may be answered by `failed`. One
 * message at a time, and `release` only while nothing runs: a busy worker is killed instead.
 */
import type { ErrorCode } from '@matting/proto/contract/errors.ts';
import type { Box, Size, Subject } from '@matting/proto/contract/finishing.ts';
import type { InputFormat } from '@matting/proto/contract/formats.ts';
import type { StageTimings } from '@matting/proto/contract/stages.ts';
import type { InputTerms } from '../models/input-size.ts';
import type { MatteRole } from '../models/prepared-model.ts';
import type { Choice } from './extra-runs.ts';
import type { LookInput } from './look-input.ts';
import type { FinishChoices } from './makeable.ts';
import type { Mended } from './rgba-picture.ts';

export type FinishTimings = Pick<StageTimings, 'refineMs' | 'finishMs' | 'encodeMs'>;

export interface MatteHead {
  readonly size: Size;
  readonly role: MatteRole;
  /** The part of the picture in its pixels; undefined: all of it. */
  readonly part?: Box | undefined;
}

export type ToPictureWorker =
  /** The message has one part, the file, then the files of a background and of hints, if any. */
  | {
      readonly kind: 'decode';
      readonly declared?: Size | undefined;
      readonly background?: { readonly declared?: Size | undefined } | undefined;
      readonly hints?: { readonly declared?: Size | undefined } | undefined;
      readonly modelInputs: readonly InputTerms[];
    }
  /**
   * `mattes`: of a model that refines them. One part per matte: its alpha. Of `part`, a part of the
   * picture in its pixels, or of all.
   */
  | {
      readonly kind: 'resample';
      readonly size: Size;
      readonly input?: LookInput | undefined;
      readonly part?: Box | undefined;
      readonly mattes?: readonly MatteHead[];
    }
  /** The message has one part per matte: its alpha. The last `further` mattes are of further looks. */
  | {
      readonly kind: 'choose';
      readonly mattes: readonly MatteHead[];
      readonly further: number;
      readonly isLast: boolean;
    }
  /**
   * The message has one part per matte: its alpha. If there are none, it has one part: the file of
   * a given matte. `merge` comes before a `finish` that has neither.
   */
  | {
      readonly kind: 'merge' | 'finish';
      readonly mattes: readonly MatteHead[];
      readonly choices: FinishChoices;
    }
  /** The message has one part: the model's matte of the last crop, of `size`. */
  | { readonly kind: 'look'; readonly size: Size }
  | { readonly kind: 'release' };

/** Files that a worker decodes. */
export type OpenedFile = 'image' | 'background' | 'hints';

export type FromPictureWorker =
  | { readonly kind: 'ready' }
  /** The header was read: from now on the size decides the budgets. */
  | { readonly kind: 'opened'; readonly size: Size; readonly of: OpenedFile }
  /** The message has one part per entry of modelInputs. */
  | {
      readonly kind: 'decoded';
      readonly format: InputFormat;
      readonly size: Size;
      /** For the image, else for a background. */
      readonly mended?: Mended | undefined;
      readonly decodeMs: number;
    }
  /**
   * The message has one part: HWC RGB of the size, with mattes and a trimap; none if nothing is
   * unsure.
   */
  | { readonly kind: 'resampled'; readonly resampleMs: number }
  | { readonly kind: 'chosen'; readonly choice: Choice }
  /** The model should look at this crop of the picture, in its pixels. Undefined: at none. */
  | { readonly kind: 'crop'; readonly crop?: Box | undefined; readonly refineMs: number }
  /** The size of the result is known: it counts too. */
  | { readonly kind: 'framed'; readonly size: Size }
  /**
   * The message has one part, the file, then the matte if it was wanted, then a thumbnail if it was
   * wanted and made.
   */
  | {
      readonly kind: 'finished';
      readonly size: Size;
      readonly input: Size;
      readonly subject?: Subject | undefined;
      readonly timings: FinishTimings;
    }
  | {
      readonly kind: 'failed';
      readonly code: ErrorCode;
      readonly detail: string;
      /** The codec's message; for the log. */
      readonly cause?: string | undefined;
    }
  | {
      readonly kind: 'settled';
      readonly residentBytes: number;
      /** A codec in it is broken for good: it can only be replaced. */
      readonly poisoned: boolean;
    };
