import { existsSync } from 'node:fs';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { frameRange, requireFrame } from '@matting/proto/contract/finishing/frame.ts';
import type { Finishing, Size } from '@matting/proto/contract/finishing.ts';
import type { OutputFormat } from '@matting/proto/contract/formats.ts';
import type { Hints } from '@matting/proto/contract/hints.ts';
import { IMAGE_PIXELS_MAX } from '@matting/proto/contract/limits.ts';
import { WASM_PIXELS_MAX } from '@matting/proto/contract/picture-memory.ts';
import { temporaryFailure } from './children/temporary-files.ts';

export interface FinishChoices {
  /** An edge-aware filter refines the matte to the picture's pixels. False: it is stretched. */
  readonly refinement: boolean;
  readonly foregroundEstimation: boolean;
  readonly outputFormat: OutputFormat;
  /** mask: one 8-bit channel, the matte at full size. */
  readonly resultKind: 'cutout' | 'mask';
  /** Undefined: the result has the input's size and no background. */
  readonly finishing?: Finishing | undefined;
  readonly thumbnail?: boolean | undefined;
  readonly hints?: Hints | undefined;
  /** The merged matte is wanted, for corrections. */
  readonly matte?: boolean | undefined;
}

/**
 * Rejects a request that the node could not fulfil for any subject.
 * @throws ContractError INVALID_PARAMETER, NODE_INCAPABLE
 */
export function requireMakeable(
  { outputFormat, finishing }: Pick<FinishChoices, 'outputFormat' | 'finishing'>,
  input: Size | undefined,
  { jxlPixelsMax }: { readonly jxlPixelsMax: number },
  { turned }: { readonly turned: boolean },
): void {
  const { least } = frameRange(finishing ?? {}, input, { turned });
  if (finishing !== undefined && input !== undefined) requireFrame(finishing, input, least);
  if (outputFormat === 'jxl') requireJxlPixels(least, jxlPixelsMax);
}

/** @throws ContractError NODE_INCAPABLE */
export function requireJxlPixels(pixels: number, jxlPixelsMax: number): void {
  if (pixels <= jxlPixelsMax) return;
  const detail = `This node reads and writes JPEG XL up to ${jxlPixelsMax} pixels.`;
  throw new ContractError('NODE_INCAPABLE', detail);
}

export const DJXL = '/usr/bin/djxl';
export const CJXL = '/usr/bin/cjxl';
/** From util-linux; kills the started program when its parent dies. */
export const SETPRIV = '/usr/bin/setpriv';
export const SHELL = '/bin/sh';

interface JxlTools {
  readonly isInstalled: boolean;
  readonly failure: string | undefined;
}

let tools: JxlTools | undefined;

export function jxlTools(): JxlTools {
  tools ??= findJxlTools();
  return tools;
}

function findJxlTools(): JxlTools {
  const isInstalled = [DJXL, CJXL, SETPRIV, SHELL, '/proc/self/fd'].every(existsSync);
  return { isInstalled, failure: isInstalled ? temporaryFailure() : undefined };
}

export function hasJxlTools(): boolean {
  const { isInstalled, failure } = jxlTools();
  return isInstalled && failure === undefined;
}

export function jxlPixelsMax(): number {
  return hasJxlTools() ? IMAGE_PIXELS_MAX : WASM_PIXELS_MAX;
}
