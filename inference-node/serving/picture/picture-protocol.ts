/**
 * Messages between the pool and a picture worker's process (frames over descriptor 3). `ready`,
 * then for each image:
 *
 * decode -> opened -> decoded, resample -> resampled, choose -> chosen,
 * merge and takeCrop -> crop, finish -> framed -> finished, release -> settled
 *
 * A background picture's `opened` comes first; `framed` only with finishing. All but release may be
 * answered by `failed`. One message at a time, and `release` only while nothing runs: a busy worker
 * is killed instead.
 */
import type { ErrorCode } from '@matting/proto/contract/errors.ts';
import type { Box, Size, Subject } from '@matting/proto/contract/finishing.ts';
import type { InputFormat } from '@matting/proto/contract/formats.ts';
import type { StageTimings } from '@matting/proto/contract/stages.ts';
import type { InputTerms } from '../models/input-size.ts';
import type { MatteRole } from '../models/prepared-model.ts';
import type { Choice } from './extra-runs.ts';
import type { FinishChoices } from './makeable.ts';
import type { Mended } from './rgba-picture.ts';
import type { RunInput } from './run-input.ts';

export type FinishTimings = Pick<StageTimings, 'refineMs' | 'finishMs' | 'encodeMs'>;

export interface MatteHead {
  readonly size: Size;
  readonly role: MatteRole;
  /** In the picture's pixels; undefined: all of it. */
  readonly part?: Box | undefined;
}

export type ToPictureWorker =
  /** Parts: the file, then a background's and hints', if any. */
  | {
      readonly kind: 'decode';
      readonly declared?: Size | undefined;
      readonly background?: { readonly declared?: Size | undefined } | undefined;
      readonly hints?: { readonly declared?: Size | undefined } | undefined;
      readonly modelInputs: readonly InputTerms[];
    }
  /**
   * `mattes`: for a model that refines them; each has a part, its alpha. `part`: in the picture's
   * pixels; undefined: all of it.
   */
  | {
      readonly kind: 'resample';
      readonly size: Size;
      readonly input?: RunInput | undefined;
      readonly part?: Box | undefined;
      readonly mattes?: readonly MatteHead[];
    }
  /** A part per matte: its alpha. The last `further` mattes are of further runs. */
  | {
      readonly kind: 'choose';
      readonly mattes: readonly MatteHead[];
      readonly further: number;
      readonly isLast: boolean;
    }
  /** A part per matte: its alpha; or the file of a given matte; none for `finish` after `merge`. */
  | {
      readonly kind: 'merge' | 'finish';
      readonly mattes: readonly MatteHead[];
      readonly choices: FinishChoices;
    }
  /** One part: the model's matte of the last crop. */
  | { readonly kind: 'takeCrop'; readonly size: Size }
  | { readonly kind: 'release' };

export type OpenedFile = 'image' | 'background' | 'hints';

export type FromPictureWorker =
  | { readonly kind: 'ready' }
  /** From now on the size decides the budgets. */
  | { readonly kind: 'opened'; readonly size: Size; readonly of: OpenedFile }
  /** A part per entry of modelInputs. */
  | {
      readonly kind: 'decoded';
      readonly format: InputFormat;
      readonly size: Size;
      /** The image's, else the background's. */
      readonly mended?: Mended | undefined;
      readonly decodeMs: number;
    }
  /** One part: HWC RGB, with a trimap if mattes were given; none if nothing is unsure. */
  | { readonly kind: 'resampled'; readonly resampleMs: number }
  | { readonly kind: 'chosen'; readonly choice: Choice }
  /** For the model's next run, in the picture's pixels; undefined: none. */
  | { readonly kind: 'crop'; readonly crop?: Box | undefined; readonly refineMs: number }
  /** The result's size, known only now, raises the budgets. */
  | { readonly kind: 'framed'; readonly size: Size }
  /** Parts: the file, then the matte and a thumbnail if they were wanted and made. */
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
      readonly cause?: string | undefined;
    }
  | {
      readonly kind: 'settled';
      readonly residentBytes: number;
      /** A codec is broken for good. */
      readonly poisoned: boolean;
    };
